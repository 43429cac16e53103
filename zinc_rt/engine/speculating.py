"""Speculation for a model on a device: whether its answers remain the same to the bit, a draft model, and the
model's own layer for next-token prediction (MTP)."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from pathlib import Path

import numpy as np

from zinc_rt.engine.engine import Engine, Sequence
from zinc_rt.engine.prefill import TOLERANCES, has_same_stages
from zinc_rt.engine.runner import Runner, StepOutput, take_block
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.mem.context_bytes import count_state_row_bytes
from zinc_rt.model.arch.qwen_hybrid import PREVIOUS_HIDDEN
from zinc_rt.model.builder import HIDDEN
from zinc_rt.sched.kv.kv_cache import UNSET
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.speculation import Drafter, DraftTask, NgramDrafter, SpeculationOptions


def check_speculation(engine: Engine) -> None:
    """Check that a token's logits do not depend on the other tokens of its step. Raises UsageError, with the
    reason, for an ordering or a setting with which they do."""
    ordering = engine.backend.ordering
    if TOLERANCES[ordering]:
        raise UsageError(
            f"speculation would change the answers: in {ordering}, a token's logits depend on the other tokens of "
            "its step",
            next="--ordering canonical-1, or --speculate off",
        )
    if not has_same_stages(engine):
        raise UsageError(
            "speculation would change the answers: ZINC_QWEN36_DECODE_TOPK uses fewer experts for single tokens",
            next="unset ZINC_QWEN36_DECODE_TOPK",
        )


def open_drafter(engine: Engine, options: SpeculationOptions, open_draft: Callable[[str], Engine]) -> Drafter:
    """Return the drafter for a model. `open_draft` opens the file of a draft model. Raises UsageError as
    `check_speculation`, UnsupportedError for a draft model with another vocabulary."""
    check_speculation(engine)
    if options.kind == "ngram":
        return NgramDrafter()
    if options.kind == "mtp":
        return MtpDrafter()
    draft = open_draft(options.file)
    try:
        return ModelDrafter(draft, engine)
    except BaseException:
        draft.close()
        raise


class MtpDrafter:
    """Drafts the most likely tokens by the MTP layer of the model itself, whose limits have `mtp`.

    Each step of the model stores the layer's keys and values of its tokens, and `keep_states` keeps the hidden
    states of the step's rows. `states`: by request, the position of the first and the states, f32 [rows, width].
    A draft is one run of the layer for the last token, from the hidden state of the token before it; the next one
    continues from the layer's own hidden state. The next step of the model replaces the keys and values of drafts.
    """

    def __init__(self) -> None:
        self.states: dict[tuple[int, int], tuple[int, np.ndarray]] = {}
        self._runner: Runner | None = None

    def keep_states(self, runner: Runner, plan: StepPlan, output: StepOutput) -> None:
        """Keep the hidden states of a step's rows, and the runner, which computes drafts until the next step."""
        self._runner = runner
        rows, decodes = plan.logit_row[: plan.rows], plan.decode_set
        states, first = output.read(HIDDEN)[rows], plan.row_position[: plan.rows] - 1
        if decodes is not None and plan.decodes:
            starts = np.searchsorted(plan.row_slot[: plan.decode_rows], decodes.slots)
            keys = zip(decodes.numbers.tolist(), decodes.choices.tolist(), strict=True)
            parts = np.split(states[: plan.decode_rows], starts[1:])
            for key, start, part in zip(keys, starts.tolist(), parts, strict=True):
                self.states[key] = int(first[start]), part
        drawing = (piece.request for piece in plan.prompts if piece.draws)
        for row, request in enumerate(drawing, plan.decode_rows):
            self.states[request.number, request.choice] = int(first[row]), states[row : row + 1]

    def propose(self, tasks: abc.Sequence[DraftTask]) -> list[list[int]]:
        drafts: list[list[int]] = [[] for _ in tasks]
        known = {index: state for index, task in enumerate(tasks) if (state := self._find_state(task)) is not None}
        while known:
            tokens, states = self._draft(tasks, drafts, known)
            for index, token in zip(known, tokens.tolist(), strict=True):
                drafts[index].append(token)
            known = {
                index: state
                for index, state in zip(known, states, strict=True)
                if len(drafts[index]) < tasks[index].most
            }
        return drafts

    def forget(self, number: int, choice: int) -> None:
        self.states.pop((number, choice), None)

    def close(self) -> None:
        self.states.clear()

    def _find_state(self, task: DraftTask) -> np.ndarray | None:
        """Return the hidden state of the token before a request's last one, f32 [width]; None if not kept."""
        first, states = self.states.get(_task_key(task), (0, ()))
        row = len(task.tokens) - 2 - first
        return states[row] if 0 <= row < len(states) else None

    def _draft(
        self, tasks: abc.Sequence[DraftTask], drafts: list[list[int]], known: dict[int, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the next draft of each task with a hidden state in `known`, i32 [n], and the hidden states after
        them, f32 [n, width]. The first draft of a step sends the changes of the page table."""
        assert self._runner is not None
        limits = self._runner.variants.limits
        plan = StepPlan(limits.slots, limits.slots, 1)
        for index in known:
            task = tasks[index]
            position, token = len(task.tokens) - 1 + len(drafts[index]), [*task.tokens[-1:], *drafts[index]][-1]
            row = plan.add_sequence(task.slot, [token], position, (UNSET, UNSET))
            plan.add_row(row, task.slot, position + 1)
            if not drafts[index]:
                first = task.slot * limits.pages_per_slot
                of_slot = range(first, first + limits.pages_per_slot)
                plan.table_changes[0].update({at: page for at, page in task.changes.items() if at in of_slot})
        block = take_block(self._runner.variants.draft_variant(plan.rows, len(plan.table_changes[0])))
        block.fill(plan)
        block.views[PREVIOUS_HIDDEN][: plan.rows] = list(known.values())
        output = self._runner.collect(self._runner.submit(block))
        return output.tokens, output.read(HIDDEN).copy()


class ModelDrafter:
    """Drafts the most likely tokens of a smaller model. `sequences`: of the draft model by request, the least
    recently used first; rejected drafts are dropped from them. It owns the draft model's engine."""

    def __init__(self, draft: Engine, target: Engine) -> None:
        name, other = Path(draft.model.gguf.path).name, Path(target.model.gguf.path).name
        tokens = [engine.model.gguf.metadata.get("tokenizer.ggml.tokens") for engine in (draft, target)]
        if draft.model.vocab != target.model.vocab or tokens[0] != tokens[1]:
            raise UnsupportedError(
                f"the draft model {name} has another vocabulary than {other}",
                next="use a smaller model of the same family, or --speculate ngram",
            )
        if count_state_row_bytes(draft.model.graph):
            raise UnsupportedError(
                f"the draft model {name} has recurrent state, so it cannot drop rejected tokens",
                next="use another draft model, or --speculate ngram",
            )
        self._draft = draft
        self.sequences: dict[tuple[int, int], Sequence] = {}

    def propose(self, tasks: abc.Sequence[DraftTask]) -> list[list[int]]:
        drafts: list[list[int]] = [[] for _ in tasks]
        room = self._draft.limits.ctx
        active = [index for index, task in enumerate(tasks) if len(task.tokens) + task.most <= room + 1]
        inputs = {index: self._catch_up(tasks[index]) for index in active}
        while active:
            batch = [(self.sequences[_task_key(tasks[index])], inputs[index]) for index in active]
            ends, total = [], 0
            for _, tokens in batch:
                total += len(tokens)
                ends.append(total - 1)
            chosen = self._draft.advance(batch, ends).tokens.tolist()
            for index, token in zip(active, chosen, strict=True):
                drafts[index].append(token)
                inputs[index] = [token]
            active = [index for index in active if len(drafts[index]) < tasks[index].most]
        return drafts

    def forget(self, number: int, choice: int) -> None:
        if (sequence := self.sequences.pop((number, choice), None)) is not None:
            self._draft.release(sequence)

    def close(self) -> None:
        self._draft.close()

    def _catch_up(self, task: DraftTask) -> list[int]:
        """Bring the request's sequence to its tokens, except the last ones, which are returned."""
        key, tokens = _task_key(task), task.tokens.tolist()
        sequence = self.sequences.pop(key, None)
        if sequence is not None:
            pairs = enumerate(zip(sequence.tokens, tokens, strict=False))
            common = next((at for at, (ours, theirs) in pairs if ours != theirs), sequence.position)
            if not self._draft.rewind(sequence, min(common, len(tokens) - 1)):
                self._draft.release(sequence)
                sequence = None
        if sequence is None:
            if len(self.sequences) == self._draft.limits.slots:
                self.forget(*next(iter(self.sequences)))
            sequence = self._draft.open()
        self.sequences[key] = sequence
        rest = tokens[sequence.position :]
        kept = 1 + self._draft.limits.step_tokens // self._draft.limits.slots // 2
        if len(rest) > kept:
            self._draft.extend(sequence, rest[:-kept], rows="last")
        return rest[-kept:]


def _task_key(task: DraftTask) -> tuple[int, int]:
    return task.number, task.choice
