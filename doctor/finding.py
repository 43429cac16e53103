"""One thing that is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`severity`: broken, warning or note. `cause_of`: ids of findings that follow from this one."""

    id: str
    severity: str
    title: str
    why: str = ""
    next: str = ""
    tiers: tuple[str, ...] = ()
    evidence: str = ""
    cause_of: tuple[str, ...] = ()
