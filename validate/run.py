"""Validate one model: run what has to run, hold it against what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.backends.base import Finding
from zinc_rt.devices import ORACLE, Choice, open_backend
from zinc_rt.engine import CAPACITIES, Engine, Prefill
from zinc_rt.errors import CheckFailed, UsageError
from zinc_rt.facts import leaned_on
from zinc_rt.golden.format import Golden
from zinc_rt.kernels.launch import kernel_names
from zinc_rt.model.gguf import GGUFFile, digest
from zinc_rt.model.scales import not_finite
from zinc_rt.report import Result
from zinc_rt.settings import Settings
from zinc_rt.validate import cache
from zinc_rt.validate.capture import Run, Selection, aliases_of, capture
from zinc_rt.validate.checks import (
    Reference,
    Subject,
    decode_check,
    golden_check,
    greedy_check,
    logits_check,
    node_checks,
    quantised_check,
    reference_from_golden,
    reference_from_run,
    same_bits_check,
)
from zinc_rt.validate.drift import Isolated, alone_limit, isolation_check, may_be_drift, without_drift
from zinc_rt.validate.layers import Input, Layers, transform
from zinc_rt.validate.limits import QUANTISED, SAME, against_golden, between
from zinc_rt.validate.measure import Limit, compare
from zinc_rt.validate.nodes import nodes_check
from zinc_rt.validate.nonfinite import first_nonfinite, holds_nonfinite
from zinc_rt.validate.steps import StepWatch
from zinc_rt.validate.text import HOST, draws_check, tokenizer_check

SECOND_OPINION = "float32-dequant"
SIMULATED_ID = "simulated device"
FORWARD, REFERENCE = "forward", "reference"  # a tier's own pass
FEW = 5  # named; the rest is counted
FINITE = Limit(why="every value is a number")
STEPS = Limit(bits=True, why="each step is what was asked for")
FEW_TOKENS = 4  # that one by one show a difference between the stages, where none were generated


@dataclass(frozen=True, slots=True)
class TierSpec:
    """A tier, its kernels and the ordering it computes in: TIER[:KERNELSET][:ORDERING] on the command line."""

    tier: str
    ordering: str
    text: str = field(compare=False)
    kernel_set: str = ""
    choice: Choice = field(default=ORACLE, compare=False)  # the device behind it

    @property
    def name(self) -> str:
        """As the registry parses it."""
        return f"{self.tier}:{self.kernel_set}" if self.kernel_set else self.tier


def parse_tiers(text: str, ordering: str, known: tuple[str, ...]) -> list[TierSpec]:
    """Raises UsageError for an unknown or repeated tier, kernel set or ordering, UnsupportedError for a tier that
    is not built."""
    specs: list[TierSpec] = []
    for part in text.split(","):
        name, *rest = part.strip().split(":")
        own = rest.pop() if rest and rest[-1] in known else ordering
        row, _ = registry.parse(name)
        if len(rest) > 1 or not set(rest) <= set(row.kernel_sets):
            raise UsageError(
                f"--tiers {part}: no ordering and no kernel set of {row.tier} is called {':'.join(rest)!r}",
                next=f"orderings: {', '.join(known)}; kernel sets: {', '.join(row.kernel_sets)}",
            )
        spec = TierSpec(row.tier, own, part.strip(), "".join(rest))
        if spec in specs:
            raise UsageError(
                f"--tiers names {spec.text} twice, in one ordering",
                next="add an ordering: t_cpu,t_cpu:float32-dequant",
            )
        specs.append(spec)
    return specs


# (runner, tier, the tokens it was fed after the prompt, the result that fails) -> that result with its artifacts
Smallest = Callable[["Runner", TierSpec, list[int], Result], Result]


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
    timeout_seconds: float | None = None  # of a step; None: by the device
    settings: Settings = field(default_factory=Settings)
    use_cache: bool = True
    smallest: Smallest | None = None  # adds the smallest case that shows a failure again
    alone: bool = True  # a single tier is also held against itself
    repro: str = ""


class Runner:
    """Engines opened once per tier, runs remembered: here, and for T-CPU on disk."""

    def __init__(self, job: Job, say: Callable[[str], None] = lambda text: None) -> None:
        self.job = job
        self.say = say
        self._stack = ExitStack()
        self._engines: dict[TierSpec, Engine] = {}
        self.watches: dict[TierSpec, StepWatch] = {}
        self._runs: dict[str, Run] = {}
        self.from_disk: dict[str, None] = {}  # what was not computed now, in order
        self._whole: dict[TierSpec, Run] = {}  # each tier's own pass, nothing of another's fed to its layers

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def engine(self, spec: TierSpec) -> Engine:
        if spec not in self._engines:
            backend = open_backend(spec.choice, spec.ordering, threads=self.job.threads)
            watch = self.watches[spec] = StepWatch()
            engine = watch.engine = Engine(
                self.job.gguf,
                backend,
                ctx=self.job.ctx,
                observer=watch,
                transform=transform(self.job.layers),
                settings=self.job.settings,
                timeout_seconds=self.job.timeout_seconds,
                slow=self.say,
                share_arenas=False,  # a stale byte must not hide
                highest_pages_first=True,  # nor a wrong page behind one of the same number as its place
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
        tokens: list[int] | None = None,
    ) -> Run:
        tokens = self.job.tokens if tokens is None else tokens
        inject = {**(inject or {}), **self.inject()}
        key_of = partial(
            cache.key_of,
            model=digest(self.job.gguf),
            tier=spec.name,
            tokens=tokens,
            ordering=spec.ordering,
            ctx=self.job.ctx,
            layers=(self.job.layers.first, self.job.layers.last),
            selection=repr(selection),
            prefill=prefill,
            inject=inject,
            steps=steps,
            settings=repr(self.job.settings),
        )
        asked = (
            f"{spec.name} {spec.ordering} {tokens} {prefill} {steps} {self.job.ctx} {self.job.layers} {selection}"
        )
        key = key_of(follow=follow)
        on_disk = self.job.use_cache and spec.tier == ORACLE.tier and cache.usable()
        known = self._runs.get(key) or (cache.load(key) if on_disk else None)
        if known is not None:
            if known.asked != asked:
                raise CheckFailed(
                    f"{spec.text}: {what}: the cache gives the result of another run, {known.asked}: its key does "
                    "not tell them apart",
                    next="--no-cache; suspect validate/cache.py, key_of",
                )
            if known.cached:
                self.from_disk[f"{spec.text}: {what}"] = None
            return self._kept(spec, known, what)
        self.say(f"{spec.text}: {what}")
        engine = self.engine(spec)
        result = capture(
            engine,
            tokens,
            selection,
            prefill=prefill,
            inject=inject,
            steps=steps,
            follow=follow,
            watch=self.watches[spec],
        )
        result.asked = asked
        self._runs[key] = self._runs[key_of(follow=result.generated)] = result  # as if it had been told its tokens
        if on_disk:
            cache.store(key, result)
        return self._kept(spec, result, what)

    def _kept(self, spec: TierSpec, run: Run, what: str) -> Run:
        if what in (FORWARD, REFERENCE):
            self._whole.setdefault(spec, run)
        return run

    def same_bits(self) -> list[list[str]]:
        """The tiers that ran, in groups that agree to the bit in all that was kept of the prompt's pass."""
        groups: list[tuple[Run, list[str]]] = []
        for spec, run in self._whole.items():
            group = next((names for other, names in groups if _equal(run, other, len(self.job.tokens))), None)
            if group is None:
                groups.append((run, [spec.text]))
            else:
                group.append(spec.text)
        return [names for _, names in groups]

    def nonfinite(self) -> Iterator[tuple[TierSpec, Run]]:
        """Tiers whose own pass holds a value that is not finite."""
        return ((spec, run) for spec, run in self._whole.items() if holds_nonfinite(run))

    def inject(self) -> dict[str, np.ndarray]:
        """What stands in for the layers before the first that runs."""
        if self.job.first_input is None or not self.job.layers.feed:
            return {}
        return {self.job.layers.feed: self.job.first_input.values}

    @property
    def simulated(self) -> tuple[TierSpec, ...]:
        """Tiers that a simulated device runs."""
        return tuple(spec for spec in self.job.tiers if spec.choice.simulated)

    def findings(self) -> list[Finding]:
        """What the simulated device behind them found so far: they share it."""
        spec = next((spec for spec in self.simulated if spec in self._engines), None)
        instrument = self.engine(spec).backend.instrument if spec is not None else None
        return instrument.findings() if instrument is not None else []

    def consulted(self) -> Sequence[str]:
        """What the simulated device behind them came to so far: marks of zinc_rt/facts.py."""
        spec = next((spec for spec in self.simulated if spec in self._engines), None)
        instrument = self.engine(spec).backend.instrument if spec is not None else None
        return instrument.consulted() if instrument is not None else ()


