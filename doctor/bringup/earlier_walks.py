"""Read earlier bring-ups from the journal: the result of each stage, and the one that took down the
machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zinc_rt.doctor.bringup.stages import NAMES
from zinc_rt.probes.journal import Journal, Suspect

PASSED = ("pass", "blocked")  # a gate that waits for evidence holds nobody up


@dataclass(frozen=True, slots=True)
class EarlierWalks:
    """The last record of a stage. `status` "": it started but never ended; `reset`: the machine has been rebooted
    since.
    """

    stage: str
    status: str
    when: str
    setup: str
    reset: bool = False
    tiers: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0  # of the last complete run; 0 if there is none


def read_earlier_walks(journal: Journal) -> dict[str, EarlierWalks]:
    """Return the earlier runs, by stage, in any setup."""
    walks: dict[str, EarlierWalks] = {}
    for row in journal.rows():
        name = str(row.get("probe", ""))
        if name not in NAMES or row.get("device") != journal.device:
            continue
        tiers = tuple(filter(None, str(row.get("tiers", "")).split(",")))
        status = str(row.get("status", "")) if row.get("what") == "end" else ""
        words = (str(row.get("when", "")), str(row.get("setup", "")))
        reset = not status and row.get("boot") != journal.boot
        seconds = float(row.get("seconds") or (walks[name].seconds if name in walks else 0.0))
        walks[name] = EarlierWalks(name, status, *words, reset, tiers, str(row.get("reason", "")), seconds)
    return walks


def describe_suspects(suspects: Mapping[str, Suspect]) -> list[str]:
    """Return sentences about the probes that were running when the machine was reset."""
    return [
        f"the machine was reset while {name} was running ({item.when})"
        for name, item in suspects.items()
        if item.reset
    ]
