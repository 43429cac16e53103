"""Output of --mode perf: one line per case, and an explanation of the figures."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from zinc_rt.host.terminal import Column, Page, Table
from zinc_rt.validate.kernel_test.side import Side
from zinc_rt.validate.kernel_test.speed import Timing

WIDTHS = {"time": 10, "10 % .. 90 %": 21, "bytes": 9, "bytes/s": 10, "share": 6, "flop/s": 10}  # as rows come
COLUMNS: tuple[str | Column, ...] = (
    *(Column(name, right=True, width=width) for name, width in WIDTHS.items()),
    "case",
)


def format_title(side: Side) -> Page:
    clock = (
        "the simulator's time on this host, not a speed" if side.simulated else "submission to end, on the host"
    )
    return Page([f"{side.label}  {side.kernels}  {side.ordering}: {clock}", Table(COLUMNS, [])])


def format_line(timing: Timing) -> Table:
    rate, flops = timing.bytes_per_second, timing.flops_per_second
    share = f"{100 * timing.share:.0f} %" if timing.share is not None else "-"
    spread = f"{_format_seconds(timing.low)} .. {_format_seconds(timing.high)}"
    cells = (
        _format_seconds(timing.seconds),
        spread,
        _format_scaled(timing.size_bytes, "B"),
        "-" if rate is None else _format_scaled(rate, "B/s"),
        share,
        "-" if flops is None else _format_scaled(flops, "flop/s"),
        f"{', '.join(timing.kernels)}: {timing.case.text()}",
    )
    return Table(COLUMNS, [cells], headings=False)


def format_verdict(sides: Sequence[Side], timed: int, software: Collection[str] = ()) -> str:
    """Return the last line. `software` are tiers on a software driver."""
    simulated = sorted({side.tier for side in sides if side.simulated})
    if software:
        return f"TIMED     {timed} calls; in SOFTWARE: {', '.join(sorted(software))}, not a GPU's speed"
    if simulated:
        return f"TIMED     {timed} calls; SIMULATED: {', '.join(simulated)}, not a speed"
    return f"TIMED     {timed} calls"


def _format_seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _format_scaled(value: float, unit: str) -> str:
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