def _equal(a: Run, b: Run, tokens: int) -> bool:
    values = a.values.keys() == b.values.keys() and all(
        a.values[label].tobytes() == value.tobytes() for label, value in b.values.items()
    )
    return values and a.logits[:tokens].tobytes() == b.logits[:tokens].tobytes()


def validate(runner: Runner) -> Iterator[Result]:
    """Every check of one model, as it is made."""
    job = runner.job
    for spec in job.tiers if job.golden is not None else ():
        yield from _against_golden(runner, spec)
    if job.golden is not None and job.layers.whole:
        subject = Subject(job.name, HOST, job.golden.path.name, SAME, job.repro)
        if (tokenized := tokenizer_check(subject, job.golden, job.gguf)) is not None:
            yield tokenized
    if job.reference is not None:
        yield from _between_tiers(runner, job.reference)
    if job.alone and len(job.tiers) == 1 and job.reference in (None, job.tiers[0]):
        yield from _alone(runner, job.tiers[0], second_opinion=job.golden is None)
    yield from _steps(runner)
    yield from _not_finite(runner)
    if runner.simulated:
        yield _sanitizer(runner)


def _steps(runner: Runner) -> Iterator[Result]:
    """What the host fed a tier is no comparison of its own where it is right."""
    for spec, watch in runner.watches.items():
        if watch.wrong is not None:
            yield Subject(runner.job.name, spec.text, spec.text, STEPS, runner.job.repro).result(
                "steps",
                "step",
                passed=False,
                measure={"steps": watch.steps},
                first_bad=watch.wrong.first_bad(),
                cause=watch.wrong.text,
            )


