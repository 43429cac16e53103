"""The tables a person reads: one row a value, the verdict last."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tabulate import tabulate

from zinc_rt.report import Report, Result
from zinc_rt.validate.measure import sparkline

HEADERS = ("value", "|x| 2^-8..2^6", "max abs", "rel RMS", "ULP", "limit", "", "first bad")


def figure(value: Any) -> str:
    return "-" if value is None else f"{value:.1e}" if isinstance(value, float) and value else str(value or 0)


def first_bad(result: Result) -> str:
    bad = result.first_bad
    if not bad:
        return ""
    places = [f"{name} {bad[name]}" for name in ("node", "token", "head", "dim") if name in bad]
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
        return "same"
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


def table(results: Sequence[Result]) -> str:
    """What was measured, a row each; beneath, the reasons there are, a line each."""
    return "\n".join(filter(None, [_measured(results), *reason_lines(results)]))


def _measured(results: Sequence[Result]) -> str:
    shown = rows(results)
    if not shown:
        return ""
    headers = list(HEADERS)
    if any("resync" in result.measure for result in results):
        headers.insert(5, "resync")
    aligned = ("left", "left") + ("right",) * (len(headers) - 4) + ("left", "left")
    return tabulate(shown, headers, tablefmt="plain", colalign=aligned, disable_numparse=True)


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


def sections(results: Sequence[Result], simulated: Collection[str] = ()) -> Iterator[str]:
    """One table for each pair of a tier and what it is held against; `simulated` tiers say so."""
    for tier, reference in dict.fromkeys((result.tier, result.reference) for result in results):
        group = [result for result in results if (result.tier, result.reference) == (tier, reference)]
        mark = ", on a simulated device," if tier in simulated else ""
        lines = [f"\n{tier}{mark} against {'itself' if reference == tier else reference}", table(group)]
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
    passed = counts.get("pass", 0)
    parts = [f"{passed} check{'' if passed == 1 else 's'} passed"]
    if counts.get("fail"):
        parts.insert(0, f"{counts['fail']} failed")
    if counts.get("skip"):
        reasons = sorted({result.reason for result in report.results if result.status == "skip"})
        others = len(reasons) - 1
        more = f" and {others} more reason{'' if others == 1 else 's'}" if others else ""
        parts.append(f"{counts['skip']} skipped ({reasons[0]}{more})")
    plural = "" if models == 1 else "s"
    return f"{verdict['status']}  {models} model{plural}: {', '.join(parts)}"
