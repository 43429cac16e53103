"""Findings of several launches at one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zinc_rt.launching.finding_groups import FindingGroup


def join_places(groups: Iterable[FindingGroup]) -> tuple[FindingGroup, ...]:
    """Join findings of one rule, kernel, source line and access, with the sum of their counts."""
    joined: dict[tuple[object, ...], FindingGroup] = {}
    for group in groups:
        key = find_place(group)
        before = joined.get(key)
        joined[key] = group if before is None else replace(before, count=before.count + group.count)
    return tuple(joined.values())


def find_place(group: FindingGroup) -> tuple[object, ...]:
    """Return the common fields of findings at one place."""
    return (group.rule, group.kernel, group.line or group.pc, group.access.partition("[")[0])
