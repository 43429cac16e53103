"""The findings of doctor, their severities, and unknown values."""

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
    """broken: does not work. warning: works, but slower or at risk. note: informational."""
    title: str
    """A description with the observed values."""
    why: str
    """The consequence on this machine."""
    next: str
    """The remedy; empty for a note that requires no action."""
    tiers: tuple[str, ...] = ()
    """The tiers that it prevents or affects."""
    evidence: tuple[str, ...] = ()
    """Lines as read, each with its file."""
    cause_of: tuple[str, ...] = ()
    """Ids of the findings that this one explains, directly or through others."""
    about: str = ""
    """The GPU's PCI address; empty for a finding about the machine."""
    hazard: int | None = None
    """The highest --hazard of probes that this machine should run before it is mended; None if it may run all."""
    rows: tuple[str, ...] = ()
    """Ids of the quoted rows of the matrix (probes/combinations.yaml)."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A question that could not be answered."""

    what: str
    why: str
    next: str = ""
    waits: tuple[str, ...] = ()
    """Ids of the rules that cannot decide without it; `*` at the end for several."""
    matters: bool = False
    """Whether a machine without findings cannot be called healthy while this is open."""
