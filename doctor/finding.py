"""What the doctor says: findings, how grave each is, and what could not be known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["broken", "warning", "note"]
GRAVITY: dict[str, int] = {"broken": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    id: str
    """`subject.what`, stable: the same in every version, so that bundles can be compared."""
    severity: Severity
    """broken: something will not work. warning: works, slower or at a risk. note: worth knowing."""
    title: str
    """What it is, with the values seen."""
    why: str
    """Why it matters here."""
    next: str
    """What to do; empty for a note that asks for nothing."""
    tiers: tuple[str, ...] = ()
    """Those it stands in the way of, or touches."""
    evidence: tuple[str, ...] = ()
    """Lines as they were read, each with its file."""
    cause_of: tuple[str, ...] = ()
    """Ids of the findings that this one explains, directly or through others."""
    about: str = ""
    """The GPU's PCI address; empty where it is about the machine."""
    rows: tuple[str, ...] = ()
    """Ids of the rows of the matrix (probes/combinations.yaml) it quotes."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question that could not be answered."""

    what: str
    why: str
    next: str = ""
