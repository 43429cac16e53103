"""Compare the graphs of the product's steps with each other: stored by `zinc-rt run`, freshly planned, and plain.

A step of `zinc-rt run` or `serve` runs the model's graph with the nodes that sample and deliver its tokens, in a
form for what its requests need (docs/step.md). Here a scheduler answers the prompt in each of several forms, with
the graphs of each kind. All must agree in all bits: tokens, logits and log-probabilities.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zinc_rt.engine.answering import Answering, TokenLogprob
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.graph_store import GraphStore, StartCounters
from zinc_rt.engine.output_ring import RingError
from zinc_rt.host.version import digest_planning
from zinc_rt.model.sample_graph import RING
from zinc_rt.sched.mask_fills import MaskFills
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.sampling import Sampling
from zinc_rt.validate.check_result import CheckResult, ReportFigures
from zinc_rt.validate.checks import CheckedPair
from zinc_rt.validate.measure import Measure, compare_arrays
from zinc_rt.validate.runner import ValidationRunner
from zinc_rt.validate.tiers import TierSpec

MASKED = "all"  # the form whose request has token masks as well
FORMS = {  # a prompt's pass and a decode in each
    "greedy": Sampling(2, ignore_eos=True),
    "sample": Sampling(2, temperature=0.9, seed=1, ignore_eos=True),
    MASKED: Sampling(
        2, temperature=1.1, seed=3, presence_penalty=0.4, frequency_penalty=0.3, repetition_penalty=1.2,
        logit_bias={1: 2.0, 2: -100.0}, logprobs=20, ignore_eos=True,
    ),
}  # fmt: skip
FEW_TOKENS = 4  # of the prompt, in all forms but greedy


@dataclass(frozen=True, slots=True)
class FormAnswer:
    """An answer in one form. `logits` f32 [tokens, V]: the logits that its tokens were sampled from; `ended`: the
    finish reason; `error`: the content of the output ring instead of a token, or "".
    """

    logits: np.ndarray
    tokens: list[int]
    logprobs: list[TokenLogprob]
    ended: str
    error: str


def check_forms(runner: ValidationRunner, spec: TierSpec, same: CheckedPair) -> Iterator[CheckResult]:
    """Check a tier that builds from plans: compare plain graphs (`forms`) with fused ones, and graphs from the
    cache (`stored`; planned and stored first if missing) with freshly planned ones.
    """
    variants, settings = runner.engine(spec).variants, runner.job.settings
    if not variants.can_store or variants.tap_always:
        return
    runner.say(f"{spec.text}: steps of the product, in each form")

    def answer_prompt() -> dict[str, FormAnswer]:
        return _answer_forms(runner.engine(spec), runner.job.tokens)

    with variants.rebuild_variants():
        planned = answer_prompt()
    with variants.rebuild_variants(tapped=True):
        plain = answer_prompt()
    measured, bad = _compare_answers(planned, plain, same)
    yield same.result(
        "forms",
        "forms",
        passed=not bad,
        measure=ReportFigures({**measured.as_dict(), "forms": list(planned)}),
        first_bad=bad,
        cause=_format_cause(bad, "the fused and the plain graph differ"),
    )
    if settings.graph_cache == "off":
        yield same.make_skip("stored", "stored", "ZINC_RT_GRAPH_CACHE=off")
        return
    yield _check_stored_graphs(runner, spec, same, planned, answer_prompt)


def _check_stored_graphs(
    runner: ValidationRunner,
    spec: TierSpec,
    same: CheckedPair,
    planned: dict[str, FormAnswer],
    answers: Callable[[], dict[str, FormAnswer]],
) -> CheckResult:
    store, refused = GraphStore(digest_planning()), list[str]()
    for _ in range(2):  # the second reads what the first has planned
        with runner.engine(spec).variants.rebuild_variants(store) as stored:
            measured, bad = _compare_answers(answers(), planned, same)
        counts = StartCounters() if stored is None else stored.starts
        refused += counts.refused
        if not counts.planned or bad:
            break
    starts = ReportFigures(read=counts.read, planned=counts.planned, refused=refused)
    if not bad and not counts.read:
        return replace(
            same.make_skip("stored", "stored", f"no graph can be kept in {store.folder}"), measure=starts
        )
    return same.result(
        "stored",
        "stored",
        passed=not bad,
        measure=ReportFigures({**measured.as_dict(), **starts, "forms": list(planned)}),
        reason=f"{len(refused)} stored graphs were refused: {refused[0]}" if refused else "",
        first_bad=bad,
        cause=_format_cause(bad, "stored graphs and freshly planned ones differ"),
        advice=f"rm -r {shlex.quote(str(store.folder))}" if bad else "",
    )


def _answer_forms(engine: Engine, prompt: Sequence[int]) -> dict[str, FormAnswer]:
    """Answer the prompt in each form; an embedding model has one, without a decode."""
    result = {}
    forms = {"greedy": Sampling(1, ignore_eos=True)} if engine.model.pooling else FORMS
    for form, sampling in forms.items():
        asking, rows = Answering(engine), list[np.ndarray]()

        def keep(plan: StepPlan, logits: np.ndarray, rows: list[np.ndarray] = rows) -> None:
            rows.append(logits.copy())

        asking.runner.watch = keep
        _LateFirstMask(asking.scheduler.fills)
        tokens = prompt if form == "greedy" else prompt[:FEW_TOKENS]
        asked = asking.submit(
            tokens,
            sampling,
            grammar=EveryThird() if form == MASKED else None,
            embeds=bool(engine.model.pooling),
        )
        error = ""
        try:
            while not asked.done:
                asking.step()
        except RingError as failure:
            error = failure.message
        (answer,) = asked.answers
        result[form] = FormAnswer(np.concatenate(rows), answer.token_ids, answer.logprobs, answer.ended, error)
    return result


def _compare_answers(
    got: dict[str, FormAnswer], want: dict[str, FormAnswer], same: CheckedPair
) -> tuple[Measure, dict[str, Any]]:
    """Return the distance of all logits, and the first form that failed or differs, empty if there is none."""
    one, other = (np.concatenate([item.logits for item in side.values()]) for side in (got, want))
    measured = compare_arrays(one, other, same.limit)
    for form in got:
        mine, theirs = got[form], want[form]
        if error := mine.error or theirs.error:
            return measured, {"node": RING, "form": form, "error": error}
        distance = compare_arrays(mine.logits, theirs.logits, same.limit)
        if not distance.within:
            return measured, {"node": "logits", "form": form, **distance.first_bad}
        for name in ("tokens", "logprobs", "ended"):
            if (saw := getattr(mine, name)) != (wanted := getattr(theirs, name)):
                return measured, {"node": name, "form": form, "got": str(saw), "want": str(wanted)}
    return measured, {}


def _format_cause(bad: dict[str, Any], difference: str) -> str:
    return f"form {bad['form']}: {bad.get('error', difference)}" if bad else ""


class EveryThird:
    """A token mask that permits ids congruent to the number of tokens modulo 3."""

    complete, failure = False, ""

    def __init__(self, tokens: int = 0) -> None:
        self._tokens = tokens

    def fill(self, words: np.ndarray) -> None:
        bits = np.arange(32 * len(words)) % 3 == self._tokens % 3
        words[:] = np.packbits(bits, bitorder="little").view(np.int32)

    def accept(self, token: int) -> None:
        self._tokens += 1

    def fork(self) -> EveryThird:
        return EveryThird(self._tokens)


class _LateFirstMask(futures.Executor):
    """Fills masks when a step waits for them, except that the first one is late, so that its row is always sampled
    by the graph for late draws.
    """

    def __init__(self, fills: MaskFills) -> None:
        self._pending: list[tuple[futures.Future[Any], Callable[[], Any]]] = []
        self._waits = 0
        fills.pool, fills.wait, fills.clock_ns = (lambda threads: self), self._wait, (lambda: 0)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        future = futures.Future[Any]()
        self._pending.append((future, fn))
        return future

    def _wait(self, pending: Collection[futures.Future[None]], seconds: float) -> None:
        self._waits += 1
        while self._pending and self._waits > 1:
            future, fill = self._pending.pop(0)
            future.set_result(fill())
