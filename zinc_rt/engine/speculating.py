"""Speculation for a model on a device: whether its answers remain the same to the bit, and a draft model."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable
from pathlib import Path

from zinc_rt.engine.engine import Engine, Sequence
from zinc_rt.engine.prefill import TOLERANCES, has_same_stages
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.mem.context_bytes import count_state_row_bytes
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
    draft = open_draft(options.file)
    try:
        return ModelDrafter(draft, engine)
    except BaseException:
        draft.close()
        raise


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
