"""Validate one model: run what has to run, hold it against what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from zinc_rt.engine import Engine, Prefill
from zinc_rt.errors import UsageError
from zinc_rt.golden.format import Golden
from zinc_rt.model.gguf import GGUFFile, digest
from zinc_rt.report import Result
from zinc_rt.ring.base import Tier
from zinc_rt.settings import Settings
from zinc_rt.tiers import open_backend, parse_tier
from zinc_rt.validate import cache
from zinc_rt.validate.capture import Run, Selection, capture
from zinc_rt.validate.checks import (
    Reference,
    Subject,
    decode_check,
    greedy_check,
    logits_check,
    node_checks,
    quantised_check,
    reference_from_golden,
    reference_from_run,
    same_bits_check,
)
from zinc_rt.validate.layers import Input, Layers, transform
from zinc_rt.validate.limits import QUANTISED, SAME, against_golden, between
from zinc_rt.validate.measure import Limit, compare

SECOND_OPINION = "float32-dequant"


@dataclass(frozen=True, slots=True)
class TierSpec:
    """A tier and the ordering it computes in: "t_cpu" or "t_cpu:float32-dequant" on the command line."""

    tier: Tier
    ordering: str
    text: str


def parse_tiers(text: str, ordering: str, known: tuple[str, ...]) -> list[TierSpec]:
    """Raises UsageError for an unknown or repeated tier or ordering, UnsupportedError for one not built."""
    specs: list[TierSpec] = []
    for part in text.split(","):
        name, _, own = part.strip().partition(":")
        if own and own not in known:
            raise UsageError(f"--tiers {part}: no ordering {own!r}", next="orderings: " + ", ".join(known))
        spec = TierSpec(parse_tier(name), own or ordering, part.strip())
        if spec.text in [other.text for other in specs]:
            raise UsageError(
                f"--tiers names {spec.text} twice", next="add an ordering: t_cpu,t_cpu:float32-dequant"
            )
        specs.append(spec)
    return specs


@dataclass(frozen=True, slots=True)
class Job:
    """Everything one model's validation depends on."""

    gguf: GGUFFile
    name: str
    tiers: tuple[TierSpec, ...]
    tokens: list[int]
    steps: int
    ctx: int
    layers: Layers
    selection: Selection
    golden: Golden | None = None
    reference: TierSpec | None = None
    first_input: Input | None = None
    resync: bool = False
    threads: int = 0
    settings: Settings = field(default_factory=Settings)
    use_cache: bool = True
    alone: bool = True  # a single tier is also held against itself
    repro: str = ""


class Runner:
    """Engines opened once per tier, results remembered."""

    def __init__(self, job: Job, say: Callable[[str], None]) -> None:
        self.job = job
        self.say = say
        self._stack = ExitStack()
        self._engines: dict[TierSpec, Engine] = {}

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def engine(self, spec: TierSpec) -> Engine:
        if spec not in self._engines:
            backend = open_backend(spec.tier, spec.ordering, threads=self.job.threads)
            engine = Engine(
                self.job.gguf,
                backend,
                ctx=self.job.ctx,
                transform=transform(self.job.layers),
                settings=self.job.settings,
            )
            self._engines[spec] = self._stack.enter_context(engine)
        return self._engines[spec]

    def run(
        self,
        spec: TierSpec,
        what: str,
        *,
        selection: Selection | None,
        prefill: Prefill = "batched",
        inject: dict[str, np.ndarray] | None = None,
        follow: list[int] | None = None,
        steps: int = 0,
    ) -> Run:
        inject = dict(inject or {})
        if self.job.first_input is not None and self.job.layers.feed:
            inject[self.job.layers.feed] = self.job.first_input.values
        key = ""
        if self.job.use_cache and spec.tier is Tier.T_CPU:
            key = cache.key_of(
                model=digest(self.job.gguf),
                tokens=self.job.tokens,
                ordering=spec.ordering,
                ctx=self.job.ctx,
                layers=(self.job.layers.first, self.job.layers.last),
                selection=repr(selection),
                prefill=prefill,
                inject=inject,
                follow=follow,
                steps=steps,
                settings=repr(self.job.settings),
            )
            if (known := cache.load(key)) is not None:
                return known
        self.say(f"{spec.text}: {what}")
        result = capture(
            self.engine(spec),
            self.job.tokens,
            selection,
            prefill=prefill,
            inject=inject,
            steps=steps,
            follow=follow,
        )
        if key:
            cache.store(key, result)
        return result


