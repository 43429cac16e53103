"""The tables a person reads: one row a value, the verdict last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from zinc_rt.commands.output import simulated_note
from zinc_rt.facts import leaning
from zinc_rt.report import Report, Result
from zinc_rt.terminal import Column, Page, Table, number
from zinc_rt.validate.measure import sparkline

HEADERS = ("value", "|x| 2^-8..2^6", "max abs", "rel RMS", "ULP", "limit", "", "first bad")


def figure(value: Any) -> str:
    return "-" if value is None else f"{value:.1e}" if isinstance(value, float) and value else str(value or 0)


def first_bad(result: Result) -> str:
    bad = result.first_bad
    if not bad:
        return ""
    places = [f"{name} {bad[name]}" for name in ("node", "kernel", "token", "head", "dim") if name in bad]
    if "shape" in bad:
        places.append(f"shape {bad['shape']}, not {bad['wanted_shape']}")
    values = f": {_two_values(bad['got'], bad['want'])}" if {"got", "want"} <= bad.keys() else ""
    return ", ".join(places) + values


def _two_values(got: float, want: float) -> str:
    """As many digits as it takes to tell them apart, nine at most: a float32 has no more."""
    digits = next((digits for digits in (6, 9) if f"{got:.{digits}g}" != f"{want:.{digits}g}"), 9)
    return f"{got:.{digits}g}, not {want:.{digits}g}"


def limit(result: Result) -> str:
    bounds = result.limit
    if bounds.get("bits"):
        return "bit-exact"
    return ", ".join(f"{bounds[name]:.1e}" for name in ("max_abs", "rel_rms", "median_max_abs") if name in bounds)


def rows(results: Sequence[Result]) -> list[list[str]]:
    with_resync = any("resync" in result.measure for result in results)
    table = []
    for result in results:
        measure = result.measure
        if result.status == "skip" and not measure:
            continue  # nothing to show but the reason, which reason_lines says once
        name = _name(result)
        max_abs = measure.get("max_abs", measure.get("median_max_abs"))
        row = [
            name,
            sparkline(measure["histogram"]) if "histogram" in measure else "",
            figure(max_abs) if measure else "",
            figure(measure.get("rel_rms")) if measure else "",
            figure(measure.get("max_ulp")) if measure else "",
            limit(result),
            result.status.upper() if result.status == "fail" else result.status,
            first_bad(result),
        ]
        if with_resync:
            row.insert(5, figure(measure["resync"]["max_abs"]) if "resync" in measure else "")
        table.append(row)
    return table


def table(results: Sequence[Result]) -> Page:
    """What was measured, a row each; beneath, the reasons there are, a line each."""
    return Page([*_measured(results), *reason_lines(results), *cause_lines(results)])


def _measured(results: Sequence[Result]) -> list[Table]:
    shown = rows(results)
    if not shown:
        return []
    headers = list(HEADERS)
    if any("resync" in result.measure for result in results):
        headers.insert(5, "resync")
    columns = [Column(name, right=2 <= at < len(headers) - 2) for at, name in enumerate(headers)]
    return [Table(columns, shown)]


def cause_lines(results: Sequence[Result]) -> Iterator[str]:
    """Why something failed, each once; a sanitizer's findings by name as far as the result holds them."""
    causes: dict[str, list[str]] = {}
    for result in results:
        if result.status != "fail":
            continue
        told = result.measure.get("found", [])
        for text in [_finding(each) for each in told] or filter(None, [result.cause]):
            causes.setdefault(text, []).append(_name(result))
        if (more := result.measure.get("findings", 0) - len(told)) > 0 and told:
            causes.setdefault(f"and {more} more finding{'s' * (more > 1)}, counted only", []).append(_name(result))
        for text in result.measure.get("weights", []):
            causes.setdefault(f"the model file is not finite: {text}", []).append(_name(result))
    for text, names in causes.items():
        yield f"fail  {', '.join(_ranges(list(dict.fromkeys(names))))}: {text}"


def _finding(told: dict[str, Any]) -> str:
    return told["finding"] + (f" (node {told['node']})" if "node" in told else "")


def reason_lines(results: Sequence[Result]) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result.reason:
            reasons.setdefault((result.status, result.reason), []).append(_name(result))
    for (status, reason), names in reasons.items():
        yield f"{status}  {', '.join(_ranges(names))}: {reason}"


