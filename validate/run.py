"""Validate one model: run what is needed and compare it with every available reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from zinc_rt.cli.describe import describe_finding
from zinc_rt.engine.devices import ORACLE
from zinc_rt.engine.engine import Prefill
from zinc_rt.golden.capture import CapturedRun, Selection, list_aliases
from zinc_rt.golden.digests import digest_run
from zinc_rt.host.facts import find_assumed_facts
from zinc_rt.ir.graph import ABSENT
from zinc_rt.kernels.launch import list_kernel_names
from zinc_rt.model.pooling import needs_whole_sequences
from zinc_rt.model.scales import find_nonfinite_weights
from zinc_rt.validate.check_result import (
    CheckResult,
    NonfiniteMeasure,
    ReportFigures,
    SanitizerMeasure,
    ValueMeasure,
)
from zinc_rt.validate.checks import (
    CheckedPair,
    Reference,
    check_decode,
    check_digests,
    check_golden,
    check_greedy,
    check_logits,
    check_nodes,
    check_quantised,
    check_same_bits,
    reference_from_golden,
    reference_from_run,
)
from zinc_rt.validate.drift import IsolatedRuns, check_isolation, choose_solo_limit, could_be_drift, ignore_drift
from zinc_rt.validate.forms import check_forms
from zinc_rt.validate.host_checks import HOST, check_draws, check_tokenizer
from zinc_rt.validate.limits import BIT_EXACT, QUANTISED, choose_golden_limit, choose_tier_limit
from zinc_rt.validate.measure import Limit, compare_arrays
from zinc_rt.validate.nodes import check_node_values
from zinc_rt.validate.nonfinite import find_first_nonfinite
from zinc_rt.validate.runner import FORWARD, REFERENCE, ValidationJob, ValidationRunner
from zinc_rt.validate.tiers import TierSpec

SECOND_OPINION = "float32-dequant"
SIMULATED_ID = "simulated device"
FEW = 5  # named; the rest is counted
FINITE = Limit(why="every value is a number")
STEPS = Limit(bits=True, why="each step matches the request")
FEW_TOKENS = 4  # that one by one show a difference between the stages, where none were generated


def validate(runner: ValidationRunner) -> Iterator[CheckResult]:
    """Yield every check of one model as it completes."""
    job = runner.job
    for spec in job.tiers if job.golden is not None else ():
        yield from _check_against_golden(runner, spec)
    if job.golden is not None and job.layers.whole:
        subject = CheckedPair(job.name, HOST, job.golden.path.name, BIT_EXACT, job.repro)
        if texts := job.golden.meta.get("tokenizer"):
            yield check_tokenizer(subject, texts, job.gguf)
    if job.reference is not None:
        yield from _compare_tiers(runner, job.reference)
    if job.alone and len(job.tiers) == 1 and job.reference in (None, job.tiers[0]):
        yield from _check_solo(runner, job.tiers[0], second_opinion=job.golden is None)
    yield from _check_steps(runner)
    yield from _check_nonfinite(runner)
    if runner.simulated:
        yield _check_sanitizer(runner)


def _check_steps(runner: ValidationRunner) -> Iterator[CheckResult]:
    """Check the steps that the host built for a tier. Only errors are reported."""
    for spec, watch in runner.watches.items():
        if watch.wrong is not None:
            yield CheckedPair(runner.job.name, spec.text, spec.text, STEPS, runner.job.repro).result(
                "steps",
                "step",
                passed=False,
                measure=ReportFigures(steps=watch.steps),
                first_bad=watch.wrong.first_bad(),
                cause=watch.wrong.text,
            )


def _check_nonfinite(runner: ValidationRunner) -> Iterator[CheckResult]:
    """Fail for NaN and infinity, which are neither rounding nor an agreement, even if two tiers have the same
    bits.
    """
    job, spoilt = runner.job, list(runner.find_nonfinite_tiers())
    weights = [problem.text for problem in find_nonfinite_weights(job.gguf)] if spoilt else []
    for spec, run in spoilt:
        origin = find_first_nonfinite(runner.engine(spec), job.tokens, run.generated, runner.inject())
        count = sum(int(np.count_nonzero(~np.isfinite(array))) for array in (run.logits, *run.values.values()))
        yield CheckedPair(job.name, spec.text, spec.text, FINITE, job.repro).result(
            "finite",
            "finite",
            passed=False,
            measure=NonfiniteMeasure(count, weights[:FEW]),
            first_bad=origin.first_bad() if origin is not None else {"node": "logits"},
            cause=origin.text if origin is not None else "non-finite values, and none where every node is tapped",
        )


def _check_sanitizer(runner: ValidationRunner) -> CheckResult:
    """Fail for any finding of a simulated device, which is stricter than hardware, even if the bits are equal."""
    findings, job = runner.findings(), runner.job
    return CheckResult(
        id=f"{job.name}/{SIMULATED_ID}/sanitizer",
        kind="sanitizer",
        status="fail" if findings else "pass",
        tier=SIMULATED_ID,
        reference="the rules of its sanitizer",
        measure=SanitizerMeasure(
            len(findings),
            str(runner.simulated[0].choice.options.get("sanitizer", "")),
            [fact.id for fact in find_assumed_facts(runner.consulted())],
            findings[:FEW],
        ),
        limit=Limit(findings=0),
        first_bad=describe_finding(findings[0]) if findings else {},
        cause=findings[0].text if findings else "",
        repro=job.repro if findings else "",
    )


def _check_against_golden(runner: ValidationRunner, spec: TierSpec) -> Iterator[CheckResult]:
    job, golden = runner.job, runner.job.golden
    assert golden is not None
    limit = choose_golden_limit(job.gguf.architecture, spec.ordering, golden.ordering)
    own = golden.quantised if limit is QUANTISED and golden.quantised is not None else golden
    reference = reference_from_golden(own)
    if golden.rows is None:  # every token of them: compared one by one, where they were asked for
        kept = {label: value for label, value in reference.nodes.items() if not _is_selected(job, label)}
        reference = replace(reference, nodes=kept)
    by_digest = golden.digests.keys() - reference.values.keys() - {"logits", "greedy_logits"}
    if digested := limit.bits and job.layers.whole and bool(by_digest):
        reference = replace(reference, digested=by_digest)
    subject = CheckedPair(job.name, spec.text, golden.path.name + own.variant, limit, job.repro)
    if (spoilt := check_golden(subject, reference)) is not None:
        yield spoilt
    run = runner.run(spec, FORWARD, selection=job.selection, steps=job.steps)
    resynced = _run_resynced(runner, spec, reference) if job.resync else None
    results = list(check_nodes(subject, run, reference, resynced))
    if limit is QUANTISED:
        yield from [*results, check_quantised(subject, run, golden)]
        return
    results.append(check_logits(subject, run, reference))
    if (greedy := check_greedy(subject, run, reference)) is not None:
        results.append(greedy)
    if (decode := check_decode(subject, run, reference, len(job.tokens))) is not None:
        results.append(decode)
    drift = could_be_drift(results)
    isolated = None
    if not limit.bits and (drift or job.resync or not _requires_same_bits(job, spec)):
        isolated = _run_isolated_layers(runner, spec, reference, run.generated)
        if isolated is not None:
            isolation_result = check_isolation(
                subject, isolated, reference, choose_solo_limit(job.gguf.architecture)
            )
            if drift and isolation_result.status == "pass":
                one, other = (
                    _run_second_reference(runner, item, run.generated) for item in ("canonical-1", SECOND_OPINION)
                )
                results = ignore_drift(results, one, other, len(job.tokens))
            results.append(isolation_result)
    if job.layers.whole and (drawn := check_draws(subject, golden, job.gguf, run)) is not None:
        results.append(drawn)
    if digested:
        results.append(_check_digests(runner, spec, subject))
    if reference.nodes and (isolated is not None or not _requires_same_bits(job, spec)):
        results.append(_check_nodes(runner, spec, subject, reference, isolated))
    yield from results


def _check_digests(runner: ValidationRunner, spec: TierSpec, subject: CheckedPair) -> CheckResult:
    """Compare every value for which the golden has a digest, whether or not the golden contains the value."""
    job = runner.job
    assert job.golden is not None
    known = Selection(tuple(job.golden.digests))
    run = runner.run(spec, "forward, every value with a digest", selection=known, steps=job.steps)
    return check_digests(subject, digest_run(run, len(job.tokens)), job.golden.digests)


def _is_selected(job: ValidationJob, label: str) -> bool:
    layer = label.rpartition("-")[2]
    return job.selection.is_selected(label, int(layer) if layer.isdigit() else None)


def _check_nodes(
    runner: ValidationRunner,
    spec: TierSpec,
    subject: CheckedPair,
    reference: Reference,
    isolated: IsolatedRuns | None,
) -> CheckResult:
    """Compare the golden's values inside the layers, each layer fed by the golden if possible."""
    job = runner.job
    assert job.golden is not None
    if isolated is not None:
        runs = {"prefill": isolated.batched, "decode": isolated.stepwise}
        return check_node_values(subject, job.golden, reference, runs, fed=True)
    inside = Selection(tuple(reference.nodes), job.layers.first, job.layers.last)
    run = runner.run(spec, "forward, every node of the golden", selection=inside)
    return check_node_values(subject, job.golden, reference, {"prefill": run}, fed=False)