def validate(job: Job, say: Callable[[str], None]) -> Iterator[Result]:
    """Every check of one model, as it is made."""
    with Runner(job, say) as runner:
        judged = [spec for spec in job.tiers if spec != job.reference]
        reference: Reference | None = None
        if job.golden is None and job.reference is not None:
            run = runner.run(job.reference, "reference", selection=job.selection, steps=job.steps)
            reference = reference_from_run(run)
        for spec in judged:
            yield from _judge(runner, spec, reference)
        if len(job.tiers) == 1 and job.alone:
            yield from _alone(runner, job.tiers[0], second_opinion=job.golden is None)


def _judge(runner: Runner, spec: TierSpec, reference: Reference | None) -> Iterator[Result]:
    job = runner.job
    if job.golden is not None:
        reference = reference_from_golden(job.golden)
        limit = against_golden(job.gguf.architecture, spec.ordering, job.golden.ordering)
        against = job.golden.path.name + job.golden.variant
    elif reference is not None and job.reference is not None:
        limit, against = between(spec.ordering, job.reference.ordering), job.reference.text
    else:
        return
    subject = Subject(job.name, spec.text, against, limit, job.repro)
    follow = None if job.golden is not None else reference.greedy
    run = runner.run(spec, "forward", selection=job.selection, steps=job.steps, follow=follow)
    resynced = None
    if job.resync:
        feeds = {label: value for label, value in reference.values.items() if label.startswith("l_out-")}
        feeds.pop(f"l_out-{job.layers.last - 1}", None)
        outside = [
            label for label in feeds if not job.layers.first <= int(label.partition("-")[2]) < job.layers.last
        ]
        for label in outside:
            del feeds[label]
        if feeds:
            resynced = runner.run(
                spec, "forward, each layer fed by the reference", selection=job.selection, inject=feeds
            )
    results = list(node_checks(subject, run, reference, resynced))
    if job.golden is not None and limit is QUANTISED:
        results.append(quantised_check(subject, run, job.golden))
    else:
        results.append(logits_check(subject, run, reference))
        if follow is None and (greedy := greedy_check(subject, run, reference)) is not None:
            results.append(greedy)
            if (decode := decode_check(subject, run, reference, len(job.tokens))) is not None:
                results.append(decode)
    if job.golden is None and any(result.status == "fail" for result in results):
        results.append(_first_divergent(runner, spec, subject, limit))
    yield from results


def _alone(runner: Runner, spec: TierSpec, *, second_opinion: bool) -> Iterator[Result]:
    """What one tier can say about itself: two ways through it agree, and so does another ordering."""
    job = runner.job
    same = Subject(job.name, spec.text, spec.text, SAME, job.repro)
    if spec.ordering == SECOND_OPINION:  # BLAS picks its summation order by shape
        same = Subject(job.name, spec.text, spec.text, between(spec.ordering, ""), job.repro)
    tapped = runner.run(spec, "forward", selection=job.selection)
    plain = runner.run(spec, "forward, untapped", selection=None)
    yield same_bits_check(
        same,
        "untapped",
        "tap",
        plain,
        tapped,
        "only the untapped graph reuses memory: aliasing, or a missing barrier",
    )
    if len(job.tokens) > 1:
        stepwise = runner.run(spec, "forward, token by token", selection=job.selection, prefill="stepwise")
        yield same_bits_check(
            same, "stepwise", "prefill", tapped, stepwise, "one pass over the prompt and token by token differ"
        )
    if second_opinion and spec.ordering != SECOND_OPINION:
        other = TierSpec(spec.tier, SECOND_OPINION, f"{spec.tier.value}:{SECOND_OPINION}")
        subject = Subject(job.name, spec.text, other.text, between(spec.ordering, SECOND_OPINION), job.repro)
        reference = reference_from_run(runner.run(other, "second opinion", selection=job.selection))
        yield from node_checks(subject, tapped, reference, None)
        yield logits_check(subject, tapped, reference)


def _first_divergent(runner: Runner, spec: TierSpec, subject: Subject, limit: Limit) -> Result:
    """The first node in graph order that parts from the reference tier, all nodes captured on both."""
    job = runner.job
    assert job.reference is not None
    everything = Selection(patterns=("*",), first=job.layers.first, last=job.layers.last)
    got = runner.run(spec, "forward, every node", selection=everything)
    want = runner.run(job.reference, "reference, every node", selection=everything)
    for label, value in got.values.items():
        if label in want.values:
            measured = compare(value, want.values[label], limit, head_dim=got.head_dims.get(label, 0))
            if not measured.within:
                return subject.result(
                    "first-divergent", "node", passed=False, measure=measured.as_dict(),
                    first_bad={"node": label, **measured.first_bad},
                )  # fmt: skip
    return subject.skip(
        "first-divergent", "node", "every node of the prompt's pass agrees: only later steps differ"
    )


def model_name(path: Path) -> str:
    return path.name.removesuffix(".gguf")
