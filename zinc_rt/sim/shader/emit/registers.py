"""Registers by number: reads that are checked where they may be uninitialised, writes of EXEC's lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Kind, Operand
from zinc_rt.sim.shader.emit.exec_mask import ExecMask
from zinc_rt.sim.shader.emit.quads import Quads
from zinc_rt.sim.shader.emit.reports import Reports
from zinc_rt.sim.shader.emit.slots import RegisterSlots, register_name
from zinc_rt.sim.shader.emit.values import I1, constant
from zinc_rt.sim.shader.layout import EXEC_HI, EXEC_LO, NULL, SCC, VGPR_BLOCK, VGPR_LIMIT, KernelVariant

_VIRTUAL = 1 << 16  # indices of virtual vector registers start here


class Registers:
    """`vgprs`: how many the kernel has; others do not exist. `dynamic`: of those behind the first block only what
    the wave has allocated."""

    def __init__(
        self, slots: RegisterSlots, exec_mask: ExecMask, reports: Reports, quads: Quads, variant: KernelVariant
    ) -> None:
        self._slots, self._exec, self._reports, self._quads = slots, exec_mask, reports, quads
        self._b, self._checks = slots.frame.b, variant.checks
        self.vgprs, self.dynamic = variant.vgprs, variant.dynamic_vgprs
        self._virtual: dict[int, ir.Value] = {}
        self._deferred: list[tuple[int, ir.Value, bool]] | None = None
        self._checked: set[int] = set()

    def begin(self) -> None:
        """Go on to the next instruction."""
        self._checked.clear()

    def read_vgpr(self, index: int, *, lanes: ir.Value | None = None, check: bool = True) -> ir.Value:
        """<W x i32>. `lanes`: those that count as read, EXEC's by default; without `check` none (a merge)."""
        if index >= _VIRTUAL:
            return self._virtual[index]
        if index >= self.vgprs:
            self._out_of_range(f"v{index} is read (v0 on hardware)")
            index = 0
        touched = self._slots.touched
        touched.note_read(index, merge=not check)
        if check and lanes is not None:
            touched.whole |= 1 << index
        if check and self._unproven(index):
            self._check_vgpr(index, lanes)
        if self.dynamic and index >= VGPR_BLOCK and check:
            exists = self._allocated(index, f"v{index} is read (v0 on hardware)")
            touched.note_read(0, merge=True)
            return self._b.select(exists, self._quads.read(index), self._quads.read(0))
        return self._quads.read(index)

    def write_vgpr(self, index: int, value: ir.Value, masked: bool = True) -> None:
        """`value`: <W x i32>. Lanes outside EXEC (and outside `limited`) keep theirs, unless not `masked`."""
        if self._deferred is not None:
            self._deferred.append((index, value, masked))
            return
        if index >= self.vgprs:
            self._out_of_range(f"v{index} is written (nothing happens on hardware)")
            return
        b, touched, bit = self._b, self._slots.touched, 1 << index
        if self.dynamic and index >= VGPR_BLOCK:
            exists = self._allocated(index, f"v{index} is written (nothing happens on hardware)")
            touched.note_read(index, merge=True)
            value = b.select(exists, value, self._slots.load(index))
        limited = masked and self._exec.limit is not None
        if limited or (masked and not self._exec.full):
            touched.masked |= bit
            if limited:
                touched.note_read(index, merge=True)
                touched.partial |= bit
            lanes = self._exec.written()
            value = b.select(lanes, value, self._slots.load(index))
            if self._slots.tracked(index):
                slot, bits = self._slots.written(index), b.bits(lanes)
                b.store(b.or_(self._slots.load_written(index), bits), slot)
        else:
            if masked:
                touched.masked |= bit
            else:
                touched.writes |= bit
            if self._slots.tracked(index):
                b.store(constant(-1, b.mask_bits), self._slots.written(index))
        b.store(value, self._slots.value(index))
        self._quads.wrote(index, value)

    def read_sgpr(self, index: int, *, check: bool = True) -> ir.Value:
        """i32. `index` as in the encoding; `null` reads 0."""
        if index == NULL:
            return constant(0)
        return self._read_scalar(VGPR_LIMIT + index, check=check)

    def write_sgpr(self, index: int, value: ir.Value) -> None:
        """`value`: i32; `null` takes anything."""
        if index != NULL:
            self._write_scalar(VGPR_LIMIT + index, value)

    @property
    def scc(self) -> ir.Value:
        """i1."""
        return self._read_scalar(VGPR_LIMIT + SCC)

    @scc.setter
    def scc(self, value: ir.Value) -> None:
        self._write_scalar(VGPR_LIMIT + SCC, value)

    def _read_scalar(self, key: int, *, check: bool = True) -> ir.Value:
        self._slots.touched.note_read(key, merge=not check)
        if check and self._unproven(key):
            self._check_sgpr(key)
        return self._slots.load(key)

    def _write_scalar(self, key: int, value: ir.Value) -> None:
        self._slots.touched.writes |= 1 << key
        if self._slots.tracked(key):
            self._b.store(constant(1, I1), self._slots.written(key))
        self._b.store(value, self._slots.value(key))

    def write_exec(self, mask: ir.Value) -> None:
        """`mask`: <W x i1> or iW. What v_cmpx does with a mask that is already within EXEC."""
        for index, part in zip((EXEC_LO, EXEC_HI), self._b.split(self._b.bits(mask)), strict=False):
            self.write_sgpr(index, part)

    def is_zero(self, index: int) -> ir.Value:
        """i1: whether a lane mask (VCC, EXEC) by SGPR number is all zero."""
        parts = [self.read_sgpr(index + at) for at in range(self._b.wave // 32)]
        return self._b.equal(self._b.join(parts), 0)

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

    def _unproven(self, key: int) -> bool:
        return bool(self._slots.unproven.by_pc.get(self._slots.frame.pc, 0) >> key & 1)

    def _out_of_range(self, text: str) -> None:
        if self._checks.fast:
            sentence = f"{text}; the kernel has {self.vgprs} VGPRs"
            self._reports.report_if("vgpr-out-of-range", constant(1, I1), sentence)

    def _allocated(self, index: int, text: str) -> ir.Value:
        """i1: the wave has that register now; that it has not is a finding."""
        exists = self._b.below(constant(index), self._slots.frame.state_field("vgprs"))
        if self._checks.fast:
            self._reports.report_if(
                "vgpr-out-of-range", self._b.not_(exists), f"{text}; the wave has fewer by now"
            )
        return exists

    def _check_vgpr(self, index: int, lanes: ir.Value | None) -> None:
        if index in self._checked and lanes is None:
            return
        self._checked.add(index)
        wanted = self._exec.bits() if lanes is None else self._b.bits(lanes)
        missing = self._b.and_(wanted, self._b.not_(self._slots.load_written(index)))
        self._reports.report("uninitialised-vgpr", missing, text=f"v{index}")

    def _check_sgpr(self, key: int) -> None:
        if key in self._checked:
            return
        self._checked.add(key)
        missing = self._b.not_(self._slots.load_written(key))
        self._reports.report_if("uninitialised-sgpr", missing, register_name(key))