def _requires_same_bits(job: ValidationJob, spec: TierSpec) -> bool:
    """Return whether the reference tier, whose layers are examined, represents this one too."""
    other = job.reference
    return (
        other is not None
        and other in job.tiers
        and other != spec
        and choose_tier_limit(spec.ordering, other.ordering).bits
    )


def _run_isolated_layers(
    runner: ValidationRunner, spec: TierSpec, reference: Reference, after: list[int]
) -> IsolatedRuns | None:
    """Run each layer and the head fed by the reference, in both stages. Return None if a layer is missing in the
    reference.
    """
    job = runner.job
    labels = [f"l_out-{layer}" for layer in range(job.layers.total)]
    if not job.layers.whole or not all(
        len(reference.values.get(label, ())) == len(job.tokens) for label in labels
    ):
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
    return IsolatedRuns(batched, stepwise, feeds, len(job.tokens), same_bits=_make_self_pair(job, spec).limit.bits)


def _run_second_reference(runner: ValidationRunner, ordering: str, after: list[int]) -> CapturedRun:
    """Return the oracle's run for the prompt and these tokens after it."""
    oracle = TierSpec(ORACLE.tier, ordering, f"{ORACLE.tier}:{ordering}")
    job = runner.job
    return runner.run(oracle, "rounding's own growth", selection=job.selection, steps=len(after), follow=after)


