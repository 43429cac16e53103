"""Terminal tables: one row per value, the verdict last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zinc_rt.backends.base import Finding
from zinc_rt.cli.output import format_simulated_note
from zinc_rt.cli.report import Report
from zinc_rt.host.facts import format_dependency_suffix
from zinc_rt.host.terminal import Column, Page, Table, number_column
from zinc_rt.validate.check_result import (
    CheckResult,
    GreedyMeasure,
    MedianMeasure,
    NonfiniteMeasure,
    SanitizerMeasure,
)
from zinc_rt.validate.measure import Limit, format_sparkline

NO_MARKS: Mapping[str, str] = {}
HEADERS = ("value", "|x| 2^-8..2^6", "max abs", "rel RMS", "ULP", "limit", "", "first bad")


def format_figure(value: Any) -> str:
    return "-" if value is None else f"{value:.1e}" if isinstance(value, float) and value else str(value or 0)


def format_first_bad(result: CheckResult) -> str:
    bad = result.first_bad
    if not bad:
        return ""
    places = [f"{name} {bad[name]}" for name in ("node", "kernel", "token", "head", "dim") if name in bad]
    if "shape" in bad:
        places.append(f"shape {bad['shape']}, not {bad['wanted_shape']}")
    values = f": {_format_values(bad['got'], bad['want'])}" if {"got", "want"} <= bad.keys() else ""
    return ", ".join(places) + values


def _format_values(got: float, want: float) -> str:
    """Format both values with as many digits as distinguish them, at most nine, the precision of a float32."""
    digits = next((digits for digits in (6, 9) if f"{got:.{digits}g}" != f"{want:.{digits}g}"), 9)
    return f"{got:.{digits}g}, not {want:.{digits}g}"


def format_limit(result: CheckResult) -> str:
    allowed = result.limit
    if not isinstance(allowed, Limit):
        return ""
    if allowed.bits:
        return "bit-exact"
    bounds = (allowed.max_abs, allowed.rel_rms, allowed.median_max_abs)
    return ", ".join(f"{bound:.1e}" for bound in bounds if bound is not None)


def format_rows(results: Sequence[CheckResult]) -> list[list[str]]:
    with_resync = has_resync(results)
    table = []
    for result in results:
        if result.status == "skip" and not result.measure:
            continue  # nothing to show but the reason, which reason_lines says once
        row = [
            result.name,
            format_sparkline(result.value.histogram)
            if result.value is not None and result.value.histogram
            else "",
            *(format_figures(result) if result.measure else ("", "", "")),
            format_limit(result),
            result.status.upper() if result.status == "fail" else result.status,
            format_first_bad(result),
        ]
        if with_resync:
            row.insert(5, format_resync(result))
        table.append(row)
    return table


def format_figures(result: CheckResult) -> tuple[str, str, str]:
    """Return the largest difference, its RMS relative to the value's, and ULP; - for values that were not
    measured.
    """
    if isinstance(result.measure, MedianMeasure):
        return format_figure(result.measure.median_max_abs), format_figure(None), format_figure(None)
    distance = result.distance
    if distance is None:
        return format_figure(None), format_figure(None), format_figure(None)
    return format_figure(distance.max_abs), format_figure(distance.rel_rms), format_figure(distance.max_ulp)


def has_resync(results: Iterable[CheckResult]) -> bool:
    return any(result.value is not None and result.value.resync is not None for result in results)


def format_resync(result: CheckResult) -> str:
    """Return the largest difference with the layer's input reset to the reference's; "" if it was not measured."""
    resync = result.value.resync if result.value is not None else None
    return "" if resync is None else format_figure(resync.max_abs)


def format_table(results: Sequence[CheckResult]) -> Page:
    """Format the measurements, one row each, followed by the reasons, one line each."""
    return Page([*_format_measured(results), *format_reasons(results), *format_causes(results)])


def _format_measured(results: Sequence[CheckResult]) -> list[Table]:
    shown = format_rows(results)
    if not shown:
        return []
    headers = list(HEADERS)
    if has_resync(results):
        headers.insert(5, "resync")
    columns = [Column(name, right=2 <= index < len(headers) - 2) for index, name in enumerate(headers)]
    return [Table(columns, shown)]


def format_causes(results: Sequence[CheckResult]) -> Iterator[str]:
    """Return each cause of a failure once; a sanitizer's findings by name as far as the result contains them."""
    causes: dict[str, list[str]] = {}
    for result in results:
        if result.status != "fail":
            continue
        measure = result.measure
        findings = measure.found if isinstance(measure, SanitizerMeasure) else ()
        for text in [_format_finding(finding) for finding in findings] or filter(None, [result.cause]):
            causes.setdefault(text, []).append(result.name)
        if isinstance(measure, SanitizerMeasure) and findings and (more := measure.findings - len(findings)) > 0:
            causes.setdefault(f"and {more} more finding{'s' * (more > 1)}, counted only", []).append(result.name)
        for text in measure.weights if isinstance(measure, NonfiniteMeasure) else ():
            causes.setdefault(f"the model file is not finite: {text}", []).append(result.name)
    for text, names in causes.items():
        yield f"fail  {', '.join(_format_ranges(list(dict.fromkeys(names))))}: {text}"


def _format_finding(finding: Finding) -> str:
    return finding.text + (
        f" (node {finding.node.label})" if finding.node is not None and finding.node.label else ""
    )


