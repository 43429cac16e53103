"""What lies around an address that nothing is mapped at: where a bad pointer may have come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FAR_BYTES = 1 << 30  # what lies further off has nothing to do with it
NULL_BYTES = 1 << 16  # amdgpu leaves the first 64 KiB of every address space free


@dataclass(frozen=True, slots=True)
class NamedRange:
    """[start, end) has, or had, that name."""

    start: int
    end: int
    name: str


def describe_neighbours(va: int, live: Iterable[NamedRange], freed: Iterable[NamedRange]) -> str:
    """For an address in none of `live`: in what of `freed` (oldest first) it lay, what ends before it and what
    begins behind it, with distances."""
    said = ["a null pointer with a small offset"] if va < NULL_BYTES else []
    before: NamedRange | None = None
    behind: NamedRange | None = None
    for each in live:
        if each.end <= va and (before is None or _closer(each, before, before.end, each.end)):
            before = each
        elif each.start > va and (behind is None or _closer(each, behind, each.start, behind.start)):
            behind = each
    last = next((each for each in reversed(list(freed)) if each.start <= va < each.end), None)
    if last is not None:
        said.append(f"in {last.name}+0x{va - last.start:x}, which was freed")
    if before is not None and va - before.end < FAR_BYTES:
        said.append(f"{va - before.end} bytes past the end of {before.name}")
    if behind is not None and behind.start - va < FAR_BYTES:
        said.append(f"{behind.start - va} bytes before {behind.name}")
    return "; ".join(["unmapped", *said]) if said else "unmapped, and nothing is mapped within 1 GiB"


def _closer(one: NamedRange, other: NamedRange, lower: int, higher: int) -> bool:
    """Whether `one` is nearer, or as near and smaller: a suballocation says more than what it lies in."""
    return lower < higher or (lower == higher and one.end - one.start < other.end - other.start)
