"""Print for `zinc-rt run --probe-tier` whether each tier is usable here, why, and what to do."""

from __future__ import annotations

import argparse

from zinc_rt.backends import registry
from zinc_rt.cli.options import read_settings_once
from zinc_rt.cli.output import choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal


def probe(arguments: argparse.Namespace) -> int:
    """Print a line for each tier. Return 0 if a requested tier is usable, otherwise 77."""
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.engine.devices import probe_tiers, require_gpu
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    require_gpu(arguments.device)
    asked = arguments.tier or read_settings_once().tier
    if asked != "auto":
        registry.spec(asked)
    states = [
        (row.tier, state)
        for row, state in probe_tiers(
            arguments.device, unchecked=arguments.unchecked, chip=getattr(arguments, "chip", None)
        )
        if asked in ("auto", row.tier)
    ]
    report = start_report(Report("run"), arguments)
    out = choose_output_stream(arguments)
    rows = []
    for tier, state in states:
        rows.append((tier, "usable" if state.usable else "no", state.why))
        if state.next:
            rows.append(("", "", f"next: {state.next}"))
        report.results.append(
            Result(
                tier,
                "probe-tier",
                "pass" if state.usable else "blocked",
                tier=tier,
                reason=state.why,
                advice=state.next,
            )
        )
    columns = [terminal.Column("", key=key) for key in ("tier", "state", "reason")]
    terminal.show(terminal.Table(columns, rows, headings=False), out=out)
    first = next((tier for tier, state in states if state.usable), None)
    terminal.show(
        f"auto selects {first}" if first and asked == "auto" else f"{first or 'no tier'} is usable", out=out
    )
    return finish_report(report, arguments)