def _not_finite(runner: Runner) -> Iterator[Result]:
    """NaN and infinity are no rounding, and no agreement either where two tiers have the same bits."""
    job, spoilt = runner.job, list(runner.nonfinite())
    weights = [found.text for found in not_finite(job.gguf)] if spoilt else []
    for spec, run in spoilt:
        origin = first_nonfinite(runner.engine(spec), job.tokens, run.generated, runner.inject())
        count = sum(int(np.count_nonzero(~np.isfinite(array))) for array in (run.logits, *run.values.values()))
        yield Subject(job.name, spec.text, spec.text, FINITE, job.repro).result(
            "finite",
            "finite",
            passed=False,
            measure={"nonfinite": count, **({"weights": weights[:FEW]} if weights else {})},
            first_bad=origin.first_bad() if origin is not None else {"node": "logits"},
            cause=origin.text if origin is not None else "non-finite values, and none where every node is tapped",
        )


def _sanitizer(runner: Runner) -> Result:
    """A simulated device is stricter than silicon: whatever it found is a failure, equal bits or not."""
    found, job = runner.findings(), runner.job
    told = [_told(finding) for finding in found[:FEW]]
    return Result(
        id=f"{job.name}/{SIMULATED_ID}/sanitizer",
        kind="sanitizer",
        status="fail" if found else "pass",
        tier=SIMULATED_ID,
        reference="the rules of its sanitizer",
        measure={
            "findings": len(found),
            "level": runner.simulated[0].choice.options.get("sanitizer", ""),
            "assumptions": [each.id for each in leaned_on(runner.consulted())],
            **({"found": told} if told else {}),
        },
        limit={"findings": 0},
        first_bad=told[0] if told else {},
        cause=found[0].text if found else "",
        repro=job.repro if found else "",
    )


def _told(finding: Finding) -> dict[str, Any]:
    """What is known of a finding, for a report."""
    facts = {
        "node": finding.node.label if finding.node is not None else "",
        "kernel": finding.kernel,
        "source": finding.source,
        "instruction": finding.instruction,
    }
    return {"finding": finding.text, **{name: fact for name, fact in facts.items() if fact}}


