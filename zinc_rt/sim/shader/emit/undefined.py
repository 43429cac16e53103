"""Undefined bits of registers, tracked at run time where the analysis cannot determine them.

An instruction that carries undefined bits (checks/carried.py) is emitted several times. First the undefined bits
of its operands are set to zeros, then to ones, to compare the results. Finally it is emitted unchanged, and the
undefined bits of its results are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.slots import RegisterSlots
from zinc_rt.sim.shader.emit.values import constant

ALL = 0xFFFFFFFF


class UndefinedBits:
    """Undefined bits by register key, as in RegisterSlots; they have the register's type."""

    def __init__(self, slots: RegisterSlots) -> None:
        self._slots, self._b = slots, slots.frame.b
        self.carried: frozenset[int] = frozenset()  # values that the operation reads without a check
        self.used: dict[int, int] = {}  # of these registers it uses some bits only
        self._fill: int | None = None
        self._results: list[ir.Value] | None = None
        self._coming: list[ir.Value] = []

    def unproven(self, key: int) -> bool:
        """Return whether the current instruction may read undefined bits there."""
        return bool(self._slots.unproven.by_pc.get(self._slots.frame.pc, 0) >> key & 1)

    def of(self, key: int) -> ir.Value:
        """Return the register's undefined bits before the current instruction."""
        return self._slots.load_undefined(key) if self.unproven(key) else constant(0, self._slots.type_of(key))

    # --- an operation that carries them

    @contextmanager
    def carrying(self, carried: frozenset[int], used: dict[int, int]) -> Iterator[None]:
        """Read `carried` without a check inside the context; of the other registers in `used`, check only those
        bits.
        """
        self.carried, self.used = carried, used
        try:
            yield
        finally:
            self.carried, self.used = frozenset(), {}

    def results(self, emit: Callable[[], None], fill: int) -> list[ir.Value]:
        """Return the results of `emit`, in order, with all undefined bits set to 0 or 1; it writes nothing."""
        self._fill, self._results = fill, []
        try:
            emit()
            return self._results
        finally:
            self._fill = self._results = None

    @contextmanager
    def given(self, bits: list[ir.Value]) -> Iterator[None]:
        """Set the undefined bits of results inside the context, in the order in which results are written."""
        self._coming = list(bits)
        try:
            yield
        finally:
            self._coming = []

    def give(self, bits: list[ir.Value]) -> None:
        """Set the undefined bits to those of `given`, until the next instruction."""
        self._coming = list(bits)

    # --- interface for Registers

    def filled(self, key: int, value: ir.Value) -> ir.Value:
        """Return the register's contents for the current emission."""
        if self._fill is None or key not in self.carried or not self.unproven(key):
            return value
        bits = self.of(key)
        return self._b.or_(value, bits) if self._fill else self._b.and_(value, self._b.not_(bits))

    def captured(self, value: ir.Value) -> bool:
        """Return whether writes are captured instead of performed."""
        if self._results is None:
            return False
        self._results.append(value)
        return True

    def next(self) -> ir.Value | None:
        """Return the undefined bits of the value being written, or None if all are defined."""
        return self._coming.pop(0) if self._coming else None

    def wrote(self, key: int, bits: ir.Value | None, *, lanes: ir.Value | None = None, kept: int = 0) -> None:
        """Update the undefined bits of a written register. `lanes` is <W x i1>; other lanes are kept. `kept`:
        bits of the register that were not written.
        """
        if not self._slots.tracked(key):
            return
        b, of = self._b, self._slots.type_of(key)
        if bits is None:
            bits = constant(0, of)
        elif bits.type != of:  # of a scalar that every lane has
            bits = b.splat(bits)
        if kept:
            bits = b.or_(b.and_(bits, ~kept), b.and_(self._slots.load_undefined(key), kept))
        if lanes is not None:
            bits = b.select(lanes, bits, self._slots.load_undefined(key))
        self._slots.store_undefined(key, bits)
