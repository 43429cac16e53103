"""Registers by number, lane masks, and what an instruction touched of them.

Registers are allocas that LLVM promotes. Every access is noted in `touched`, from which analysis.py learns each
instruction's reads and writes; so an emit function is the only place that says what an instruction does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.emit.quads import QuadForms, Quads
from zinc_rt.sim.shader.emit.reports import Reports
from zinc_rt.sim.shader.emit.values import I1, I32
from zinc_rt.sim.shader.layout import EXEC_HI, EXEC_LO, NULL, SCC, TTMP0, VGPR_LIMIT, Checks

if TYPE_CHECKING:
    from zinc_rt.sim.shader.translate.flow import BlockFlow

_VIRTUAL = 1 << 16  # indices of virtual vector registers start here


@dataclass
class Touched:
    """Registers an instruction touched, as bit sets: bit r is VGPR r, bit 256 + n SGPR n, bit 384 SCC.

    `reads` want initialised contents; `merges` are old contents that are kept, not looked at. `masked` are the
    VGPR writes that depend on EXEC, `writes` the others.
    """

    reads: int = 0
    merges: int = 0
    writes: int = 0
    masked: int = 0
    partial: int = 0  # those of `masked` that leave out lanes besides
    whole: int = 0  # VGPR reads of lanes that EXEC may leave out
    exec_reads: int = 0  # EXEC bits read by masking alone: none where EXEC is known to be full


@dataclass
class UnprovenReads:
    """What analysis.py found out, for the second pass. Bit sets as in Touched."""

    tracked: int = 0  # registers whose written lanes are kept at run time
    unproven: dict[int, int] = field(default_factory=dict)  # pc -> reads to be checked there


def register_name(key: int) -> str:
    """v3, s5, vcc_lo, scc of a register's key (VGPR r is r, SGPR n 256 + n, SCC 384)."""
    if key < VGPR_LIMIT:
        return f"v{key}"
    index = key - VGPR_LIMIT
    named = {106: "vcc_lo", 107: "vcc_hi", 125: "m0", 126: "exec_lo", 127: "exec_hi", SCC: "scc"}
    if index in named:
        return named[index]
    return f"ttmp{index - TTMP0}" if TTMP0 <= index < NULL else f"s{index}"


