"""Convert a capture to findings: root causes first, each followed by the findings that it explains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from zinc_rt.doctor.advice import add_advice, find_blamed_settings
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.causes import EFFECTS, LAST, SPEED, is_inner_step, log_distance, may_explain, rank
from zinc_rt.doctor.finding import GRAVITY, DoctorFinding, Severity, Unknown
from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine
from zinc_rt.doctor.read_machine import read_machine
from zinc_rt.doctor.rule import Observation, find_gpu
from zinc_rt.doctor.rules import combinations
from zinc_rt.doctor.rules.table import RULES
from zinc_rt.doctor.unknowns import list_unknowns

NOTHING = "gpu.none"
ABOUT_THE_HOST = ("gpu.none", "host.")  # what may be said of a machine that surely has no AMD GPU


@dataclass(frozen=True, slots=True)
class Diagnosis:
    machine: InspectedMachine
    findings: tuple[DoctorFinding, ...]
    """Root causes first, each followed by its consequences; notes last."""
    unknown: tuple[Unknown, ...]
    """Those that matter first."""
    hung: bool = False
    """The machine is said to hang: it is never healthy."""

    @property
    def first(self) -> DoctorFinding | None:
        """Return the first root cause, or None if there is neither an error nor a warning."""
        return next((finding for finding in self.findings if finding.severity != "note"), None)

    @property
    def consequences(self) -> frozenset[str]:
        return frozenset(item for finding in self.findings for item in finding.cause_of)

    def exit_code(self) -> int:
        """Return 0 for a healthy machine, 1 if a cause was found, 77 if there is no AMD GPU, or if no cause was
        found but relevant values are unknown.
        """
        if any(finding.severity == "broken" for finding in self.findings):
            return 1
        about_a_gpu = any(f.severity != "note" and not f.id.startswith(ABOUT_THE_HOST) for f in self.findings)
        if any(finding.id == NOTHING for finding in self.findings) and not about_a_gpu:
            return 77  # a log without its machine still names the driver's troubles
        if self.first is not None:
            return 1
        return 77 if self.hung or any(unknown.matters for unknown in self.unknown) else 0

    @property
    def hazard(self) -> int | None:
        """Return the highest --hazard of probes that may run before the machine is repaired; None if all may
        run.
        """
        return min((f.hazard for f in self.findings if f.hazard is not None), default=0 if self.hung else None)

    def rows(self) -> list[dict[str, Any]]:
        """Return the description of each GPU in the format of a row of the matrix."""
        gpus = [gpu for gpu in self.machine.is_relevant if gpu.arch]
        return [combinations.gpu_facts(gpu, self.machine).to_row() for gpu in gpus]


def diagnose(capture: MachineCapture, *, device: str = "", hung: bool = False) -> Diagnosis:
    """Diagnose a capture. Never raises for the contents of a capture. `device`: only this GPU, by PCI
    address, card or render node. `hung`: the user reports a hang, so the result is never healthy."""
    machine = replace(read_machine(capture), hung=hung)
    if device:
        machine = select_gpu(machine, device)
    findings = [(rule.finding(seen), seen) for rule in RULES for seen in rule.look(machine)]
    if machine.gpus_known and not machine.gpus:
        findings = [(finding, seen) for finding, seen in findings if finding.id.startswith(ABOUT_THE_HOST)]
    if device:
        kept = {"", *(gpu.address for gpu in machine.gpus)}
        findings = [(finding, seen) for finding, seen in findings if finding.about in kept]
    ordered = _sort_by_cause(_add_known_issues(findings, machine))
    blamed = find_blamed_settings(ordered)
    final = tuple(add_advice(finding, machine, blamed) for finding in ordered)
    return Diagnosis(machine, final, list_unknowns(machine), hung)


def select_gpu(machine: InspectedMachine, device: str) -> InspectedMachine:
    """Return the machine with one GPU, and without the log messages of the others."""
    chosen = tuple(gpu for gpu in machine.gpus if matches_name(gpu, device))
    if machine.log is None:
        return replace(machine, gpus=chosen)
    others = {gpu.address for gpu in machine.gpus} - {gpu.address for gpu in chosen}
    events = tuple(event for event in machine.log.events if find_gpu(machine, event.address) not in others)
    return replace(machine, gpus=chosen, log=replace(machine.log, events=events))


def matches_name(gpu: InspectedGpu, name: str) -> bool:
    requested = name.removeprefix("/dev/dri/").lower()
    return requested in (gpu.card, gpu.render.lower(), gpu.address, gpu.address.removeprefix("0000:"))


def _add_known_issues(
    findings: list[tuple[DoctorFinding, Observation]], machine: InspectedMachine
) -> list[tuple[DoctorFinding, Observation]]:
    """Attach to each symptom the rows of the matrix that name it; omit suspects whose rows are all attached."""
    rows = combinations.find_matching_rows(machine)
    quoted = []
    for finding, seen in findings:
        known = [row for gpu, row in rows if finding.id in row.symptoms and finding.about in ("", gpu.address)]
        evidence = (*finding.evidence, *(f"combinations.yaml: {row.format_statement()}" for row in known))
        quoted.append(
            (replace(finding, evidence=evidence, rows=(*finding.rows, *(row.id for row in known))), seen)
        )
    used = {row_id for finding, _ in quoted if finding.id != "combination.suspect" for row_id in finding.rows}
    return [
        (finding, seen)
        for finding, seen in quoted
        if finding.id != "combination.suspect" or not set(finding.rows) <= used
    ]


def _explains(cause: tuple[DoctorFinding, Observation], other: tuple[DoctorFinding, Observation]) -> bool:
    (a, seen), (b, later) = cause, other
    if a is b or a.severity == "note" or (a.about and b.about and a.about != b.about):
        return False
    if seen.at is not None and later.at is not None and seen.at > later.at + log_distance(a.id, b.id):
        return False
    if seen.until is not None and later.at is not None and later.at > seen.until:
        return False
    if seen.at is not None and later.at is not None and is_inner_step(a.id, b.id, later.at - seen.at):
        return False
    return may_explain(a.id, b.id, seen.explains)


def _sort_by_cause(found: list[tuple[DoctorFinding, Observation]]) -> tuple[DoctorFinding, ...]:
    """Order trees of causes, most severe first. If two findings could explain each other, the one in the lower
    layer is the cause.
    """
    below: dict[int, list[int]] = {index: [] for index in range(len(found))}
    roots = set(below)
    for index in below:
        for other in below:
            if _explains(found[index], found[other]) and not (
                _explains(found[other], found[index]) and _sort_key(found[other]) < _sort_key(found[index])
            ):
                below[index].append(other)
                roots.discard(other)

    def collect_consequences(index: int, seen: set[int]) -> list[int]:
        ordered = []
        for other in sorted(below[index], key=lambda item: _sort_key(found[item])):
            if other not in seen:
                seen.add(other)
                ordered += [other, *collect_consequences(other, seen)]
        return ordered

    trees = []
    for root in sorted(roots, key=lambda root: _sort_key(found[root])):
        consequences = collect_consequences(root, {root})
        worst = min(GRAVITY[found[consequence][0].severity] for consequence in (root, *consequences))
        trees.append((worst, rank(found[root][0].id), root, consequences))
    trees.sort(
        key=lambda tree: (
            GRAVITY[found[tree[2]][0].severity] == 2,
            found[tree[2]][0].id in LAST,
            tree[0],
            tree[1],
            found[tree[2]][0].id in EFFECTS,
            found[tree[2]][1].at or 0,
        )
    )
    findings: list[DoctorFinding] = []
    shown: set[int] = set()
    broken = any(finding.severity == "broken" and finding.id not in LAST for finding, _ in found)
    for _, _, root, consequences in trees:
        ids = tuple(dict.fromkeys(found[consequence][0].id for consequence in consequences))
        later = broken and not ids and any(fnmatchcase(found[root][0].id, item) for item in SPEED)
        severity: Severity = "note" if later else found[root][0].severity
        findings.append(replace(found[root][0], cause_of=ids, severity=severity))
        shown.add(root)
        fresh = [consequence for consequence in consequences if consequence not in shown]
        shown |= set(fresh)
        for index in fresh:
            beneath = tuple(
                dict.fromkeys(found[item][0].id for item in collect_consequences(index, {index, root}))
            )
            findings.append(replace(found[index][0], cause_of=beneath))
    return tuple(findings)


def _sort_key(pair: tuple[DoctorFinding, Observation]) -> tuple[int, int]:
    return rank(pair[0].id), pair[1].at or 0
