"""Compare values inside the layers with a golden's. The first wrong one in graph order identifies the error.

Each layer reads the golden's output of the previous layer, if it is recorded for every token, so that a node shows
only its layer's error and no drift. This is done in one pass and token by token, which is decode. With a golden
without these outputs, the model runs normally.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zinc_rt.golden.capture import CapturedRun
from zinc_rt.golden.format import Golden
from zinc_rt.validate.check_result import CheckResult, ReportFigures
from zinc_rt.validate.checks import CheckedPair, Reference
from zinc_rt.validate.limits import ALL_BUT, NODE
from zinc_rt.validate.measure import Limit, compare_arrays

CHOICES = "ffn_moe_topk-"
WAYS = {"prefill": "one pass", "decode": "token by token"}
FEW = 5  # named beyond the first; the rest is counted


def check_node_values(
    subject: CheckedPair, golden: Golden, reference: Reference, runs: Mapping[str, CapturedRun], *, fed: bool
) -> CheckResult:
    """Check the values inside the layers. `runs` are by stage and cover at least the prompt; `fed`: each layer is
    fed by the reference. Values that only one side has are listed by name in the measure.
    """
    worst: dict[str, tuple[float, str]] = {"spread": (0.0, ""), "factor": (0.0, "")}
    apart: list[str] = []
    bad: dict[str, Any] = {}
    cause, before, compared = "", "", set()
    last = len(golden.ids) - 1 if reference.rows is None else int(reference.rows[-1])
    for stage, label, got, want, head_dim in _pair_values(reference, runs, len(golden.ids)):
        compared.add(label)
        choice = label.startswith(CHOICES)
        errors = _measure_expert_errors(got, want) if choice else _measure_errors(got, want, subject.limit.bits)
        for measure, value in errors.items():
            worst[measure] = max(worst[measure], (value, label))
        allowed = {measure: _choose_error_limit(subject, measure, label, fed, last) for measure in errors}
        over = next((measure for measure, value in errors.items() if not value <= allowed[measure]), None)
        if over is None:
            before = label if not bad else before
            continue
        apart += [label] if label not in apart else []
        if not bad:
            bad = _describe_first(stage, label, got, want, head_dim, reference)
            cause = _format_cause(subject, stage, label, over, errors[over], allowed[over], before)
    missing = [label for label in reference.nodes if label not in compared]
    return subject.result(
        "nodes",
        "node",
        passed=not bad,
        measure=ReportFigures(
            {
                "compared": len(compared),
                "stages": list(runs),
                "fed": fed,
                **{measure: value for measure, (value, _) in worst.items()},
                "worst": {measure: label for measure, (_, label) in worst.items()},
                "apart": apart,
                "not_compared": {
                    **dict(golden.meta.get("nodes_not_compared", {})),
                    "not_computed_here": missing,
                },
            }
        ),
        limit=subject.limit if subject.limit.bits else NODE,
        first_bad=bad,
        cause=cause if len(apart) < 2 else f"{cause}; after it {_format_other_nodes(apart[1:])}",
    )


def _pair_values(
    reference: Reference, runs: Mapping[str, CapturedRun], tokens: int
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray, int]]:
    """Yield stage, label, both values [R, columns] and the head's width, in graph order."""
    for stage, run in runs.items():
        for label, values in run.values.items():
            want = reference.nodes.get(label)
            if want is not None:
                got = reference.of(values[:tokens], want)
                yield (
                    stage,
                    label,
                    got.reshape(len(got), -1),
                    want.reshape(len(want), -1),
                    run.head_dims.get(label, 0),
                )


def _measure_expert_errors(got: np.ndarray, want: np.ndarray) -> dict[str, float]:
    return {"spread": 0.0 if np.array_equal(got, want) else np.inf}


def _measure_errors(got: np.ndarray, want: np.ndarray, bits: bool) -> dict[str, float]:
    if got.shape != want.shape or not (np.isfinite(got).all() and np.isfinite(want).all()):
        return {"spread": np.inf}
    if bits:
        return {"spread": 0.0 if got.tobytes() == want.tobytes() else np.inf}
    wide = want.astype(np.float64)
    error, power = got - wide, float(np.vdot(wide, wide))
    if not power:
        return {"spread": 0.0 if not error.any() else np.inf}
    spread = float(np.sqrt(np.vdot(error, error) / power))
    gain = abs(float(np.vdot(error, wide))) / power
    wholly = error.size >= NODE.fewest and gain >= ALL_BUT * spread
    return {"spread": spread, "factor": gain if wholly else 0.0}


def _choose_error_limit(subject: CheckedPair, measure: str, label: str, fed: bool, last: int) -> float:
    """Return the limit of one measure. `last` is the largest position compared."""
    if subject.limit.bits:
        return 0.0
    layer = label.rpartition("-")[2]
    depth = 1 if fed or not layer.isdigit() else int(layer) + 1
    angles = NODE.position * last if measure == "spread" else 0.0
    return float(getattr(NODE, measure)) * depth + angles


def _describe_first(
    stage: str, label: str, got: np.ndarray, want: np.ndarray, head_dim: int, reference: Reference
) -> dict[str, Any]:
    measured = compare_arrays(got, want, Limit(rel_rms=0.0), head_dim=head_dim)
    return {"node": label, "stage": stage, **reference.locate(measured.first_bad, want)}


def _format_cause(
    subject: CheckedPair, stage: str, label: str, measure: str, value: float, allowed: float, before: str
) -> str:
    how = f"{value:.1e} of its size, at most {allowed:.1e} (healthy {NODE.healthy[measure]:.1e})"
    if label.startswith(CHOICES):
        how = "other experts, or in another order"
    elif subject.limit.bits:
        how = "other bits"
    elif measure == "factor":
        how = f"all of it by a factor: {how}"
    last = f", the last that agrees is {before}" if before else ""
    return f"{label} is the first node off, {WAYS[stage]}: {how}{last}"


def _format_other_nodes(labels: list[str]) -> str:
    more = f" and {len(labels) - FEW} more" if len(labels) > FEW else ""
    return ", ".join(labels[:FEW]) + more
