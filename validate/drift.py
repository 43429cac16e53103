"""Rounding differences of two engines grow along depth and length. What grew is told from what is wrong by running
every layer alone, on the reference's own input."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zinc_rt.report import Result
from zinc_rt.validate.capture import Run
from zinc_rt.validate.checks import Reference, Subject
from zinc_rt.validate.limits import DRIFT, at_scale
from zinc_rt.validate.measure import compare

GROWS = ("layer", "node", "logits", "decode")


def may_be_drift(results: Iterable[Result]) -> bool:
    """Whether something is beyond the plain limit and near enough that drift could explain it."""
    return any(_near(result) for result in results)


def without_drift(
    results: Iterable[Result], subject: Subject, resynced: Run, reference: Reference
) -> list[Result]:
    """The same results; those that drift explains pass, and say so.

    It explains them where every layer, and the head behind the last, is within the plain limit on its own. One
    layer that is not, and nothing is forgiven.
    """
    alone = [
        compare(value, reference.values[label], at_scale(subject.limit, reference.values[label])).within
        for label, value in resynced.values.items()
        if label.startswith("l_out-") and label in reference.values
    ]
    count = min(len(resynced.logits), len(reference.logits))
    head = compare(resynced.logits[:count], reference.logits[:count], subject.limit).within
    if not alone or not all(alone) or not count or not head:
        return list(results)
    return [
        replace(r, status="pass", reason=DRIFT.why, limit=DRIFT.as_dict(), first_bad={}, repro="")
        if _near(r)
        else r
        for r in results
    ]


def _near(result: Result) -> bool:
    assert DRIFT.rel_rms is not None
    measure = result.measure
    return (
        result.status == "fail"
        and result.kind in GROWS
        and not measure.get("nonfinite")
        and float(measure.get("rel_rms", 1.0)) <= DRIFT.rel_rms
    )
