"""Check whether a report's figures are plausible as measurements: finite, positive, unique, not in the future."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from zinc_rt.perf.gate.figures import FIGURES, compute_percentile
from zinc_rt.perf.gate.offered import SubmittedReport, check_number, is_close, parse_time

SKEW = timedelta(minutes=5)  # between two machines' clocks
WALL = 1.01  # timed seconds against the wall's, which were rounded
PERCENTILES = {"p50_seconds": 0.50, "p90_seconds": 0.90, "p99_seconds": 0.99}
TIMED = ("decode", "aggregate", "prefill", "ttft")  # whose runs are seconds


def numbers(case: SubmittedReport) -> str | None:
    """Require that numbers are numbers, seconds are positive and at most the wall time, and each result occurs
    once.
    """
    ids = [result.get("id") for result in case.evidence.results]
    if twice := next((item for item in ids if ids.count(item) > 1), None):
        return f"{twice} is in the report twice"
    if unknown := next((one for one in ids if one not in FIGURES and not str(one).startswith("scaling")), None):
        return f"no bench records a result {unknown!r}"
    for item in case.evidence.results:
        if item.get("tier") not in (None, case.result.get("tier")) or item.get("status", "pass") != "pass":
            return f"{item['id']} is of another tier or did not pass"
        if problem := _check_summary(item):
            return problem
    for name, value in iterate_leaves(case.result.get("measure", {}), "measure"):
        if not isinstance(value, str):
            check_number(value, name)
    for location, sample in enumerate(case.evidence.details.get("samples", [])):
        for name, value in sample.items():
            check_number(value, f"{name} of sample {location}")
    if case.result.get("status", "pass") != "pass":
        return f"the result did not pass: {case.result.get('status')}"
    timed = 0.0
    for result in case.evidence.results:
        if result.get("id") in TIMED:
            seconds = [
                check_number(value, f"{result['id']}: a run") for value in flatten_runs(result["measure"]["runs"])
            ]
            if min(seconds, default=1.0) <= 0:
                return f"{result['id']}: a run of {min(seconds):g} s"
            timed += 0.0 if result["id"] == "ttft" else sum(seconds)  # a first token's seconds hold the prompt's
    wall = check_number(case.evidence.report.get("wall_seconds"), "wall_seconds")
    if timed > WALL * wall:
        return f"{timed:.4g} s were timed in a report of {wall:.4g} s"
    return _check_percentiles(case)


def _check_summary(result: Mapping[str, Any]) -> str | None:
    """Require that every figure of a result agrees with its samples, even if no criterion needs it."""
    measure = result.get("measure", {})
    for name, figure in FIGURES[result["id"]].of.items() if result["id"] in FIGURES else ():
        if name in measure and not is_close(check_number(measure[name], name), figure(measure)):
            return f"{result['id']}: {name} is {measure[name]}, its own samples say {figure(measure):.4g}"
    return None


def _check_percentiles(case: SubmittedReport) -> str | None:
    """Require that the summary of tokens agrees with the samples, in the same unit."""
    measure = case.result.get("measure", {})
    for name, share in PERCENTILES.items():
        if name in measure:
            expected = compute_percentile(flatten_runs(measure["runs"]), share)
            if not is_close(check_number(measure[name], name), expected):
                return f"{name} is {measure[name]}, its own samples say {expected:.4g} s"
    return None


def check_time(case: SubmittedReport) -> str | None:
    """Require that the run began before it was recorded, and in the past."""
    started = parse_time(case.evidence.report.get("started"), "started")
    if started > datetime.now(UTC) + SKEW:
        return f"it began at {case.evidence.started}, which is in the future"
    entry = case.given.history.entry(case.evidence.digest) if case.given.history is not None else None
    if entry is not None and started > parse_time(entry.at, "recorded") + SKEW:
        return f"it began at {case.evidence.started} and was recorded before, at {entry.at}"
    return None


def iterate_leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every leaf value with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from iterate_leaves(item, f"{name}.{key}")
    elif isinstance(value, list):
        for location, item in enumerate(value):
            yield from iterate_leaves(item, f"{name}.{location}")
    else:
        yield name, value


def flatten_runs(runs: Any) -> list[Any]:
    """Return the values of runs, each of which is a number or a list."""
    return [value for run in runs for value in (run if isinstance(run, list) else [run])]