def _compare_tiers(runner: ValidationRunner, spec: TierSpec) -> Iterator[CheckResult]:
    """Compare every other tier with the reference tier, both fed the reference's greedy tokens."""
    job = runner.job
    first = runner.run(spec, REFERENCE, selection=job.selection, steps=job.steps)
    reference = reference_from_run(first)
    for other in job.tiers:
        if other == spec:
            continue
        limit = choose_tier_limit(other.ordering, spec.ordering)
        subject = CheckedPair(job.name, other.text, spec.text, limit, job.repro)
        run = runner.run(other, FORWARD, selection=job.selection, steps=job.steps, follow=reference.greedy)
        results = list(
            check_nodes(subject, run, reference, _run_resynced(runner, other, reference) if job.resync else None)
        )
        results.append(check_logits(subject, run, reference))
        if any(result.status == "fail" for result in results):
            where = _check_first_divergent(runner, other, spec, subject)
            if job.smallest is not None and limit.bits:
                where = job.smallest(runner, other, reference.greedy, where)
            results.append(where)
        yield from results
        yield from _check_both_orders(runner, other, run)
    if spec in job.tiers:
        yield from _check_both_orders(runner, spec, first)


def _run_resynced(runner: ValidationRunner, spec: TierSpec, reference: Reference) -> CapturedRun | None:
    """Run with every layer reading the reference's output of the previous layer. Return None if the reference has
    none.
    """
    job = runner.job
    inside = range(job.layers.first, job.layers.last - 1)
    feeds = {f"l_out-{layer}": reference.values.get(f"l_out-{layer}") for layer in inside}
    known = {label: value for label, value in feeds.items() if value is not None and len(value) == len(job.tokens)}
    if not known:
        return None
    return runner.run(spec, "forward, each layer fed by the reference", selection=job.selection, inject=known)


