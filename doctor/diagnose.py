"""From a capture to findings, first causes first."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.doctor.capture import Capture
from zinc_rt.doctor.finding import Finding


@dataclass(frozen=True, slots=True)
class Diagnosis:
    findings: tuple[Finding, ...] = ()


def diagnose(capture: Capture) -> Diagnosis:
    return Diagnosis()
