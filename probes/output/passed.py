"""Record the results for the tiers of a card, which commands that start models check
(zinc_rt/engine/checked.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from zinc_rt.cli.report import Report, Result
from zinc_rt.engine import checked
from zinc_rt.kmd.discover import find_gpus
from zinc_rt.kmd.linux import LinuxDriver
from zinc_rt.probes.child import run_in_child
from zinc_rt.probes.journal import Suspect
from zinc_rt.probes.outcome import HOST, T1, T2

# What a step of a model stands on: fences, indirect buffers, a ring that wraps, dispatches that read and write
# memory, LDS with barriers, scratch, code that is replaced, caches between engines.
NEEDED = ("P20", "P21", "P23", "P24", "P26", "P27", "P29", "P30", "P33", "P34", "P36", "P37", "P40", "P41")
OK = ("pass", "flake")


def write_note(
    report: Report, device: dict[str, Any], suspects: Mapping[str, Suspect], *, hazard: int
) -> list[str]:
    """Record the results of this run for each tier; return lines about it. A partial run can only revoke a
    pass."""
    blamed = {name for name, suspect in suspects.items() if suspect.reset}
    shown = {tier: judge_results(report.results, tier, blamed) for tier in (T1, T2)}
    if not any(item is not None for item in shown.values()):
        return []
    ended = run_in_child(partial(identify_card, str(device.get("render_path", ""))), 20.0)
    if not isinstance(ended.value, checked.TestedSetup):
        return ["passed    not recorded: the card cannot be identified"]
    lines = []
    for tier, failed in shown.items():
        if failed is None:
            continue
        count = sum(result.tier in (tier, HOST) for result in report.results)
        checked.write_record(ended.value, tier, failed=failed, hazard=hazard, probes=count)
        word = f"failed ({', '.join(failed[:3])}): models are not started on it" if failed else "passed"
        lines.append(f"recorded  {tier} {word}, on this card, kernel, module and firmware")
    return lines


def identify_card(render_path: str) -> checked.TestedSetup | None:
    """Query the card's configuration from the driver; runs in a child process."""
    driver = LinuxDriver()
    gpus = [gpu for gpu in find_gpus(driver).gpus if gpu.render_path == render_path]
    return checked.identify_setup(driver, gpus[0]) if gpus else None


def judge_results(results: Sequence[Result], tier: str, blamed: Collection[str] = ()) -> list[str] | None:
    """Return the ids that failed; an empty result if everything that models need passed; None if this run shows
    neither.

    `blamed`: probes that ran when the machine was reset. Deliberate hangs are not required by models.
    """
    mine = [result for result in results if result.tier in (tier, HOST)]
    seen = {result.id: result.status for result in mine}
    harmless = {result.id for result in mine if result.measure.get("hazard", 0) < 2}
    failed = [
        name
        for name, status in seen.items()
        if status == "fail" or (status == "skip" and name in blamed and name in harmless)
    ]
    if failed:
        return failed if any(name.endswith(f"/{tier}") for name in seen) else None
    return [] if all(seen.get(f"{name}/{tier}") in OK for name in NEEDED) else None