def format_reasons(results: Sequence[CheckResult]) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result.reason:
            reasons.setdefault((result.status, result.reason), []).append(result.name)
    for (status, reason), names in reasons.items():
        yield f"{status}  {', '.join(_format_ranges(names))}: {reason}"


def _format_ranges(names: Sequence[str]) -> list[str]:
    """Format neighbouring layers as a range: l_out-0, l_out-1, l_out-2, logits -> l_out-0..2, logits."""
    ranges: list[tuple[str, list[int]]] = []
    for name in names:
        stem, dash, layer = name.rpartition("-")
        if not (dash and layer.isdigit()):
            ranges.append((name, []))
            continue
        run = next(
            (layers for known, layers in ranges if known == stem and layers and layers[-1] == int(layer) - 1), None
        )
        if run is None:
            ranges.append((stem, [int(layer)]))
        else:
            run.append(int(layer))
    return [
        stem + (f"-{layers[0]}" if layers else "") + (f"..{layers[-1]}" if len(layers) > 1 else "")
        for stem, layers in ranges
    ]


def format_sections(
    results: Sequence[CheckResult], marks: Mapping[str, str] = NO_MARKS, *, verbose: bool = True
) -> Iterator[Page]:
    """Format one table for each pair of a tier and its reference. `marks` is the kind of device by tier, for
    devices that are not hardware. Unless `verbose`, pairs without failures are rows of one table, which comes
    first.
    """
    groups = _group_results(results)
    brief = [] if verbose else [group for group in groups if all(result.status != "fail" for result in group)]
    if brief:
        yield Page(
            ["", format_summary(brief, marks), *(line for group in brief for line in format_reasons(group))]
        )
    for group in groups:
        if group not in brief:
            yield Page(["", _format_title(group[0], marks), *format_table(group).parts, *format_agreement(group)])


def _group_results(results: Sequence[CheckResult]) -> list[list[CheckResult]]:
    pairs = dict.fromkeys((result.tier, result.reference) for result in results)
    return [[r for r in results if (r.tier, r.reference) == pair] for pair in pairs]


def _format_title(result: CheckResult, marks: Mapping[str, str]) -> str:
    mark = marks.get(result.tier, "")
    return f"{result.tier}{f', {mark},' if mark else ''} against {result.against}"


SUMMARY: tuple[str | Column, ...] = (
    "tier",
    "against",
    *map(number_column, ("checks", "layers", "logits", "KL", "top-1")),
    "",
)


def format_summary(groups: Sequence[Sequence[CheckResult]], marks: Mapping[str, str] = NO_MARKS) -> Table:
    """Format one row per pair: the number of checks, the largest error of a layer and of the logits, and the
    agreement of the logits.
    """
    shown = []
    for group in groups:
        first, logits = group[0], next((result for result in group if result.kind == "logits"), None)
        agreed = logits.value.agreement if logits is not None and logits.value is not None else None
        passed = sum(result.status == "pass" for result in group)
        shown.append(
            [
                first.tier + (f" ({marks[first.tier]})" if first.tier in marks else ""),
                first.against,
                f"{passed} of {len(group)}",
                _format_largest(result for result in group if result.kind in ("layer", "tap", "prefill")),
                _format_largest(result for result in group if result.kind in ("logits", "decode")),
                f"{agreed.kl_mean:.1e}" if agreed is not None else "",
                f"{agreed.top1}/{agreed.positions}" if agreed is not None else "",
                "pass" if passed else "skip",
            ]
        )
    return Table(SUMMARY, shown)


def _format_largest(results: Iterable[CheckResult]) -> str:
    """Return the largest error, or bit-exact if every bit is equal."""
    distances = [result.distance for result in results if result.distance is not None]
    if not distances:
        return ""
    if all(distance.equal_bits for distance in distances):
        return "bit-exact"
    return format_figure(max(distance.max_abs for distance in distances))


def format_agreement(results: Sequence[CheckResult]) -> list[str]:
    lines = []
    for result in results:
        agreed = result.value.agreement if result.value is not None else None
        if result.kind == "logits" and agreed is not None:
            lines.append(
                f"logits against {result.reference}: top-1 agrees at {agreed.top1} of {agreed.positions} "
                f"positions, KL mean {agreed.kl_mean:.1e}, largest {agreed.kl_max:.1e}"
            )
        if isinstance(result.measure, GreedyMeasure):
            lines.append(f"greedy continuation: {result.measure.tokens} tokens, {result.status}")
    return lines


def format_verdict(report: Report, models: int, *, strict: bool) -> str:
    counts, verdict = report.counts(), report.verdict(strict=strict)
    passed = counts.get("pass", 0)
    parts = [f"{passed} check{'' if passed == 1 else 's'} passed"]
    if counts.get("fail"):
        parts.insert(0, f"{counts['fail']} failed")
    if counts.get("skip"):
        reasons = sorted({result.reason for result in report.results if result.status == "skip"})
        others = len(reasons) - 1
        more = f" and {others} more reason{'' if others == 1 else 's'}" if others else ""
        parts.append(f"{counts['skip']} skipped ({reasons[0]}{more})")
    if strict and report.simulated_by_default:
        parts.insert(0, f"{', '.join(report.simulated_by_default)} simulated without --device sim")
    plural = "" if models == 1 else "s"
    leans = format_dependency_suffix([assumption["id"] for assumption in report.details.get("assumptions", ())])
    return f"{verdict['status']}  {models} model{plural}: {', '.join(parts)}{format_simulated_note(report)}{leans}"