def _against_golden(runner: Runner, spec: TierSpec) -> Iterator[Result]:
    job, golden = runner.job, runner.job.golden
    assert golden is not None
    limit = against_golden(job.gguf.architecture, spec.ordering, golden.ordering)
    own = golden.quantised if limit is QUANTISED and golden.quantised is not None else golden
    reference = reference_from_golden(own)
    if golden.rows is None:  # every token of them: compared one by one, where they were asked for
        kept = {label: value for label, value in reference.nodes.items() if not _selected(job, label)}
        reference = replace(reference, nodes=kept)
    subject = Subject(job.name, spec.text, golden.path.name + own.variant, limit, job.repro)
    if (spoilt := golden_check(subject, reference)) is not None:
        yield spoilt
    run = runner.run(spec, FORWARD, selection=job.selection, steps=job.steps)
    resynced = _resynced(runner, spec, reference) if job.resync else None
    results = list(node_checks(subject, run, reference, resynced))
    if limit is QUANTISED:
        yield from [*results, quantised_check(subject, run, golden)]
        return
    results.append(logits_check(subject, run, reference))
    if (greedy := greedy_check(subject, run, reference)) is not None:
        results.append(greedy)
    if (decode := decode_check(subject, run, reference, len(job.tokens))) is not None:
        results.append(decode)
    drift = may_be_drift(results)
    isolated = None
    if not limit.bits and (drift or job.resync or not _held_to_the_bit(job, spec)):
        isolated = _isolated(runner, spec, reference, run.generated)
        if isolated is not None:
            found = isolation_check(subject, isolated, reference, alone_limit(job.gguf.architecture))
            if drift and found.status == "pass":
                one, other = (_opinion(runner, each, run.generated) for each in ("canonical-1", SECOND_OPINION))
                results = without_drift(results, one, other, len(job.tokens))
            results.append(found)
    if job.layers.whole and (drawn := draws_check(subject, golden, job.gguf, run)) is not None:
        results.append(drawn)
    if reference.nodes and (isolated is not None or not _held_to_the_bit(job, spec)):
        results.append(_nodes(runner, spec, subject, reference, isolated))
    yield from results


def _selected(job: Job, label: str) -> bool:
    layer = label.rpartition("-")[2]
    return job.selection.wants(label, int(layer) if layer.isdigit() else None)


def _nodes(
    runner: Runner, spec: TierSpec, subject: Subject, reference: Reference, isolated: Isolated | None
) -> Result:
    """The golden's values inside the layers, each layer fed by it where it can be."""
    job = runner.job
    assert job.golden is not None
    if isolated is not None:
        runs = {"prefill": isolated.batched, "decode": isolated.stepwise}
        return nodes_check(subject, job.golden, reference, runs, fed=True)
    inside = Selection(tuple(reference.nodes), job.layers.first, job.layers.last)
    run = runner.run(spec, "forward, every node of the golden", selection=inside)
    return nodes_check(subject, job.golden, reference, {"prefill": run}, fed=False)


def _held_to_the_bit(job: Job, spec: TierSpec) -> bool:
    """Whether the reference tier, whose layers are looked at alone, speaks for this one too."""
    other = job.reference
    return (
        other is not None and other in job.tiers and other != spec and between(spec.ordering, other.ordering).bits
    )


def _isolated(runner: Runner, spec: TierSpec, reference: Reference, after: list[int]) -> Isolated | None:
    """Each layer, the head too, fed by the reference, in both stages; None where it lacks a layer."""
    job = runner.job
    labels = [f"l_out-{layer}" for layer in range(job.layers.total)]
    if not job.layers.whole or not all(len(reference.values.get(each, ())) == len(job.tokens) for each in labels):
        return None
    tokens = [*job.tokens, *after]
    feeds = {
        label: np.resize(value, (len(tokens), *value.shape[1:])).astype(np.float32)
        for label in labels
        if (value := reference.values[label]) is not None
    }
    ways: tuple[Prefill, ...] = ("batched", "stepwise")
    batched, stepwise = (
        runner.run(
            spec,
            f"each layer alone, {way}",
            selection=Selection(("l_out-*", *reference.nodes)),
            tokens=tokens,
            inject=feeds,
            prefill=way,
        )
        for way in ways
    )
    return Isolated(batched, stepwise, feeds, len(job.tokens), same_bits=_itself(job, spec).limit.bits)


