"""A runner that compares the logits of each row with the request's solo run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zinc_rt.engine.embedding import HiddenStates
from zinc_rt.ir.slot_record import SlotState
from zinc_rt.sched.checks.shadow import ShadowDevice
from zinc_rt.sched.mixes.mix import RequestKey
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.scheduler import StepRunner
from zinc_rt.sched.usage.ledger import RunnerCounts
from zinc_rt.validate.isolation.alone import SoloAnswer
from zinc_rt.validate.isolation.story import MixTrace

LATE = -1  # the token of a row whose mask was late


@dataclass(frozen=True, slots=True)
class RowDivergence:
    """The first row of a request that differs from its solo run. `values` of its `kind` differ, the first at
    `index`; 0 if only the token drawn from them differs.
    """

    who: RequestKey
    step: int
    slot: int
    position: int
    values: int
    index: int
    got: float
    wanted: float
    kind: str = "logits"

    @property
    def what(self) -> str:
        if not self.values:
            return f"token {self.got:g}, alone {self.wanted:g}, from logits that are equal to the bit"
        return (
            f"{self.values} {self.kind} differ, the first is {self.index}: {self.got:.9g}, alone {self.wanted:.9g}"
        )


@dataclass(slots=True)
class StepWitness:
    """A StepRunner that wraps another one, with a shadow device that tracks what would be read. `rows` counts
    compared rows, `compared` embeddings of `states`; `diverged` is each request's first divergence.
    """

    inner: StepRunner
    records: np.ndarray
    solo_answers: Mapping[RequestKey, SoloAnswer]
    shadow: ShadowDevice
    states: HiddenStates | None = None  # of an embedding model
    story: MixTrace = field(default_factory=MixTrace)
    diverged: dict[RequestKey, RowDivergence] = field(default_factory=dict)
    rows: int = 0
    compared: int = 0
    tokens: int = 0
    bound: int = 0  # slots at once, at most
    _logits: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def compare_step(self, plan: StepPlan, logits: np.ndarray) -> None:
        """Compare the step's rows of logits, f32 [rows, V]; the wrapped runner calls this when it collects a
        step.
        """
        self._logits = logits.copy()

    def submit(self, plan: StepPlan) -> object:
        numbers, choices = self.records["request"].tolist(), self.records["choice"].tolist()
        who = list(zip(numbers, choices, strict=True))
        of = _list_certain_tokens(plan)
        self.story.step(who, plan.slot[of], plan.sequence[of], plan.position[of])
        self.tokens += plan.tokens
        self.bound = max(self.bound, int((self.records["state"] != SlotState.FREE).sum()))
        self.shadow.submit(plan)
        drawn = [(who[slot], slot) for slot in plan.row_slot[: plan.rows].tolist()]
        inputs = plan.token_id[plan.logit_row[: plan.rows]].tolist()
        return self.inner.submit(plan), plan, drawn, plan.row_position[: plan.rows].tolist(), inputs

    def collect(self, handle: Any) -> Drawn:
        inner, plan, drawn, positions, inputs = handle
        collected = self.inner.collect(inner)
        self.shadow.record_drawn(plan, collected.tokens.tolist())
        rejected, tokens = -1, collected.tokens.tolist()  # the slot whose further rows follow a wrong draft
        for row, ((who, slot), position) in enumerate(zip(drawn, positions, strict=True)):
            if row and drawn[row - 1][1] == slot:
                rejected = slot if inputs[row] != tokens[row - 1] else rejected
            if slot != rejected:  # a step without tokens only samples rows whose masks were late
                self._compare_row(who, slot, position, self._logits[row] if plan.tokens else None, tokens[row])
                self._compare_embedding(who, slot, position)
        return collected

    @property
    def counts(self) -> RunnerCounts:
        return self.inner.counts

    def reopen(self) -> bool:
        return self.inner.reopen() and self.shadow.reopen()

    def _compare_row(
        self, request: RequestKey, slot: int, position: int, logits: np.ndarray | None, token: int
    ) -> None:
        """Compare a row with its solo run: logits, None for one that was compared in an earlier step, and the
        token, -1 for one that is sampled in a later step."""
        solo_answer = self.solo_answers.get(request)
        if solo_answer is None or request in self.diverged:
            return
        at = position - solo_answer.first
        if not 0 <= at < len(solo_answer.rows):
            return
        self.rows += logits is not None
        expected = solo_answer.rows[at]
        logits = expected if logits is None else logits
        wrong = _find_different(logits, expected)
        if not wrong.size and token in (LATE, solo_answer.tokens[at]):
            return
        index = int(wrong[0]) if wrong.size else -1
        got, alike = (logits[index], expected[index]) if wrong.size else (token, solo_answer.tokens[at])
        step = len(self.story.steps)
        self.diverged[request] = RowDivergence(
            request, step, slot, position, wrong.size, index, float(got), float(alike)
        )

    def _compare_embedding(self, request: RequestKey, slot: int, position: int) -> None:
        """Compare a text's embedding with its solo run."""
        solo_answer = self.solo_answers.get(request)
        if self.states is None or solo_answer is None or solo_answer.embedding is None:
            return
        got, expected = self.states.take(request[0]), solo_answer.embedding.reshape(-1)
        values = np.full_like(expected, np.nan) if got is None else got.reshape(-1)  # None: it was not computed
        self.compared += 1
        wrong = _find_different(values, expected)
        if wrong.size and request not in self.diverged:
            index, step = int(wrong[0]), len(self.story.steps)
            numbers = float(values[index]), float(expected[index])
            self.diverged[request] = RowDivergence(
                request, step, slot, position, wrong.size, index, *numbers, kind="values of its embedding"
            )


def _find_different(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the indices at which two float32 vectors differ in their bits."""
    return np.flatnonzero(got.view(np.uint32) != expected.view(np.uint32))


def _list_certain_tokens(plan: StepPlan) -> np.ndarray:
    """Return the indices of a step's tokens without drafts, which may be rejected, and recomputed tokens."""
    first = np.diff(plan.row_slot[: plan.decode_rows], prepend=-1) != 0
    decoded = plan.logit_row[: plan.decode_rows][first]
    return np.concatenate([decoded, np.arange(plan.decode_tokens, plan.tokens)])
