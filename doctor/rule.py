"""The rules: an id, texts, and a function over a machine. Files in rules/ contain them as tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from zinc_rt.doctor.finding import DoctorFinding, Severity
from zinc_rt.doctor.logs import LogEvent
from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine

T1, T2 = "t1", "t2"
BOTH = (T1, T2)
SHOWN_LINES = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """The observation of a rule. Empty texts are replaced by the texts of the rule."""

    title: str = ""
    evidence: tuple[str, ...] = ()
    about: str = ""
    at: int | None = None  # line of the kernel's log; None where it is a state, not an event
    until: int | None = None  # line after which it explains nothing more
    why: str = ""
    next: str = ""
    severity: Severity | None = None
    tiers: tuple[str, ...] | None = None
    rows: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()  # patterns of ids, beside those of causes.py
    processes: tuple[str, ...] = ()  # the programs that the log names, "python3 (pid 4711)"


@dataclass(frozen=True, slots=True)
class DoctorRule:
    id: str
    severity: Severity
    title: str
    why: str
    next: str
    tiers: tuple[str, ...]
    look: Callable[[InspectedMachine], Iterable[Observation]]

    def finding(self, observation: Observation) -> DoctorFinding:
        return DoctorFinding(
            self.id,
            observation.severity or self.severity,
            (observation.title or self.title)
            + (f": {', '.join(observation.processes)}" if observation.processes else ""),
            observation.why or self.why,
            observation.next or self.next,
            self.tiers if observation.tiers is None else observation.tiers,
            observation.evidence,
            about=observation.about,
            rows=observation.rows,
        )


def check_each_gpu(
    check_gpu: Callable[[InspectedGpu, InspectedMachine], Observation | None],
) -> Callable[[InspectedMachine], Iterator[Observation]]:
    """Convert a check of one GPU to a check of a machine. It runs on the GPUs that this toolkit supports."""

    def check_machine(machine: InspectedMachine) -> Iterator[Observation]:
        for gpu in machine.is_relevant:
            seen = check_gpu(gpu, machine)
            if seen is not None:
                yield seen

    return check_machine


def make_event_rule(*events: str) -> Callable[[InspectedMachine], Iterator[Observation]]:
    """Return a check that matches if the kernel log contains one of these events, once for each GPU named in
    them.
    """

    def check_machine(machine: InspectedMachine) -> Iterator[Observation]:
        logged_events = machine.log.named(*events) if machine.log else ()
        concerned = [(find_gpu(machine, event.address), event) for event in logged_events]
        addresses = dict.fromkeys(address for address, _ in concerned if address)
        for address in addresses:
            yield observe_events(machine, [event for of, event in concerned if of in (address, "")], address)
        if logged_events and not addresses:
            yield observe_events(machine, list(logged_events), "")

    return check_machine


def find_gpu(machine: InspectedMachine, address: str) -> str:
    """Return the GPU that a PCI function belongs to: the GPU itself, its audio function, or an upstream
    bridge. "" if there is none."""
    slot = address.rpartition(".")[0]
    for gpu in machine.gpus:
        if slot and slot in (
            gpu.address.rpartition(".")[0],
            *(link.address.rpartition(".")[0] for link in gpu.links),
        ):
            return gpu.address
    return address


def is_about_our_gpu(text: str, machine: InspectedMachine) -> bool:
    """Return whether a KFD message concerns a supported GPU. KFD skips integrated graphics on many healthy
    machines. `1002:7551` identifies a supported GPU; a line without an id counts if KFD does not list all GPUs."""
    named = {int(match, 16) for match in re.findall(r"1002:([0-9a-f]{4})", text.lower())}
    known = {gpu.device_id for gpu in machine.is_relevant}
    if named and known and None not in known:
        return bool(named & known)
    return not (machine.kfd and all(gpu.node for gpu in machine.is_relevant))


def observe_events(machine: InspectedMachine, events: list[LogEvent], address: str) -> Observation:
    """Convert events to observations. A GPU that this toolkit does not support is only a note if a supported one
    is present.
    """
    ours = {gpu.address for gpu in machine.is_relevant}
    others = {gpu.address for gpu in machine.gpus} - ours
    lines = tuple(f"kernel.log: {event.text}" for event in events[:SHOWN_LINES])
    if len(events) > SHOWN_LINES:
        lines += (f"kernel.log: ({len(events) - SHOWN_LINES} more lines like these)",)
    address = find_gpu(machine, address)
    known = address if address in ours or address in others else ""
    processes = tuple(dict.fromkeys(event.process for event in events if event.process))
    severity: Severity | None = "note" if address in others else None
    return Observation(
        evidence=lines, about=known, at=events[0].at, severity=severity, processes=processes[:SHOWN_LINES]
    )
