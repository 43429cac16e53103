"""Coverage of a device: ioctls, packets, findings and instructions of executed kernels, as the marks of
facts.yaml.

Recording a mark is one dictionary store, so every occurrence can be recorded. Marks are interpreted at the
end.
"""

from __future__ import annotations

from functools import cache

from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.target import Target


class Coverage:
    """Marks, each with the last period in which it was recorded. Calling `take_since` ends a period."""

    def __init__(self, *marks: str) -> None:
        """`marks` are recorded in every period: they describe the device itself."""
        self._always = marks
        self._period = 1
        self._last: dict[str, int] = {}
        self._codes: dict[tuple[bytes, Target, int], int] = {}

    def add_mark(self, name: str) -> None:
        self._last[name] = self._period

    def ran(self, code: bytes, target: Target, entry: int = 0) -> None:
        """Record an executed kernel. Its first instruction is at byte `entry`."""
        self._codes[code, target, entry] = self._period

    def take_since(self, period: int = 0) -> tuple[int, list[str]]:
        """Begin a new period. Return it and the sorted marks recorded in `period` or later."""
        marks = {name for name, last in list(self._last.items()) if last >= period}
        for kernel, last in list(self._codes.items()):
            if last >= period:
                marks |= list_instruction_marks(*kernel)
        self._period += 1
        return self._period, sorted(marks.union(self._always))


@cache
def list_instruction_marks(code: bytes, target: Target, entry: int = 0) -> frozenset[str]:
    """Return a mark for each mnemonic reachable from the entry point."""
    flow = find_control_flow(code, target, entry, running=True)
    return frozenset(f"op {instruction.mnemonic}" for _, instruction in flow.instructions())
