"""Bits of registers that nobody has defined: kept beside those registers of which the analysis cannot tell.

An instruction that carries them (checks/carried.py) is emitted more than once: with the undefined bits of what it
reads as zeros, then as ones, to see where its results differ; at last as it is, its results' undefined bits given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.slots import RegisterSlots
from zinc_rt.sim.shader.emit.values import constant

ALL = 0xFFFFFFFF


class UndefinedBits:
    """Registers by key, as in RegisterSlots; undefined bits have the register's own type."""

    def __init__(self, slots: RegisterSlots) -> None:
        self._slots, self._b = slots, slots.frame.b
        self.carried: frozenset[int] = frozenset()  # what the operation reads without a check
        self.used: dict[int, int] = {}  # of these registers it uses some bits only
        self._fill: int | None = None
        self._results: list[ir.Value] | None = None
        self._coming: list[ir.Value] = []

    def unproven(self, key: int) -> bool:
        """Return whether the current instruction may read undefined bits there."""
        return bool(self._slots.unproven.by_pc.get(self._slots.frame.pc, 0) >> key & 1)

    def of(self, key: int) -> ir.Value:
        """The register's undefined bits as the present instruction finds them."""
        return self._slots.load_undefined(key) if self.unproven(key) else constant(0, self._slots.type_of(key))

    # --- an operation that carries them

    @contextmanager
    def carrying(self, carried: frozenset[int], used: dict[int, int]) -> Iterator[None]:
        """Inside, `carried` are read without a check, and of the others in `used` only those bits count."""
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
        """Inside, results have these undefined bits, one by one in the order in which they are written."""
        self._coming = list(bits)
        try:
            yield
        finally:
            self._coming = []

    def give(self, bits: list[ir.Value]) -> None:
        """As `given`, until the next instruction."""
        self._coming = list(bits)

    # --- what Registers asks and tells

    def filled(self, key: int, value: ir.Value) -> ir.Value:
        """The register's contents as the present emission is to see them."""
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
        """The undefined bits of what is written now; None: all are defined."""
        return self._coming.pop(0) if self._coming else None

    def wrote(self, key: int, bits: ir.Value | None, *, lanes: ir.Value | None = None, kept: int = 0) -> None:
        """`lanes`: <W x i1>, the others keep theirs. `kept`: the bits of the register that were not written."""
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
        b.store(bits, self._slots.undefined(key))
