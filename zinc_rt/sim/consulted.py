"""What a device came to: ioctls, packets, findings, instructions of kernels that ran, by the marks of facts.yaml.

Noting is one dictionary store, so everything may be noted every time; what a mark means is asked for at the end.
"""

from __future__ import annotations

from functools import cache

from zinc_rt.isa import decode, target_of


class Consulted:
    """Marks, each with the period in which it was noted last. A period ends when somebody asks."""

    def __init__(self, *marks: str) -> None:
        """`marks` are noted in every period: what the device is."""
        self._always = marks
        self._period = 1
        self._last: dict[str, int] = {}
        self._codes: dict[tuple[bytes, int], int] = {}

    def mark(self, name: str) -> None:
        self._last[name] = self._period

    def ran(self, code: bytes, wave: int) -> None:
        """A kernel, `wave` lanes wide."""
        self._codes[code, wave] = self._period

    def since(self, period: int = 0) -> tuple[int, list[str]]:
        """The period that begins now, and what was noted in `period` or later, sorted."""
        marks = {name for name, last in list(self._last.items()) if last >= period}
        for (code, wave), last in list(self._codes.items()):
            if last >= period:
                marks |= instructions(code, wave)
        self._period += 1
        return self._period, sorted(marks.union(self._always))


@cache
def instructions(code: bytes, wave: int) -> frozenset[str]:
    """A mark for each mnemonic; what is no instruction is passed over dword by dword."""
    target, at, found = target_of("gfx1201", wave=wave), 0, set()
    while at < len(code):
        instruction = decode(code, at, target)
        if instruction is None:
            at += 4
            continue
        found.add(f"op {instruction.mnemonic}")
        at += instruction.size_bytes
    return frozenset(found)