def _opinion(runner: Runner, ordering: str, after: list[int]) -> Run:
    """What the oracle has for the prompt and these tokens after it."""
    oracle = TierSpec(ORACLE.tier, ordering, f"{ORACLE.tier}:{ordering}")
    job = runner.job
    return runner.run(oracle, "rounding's own growth", selection=job.selection, steps=len(after), follow=after)


def _between_tiers(runner: Runner, spec: TierSpec) -> Iterator[Result]:
    """Every other tier against the reference tier, both fed the reference's own greedy tokens."""
    job = runner.job
    first = runner.run(spec, REFERENCE, selection=job.selection, steps=job.steps)
    reference = reference_from_run(first)
    for other in job.tiers:
        if other == spec:
            continue
        limit = between(other.ordering, spec.ordering)
        subject = Subject(job.name, other.text, spec.text, limit, job.repro)
        run = runner.run(other, FORWARD, selection=job.selection, steps=job.steps, follow=reference.greedy)
        results = list(
            node_checks(subject, run, reference, _resynced(runner, other, reference) if job.resync else None)
        )
        results.append(logits_check(subject, run, reference))
        if any(result.status == "fail" for result in results):
            where = _first_divergent(runner, other, spec, subject)
            if job.smallest is not None and limit.bits:
                where = job.smallest(runner, other, reference.greedy, where)
            results.append(where)
        yield from results
        yield from _two_ways(runner, other, run)
    if spec in job.tiers:
        yield from _two_ways(runner, spec, first)


def _resynced(runner: Runner, spec: TierSpec, reference: Reference) -> Run | None:
    """The run in which every layer reads the reference's output of the layer before it; None where it has none."""
    job = runner.job
    inside = range(job.layers.first, job.layers.last - 1)
    feeds = {f"l_out-{layer}": reference.values.get(f"l_out-{layer}") for layer in inside}
    known = {label: value for label, value in feeds.items() if value is not None and len(value) == len(job.tokens)}
    if not known:
        return None
    return runner.run(spec, "forward, each layer fed by the reference", selection=job.selection, inject=known)


def _itself(job: Job, spec: TierSpec) -> Subject:
    """One tier held against itself: the same bits, but for BLAS, which picks its summation order by shape."""
    limit = between(spec.ordering, "") if spec.ordering == SECOND_OPINION else SAME
    return Subject(job.name, spec.text, spec.text, limit, job.repro)


def _two_ways(runner: Runner, spec: TierSpec, tapped: Run) -> Iterator[Result]:
    """What a tier made of the prompt, tapped, and of the tokens after it, one by one, against one untapped pass
    over all but the last token; the last continues that pass."""
    job, same = runner.job, _itself(runner.job, spec)
    prompt, after = len(job.tokens), tapped.generated
    plain = runner.run(
        spec,
        "forward, untapped",
        selection=None,
        tokens=[*job.tokens, *after[:-1]],
        follow=after[-1:],
        steps=len(after[-1:]),
    )
    yield _untapped_check(same, _rows(plain, 0, prompt), replace(tapped, logits=tapped.logits[:prompt]))
    if len(after) > 1:
        a, b = _rows(plain, prompt, None), Run(tapped.logits[prompt:], {})
        result = _stepwise_check(same, a, b)
        if result.first_bad:
            result.first_bad["token"] += prompt
            result = _between_stages(runner, spec, result, [*job.tokens, *after[:-1]])
        yield result
    elif prompt > 1:
        few = job.tokens[:FEW_TOKENS]
        stepwise = runner.run(
            spec, "a few tokens, one by one", selection=job.selection, tokens=few, prefill="stepwise"
        )
        yield _stepwise_check(same, _rows(tapped, 0, len(few)), stepwise)


