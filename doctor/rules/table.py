"""The table of all rules, by subject; the order of presentation is defined by causes.py."""

from __future__ import annotations

from zinc_rt.doctor.rule import DoctorRule
from zinc_rt.doctor.rules import (
    bus_errors,
    combinations,
    firmware,
    host,
    hung,
    log,
    module,
    parameters,
    pci,
    permissions,
    power,
    presence,
    ras,
    tiers,
)

RULES: tuple[DoctorRule, ...] = (
    *host.RULES,
    *presence.RULES,
    *module.RULES,
    *parameters.RULES,
    *firmware.RULES,
    *bus_errors.RULES,
    *pci.RULES,
    *power.RULES,
    *ras.RULES,
    *combinations.RULES,
    *permissions.RULES,
    *hung.RULES,
    *log.RULES,
    *tiers.RULES,
)
