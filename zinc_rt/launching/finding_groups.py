"""Findings of a simulated device by what they have in common: one line for each rule, kernel and instruction."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class Told(Protocol):
    """What a finding has, however it came: rule and sentence; `place` (a CodePlace), where it has one."""

    @property
    def rule(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def severity(self) -> Any: ...
    @property
    def place(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one rule at one place, and the first of them in full. `kernel`, `pc`, `instruction`: of code,
    else "", None, "". `error`: silicon would stop or fault. `count`: as far as the device told; of one instruction
    it tells a few each launch and how many there were besides. Of the first: `workgroup` (x, y, z), `wave` in it,
    `lanes` a bit each, `address` the first lane's; None and 0 where there is none."""

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


_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_MORE = re.compile(r" (\d+) times more at pc ")  # as checks/finding_text.py says it


def grouped(findings: Iterable[Told]) -> tuple[FindingGroup, ...]:
    """In the order in which each was first met. Those without a place in code (packets, hazards between them) are
    alike when their sentences differ in numbers only."""
    found: dict[tuple[Any, ...], list[Told]] = {}
    for each in findings:
        place = each.place
        same = (place.kernel, place.pc) if place is not None else (_NUMBER.sub("#", each.sentence), None)
        found.setdefault((each.rule, *same), []).append(each)
    return tuple(_group(all_) for all_ in found.values())


def times_of_rules(groups: Iterable[FindingGroup]) -> dict[str, int]:
    """Return how often each rule was reported, in the order of `groups`."""
    found: dict[str, int] = {}
    for each in groups:
        found[each.rule] = found.get(each.rule, 0) + each.count
    return found


def _group(findings: list[Told]) -> FindingGroup:
    first, place = findings[0], findings[0].place
    more = [_MORE.search(each.sentence) for each in findings]
    count = sum(1 if each is None else int(each[1]) for each in more)
    error = any(each.severity.value == "error" for each in findings)
    if place is None:
        return FindingGroup(first.rule, count, first.sentence, error)
    where = (place.kernel, place.pc, place.instruction, place.group, place.wave, place.lanes, place.address)
    return FindingGroup(first.rule, count, first.sentence, error, *where)
