"""The tables a person reads: one row a value, the verdict last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tabulate import tabulate

from zinc_rt.report import Report, Result
from zinc_rt.validate.measure import sparkline

HEADERS = ("value", "|x| 2^-8..2^6", "max abs", "rel RMS", "ULP", "limit", "first bad", "")


def figure(value: Any) -> str:
    return "-" if value is None else f"{value:.1e}" if isinstance(value, float) and value else str(value or 0)


def first_bad(result: Result) -> str:
    bad = result.first_bad
    if not bad:
        return ""
    places = [f"{name} {bad[name]}" for name in ("node", "token", "head", "dim", "shape") if name in bad]
    values = f": {bad['got']:.6g}, not {bad['want']:.6g}" if {"got", "want"} <= bad.keys() else ""
    return ", ".join(places) + values


def limit(result: Result) -> str:
    bounds = result.limit
    if bounds.get("bits"):
        return "same"
    return ", ".join(f"{bounds[name]:.1e}" for name in ("max_abs", "rel_rms", "median_max_abs") if name in bounds)


def rows(results: Sequence[Result]) -> list[list[str]]:
    with_resync = any("resync" in result.measure for result in results)
    table = []
    for result in results:
        measure = result.measure
        name = result.id.rpartition("/")[2]
        max_abs = measure.get("max_abs", measure.get("median_max_abs"))
        row = [
            name,
            sparkline(measure["histogram"]) if "histogram" in measure else "",
            figure(max_abs) if measure else "",
            figure(measure.get("rel_rms")) if measure else "",
            figure(measure.get("max_ulp")) if measure else "",
            limit(result),
            result.reason if result.status == "skip" else first_bad(result),
            result.status.upper() if result.status == "fail" else result.status,
        ]
        if with_resync:
            row.insert(5, figure(measure["resync"]["max_abs"]) if "resync" in measure else "")
        table.append(row)
    return table


def table(results: Sequence[Result]) -> str:
    headers = list(HEADERS)
    if any("resync" in result.measure for result in results):
        headers.insert(5, "resync")
    aligned = ("left", "left") + ("right",) * (len(headers) - 4) + ("left", "left")
    return tabulate(rows(results), headers, tablefmt="plain", colalign=aligned, disable_numparse=True)


def sections(results: Sequence[Result]) -> Iterator[str]:
    """One table for each pair of a tier and what it is held against."""
    for tier, reference in dict.fromkeys((result.tier, result.reference) for result in results):
        group = [result for result in results if (result.tier, result.reference) == (tier, reference)]
        lines = [f"\n{tier} against {'itself' if reference == tier else reference}", table(group)]
        yield "\n".join([*lines, *agreement_lines(group)])


def agreement_lines(results: Sequence[Result]) -> list[str]:
    lines = []
    for result in results:
        measure = result.measure
        if result.kind == "logits" and "kl_mean" in measure:
            lines.append(
                f"logits against {result.reference}: top-1 agrees at {measure['top1']} of {measure['positions']} "
                f"positions, KL mean {measure['kl_mean']:.1e}, largest {measure['kl_max']:.1e}"
            )
        if result.kind == "greedy":
            lines.append(f"greedy continuation: {measure['tokens']} tokens, {result.status}")
    return lines


def verdict(report: Report, models: int, *, strict: bool) -> str:
    counts, verdict = report.counts(), report.verdict(strict=strict)
    parts = [f"{counts.get('pass', 0)} checks passed"]
    if counts.get("fail"):
        parts.insert(0, f"{counts['fail']} failed")
    if counts.get("skip"):
        reasons = sorted({result.reason for result in report.results if result.status == "skip"})
        more = f" and {len(reasons) - 1} more reasons" if len(reasons) > 1 else ""
        parts.append(f"{counts['skip']} skipped ({reasons[0]}{more})")
    plural = "" if models == 1 else "s"
    return f"{verdict['status']}  {models} model{plural}: {', '.join(parts)}"