def _ranges(names: Sequence[str]) -> list[str]:
    """l_out-0, l_out-1, l_out-2, logits -> l_out-0..2, logits."""
    found: list[tuple[str, list[int]]] = []
    for name in names:
        stem, dash, layer = name.rpartition("-")
        if not (dash and layer.isdigit()):
            found.append((name, []))
            continue
        run = next(
            (layers for known, layers in found if known == stem and layers and layers[-1] == int(layer) - 1), None
        )
        if run is None:
            found.append((stem, [int(layer)]))
        else:
            run.append(int(layer))
    return [
        stem + (f"-{layers[0]}" if layers else "") + (f"..{layers[-1]}" if len(layers) > 1 else "")
        for stem, layers in found
    ]


def _name(result: Result) -> str:
    return result.id.rpartition("/")[2]


def sections(
    results: Sequence[Result], simulated: Collection[str] = (), *, verbose: bool = True
) -> Iterator[Page]:
    """One table for each pair of a tier and what it is held against; `simulated` tiers say so. Unless `verbose`, a
    pair in which nothing failed is a row of one table for all such pairs, which comes first."""
    groups = _groups(results)
    brief = [] if verbose else [group for group in groups if all(result.status != "fail" for result in group)]
    if brief:
        yield Page(["", summary(brief, simulated), *(line for group in brief for line in reason_lines(group))])
    for group in groups:
        if group not in brief:
            yield Page(["", _title(group[0], simulated), *table(group).parts, *agreement_lines(group)])


def _groups(results: Sequence[Result]) -> list[list[Result]]:
    pairs = dict.fromkeys((result.tier, result.reference) for result in results)
    return [[r for r in results if (r.tier, r.reference) == pair] for pair in pairs]


def _title(result: Result, simulated: Collection[str]) -> str:
    mark = ", on a simulated device," if result.tier in simulated else ""
    return f"{result.tier}{mark} against {_against(result)}"


def _against(result: Result) -> str:
    return "itself" if result.reference == result.tier else result.reference


SUMMARY: tuple[str | Column, ...] = (
    "tier",
    "against",
    *map(number, ("checks", "layers", "logits", "KL", "top-1")),
    "",
)


def summary(groups: Sequence[Sequence[Result]], simulated: Collection[str] = ()) -> Table:
    """A row each: how many checks, the largest error of a layer and of the logits, and how the logits agree."""
    shown = []
    for group in groups:
        first, logits = group[0], next((result for result in group if result.kind == "logits"), None)
        agreed = logits.measure if logits is not None and "kl_mean" in logits.measure else {}
        passed = sum(result.status == "pass" for result in group)
        shown.append(
            [
                first.tier + (" (simulated)" if first.tier in simulated else ""),
                _against(first),
                f"{passed} of {len(group)}",
                _largest(result for result in group if result.kind in ("layer", "tap", "prefill")),
                _largest(result for result in group if result.kind in ("logits", "decode")),
                f"{agreed['kl_mean']:.1e}" if agreed else "",
                f"{agreed['top1']}/{agreed['positions']}" if agreed else "",
                "pass" if passed else "skip",
            ]
        )
    return Table(SUMMARY, shown)


def _largest(results: Iterable[Result]) -> str:
    """In words where every bit is the same."""
    measures = [result.measure for result in results if "max_abs" in result.measure]
    if not measures:
        return ""
    if all(measure.get("equal_bits") for measure in measures):
        return "bit-exact"
    return figure(max(measure["max_abs"] for measure in measures))


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
    passed = counts.get("pass", 0)
    parts = [f"{passed} check{'' if passed == 1 else 's'} passed"]
    if counts.get("fail"):
        parts.insert(0, f"{counts['fail']} failed")
    if counts.get("skip"):
        reasons = sorted({result.reason for result in report.results if result.status == "skip"})
        others = len(reasons) - 1
        more = f" and {others} more reason{'' if others == 1 else 's'}" if others else ""
        parts.append(f"{counts['skip']} skipped ({reasons[0]}{more})")
    if strict and report.simulated_unasked:
        parts.insert(0, f"{', '.join(report.simulated_unasked)} simulated without --device sim")
    plural = "" if models == 1 else "s"
    leans = leaning([each["id"] for each in report.details.get("assumptions", ())])
    return f"{verdict['status']}  {models} model{plural}: {', '.join(parts)}{simulated_note(report)}{leans}"
