"""What the journal says of earlier walks: which stages ended how, and which one the machine did not survive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zinc_rt.doctor.bringup.stages import NAMES
from zinc_rt.probes.journal import Journal, Suspect

PASSED = ("pass", "blocked")  # a gate that waits for evidence holds nobody up


@dataclass(frozen=True, slots=True)
class EarlierWalks:
    """One stage's last word. `status` "" began and never ended; `reset`: the machine was booted since."""

    stage: str
    status: str
    when: str
    setup: str
    reset: bool = False
    tiers: tuple[str, ...] = ()
    reason: str = ""


def earlier_walks(journal: Journal) -> dict[str, EarlierWalks]:
    """The earlier walks, by stage, in any setup."""
    found: dict[str, EarlierWalks] = {}
    for row in journal.rows():
        name = str(row.get("probe", ""))
        if name not in NAMES or row.get("device") != journal.device:
            continue
        tiers = tuple(filter(None, str(row.get("tiers", "")).split(",")))
        status = str(row.get("status", "")) if row.get("what") == "end" else ""
        words = (str(row.get("when", "")), str(row.get("setup", "")))
        reset = not status and row.get("boot") != journal.boot
        found[name] = EarlierWalks(name, status, *words, reset, tiers, str(row.get("reason", "")))
    return found


def blamed(suspects: Mapping[str, Suspect]) -> list[str]:
    """Probes that ran when the machine was reset, as sentences."""
    return [
        f"the machine was reset while {name} ran ({each.when})" for name, each in suspects.items() if each.reset
    ]