def _make_self_pair(job: ValidationJob, spec: TierSpec) -> CheckedPair:
    """Compare one tier with itself. The bits must be equal, except for BLAS, which selects its summation order by
    shape.
    """
    limit = choose_tier_limit(spec.ordering, "") if spec.ordering == SECOND_OPINION else BIT_EXACT
    return CheckedPair(job.name, spec.text, spec.text, limit, job.repro)


def _check_both_orders(runner: ValidationRunner, spec: TierSpec, tapped: CapturedRun) -> Iterator[CheckResult]:
    """Compare two paths of a tier: the prompt, tapped, and the following tokens one by one, compared with one
    untapped pass over all but the last token, followed by the last. With a prefill ordering, or too few following
    tokens, also compare some tokens of the prompt one by one.
    """
    job, same = runner.job, _make_self_pair(runner.job, spec)
    prompt, after = len(job.tokens), tapped.generated
    plain = runner.run(
        spec,
        "forward, untapped",
        selection=None,
        tokens=[*job.tokens, *after[:-1]],
        follow=after[-1:],
        steps=len(after[-1:]),
    )
    yield _check_untapped(same, _select_rows(plain, 0, prompt), replace(tapped, logits=tapped.logits[:prompt]))
    yield from check_forms(runner, spec, same)
    if len(after) > 1:
        a, b = _select_rows(plain, prompt, None), CapturedRun(tapped.logits[prompt:], {})
        result = _check_stepwise(same, a, b)
        if result.first_bad:
            result.first_bad["token"] += prompt
            result = _compare_stages(runner, spec, result, [*job.tokens, *after[:-1]])
        yield result
    if (len(after) <= 1 or job.prefill_ordering) and prompt > 1 and not needs_whole_sequences(job.gguf):
        few = job.tokens[:FEW_TOKENS]
        stepwise = runner.run(
            spec, "a few tokens, one by one", selection=job.selection, tokens=few, prefill="stepwise"
        )
        yield _check_stepwise(same, _select_rows(tapped, 0, len(few)), stepwise, job.prefill_ordering)


def _compare_stages(
    runner: ValidationRunner, spec: TierSpec, result: CheckResult, tokens: list[int]
) -> CheckResult:
    """Return the same failure at the first node in graph order whose stages diverge, or unchanged if tapping shows
    none.
    """
    layers = runner.job.layers
    everything = Selection(("*",), layers.first, layers.last)
    ways: tuple[Prefill, ...] = ("batched", "stepwise")
    one, other = (
        runner.run(spec, f"every node, {way}", selection=everything, tokens=tokens, prefill=way) for way in ways
    )
    limit = _make_self_pair(runner.job, spec).limit
    for label, value in one.values.items():
        if label not in other.values:
            continue
        measured = compare_arrays(other.values[label], value, limit, head_dim=one.head_dims.get(label, 0))
        if not measured.within:
            bad = {"node": label, "stage": "decode", **measured.first_bad}
            if launched := _find_kernels(runner, spec, label, state=True):
                bad["kernels"] = list(launched)
            return replace(result, first_bad=bad)
    return result


def _select_rows(run: CapturedRun, first: int, last: int | None) -> CapturedRun:
    """Return part of the positions of a run; later positions do not affect earlier ones."""
    values = {label: value[first:last] for label, value in run.values.items()}
    return replace(run, logits=run.logits[first:last], values=values)


def _check_stepwise(
    subject: CheckedPair, batched: CapturedRun, stepwise: CapturedRun, prefill_ordering: str = ""
) -> CheckResult:
    cause = "one pass over the tokens and token by token differ"
    if prefill_ordering:
        cause += f": {prefill_ordering} must not depend on the number of a step's tokens"
    return check_same_bits(subject, "stepwise", "prefill", batched, stepwise, cause)


