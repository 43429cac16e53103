"""The verdict on a mix, as text and as results: the first request that differs from its solo run, its events, the
other requests of the step, and the suspect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from zinc_rt.cli.report import Result
from zinc_rt.sched.mixes.driver import MixOutcome
from zinc_rt.sched.mixes.mix import MixedRequest, RequestKey, RequestMix
from zinc_rt.validate.isolation.alone import SoloAnswer
from zinc_rt.validate.isolation.story import MixTrace, request_name
from zinc_rt.validate.isolation.witness import RowDivergence, StepWitness

FEW = 4


@dataclass(frozen=True, slots=True)
class MixVerdict:
    """The verdict on one model's request mix on one tier.

    `plans`: the shadow device's messages about the scheduler's plans. `differs_in_solo_run`: whether the first
    request that diverged also differs in a solo run on this tier. `findings`: those of the simulated device.
    """

    model: str
    tier: str
    mix: RequestMix
    outcome: MixOutcome
    witness: StepWitness
    solo_answers: Mapping[RequestKey, SoloAnswer]
    plans: list[str]
    findings: list[str]
    differs_in_solo_run: bool
    repro: str

    @property
    def first(self) -> RowDivergence | None:
        return min(self.witness.diverged.values(), key=lambda item: item.step, default=None)

    @property
    def story(self) -> MixTrace:
        return self.witness.story

    @property
    def wrong(self) -> list[str]:
        """Return the errors that cannot be attributed to a single request."""
        books = [text for _, text in self.outcome.broken]
        return [*books, *filter(None, [self.outcome.stuck]), *self.plans, *self.findings]

    @property
    def passed(self) -> bool:
        return not self.witness.diverged and not self.wrong and not any(self.describe_lost_requests())

    def report_figures(self) -> dict[str, Any]:
        """Return the counts for the report; a mix without events tests nothing."""
        return {
            "model": self.model, "tier": self.tier, "seed": self.mix.seed, "requests": len(self.mix.requests),
            "steps": len(self.story.steps), "tokens": self.witness.tokens, "rows": self.witness.rows,
            "embeddings": self.witness.compared,
            "events": dict(self.outcome.events), "befell": self.story.counts(),
        }  # fmt: skip

    def format_summary(self) -> str:
        """Return a line that describes the run."""
        befell = ", ".join(f"{count} {what}" for what, count in self.story.counts().items() if count)
        rows, wrong = self.witness.rows, len(self.witness.diverged)
        alike = f"{wrong} requests differ" if wrong else "each equal to its solo run, to the bit"
        compared = f"{rows} rows of logits"
        if self.witness.states is not None:
            compared = f"{self.witness.compared} embeddings"
        ran = f"{len(self.story.steps)} steps, {self.witness.tokens} tokens, {compared}"
        return f"{ran}, {alike}; {befell}"

    def describe_lost_requests(self) -> Iterator[str]:
        """Return the requests whose tokens differ from their solo run."""
        for request in self.mix.requests:
            for choice in range(request.sampling.n):
                who = (request.number, choice)
                had, expected = self.outcome.delivered.get(who, []), self.solo_answers[who].tokens
                if request.number in self.outcome.cancelled or self.outcome.broken or self.outcome.stuck:
                    expected = expected[: len(had)]
                if had != expected:
                    index = next(
                        (i for i, (a, b) in enumerate(zip(had, expected, strict=False)) if a != b),
                        min(len(had), len(expected)),
                    )
                    got = had[index] if index < len(had) else "none"
                    alike = expected[index] if index < len(expected) else "none"
                    yield f"{request_name(who)}: its token {index} was delivered as {got}, alone it is {alike}"

    def lines(self) -> Iterator[str]:
        """Return the digest; empty if everything passed."""
        first, lost = self.first, list(self.describe_lost_requests())
        if first is not None:
            yield (
                f"first bad  {self.model}, {self.tier}: {request_name(first.who)}, step {first.step}, "
                f"slot {first.slot}, position {first.position}: {first.what}"
            )
            prompt = self._request(first).prompt
            for text in self.story.describe_request(first.who, len(prompt), first.step):
                yield f"befell     {text}"
            neighbours = self.story.find_neighbours(first.who, first.step)
            yield f"beside     {', '.join(map(request_name, neighbours)) or 'nobody'}"
            if len(self.witness.diverged) > 1:
                others = [request_name(who) for who in self.witness.diverged if who != first.who]
                more = f" and {len(others) - FEW} more" if len(others) > FEW else ""
                yield f"too        {', '.join(others[:FEW])}{more}"
        for text in lost[:FEW]:
            yield f"delivered  {text}"
        if self.outcome.stuck:
            yield f"stuck      {self.outcome.stuck}"
        for step, text in self.outcome.broken[:FEW]:
            yield f"broken     step {step}: {text}"
        for text in self.plans[:FEW]:
            yield f"plan       {text}"
        for text in self.findings[:FEW]:
            yield f"sanitizer  {text}"
        if first is not None or lost or self.wrong:
            suspect, following = self.find_suspect(first)
            yield f"suspect    {suspect}"
            yield f"next       {following}"

    def find_suspect(self, first: RowDivergence | None) -> tuple[str, str]:
        """Return the suspect and the command that narrows it down."""
        if self.plans or self.outcome.broken or self.outcome.stuck:
            seen = "the plans themselves are wrong" if self.plans else "its books are wrong"
            return f"{seen}: suspect the scheduler, in the runtime", "zinc-rt sched-test"
        if self.findings and first is None:
            return "only the sanitizer reports findings: suspect the runtime or a kernel", self.repro
        if first is None:
            return (
                "every row is right, but deliveries are not: suspect the scheduler, in the runtime",
                "zinc-rt sched-test",
            )
        if self.differs_in_solo_run:
            return (
                f"{request_name(first.who)} differs on {self.tier} in a solo run too; "
                f"suspect {self.tier} or a kernel",
                f"{self.repro.replace(' --isolation', '').partition(' --seed')[0]} --reference t_cpu",
            )
        if not first.values:
            return (
                "equal logits, another token: suspect the sampler, or its slot record in the runtime",
                self.repro,
            )
        return (
            "the plans are right, but the results are not: suspect the runtime's step block, page table or a "
            "kernel",
            self.repro,
        )

    def _request(self, first: RowDivergence) -> MixedRequest:
        return next(request for request in self.mix.requests if request.number == first.who[0])

    def results(self) -> Iterator[Result]:
        """Return the rows of the report: rows, deliveries, invariants, plans, sanitizer."""
        first, lost = self.first, list(self.describe_lost_requests())
        bad = {}
        if first is not None:
            bad = {
                "request": first.who[0], "choice": first.who[1], "step": first.step, "slot": first.slot,
                "position": first.position, "what": first.what,
                "befell": list(
                    self.story.describe_request(first.who, len(self._request(first).prompt), first.step)
                ),
                "beside": [list(who) for who in self.story.find_neighbours(first.who, first.step)],
            }  # fmt: skip
        measure = {
            "rows": self.witness.rows, "embeddings": self.witness.compared,
            "steps": len(self.story.steps), "tokens": self.witness.tokens,
        }  # fmt: skip
        yield self._make_result("rows", not first, measure | {"diverged": len(self.witness.diverged)}, bad)
        yield self._make_result(
            "deliveries", not lost, {"requests": len(self.mix.requests), "wrong": len(lost)}, _first_text(lost)
        )
        books = [text for _, text in self.outcome.broken] + [text for text in [self.outcome.stuck] if text]
        yield self._make_result("invariants", not books, {"broken": len(books)}, _first_text(books))
        yield self._make_result("plans", not self.plans, {"wrong": len(self.plans)}, _first_text(self.plans))
        if self.tier not in ("t_cpu", "t_cpu_native"):
            yield self._make_result(
                "sanitizer", not self.findings, {"findings": len(self.findings)}, _first_text(self.findings)
            )

    def _make_result(
        self, name: str, passed: bool, measure: Mapping[str, object], bad: Mapping[str, object]
    ) -> Result:
        return Result(
            id=f"{self.model}/{self.tier}/isolation/{name}",
            kind="isolation",
            status="pass" if passed else "fail",
            tier=self.tier,
            reference="the same requests alone",
            measure=dict(measure),
            limit={"bits": True},
            first_bad=dict(bad),
            cause=str(bad.get("what", "")),
            repro="" if passed else self.repro,
        )


def _first_text(texts: list[str]) -> dict[str, object]:
    return {"what": texts[0]} if texts else {}
