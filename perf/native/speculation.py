"""Measure speculation against plain decoding on one engine, with drafts of a set acceptance.

The same request is answered plainly and with drafts, one after the other, in alternating order. The drafts come
from the plain answer, so the figure does not depend on a drafter or on a text.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.engine.answering import Answering
from zinc_rt.engine.engine import Engine
from zinc_rt.perf.bench.runs import make_prompt
from zinc_rt.sched.checks.drafters import ScriptedDrafter
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.speculation import expect_step

DRAFTS = 4
ACCEPTANCE = 0.7
PROMPT = 16


@dataclass(slots=True)
class SpeculationPair:
    """`plain`, `drafted`: tok/s by round."""

    engine: Engine
    tokens: int
    acceptance: float = ACCEPTANCE
    plain: list[float] = field(default_factory=list)
    drafted: list[float] = field(default_factory=list)
    _front: Answering = field(init=False)
    _answer: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        drafter = ScriptedDrafter(self._find_target, self.engine.model.vocab, "share", self.acceptance)
        self._front = Answering(self.engine, drafter=drafter, drafts=DRAFTS)

    def run_round(self, number: int) -> None:
        """Measure one answer of each kind, the plain one first in even rounds. The first round also warms up."""
        if not self._answer:
            self._measure(drafts=0)
            self._measure(drafts=DRAFTS)
        turns = [(self.plain, 0), (self.drafted, DRAFTS)]
        for speeds, drafts in turns[:: -1 if number % 2 else 1]:
            speeds.append(self._measure(drafts=drafts))

    def figures(self) -> dict[str, Any]:
        """Return the measure of a result. `expected`: the ratio that the acceptance and the measured times of
        steps permit with the best number of drafts, which is `drafts`; `costs`: time of a step of so many tokens,
        relative to a step of one token."""
        speculation = self._front.scheduler.speculation
        assert speculation is not None
        times = {tokens: ns for (decodes, tokens), ns in speculation.list_times().items() if decodes == 1}
        costs = {tokens: ns / times[1] for tokens, ns in times.items()} if 1 in times else {}
        gains = {
            tokens - 1: expect_step(self.acceptance, tokens - 1, recurrent=speculation.recurrent)[0] / cost
            for tokens, cost in costs.items()
        }
        ratios = [drafted / plain for drafted, plain in zip(self.drafted, self.plain, strict=True)]
        best = max(gains, key=lambda drafts: gains[drafts], default=0)
        return {
            "tokens_per_second": statistics.median(self.drafted),
            "plain_tokens_per_second": statistics.median(self.plain),
            "ratio": statistics.median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
            "runs": self.drafted,
            "plain_runs": self.plain,
            "acceptance": speculation.accepted / max(1, speculation.drafted),
            "drafts": best,
            "expected": gains.get(best, 1.0),
            "costs": {str(tokens): cost for tokens, cost in sorted(costs.items())},
        }

    def _measure(self, *, drafts: int) -> float:
        """Answer the request, and return the tokens per second after the first token."""
        front = self._front
        prompt = make_prompt(self.engine.model.vocab, PROMPT)
        asked = front.submit(prompt, Sampling(max_tokens=self.tokens, ignore_eos=True), drafts=drafts)
        (answer,) = asked.answers
        while not answer.token_ids:
            front.step()
        first, started = len(answer.token_ids), time.perf_counter()
        while not answer.ended:
            front.step()
        seconds = time.perf_counter() - started
        assert self._answer in ([], answer.token_ids), "drafts changed the answer"
        self._answer = answer.token_ids
        return (len(answer.token_ids) - first) / seconds

    def _find_target(self, number: int, choice: int, position: int) -> int | None:
        index = position - PROMPT
        return self._answer[index] if index < len(self._answer) else None
