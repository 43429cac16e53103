"""Print the results: one line per probe, then the details of each failure, then the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zinc_rt.cli.output import format_simulated_note
from zinc_rt.cli.report import Report, Result
from zinc_rt.host.facts import format_dependency_suffix
from zinc_rt.host.terminal import Column, Table
from zinc_rt.probes.probe import Probe

_SHOWN_MEASURES = 4
_SHOWN_LOG_LINES = 12
_HIDDEN = {"title", "hazard", "simulated", "seconds", "notes"}


def format_header(device: dict[str, Any]) -> str:
    name = " ".join(str(device.get(key, "")) for key in ("name", "arch")).strip() or "no GPU described"
    if device.get("simulated"):
        profile = f" ({device['profile']})" if device.get("profile") else ""
        name = f"SIMULATED {name}{profile}: says nothing about hardware"
    words = [f"device    {name}", f"kernel    {device.get('kernel') or 'unknown'}"]
    firmware = device.get("firmware") or {}
    if firmware:
        words.append("firmware  " + ", ".join(f"{key} {value}" for key, value in firmware.items()))
    if device.get("displays"):
        words.append(
            f"display   on {', '.join(device['displays'])}: hazard 1 runs only on request, 2 requires --force"
        )
    if device.get("problem"):
        words.append(f"problem   {device['problem']}")
    return "\n".join(words)


LINE = (
    Column("", width=4, key="status"),
    Column("", width=3, key="device"),
    Column("", width=33, key="title"),
    Column("", key="result"),
)


def make_result_row(result: Result, *, id_width: int = 7) -> Table:
    """Return a row of the table that is printed while probes run."""
    status = result.status.upper() if result.status == "fail" else result.status
    what = "sim" if result.measure.get("simulated") else ""
    detail = result.reason if result.status != "pass" else format_measures(result)
    title = str(result.measure.get("title", ""))
    columns = (Column("", width=id_width, key="probe"), *LINE)
    return Table(columns, [[result.id, status, what, title, detail]], headings=False)


def format_measures(result: Result) -> str:
    shown = [
        f"{key.replace('_', ' ')} {_format_figure(value)}"
        for key, value in result.measure.items()
        if key not in _HIDDEN and isinstance(value, int | float | str)
    ]
    notes = [str(note) for note in result.measure.get("notes", ())]
    return "; ".join([", ".join(shown[:_SHOWN_MEASURES]), *notes]).strip("; ")


def _format_figure(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_evidence(result: Result) -> str:
    """Return the evidence, kernel messages, cause, advice and the command that reproduces the failure."""
    bad = result.first_bad
    lines = [f"{result.id}  {result.measure.get('title', '')}"]
    if result.status == "fail":
        lines[0] += f": {result.reason}"
    if "wptr" in bad:
        lines.append(
            f"  evidence  wptr {bad['wptr']}, rptr {bad['rptr']}, fence {bad['fence']}, poison {bad['poison']}"
        )
    lines += [f"  event     {fault}" for fault in bad.get("faults", ())]
    lines += [f"  note      {note}" for note in result.measure.get("notes", ())] if result.status == "fail" else []
    log = bad.get("kernel_log", ())
    if len(log) > _SHOWN_LOG_LINES:
        lines.append(f"  kernel    ({len(log) - _SHOWN_LOG_LINES} lines before these are in --json and --bundle)")
    lines += [f"  kernel    {item}" for item in log[-_SHOWN_LOG_LINES:]]
    lines += [f"  cause     {result.cause}"] if result.cause else []
    lines += [f"  advice    {result.advice}"] if result.advice else []
    lines += [f"  known     {row}" for row in bad.get("known", ())]
    lines += [f"  repro     {result.repro}"] if result.repro else []
    return "\n".join(lines)


def format_verdict(report: Report, *, strict: bool) -> str:
    overall = report.verdict(strict=strict)
    counts = ", ".join(f"{count} {status}" for status, count in sorted(overall["counts"].items()))
    leans = format_dependency_suffix([assumption["id"] for assumption in report.details.get("assumptions", ())])
    notes = f"{format_simulated_note(report)}{leans}"
    return f"{overall['status']:<9} {len(report.results)} probes: {counts or 'none ran'}{notes}"


def list_probes(probes: Sequence[Probe]) -> Table:
    rows = [
        [
            probe.id,
            probe.title,
            ",".join(probe.tiers),
            probe.hazard,
            " ".join(probe.needs),
            probe.proves,
        ]
        for probe in probes
    ]
    columns = (
        "probe",
        Column("title", widest=32),
        "tiers",
        "hazard",
        Column("needs", widest=14),
        Column("proves", widest=60),
    )
    return Table(columns, rows)
