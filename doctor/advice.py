"""What may be advised on this machine: no setting that is already made or is itself the cause, and its hazard."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase

from zinc_rt.doctor.finding import DoctorFinding
from zinc_rt.doctor.machine import InspectedMachine

# Probes that may hang (--hazard 1) end badly where the GPU, its bus or its power is not sound.
UNSTABLE = (
    "log.vbios",
    "log.psp",
    "log.smu",
    "log.mes",
    "log.ring-*",
    "log.preemption",
    "log.interrupts",
    "log.resume-failed",
    "log.reset*",
    "log.oops",
    "log.task-blocked",
    "log.init-failed",
    "hung.*",
    "pci.lost",
    "pci.errors",
    "pci.iommu-fault",
    "pci.corrected-errors",
    "ras.uncorrectable",
    "ras.counted",
    "power.runtime-error",
    "power.resume",
    "power.stuck-asleep",
    "power.thermal",
    "power.hot",
    "power.sensors-silent",
    "gpu.gone",
    "host.reset-reason",
    "host.machine-check",
    "combination.bad",
)
_SETTING = re.compile(r"(?<!remove )\b((?:amdgpu\.)?\w+=[\w.]+)")  # not those to remove


def add_advice(finding: DoctorFinding, machine: InspectedMachine, blamed: frozenset[str]) -> DoctorFinding:
    """Return the finding with advice for this machine. `blamed`: settings that other findings report as a
    cause.
    """
    output = finding.next
    for setting in dict.fromkeys(_SETTING.findall(output)):
        name, _, value = setting.partition("=")
        result = machine.linux.option(name) == value
        result |= (
            name.startswith("amdgpu.") and machine.module.parameters.get(name.removeprefix("amdgpu.")) == value
        )
        if setting in blamed:
            output = output.replace(setting, f"(not {setting}, which is a cause here)")
        elif result:
            output = output.replace(setting, f"({setting} is set already)")
    unstable = finding.severity != "note" and any(fnmatchcase(finding.id, item) for item in UNSTABLE)
    return replace(finding, next=output, hazard=0 if unstable else None)


def find_blamed_settings(findings: tuple[DoctorFinding, ...]) -> frozenset[str]:
    """Return the settings that findings about parameters name: `amdgpu.dpm=0`."""
    named = [
        finding.title
        for finding in findings
        if finding.id.startswith("parameters.") and finding.severity != "note"
    ]
    return frozenset(setting for title in named for setting in _SETTING.findall(title))
