"""Distinguish accumulated rounding differences of two engines from errors, in three steps.

Each layer alone. Every layer, and the head, runs on the reference's output of the previous layer, so that only
its own error is measured. This error is a few roundings of the layer's contribution to the stream
(limits.Alone), a hundred times less than the accumulated error of a deep model. A wrong factor (an attention
scale, an epsilon) is the error that is hardest to distinguish from rounding. It is visible in the part of the
error that is proportional to the value, in which roundings cancel.

Decode alone. llama.cpp's layers are known for the prompt only, but any token can be computed as decode. The
same run is therefore repeated token by token. The prompt's rows are compared with the same reference and
limits, and all rows with the run in one pass, which must be bit-identical in a canonical ordering. After the
prompt the layers are fed other rows of the reference; both runs must compute the same from them, whether or not
these rows are right.

All together. Correct layers do not bound the accumulated error, and after the prompt only the logits are known.
Drift is therefore limited to DRIFT_GROWTH times the difference of the oracle's two orderings at the same place
of the same model. Rounding accumulates in the same way there, and an error is in both orderings or in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from zinc_rt.golden.capture import CapturedRun
from zinc_rt.validate.check_result import CheckResult, ReportFigures
from zinc_rt.validate.checks import CheckedPair, Reference
from zinc_rt.validate.limits import ALONE, ALONE_OF, DRIFT, DRIFT_GROWTH, STREAM, SoloLimit, rounding_error
from zinc_rt.validate.measure import compare_arrays

GROWS = ("layer", "node", "logits", "decode")


@dataclass(frozen=True, slots=True)
class IsolatedRuns:
    """Two runs over the prompt and some more tokens, each layer fed by `feeds`, f32 [T + steps, D] by label."""

    batched: CapturedRun
    stepwise: CapturedRun
    feeds: dict[str, np.ndarray]
    prompt: int
    same_bits: bool  # whether both ways must agree to the bit


def choose_solo_limit(architecture: str) -> SoloLimit:
    return ALONE_OF.get(architecture, ALONE)


def check_isolation(
    subject: CheckedPair, isolated: IsolatedRuns, reference: Reference, limit: SoloLimit
) -> CheckResult:
    """Check every layer and the head separately, in one pass and token by token."""
    worst = {"spread": 0.0, "token": 0.0, "head": 0.0, "gain": 0.0}
    bad: dict[str, object] = {}
    for stage, name, error in _measure_errors(isolated, reference):
        for measure, value in error.items():
            worst[measure] = max(worst[measure], value)
            if not value <= getattr(limit, measure) and not bad:
                bad = {"node": name, "stage": stage, "measure": measure, "value": value}
    same = True
    for name, got, want in _pair_values(isolated):
        if isolated.same_bits and got.tobytes() != want.tobytes():
            same = False
            bad = bad or {"node": name, "stage": "decode", "measure": "bits of one pass over the same tokens"}
    name = "isolation"
    return CheckResult(
        id=f"{subject.model}/{subject.tier}/{name}",
        kind=name,
        status="fail" if bad else "pass",
        tier=subject.tier,
        reference=subject.reference,
        measure=ReportFigures(worst, equal_bits=same),
        limit=limit,
        first_bad=bad,
        reason=_explain_worst(bad, worst, limit),
        repro=subject.repro if bad else "",
    )


def _explain_worst(bad: dict[str, object], worst: dict[str, float], limit: SoloLimit) -> str:
    figures = ", ".join(
        f"{name} {value:.2g} of {getattr(limit, name):.2g} (healthy {limit.healthy[name]:.2g})"
        for name, value in worst.items()
    )
    if not bad:
        return f"each layer alone, prompt and decode: {figures}"
    return f"{bad['node']} alone, {bad['stage']}, is off in its {bad['measure']}: {figures}"


def _measure_errors(isolated: IsolatedRuns, reference: Reference) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Return the separate errors of each layer and the head against the reference. If decode need not be
    bit-identical with one pass, also return the errors against one pass.
    """
    prompt = isolated.prompt
    for stage, run in (("prefill", isolated.batched), ("decode", isolated.stepwise)):
        fed = None
        for label, feed in isolated.feeds.items():
            got = run.values[label].reshape(len(feed), -1)
            yield (
                stage,
                label,
                _measure_layer_error(got[:prompt], feed[:prompt], None if fed is None else fed[:prompt]),
            )
            if stage == "decode" and not isolated.same_bits and len(feed) > prompt:
                one_pass = isolated.batched.values[label].reshape(len(feed), -1)
                own = _measure_layer_error(got[prompt:], one_pass[prompt:], None if fed is None else fed[prompt:])
                yield stage, label, {**own, "gain": 0.0}  # of a few tokens it says nothing
            fed = feed
        width = next(iter(isolated.feeds.values())).shape[-1]
        spread, _, gain = _split_error(run.logits[:prompt], reference.logits[:prompt], None)
        yield stage, "result_output", {"head": spread / rounding_error(width), "gain": gain}