def _check_untapped(subject: CheckedPair, plain: CapturedRun, tapped: CapturedRun) -> CheckResult:
    cause = "only the untapped graph reuses memory: aliasing, or a missing barrier"
    return check_same_bits(subject, "untapped", "tap", plain, tapped, cause)


def _check_solo(runner: ValidationRunner, spec: TierSpec, *, second_opinion: bool) -> Iterator[CheckResult]:
    """Check a single tier: two paths through it must agree, and so must another ordering."""
    job = runner.job
    same = _make_self_pair(job, spec)
    tapped = runner.run(spec, FORWARD, selection=job.selection)
    plain = runner.run(spec, "forward, untapped", selection=None)
    yield _check_untapped(same, plain, tapped)
    yield from check_forms(runner, spec, same)
    if len(job.tokens) > 1 and not needs_whole_sequences(job.gguf):
        stepwise = runner.run(spec, "forward, token by token", selection=job.selection, prefill="stepwise")
        yield _check_stepwise(same, tapped, stepwise, job.prefill_ordering)
    if second_opinion and spec.ordering != SECOND_OPINION:
        other = TierSpec(ORACLE.tier, SECOND_OPINION, f"{ORACLE.tier}:{SECOND_OPINION}")
        ordering = "canonical-1-q8" if job.prefill_ordering else spec.ordering  # rounded activations, as there
        subject = CheckedPair(
            job.name, spec.text, other.text, choose_tier_limit(ordering, SECOND_OPINION), job.repro
        )
        reference = reference_from_run(runner.run(other, "second opinion", selection=job.selection))
        yield from check_nodes(subject, tapped, reference, None)
        yield check_logits(subject, tapped, reference)


def _check_first_divergent(
    runner: ValidationRunner, spec: TierSpec, against: TierSpec, subject: CheckedPair
) -> CheckResult:
    """Return the first node in graph order that diverges from the reference tier, with all nodes captured on
    both.
    """
    layers = runner.job.layers
    everything = Selection(patterns=("*",), first=layers.first, last=layers.last)
    got = runner.run(spec, "forward, every node", selection=everything)
    want = runner.run(against, "reference, every node", selection=everything)
    for label, value in got.values.items():
        if label not in want.values:
            continue
        measured = compare_arrays(value, want.values[label], subject.limit, head_dim=got.head_dims.get(label, 0))
        if not measured.within:
            bad = {"node": label, **measured.first_bad}
            if launched := _find_kernels(runner, spec, label):
                bad["kernels"] = list(launched)
            return subject.result(
                "first-divergent", "node", passed=False, measure=ValueMeasure(measured), first_bad=bad
            )
    return subject.make_skip(
        "first-divergent", "node", "every node of the prompt's pass agrees: only later steps differ"
    )


def _find_kernels(runner: ValidationRunner, spec: TierSpec, label: str, *, state: bool = False) -> tuple[str, ...]:
    """Return the kernels that the tier launches for a value's node in the prompt's tapped pass; with `state` also
    those of the nodes that store to the state or KV cache it reads, and of a step of one token. Empty for a tier
    without kernels.
    """
    engine = runner.engine(spec)
    tokens, variants = min(len(runner.job.tokens), engine.limits.step_tokens), engine.variants
    stage = variants.choose_stage(tokens, 1, "prompt")
    variant = variants.find_fitting(stage, tokens, 1, tokens, inject=tuple(runner.inject()), tapped=True)
    program, buffers = variant.program, variant.graph.buffers
    calls = [call for call in program.calls if label in list_aliases(call.node)][-1:]  # the last keeps the name
    if state and calls:
        kept = {name for name in calls[0].node.inputs if name != ABSENT and buffers[name].role == "state"}
        calls += [call for call in program.calls if kept & set(call.node.outputs) and call not in calls]
    capacity = program.plan.capacity
    steps = (capacity, {**capacity, "tokens": 1}) if state else (capacity,)
    by_call = (list_kernel_names(c.entry.code, c.node, variant.graph, step) for step in steps for c in calls)
    return tuple(dict.fromkeys(name for names in by_call for name in names))
