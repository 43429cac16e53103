"""Registers as allocas of the wave function, and the record of which registers an instruction touched.

LLVM promotes the allocas. Every access is recorded in `touched`, from which analysis.py derives each instruction's
reads and writes; emit functions are therefore the only description of an instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.frame import Frame
from zinc_rt.sim.shader.emit.values import I1, I32
from zinc_rt.sim.shader.layout import NULL, SCC, TTMP0, VGPR_LIMIT


@dataclass
class Touched:
    """Registers touched by an instruction, as bit sets: bit r is VGPR r, bit 256 + n SGPR n, bit 384 SCC.

    `reads` require defined contents. `carried` registers are read too, but their undefined bits only make the
    results undefined. `merges` are old contents that are kept without being used. `masked` are VGPR writes that
    depend on EXEC, `writes` all others.
    """

    reads: int = 0
    carried: int = 0
    in_part: int = 0  # those of `reads` of which only some bits are used
    merges: int = 0
    writes: int = 0
    masked: int = 0
    partial: int = 0  # those of `masked` that leave out lanes besides
    halves: int = 0  # writes that keep some of the register's bits
    saves: bool = False  # stores `carried` registers to scratch unchanged
    restores: bool = False  # loads dwords from scratch
    whole: int = 0  # VGPR reads of lanes that EXEC may leave out
    exec_reads: int = 0  # EXEC bits read by masking alone: none where EXEC is known to be full

    def note_read(self, key: int, *, merge: bool = False, carried: bool = False) -> None:
        bit = 1 << key
        if (self.writes | self.masked) & bit:
            return
        if merge:
            self.merges |= bit
        elif carried:
            self.carried |= bit
        else:
            self.reads |= bit


@dataclass
class UnprovenReads:
    """Results of analysis.py for the second pass, as bit sets like in Touched."""

    tracked: int = 0  # registers whose undefined bits are kept at run time
    saved: bool = False  # undefined registers may be stored to scratch, and come back from there
    computed: int = 0  # those that may be so because they were computed from others
    by_pc: dict[int, int] = field(default_factory=dict)  # pc -> reads to check or to propagate there


def register_name(key: int) -> str:
    """Return the name of a register key, e.g. v3, s5, vcc_lo, scc (VGPR r is r, SGPR n 256 + n, SCC 384)."""
    if key < VGPR_LIMIT:
        return f"v{key}"
    index = key - VGPR_LIMIT
    named = {106: "vcc_lo", 107: "vcc_hi", 125: "m0", 126: "exec_lo", 127: "exec_hi", SCC: "scc"}
    if index in named:
        return named[index]
    return f"ttmp{index - TTMP0}" if TTMP0 <= index < NULL else f"s{index}"


class RegisterSlots:
    """The allocas of registers by key: VGPR r is r, SGPR n 256 + n, SCC 384."""

    def __init__(self, frame: Frame, unproven: UnprovenReads) -> None:
        self.frame, self.unproven = frame, unproven
        self.touched = Touched()
        self._values: dict[int, ir.Value] = {}
        self._undefined: dict[int, ir.Value] = {}

    def type_of(self, key: int) -> ir.Type:
        if key < VGPR_LIMIT:
            return self.frame.b.lanes(I32)
        return I1 if key == VGPR_LIMIT + SCC else I32

    def _value(self, key: int) -> ir.Value:
        """Return the alloca of the register's contents."""
        if key not in self._values:
            self._values[key] = self.frame.b.local(self.type_of(key), name=register_name(key))
        return self._values[key]

    def load(self, key: int) -> ir.Value:
        return self.frame.b.load(self._value(key), typ=self.type_of(key))

    def store(self, key: int, value: ir.Value) -> None:
        self.frame.b.store(value, self._value(key))

    def tracked(self, key: int) -> bool:
        """Return whether the register's undefined bits are tracked at run time."""
        return bool(self.unproven.tracked >> key & 1)

    def _undefined_of(self, key: int) -> ir.Value:
        """Return the alloca of a tracked register's undefined bits, of the register's type."""
        if key not in self._undefined:
            name = register_name(key) + ".undefined"
            self._undefined[key] = self.frame.b.local(self.type_of(key), name=name)
        return self._undefined[key]

    def load_undefined(self, key: int) -> ir.Value:
        return self.frame.b.load(self._undefined_of(key), typ=self.type_of(key))

    def store_undefined(self, key: int, bits: ir.Value) -> None:
        self.frame.b.store(bits, self._undefined_of(key))

    def name(self, key: int) -> str:
        """Return the register's name in the texts of findings."""
        return register_name(key)
