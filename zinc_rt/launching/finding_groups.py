"""Findings of a simulated device, grouped by rule, kernel and instruction: one line per group."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from zinc_rt.host.sanitizer_rules import RULES, Severity


class ReportedFinding(Protocol):
    """The common fields of a finding from any source: rule, sentence, and `place` (a CodePlace), if any."""

    @property
    def rule(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def severity(self) -> Any: ...
    @property
    def place(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class RacingPlace:
    """The earlier access of a race. `kind`: load, store, atomic load or atomic store. `line`: FILE:LINE, "" if not
    known. `workgroup`, `wave`: None if several performed it.
    """

    kind: str
    pc: int
    instruction: str
    workgroup: tuple[int, int, int] | None
    wave: int | None
    line: str = ""


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one rule at one place, with the details of the first.

    `kernel`, `pc`, `instruction`: the code, else "", None, "". `error`: hardware would stop or fault. `count`: as
    reported by the device, which reports a few findings per instruction and launch, and the number of the others.
    Of the first finding: `workgroup` (x, y, z), `wave` in it, `lanes` as a bit mask, `address` of the first lane;
    None and 0 if absent; `detail`, what is wrong; `other`, the earlier access of a race. launching.located sets
    `tool`, `line` (FILE:LINE) and `access` ("load of x[1000] of 1000 elements"); "" if they are not known.
    """

    rule: str
    count: int
    first: str
    error: bool
    kernel: str = ""
    pc: int | None = None
    instruction: str = ""
    workgroup: tuple[int, int, int] | None = None
    wave: int | None = None
    lanes: int = 0
    address: int | None = None
    detail: str = ""
    tool: str = ""
    line: str = ""
    access: str = ""
    other: RacingPlace | None = None


_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


def group_findings(findings: Iterable[ReportedFinding]) -> tuple[FindingGroup, ...]:
    """Group findings, in the order of first occurrence.

    Findings without a place in code (packets, hazards between them) are grouped if their sentences differ only in
    numbers.
    """
    groups: dict[tuple[Any, ...], list[ReportedFinding]] = {}
    for finding in findings:
        location = finding.place
        same = (
            (location.kernel, location.pc) if location is not None else (_NUMBER.sub("#", finding.sentence), None)
        )
        groups.setdefault((finding.rule, *same), []).append(finding)
    return tuple(_group(all_) for all_ in groups.values())


def is_end(finding: ReportedFinding) -> bool:
    """Return whether the launch of this finding never completes."""
    wave = finding.place is not None and finding.place.group is not None
    return finding.severity is Severity.ERROR or (wave and RULES[finding.rule].ends_launch)


def count_rules(groups: Iterable[FindingGroup]) -> dict[str, int]:
    """Return how often each rule was reported, in the order of the `groups`."""
    times: dict[str, int] = {}
    for group in groups:
        times[group.rule] = times.get(group.rule, 0) + group.count
    return times


def _group(findings: list[ReportedFinding]) -> FindingGroup:
    first, location = findings[0], findings[0].place
    count = sum(1 if finding.place is None else finding.place.count for finding in findings)
    error = any(is_end(finding) for finding in findings)
    if location is None:
        return FindingGroup(first.rule, count, first.sentence, error)
    where = (
        location.kernel,
        location.pc,
        location.instruction,
        location.group,
        location.wave,
        location.lanes,
        location.address,
    )
    other = location.other
    if other is not None:
        other = RacingPlace(other.kind, other.pc, other.instruction, other.group, other.wave)
    return FindingGroup(first.rule, count, first.sentence, error, *where, location.detail, other=other)