def _measure_layer_error(got: np.ndarray, want: np.ndarray, fed: np.ndarray | None) -> dict[str, float]:
    spread, token, gain = _split_error(got, want, fed)
    unit = rounding_error(want.shape[-1])
    return {"spread": spread / unit, "token": token / unit, "gain": gain}


def _split_error(got: np.ndarray, want: np.ndarray, fed: np.ndarray | None) -> tuple[float, float, float]:
    """Return the error over all tokens and of the worst token, relative to the value added to `fed`, and its
    gain.
    """
    if got.shape != want.shape or not (np.isfinite(got).all() and np.isfinite(want).all()):
        return np.inf, np.inf, np.inf
    want = want.astype(np.float64)
    error, added = got - want, want if fed is None else want - fed

    def compute_rms(values: np.ndarray, axis: int | None = None) -> np.ndarray:
        return np.asarray(np.sqrt(np.mean(np.square(values), axis=axis)))

    tiny = float(np.finfo(np.float32).tiny)
    spread = compute_rms(error) / (compute_rms(added) + compute_rms(want) / STREAM + tiny)
    token = compute_rms(error, -1) / (compute_rms(added, -1) + compute_rms(want, -1) / STREAM + tiny)
    gain = abs(float(np.vdot(error, added))) / (float(np.vdot(added, added)) + tiny)
    return float(spread), float(token.max()), gain


def _pair_values(isolated: IsolatedRuns) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for label in isolated.feeds:
        yield label, isolated.stepwise.values[label], isolated.batched.values[label]
    yield "result_output", isolated.stepwise.logits, isolated.batched.logits


def could_be_drift(results: Iterable[CheckResult]) -> bool:
    """Return whether a value exceeds the plain limit by an amount that drift could explain."""
    return any(_is_near_limit(result) for result in results)


def ignore_drift(
    results: Iterable[CheckResult], run: CapturedRun, second: CapturedRun, prompt: int
) -> list[CheckResult]:
    """Return the results, given that each layer is right separately. Results that drift explains pass, with a
    note. `run`, `second`: the oracle's runs in two orderings.
    """
    return [_judge_result(result, run, second, prompt) if _is_near_limit(result) else result for result in results]


def _judge_result(result: CheckResult, run: CapturedRun, other: CapturedRun, prompt: int) -> CheckResult:
    name, distance = result.name, result.distance
    width = next(iter(run.layers.values())).reshape(prompt, -1).shape[-1]
    if result.kind in ("logits", "decode"):
        part = slice(0, prompt) if result.kind == "logits" else slice(prompt, None)
        own, depth = compare_arrays(run.logits[part], other.logits[part], DRIFT).rel_rms, len(run.layers) + 1
    elif name in run.values and name in other.values:
        own = compare_arrays(run.values[name], other.values[name], DRIFT).rel_rms
        layer = name.rpartition("-")[2]
        depth = int(layer) + 1 if layer.isdigit() else len(run.layers) + 1
    else:
        return result
    allowed = max(DRIFT_GROWTH * own, ALONE.spread * rounding_error(width) * depth)
    if distance is None or not distance.rel_rms <= allowed:
        return replace(result, cause=f"beyond drift, which is at most {allowed:.1e} here")
    bound = replace(DRIFT, rel_rms=allowed)
    return replace(result, status="pass", reason=DRIFT.why, limit=bound, first_bad={}, repro="")


def _is_near_limit(result: CheckResult) -> bool:
    assert DRIFT.rel_rms is not None
    distance = result.distance
    return (
        result.status == "fail"
        and result.kind in GROWS
        and distance is not None
        and not distance.nonfinite
        and distance.rel_rms <= DRIFT.rel_rms
    )
