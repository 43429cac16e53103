"""All probes, in the order they run. A new one is a row in its group's list, or a new group here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zinc_rt.errors import UsageError
from zinc_rt.probes.groups import (
    coherence,
    control_flow,
    cp_basic,
    cp_data,
    cp_order,
    cu_mask,
    dispatch,
    endurance,
    events,
    faults,
    host,
    kfd_queues,
    kmd_answers,
    memory,
    parity,
    shader_memory,
    userq,
    userq_faults,
)
from zinc_rt.probes.probe import Probe

GROUPS: tuple[tuple[Probe, ...], ...] = (
    host.PROBES,
    kmd_answers.PROBES,
    memory.PROBES,
    events.PROBES,
    kfd_queues.PROBES,
    cp_basic.PROBES,
    cp_data.PROBES,
    control_flow.PROBES,
    cp_order.PROBES,
    dispatch.PROBES,
    shader_memory.PROBES,
    coherence.PROBES,
    faults.PROBES,
    cu_mask.PROBES,
    userq.PROBES,
    parity.PROBES,
    userq_faults.PROBES,
    endurance.PROBES,
)

ALIVE = "P20"  # what is run again after anything hazardous went wrong


def number(probe: Probe) -> int:
    return int(re.sub(r"\D", "", probe.id) or 0)


def ordered(probes: Sequence[Probe]) -> tuple[Probe, ...]:
    """Always the lowest number whose needs have run. Raises ValueError for a circle or an unknown need."""
    waiting = {probe.id: probe for probe in probes}
    if len(waiting) != len(probes):
        raise ValueError("two probes of one id")
    for probe in probes:
        for need in probe.needs:
            if need not in waiting:
                raise ValueError(f"{probe.id} needs {need}, which does not exist")
    done: list[Probe] = []
    while waiting:
        free = [probe for probe in waiting.values() if not waiting.keys() & set(probe.needs)]
        if not free:
            raise ValueError(f"a circle of needs among {', '.join(waiting)}")
        done.append(waiting.pop(min(free, key=number).id))
    return tuple(done)


PROBES = ordered([probe for group in GROUPS for probe in group])


def select(probes: Sequence[Probe], expression: str, command: str = "zinc-rt-pm4-test") -> tuple[Probe, ...]:
    """`-k`: ids, ranges (P18-P24) or words of a title, separated by commas. Raises UsageError for no match."""
    if not expression:
        return tuple(probes)
    chosen: set[str] = set()
    for term in expression.split(","):
        term = term.strip()
        span = re.fullmatch(r"[Pp](\d+)-[Pp]?(\d+)", term)
        found = {
            probe.id
            for probe in probes
            if (span and int(span[1]) <= number(probe) <= int(span[2]))
            or probe.id.lower() == term.lower()
            or (not re.fullmatch(r"[Pp]\d+", term) and term and term.lower() in probe.title.lower())
        }
        if not found:
            raise UsageError(f"-k {term!r} selects no probe", next=f"{command} --list names them")
        chosen |= found
    return tuple(probe for probe in probes if probe.id in chosen)