def _between_stages(runner: Runner, spec: TierSpec, result: Result, tokens: list[int]) -> Result:
    """The same failure at the first node in graph order whose two stages part; as it is, where no tap shows it."""
    layers = runner.job.layers
    everything = Selection(("*",), layers.first, layers.last)
    ways: tuple[Prefill, ...] = ("batched", "stepwise")
    one, other = (
        runner.run(spec, f"every node, {way}", selection=everything, tokens=tokens, prefill=way) for way in ways
    )
    limit = _itself(runner.job, spec).limit
    for label, value in one.values.items():
        if label not in other.values:
            continue
        measured = compare(other.values[label], value, limit, head_dim=one.head_dims.get(label, 0))
        if not measured.within:
            return replace(result, first_bad={"node": label, "stage": "decode", **measured.first_bad})
    return result


def _rows(run: Run, first: int, last: int | None) -> Run:
    """Part of the positions of a run: a later one changes none before it."""
    values = {label: value[first:last] for label, value in run.values.items()}
    return replace(run, logits=run.logits[first:last], values=values)


def _stepwise_check(subject: Subject, batched: Run, stepwise: Run) -> Result:
    cause = "one pass over the tokens and token by token differ"
    return same_bits_check(subject, "stepwise", "prefill", batched, stepwise, cause)


def _untapped_check(subject: Subject, plain: Run, tapped: Run) -> Result:
    cause = "only the untapped graph reuses memory: aliasing, or a missing barrier"
    return same_bits_check(subject, "untapped", "tap", plain, tapped, cause)


def _alone(runner: Runner, spec: TierSpec, *, second_opinion: bool) -> Iterator[Result]:
    """What one tier can say about itself: two ways through it agree, and so does another ordering."""
    job = runner.job
    same = _itself(job, spec)
    tapped = runner.run(spec, FORWARD, selection=job.selection)
    plain = runner.run(spec, "forward, untapped", selection=None)
    yield _untapped_check(same, plain, tapped)
    if len(job.tokens) > 1:
        stepwise = runner.run(spec, "forward, token by token", selection=job.selection, prefill="stepwise")
        yield _stepwise_check(same, tapped, stepwise)
    if second_opinion and spec.ordering != SECOND_OPINION:
        other = TierSpec(ORACLE.tier, SECOND_OPINION, f"{ORACLE.tier}:{SECOND_OPINION}")
        subject = Subject(job.name, spec.text, other.text, between(spec.ordering, SECOND_OPINION), job.repro)
        reference = reference_from_run(runner.run(other, "second opinion", selection=job.selection))
        yield from node_checks(subject, tapped, reference, None)
        yield logits_check(subject, tapped, reference)


def _first_divergent(runner: Runner, spec: TierSpec, against: TierSpec, subject: Subject) -> Result:
    """The first node in graph order that parts from the reference tier, all nodes captured on both."""
    layers = runner.job.layers
    everything = Selection(patterns=("*",), first=layers.first, last=layers.last)
    got = runner.run(spec, "forward, every node", selection=everything)
    want = runner.run(against, "reference, every node", selection=everything)
    for label, value in got.values.items():
        if label not in want.values:
            continue
        measured = compare(value, want.values[label], subject.limit, head_dim=got.head_dims.get(label, 0))
        if not measured.within:
            bad = {"node": label, **measured.first_bad}
            if launched := _kernels(runner, spec, label):
                bad["kernels"] = list(launched)
            return subject.result(
                "first-divergent", "node", passed=False, measure=measured.as_dict(), first_bad=bad
            )
    return subject.skip(
        "first-divergent", "node", "every node of the prompt's pass agrees: only later steps differ"
    )


def _kernels(runner: Runner, spec: TierSpec, label: str) -> tuple[str, ...]:
    """What the tier launches for a value's node in the prompt's tapped pass; nothing where it has no kernels."""
    tokens = min(len(runner.job.tokens), CAPACITIES[-1])
    variants = runner.engine(spec).variants
    variant = variants.fitting("prefill", tokens, 1, tokens, inject=tuple(runner.inject()), tapped=True)
    calls = (call for call in variant.program.calls if label in aliases_of(call.node))
    call = next(calls, None)
    if call is None:
        return ()
    return kernel_names(call.entry.code, call.node, variant.graph, variant.program.plan.capacity)


def model_name(path: Path) -> str:
    return path.name.removesuffix(".gguf")
