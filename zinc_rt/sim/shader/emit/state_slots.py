"""Registers in the wave's state instead of in locals of the function, for a debugger (Checks.debug)."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.frame import Frame
from zinc_rt.sim.shader.emit.slots import RegisterSlots, UnprovenReads
from zinc_rt.sim.shader.layout import SCC, STATE, VGPR_LIMIT


class StateSlots(RegisterSlots):
    """Registers, and their undefined bits, in the wave's state. The state must be aligned for their types."""

    def __init__(self, frame: Frame, unproven: UnprovenReads, vgprs: int) -> None:
        super().__init__(frame, unproven)
        self._vgprs = vgprs

    def _value(self, key: int) -> ir.Value:
        if key not in self._values:
            self._values[key] = self._place(self._offset(key, 0, "sgprs", STATE.fields["scc"].offset))
        return self._values[key]

    def _undefined_of(self, key: int) -> ir.Value:
        if key not in self._undefined:
            scc = STATE.fields["sgpr_undefined"].offset + 4 * SCC
            self._undefined[key] = self._place(self._offset(key, self._vgprs, "sgpr_undefined", scc))
        return self._undefined[key]

    def _offset(self, key: int, first: int, sgprs: str, scc: int) -> int:
        """Return the register's offset in the state. `first`: index of v0 in the array of vector registers."""
        if key < VGPR_LIMIT:
            return STATE.size_bytes + (first + key) * self.frame.wave * 4
        return scc if key == VGPR_LIMIT + SCC else STATE.fields[sgprs].offset + 4 * (key - VGPR_LIMIT)

    def _place(self, offset: int) -> ir.Value:
        with self.frame.b.goto_entry_block():
            return self.frame.b.offset(self.frame.state, offset)
