"""Continuous batching as its smallest engines have it: a queue, a list of who runs, a block table a sequence, all
of it Python objects. One tenant, no classes, no prefix cache, no ledger: what a step costs without policy.

Of nano-vllm's shape (schedule, run, postprocess), written for this comparison.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class PlainSequence:
    tokens: list[int]
    prompt: int
    limit: int
    blocks: list[int] = field(default_factory=list)
    computed: int = 0


class PlainBatcher:
    """`step` gives what a model would be given: token ids, positions, and where keys and values go."""

    def __init__(self, slots: int, blocks: int, block_tokens: int, step_tokens: int) -> None:
        self.slots, self.block_tokens, self.step_tokens = slots, block_tokens, step_tokens
        self.free = deque(range(blocks))
        self.waiting: deque[PlainSequence] = deque()
        self.running: deque[PlainSequence] = deque()

    def add(self, sequence: PlainSequence) -> None:
        self.waiting.append(sequence)

    def step(self) -> int:
        """How many tokens were computed."""
        scheduled, prefill = self.schedule()
        inputs = self.prepare(scheduled, prefill)
        self.postprocess(scheduled, [7] * len(scheduled))
        return len(inputs[0])

    def schedule(self) -> tuple[list[PlainSequence], bool]:
        """Prompts first, whole; a token of everybody else where there is none."""
        scheduled: list[PlainSequence] = []
        tokens = 0
        while self.waiting and len(self.running) < self.slots:
            sequence = self.waiting[0]
            needed = -(-len(sequence.tokens) // self.block_tokens)
            if tokens + len(sequence.tokens) > self.step_tokens or len(self.free) < needed:
                break
            tokens += len(sequence.tokens)
            sequence.blocks = [self.free.popleft() for _ in range(needed)]
            self.running.append(self.waiting.popleft())
            scheduled.append(sequence)
        if scheduled:
            return scheduled, True
        while self.running and len(scheduled) < self.slots:
            sequence = self.running.popleft()
            while len(sequence.blocks) * self.block_tokens < len(sequence.tokens) and not self.free:
                self.preempt(self.running.pop() if self.running else sequence)
            if len(sequence.blocks) * self.block_tokens < len(sequence.tokens):
                sequence.blocks.append(self.free.popleft())
            scheduled.append(sequence)
        self.running.extendleft(reversed(scheduled))
        return scheduled, False

    def preempt(self, sequence: PlainSequence) -> None:
        self.free.extend(sequence.blocks)
        sequence.blocks.clear()
        self.waiting.appendleft(sequence)

    def prepare(self, scheduled: list[PlainSequence], prefill: bool) -> tuple[list[int], list[int], list[int]]:
        """The step's input, as lists."""
        ids: list[int] = []
        positions: list[int] = []
        places: list[int] = []
        size = self.block_tokens
        for sequence in scheduled:
            last = len(sequence.tokens) - 1
            if prefill:
                ids += sequence.tokens
                positions += range(last + 1)
                for at, block in enumerate(sequence.blocks):
                    places += range(block * size, block * size + min(size, last + 1 - at * size))
            else:
                ids.append(sequence.tokens[-1])
                positions.append(last)
                places.append(sequence.blocks[-1] * size + last % size)
        return ids, positions, places

    def postprocess(self, scheduled: list[PlainSequence], drawn: list[int]) -> None:
        for sequence, token in zip(scheduled, drawn, strict=True):
            sequence.tokens.append(token)
            if len(sequence.tokens) - sequence.prompt >= sequence.limit:
                self.running.remove(sequence)
                self.free.extend(sequence.blocks)
