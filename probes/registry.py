"""All probes, in execution order: those declared in the modules of probes/groups. New files there are
included automatically."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from zinc_rt.host.errors import UsageError
from zinc_rt.probes import groups
from zinc_rt.probes.probe import Probe

ALIVE = "P20"  # what is run again after anything hazardous went wrong


def probe_number(probe: Probe) -> int:
    return int(re.sub(r"\D", "", probe.id) or 0)


def sort_by_number(probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """Return the execution order: always the lowest number whose dependencies have run. Raises ValueError
    for a cycle or an unknown dependency."""
    waiting = {probe.id: probe for probe in probes}
    if len(waiting) != len(probes):
        raise ValueError("duplicate probe ids")
    for probe in probes:
        for need in probe.needs:
            if need not in waiting:
                raise ValueError(f"{probe.id} needs {need}, which does not exist")
    result: list[Probe] = []
    while waiting:
        free = [probe for probe in waiting.values() if not waiting.keys() & set(probe.needs)]
        if not free:
            raise ValueError(f"dependency cycle among {', '.join(waiting)}")
        result.append(waiting.pop(min(free, key=probe_number).id))
    return tuple(result)


def find_module_probes(module: ModuleType) -> list[Probe]:
    """Return the probes declared in a module, without imported ones."""
    probes = [item for item in vars(module).values() if isinstance(item, Probe)]
    return [probe for probe in probes if probe.run.__module__ == module.__name__]


def find_package_probes(package: ModuleType) -> tuple[Probe, ...]:
    """Return the probes of every module of a package. Raises ValueError as `sort_by_number` does."""
    names = [f"{package.__name__}.{item.name}" for item in pkgutil.iter_modules(package.__path__)]
    return sort_by_number([probe for name in names for probe in find_module_probes(import_module(name))])


PROBES = find_package_probes(groups)


def select_probes(
    probes: Sequence[Probe], expression: str, command: str = "zinc-rt-pm4-test"
) -> tuple[Probe, ...]:
    """Select by `-k`: ids, ranges (P18-P24) or words of a title, separated by commas. Raises UsageError
    for no match."""
    if not expression:
        return tuple(probes)
    chosen: set[str] = set()
    for term in expression.split(","):
        term = term.strip()
        span = re.fullmatch(r"[A-Za-z](\d+)-[A-Za-z]?(\d+)", term)
        selected = {
            probe.id
            for probe in probes
            if (span and int(span[1]) <= probe_number(probe) <= int(span[2]))
            or probe.id.lower() == term.lower()
            or (not re.fullmatch(r"[A-Za-z]\d+", term) and term and term.lower() in probe.title.lower())
        }
        if not selected:
            raise UsageError(f"-k {term!r} matches no probe", next=f"{command} --list names them")
        chosen |= selected
    return tuple(probe for probe in probes if probe.id in chosen)
