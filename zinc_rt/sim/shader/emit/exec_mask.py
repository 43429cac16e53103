"""Access to EXEC by emitted code; constants are used where EXEC is known to be all ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.slots import RegisterSlots
from zinc_rt.sim.shader.emit.values import I1, constant
from zinc_rt.sim.shader.layout import EXEC_HI, EXEC_LO, VGPR_LIMIT


class ExecMask:
    """The EXEC mask. `full`: EXEC is known to be all ones before the current instruction."""

    def __init__(self, slots: RegisterSlots) -> None:
        self._slots, self._b = slots, slots.frame.b
        self.full = False
        self.limit: ir.Value | None = None

    def bits(self) -> ir.Value:
        """Return EXEC as an iW."""
        if self.full:
            return constant(-1, self._b.mask_bits)
        keys = [VGPR_LIMIT + EXEC_LO] + ([VGPR_LIMIT + EXEC_HI] if self._b.wave == 64 else [])
        for key in keys:
            self._slots.touched.exec_reads |= 1 << key
        return self._b.join([self._slots.load(key) for key in keys])

    def wide(self) -> ir.Value:
        """Return EXEC as an i64."""
        return self._b.resize(self.bits(), 64)

    def is_full(self) -> ir.Value:
        """Return i1: EXEC is all ones."""
        return self._b.equal(self.bits(), -1)

    def mask(self) -> ir.Value:
        """Return EXEC as <W x i1>."""
        if self.full:
            return constant(1, self._b.lanes(I1))
        return self._b.bitcast(self.bits(), self._b.lanes(I1))

    def written(self) -> ir.Value:
        """Return the lanes that are written, EXEC within `limited`, as <W x i1>."""
        mask = self.mask()
        if self.limit is None:
            return mask
        return self.limit if self.full else self._b.and_(mask, self.limit)

    @contextmanager
    def limited(self, lanes: ir.Value) -> Iterator[None]:
        """Restrict writes inside the context to those lanes of EXEC that are set in <W x i1>."""
        before = self.limit
        self.limit = lanes if before is None else self._b.and_(before, lanes)
        try:
            yield
        finally:
            self.limit = before