class Registers(Reports):
    """`instruction` is the one being emitted. `exec_full`: EXEC is known to be all ones before it."""

    def __init__(
        self,
        module: ir.Module,
        name: str,
        wave: int,
        checks: Checks,
        vgprs: int,
        sgprs: int,
        facts: UnprovenReads,
        forms: QuadForms | None = None,
    ) -> None:
        super().__init__(module, name, wave, checks)
        self.vgprs, self.sgprs, self.facts = vgprs, sgprs, facts
        self.flow: BlockFlow = None  # type: ignore[assignment]
        self.instruction: Instruction = None  # type: ignore[assignment]
        self.exec_full = False
        self.touched = Touched()
        self._registers: dict[int, ir.Value] = {}
        self._written: dict[int, ir.Value] = {}
        self._virtual: dict[int, ir.Value] = {}
        self._limit: ir.Value | None = None
        self._deferred: list[tuple[int, ir.Value, bool]] | None = None
        self._checked: set[int] = set()
        self.quads = Quads(self, forms or QuadForms())

    def begin(self, pc: int, instruction: Instruction, *, exec_full: bool) -> Touched:
        """Go on to the next instruction; gives the registers it is going to touch."""
        self.pc, self.instruction, self.exec_full = pc, instruction, exec_full
        self._checked.clear()
        self.touched = Touched()
        return self.touched

    # --- by number

    def register(self, key: int) -> ir.Value:
        """The alloca of a register: VGPR r is r, SGPR n 256 + n, SCC 384."""
        slot = self._registers.get(key)
        if slot is None:
            of = self.lanes(I32) if key < VGPR_LIMIT else I1 if key == VGPR_LIMIT + SCC else I32
            slot = self._registers[key] = self.local(of, register_name(key))
        return slot

    def written(self, key: int) -> ir.Value:
        """The alloca that says which lanes of a tracked register were written (i1 for a scalar one)."""
        slot = self._written.get(key)
        if slot is None:
            of = self.mask_bits if key < VGPR_LIMIT else I1
            slot = self._written[key] = self.local(of, register_name(key) + ".written")
        return slot

    def read_vgpr(self, index: int, *, lanes: ir.Value | None = None, check: bool = True) -> ir.Value:
        """<W x i32>. `lanes`: those that count as read, EXEC's by default; without `check` none (a merge)."""
        if index >= _VIRTUAL:
            return self._virtual[index]
        if index >= self.vgprs:
            self._out_of_range(f"v{index} is read (v0 on hardware)")
            index = 0
        self._note_read(index, merge=not check)
        if check and lanes is not None:
            self.touched.whole |= 1 << index
        if check and self.facts.unproven.get(self.pc, 0) >> index & 1:
            self._check_vgpr(index, lanes)
        return self.quads.read(index)

    def write_vgpr(self, index: int, value: ir.Value, masked: bool = True) -> None:
        """`value`: <W x i32>. Lanes outside EXEC (and outside `limited`) keep theirs, unless not `masked`."""
        if self._deferred is not None:
            self._deferred.append((index, value, masked))
            return
        if index >= self.vgprs:
            self._out_of_range(f"v{index} is written (nothing happens on hardware)")
            return
        bit = 1 << index
        limited = masked and self._limit is not None
        if limited or (masked and not self.exec_full):
            self.touched.masked |= bit
            if limited:
                self._note_read(index, merge=True)
                self.touched.partial |= bit
            lanes = self.active_mask()
            value = self.b.select(lanes, value, self.load(self.register(index), self.lanes(I32)))
            if self.facts.tracked >> index & 1:
                slot = self.written(index)
                bits = self.b.bitcast(lanes, self.mask_bits)
                self.b.store(self.b.or_(self.load(slot, self.mask_bits), bits), slot)
        else:
            if masked:
                self.touched.masked |= bit
            else:
                self.touched.writes |= bit
            if self.facts.tracked >> index & 1:
                self.b.store(self.constant(-1, self.mask_bits), self.written(index))
        self.b.store(value, self.register(index))
        self.quads.wrote(index, value)

    def read_sgpr(self, index: int, *, check: bool = True) -> ir.Value:
        """i32. `index` as in the encoding; `null` reads 0."""
        if index == NULL:
            return self.constant(0)
        key = VGPR_LIMIT + index
        self._note_read(key, merge=not check)
        if check and self.facts.unproven.get(self.pc, 0) >> key & 1:
            self._check_sgpr(key)
        return self.load(self.register(key), I32)

    def write_sgpr(self, index: int, value: ir.Value) -> None:
        """`value`: i32; `null` takes anything."""
        if index != NULL:
            self._write_scalar(VGPR_LIMIT + index, value)

    @property
    def scc(self) -> ir.Value:
        """i1."""
        key = VGPR_LIMIT + SCC
        self._note_read(key)
        if self.facts.unproven.get(self.pc, 0) >> key & 1:
            self._check_sgpr(key)
        return self.load(self.register(key), I1)

    @scc.setter
    def scc(self, value: ir.Value) -> None:
        self._write_scalar(VGPR_LIMIT + SCC, value)

    def _write_scalar(self, key: int, value: ir.Value) -> None:
        self.touched.writes |= 1 << key
        if self.facts.tracked >> key & 1:
            self.b.store(self.constant(1, I1), self.written(key))
        self.b.store(value, self.register(key))

    def _note_read(self, key: int, merge: bool = False) -> None:
        bit = 1 << key
        if (self.touched.writes | self.touched.masked) & bit:
            return
        if merge:
            self.touched.merges |= bit
        else:
            self.touched.reads |= bit

    # --- EXEC

    def exec_bits(self) -> ir.Value:
        """EXEC as an iW."""
        if self.exec_full:
            return self.constant(-1, self.mask_bits)
        keys = [VGPR_LIMIT + EXEC_LO] + ([VGPR_LIMIT + EXEC_HI] if self.wave == 64 else [])
        for key in keys:
            self.touched.exec_reads |= 1 << key
        return self.join([self.load(self.register(key), I32) for key in keys])

    def exec_mask(self) -> ir.Value:
        """EXEC as <W x i1>."""
        if self.exec_full:
            return self.constant(1, self.lanes(I1))
        return self.b.bitcast(self.exec_bits(), self.lanes(I1))

    def active_mask(self) -> ir.Value:
        """The lanes that are written: EXEC within `limited`."""
        mask = self.exec_mask()
        if self._limit is None:
            return mask
        return self._limit if self.exec_full else self.b.and_(mask, self._limit)

    def write_exec(self, mask: ir.Value) -> None:
        """`mask`: <W x i1> or iW. What v_cmpx does with a mask that is already within EXEC."""
        bits = mask if mask.type == self.mask_bits else self.b.bitcast(mask, self.mask_bits)
        for index, part in zip((EXEC_LO, EXEC_HI), self.split(bits), strict=False):
            self.write_sgpr(index, part)

    def is_zero(self, index: int) -> ir.Value:
        """i1: whether a lane mask (VCC, EXEC) by SGPR number is all zero."""
        parts = [self.read_sgpr(index + at) for at in range(self.wave // 32)]
        value = self.join(parts)
        return self.b.icmp_unsigned("==", value, self.constant(0, value.type))

    @contextmanager
    def limited(self, lanes: ir.Value) -> Iterator[None]:
        """Inside, set_vector, write_vgpr and set_mask write only those of EXEC's lanes that are in <W x i1>."""
        before = self._limit
        self._limit = lanes if before is None else self.b.and_(before, lanes)
        try:
            yield
        finally:
            self._limit = before

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, writes to VGPRs wait until the end: dual instructions read all before they write."""
        self._deferred = []
        try:
            yield
        finally:
            waiting, self._deferred = self._deferred, None
        for index, value, masked in waiting:
            self.write_vgpr(index, value, masked)

    def virtual(self, operand: Operand, values: Sequence[ir.Value]) -> Operand:
        """`operand` (its modifiers, its half) with `values` as contents, <W x i32> per dword: a permuted one."""
        index = _VIRTUAL + len(self._virtual)
        for at, value in enumerate(values):
            self._virtual[index + at] = value
        return replace(operand, kind=Kind.VGPR, index=index, width=len(values))

    # --- checks

    def _out_of_range(self, text: str) -> None:
        if self.checks.fast:
            condition = self.constant(1, I1)
            self.report_if("vgpr-out-of-range", condition, f"{text}; the kernel has {self.vgprs} VGPRs")

    def _check_vgpr(self, index: int, lanes: ir.Value | None) -> None:
        if index in self._checked and lanes is None:
            return
        self._checked.add(index)
        wanted = self.exec_bits() if lanes is None else self.bits(lanes)
        have = self.load(self.written(index), self.mask_bits)
        missing = self.b.and_(wanted, self.b.not_(have))
        self.report("uninitialised-vgpr", missing, text=f"v{index}")

    def _check_sgpr(self, key: int) -> None:
        if key in self._checked:
            return
        self._checked.add(key)
        missing = self.b.not_(self.load(self.written(key), I1))
        self.report_if("uninitialised-sgpr", missing, register_name(key))
