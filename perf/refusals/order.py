"""Check the times of a report, its record and its validation against each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from zinc_rt.perf.gate.offered import SubmittedReport, check_number, parse_time
from zinc_rt.perf.gate.report_files import ReportFile
from zinc_rt.perf.refusals.numbers import SKEW, flatten_runs

ROUNDING = timedelta(seconds=1)  # of a time in a report
PROOF_AGE = timedelta(days=7)  # of a validation, when the speed was measured
REPORT_AGE = timedelta(days=90)  # of a report, when it is offered: drivers and firmware change
RUN_SLACK = 0.98  # of the seconds of a run: runs to warm up may be slightly faster


def order(case: SubmittedReport) -> str | None:
    """Require that the seconds of all runs, including warm-up runs, fit between start and record, and that the
    report is recent.
    """
    started = parse_time(case.evidence.started, "started")
    if started < datetime.now(UTC) - REPORT_AGE:
        return f"it began at {case.evidence.started}, more than {REPORT_AGE.days} days ago"
    needed = compute_least_seconds(case)
    wall = check_number(case.evidence.report.get("wall_seconds"), "wall_seconds")
    if wall < needed:
        return f"its runs and those to warm up take {needed:.4g} s, the report took {wall:.4g} s"
    if started + timedelta(seconds=wall) > datetime.now(UTC) + SKEW:
        return f"it began at {case.evidence.started} and took {wall:.4g} s, which is not over yet"
    entry = case.given.history.entry(case.evidence.digest) if case.given.history is not None else None
    if entry is not None and parse_time(entry.at, "recorded") + ROUNDING < started + timedelta(seconds=needed):
        return f"it was recorded at {entry.at}, before its runs of {needed:.4g} s could end"
    return None


def compute_least_seconds(case: SubmittedReport) -> float:
    """Return the seconds of all timed runs of a report and of its warm-up runs, at the same speed."""
    timed, maximum = 0.0, 0.0
    for name in ("decode", "aggregate", "prefill"):
        result = case.evidence.result(name)
        if result is not None:
            runs = result["measure"]["runs"]
            timed += sum(check_number(value, f"{name}: a run") for value in flatten_runs(runs))
            maximum = max(maximum, len(runs))
    runs_, warmup = case.evidence.workload.get("runs", maximum), case.evidence.workload.get("warmup", 0)
    return timed * (1 + RUN_SLACK * check_number(warmup, "warmup") / max(1, check_number(runs_, "runs")))


def check_order(case: SubmittedReport, proof: ReportFile) -> str | None:
    """Return why a validation did not end shortly before the speed was measured; None if it did."""
    measured, proved = parse_time(case.evidence.started, "started"), parse_time(proof.started, "started")
    wall = check_number(proof.report.get("wall_seconds"), "wall_seconds of the validation")
    if wall <= 0:
        return f"it took {wall:g} s"
    ended = proved + timedelta(seconds=wall)
    if ended > measured + ROUNDING:
        return f"it ended at {ended.isoformat(timespec='seconds')}, after the speed's start: validate first"
    if measured - proved > PROOF_AGE:
        return f"it is from {proof.started}, more than {PROOF_AGE.days} days before the speed"
    entry = case.given.history.entry(proof.digest) if case.given.history is not None else None
    if entry is not None and parse_time(entry.at, "recorded") + SKEW < ended:
        return f"it was recorded at {entry.at}, before it could end"
    return None
