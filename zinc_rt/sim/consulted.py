"""What a device came to: ioctls, packets, findings, instructions of kernels that ran, by the marks of facts.yaml.

Noting is one dictionary store, so everything may be noted every time; what a mark means is asked for at the end.
"""

from __future__ import annotations

from functools import cache

from zinc_rt.isa.control_flow import control_flow
from zinc_rt.isa.target import Target


class Consulted:
    """Marks, each with the period in which it was noted last. A period ends when somebody asks."""

    def __init__(self, *marks: str) -> None:
        """`marks` are noted in every period: what the device is."""
        self._always = marks
        self._period = 1
        self._last: dict[str, int] = {}
        self._codes: dict[tuple[bytes, Target, int], int] = {}

    def mark(self, name: str) -> None:
        self._last[name] = self._period

    def ran(self, code: bytes, target: Target, entry: int = 0) -> None:
        """Note a kernel that ran. Its first instruction is at byte `entry`."""
        self._codes[code, target, entry] = self._period

    def since(self, period: int = 0) -> tuple[int, list[str]]:
        """The period that begins now, and what was noted in `period` or later, sorted."""
        marks = {name for name, last in list(self._last.items()) if last >= period}
        for kernel, last in list(self._codes.items()):
            if last >= period:
                marks |= instructions(*kernel)
        self._period += 1
        return self._period, sorted(marks.union(self._always))


@cache
def instructions(code: bytes, target: Target, entry: int = 0) -> frozenset[str]:
    """A mark for each mnemonic that control can reach."""
    flow = control_flow(code, target, entry, running=True)
    return frozenset(f"op {instruction.mnemonic}" for _, instruction in flow.instructions())
