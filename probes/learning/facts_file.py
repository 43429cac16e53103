"""Write the facts file of a `--learn` run, which zinc_rt/sim/facts.py reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zinc_rt.cli.report import Report, write_text
from zinc_rt.sim.facts import SWITCHES, FactsFile, FactValue


def collect_facts(report: Report, *, firmware: Mapping[str, Any]) -> FactsFile:
    """Return the facts of every probe that passed."""
    facts = {
        str(result.measure["title"]): FactValue(
            result.measure["value"], str(result.measure["how"]), result.id.partition("/")[0]
        )
        for result in report.results
        if result.status == "pass" and "value" in result.measure
    }
    device = report.device
    return FactsFile(
        chip=str(device.get("arch", "")),
        kernel=str(device.get("kernel", "")),
        simulated=bool(device.get("simulated")),
        firmware=dict(firmware),
        facts=facts,
    )


def write_facts(path: Path, report: Report, *, firmware: Mapping[str, Any]) -> str:
    """Write the file, unless no fact was learned, and return a message about it."""
    facts = collect_facts(report, firmware=firmware)
    if not facts.facts:
        return f"facts     none learned, {path} was not written"
    write_text(str(path), facts.to_json())
    switches = sum(name in SWITCHES for name in facts.facts)
    whose = "a SIMULATED device: not a calibration" if facts.simulated else facts.chip
    return f"facts     {path}: {len(facts.facts)} of {whose}, {switches} of them change a simulated device"
