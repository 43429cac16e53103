"""Register access by number: reads are checked where they may be uninitialised, writes affect EXEC's lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Kind, Operand
from zinc_rt.sim.defects import ANY
from zinc_rt.sim.shader.emit.exec_mask import ExecMask
from zinc_rt.sim.shader.emit.quads import Quads
from zinc_rt.sim.shader.emit.reports import Reports
from zinc_rt.sim.shader.emit.slots import RegisterSlots
from zinc_rt.sim.shader.emit.undefined import ALL, UndefinedBits
from zinc_rt.sim.shader.emit.values import I1, constant
from zinc_rt.sim.shader.layout import EXEC_HI, EXEC_LO, NULL, SCC, VGPR_BLOCK, VGPR_LIMIT, KernelVariant

EXEC_KEYS = (VGPR_LIMIT + EXEC_LO, VGPR_LIMIT + EXEC_HI)
_VIRTUAL = 1 << 16  # indices of virtual vector registers start here


class Registers:
    """The registers of a wave. `vgprs` is the kernel's count; others do not exist. `dynamic`: beyond the first
    block, only VGPRs allocated by the wave exist.
    """

    def __init__(
        self, slots: RegisterSlots, exec_mask: ExecMask, reports: Reports, quads: Quads, variant: KernelVariant
    ) -> None:
        self._slots, self._exec, self._reports, self._quads = slots, exec_mask, reports, quads
        self._b, self._checks = slots.frame.b, variant.checks
        self.vgprs, self.dynamic = variant.vgprs, variant.dynamic_vgprs
        self.undefined = UndefinedBits(slots)
        self._virtual: dict[int, ir.Value] = {}
        self._deferred: list[tuple[int, ir.Value, bool, ir.Value | None]] | None = None
        self._checked: set[tuple[int, int]] = set()

    def begin(self) -> None:
        """Advance to the next instruction."""
        self._checked.clear()
        self.undefined.give([])

    def check_vgpr(self, index: int) -> None:
        """Report a finding if bits of a VGPR are undefined, for values that were read as carried."""
        if self.undefined.unproven(index):
            self._check_vgpr(index, None, ALL)

    def read_vgpr(
        self, index: int, *, lanes: ir.Value | None = None, check: bool = True, used: int = ALL
    ) -> ir.Value:
        """Return a VGPR as <W x i32>. Report uninitialised bits in `lanes` (default: EXEC's) unless `check` is
        false. `used`: the bits that the instruction uses.
        """
        if index >= _VIRTUAL:
            return self._virtual[index]
        if index >= self.vgprs:
            self._out_of_range(f"v{index} is read (hardware reads v0 instead)")
            index = 0
        touched = self._slots.touched
        carried = index in self.undefined.carried
        used &= self.undefined.used.get(index, ALL)
        touched.note_read(index, merge=not check, carried=carried)
        if check and lanes is not None:
            touched.whole |= 1 << index
        if check and not carried:
            if used != ALL:
                touched.in_part |= 1 << index
            if self.undefined.unproven(index):
                self._check_vgpr(index, lanes, used)
        if self.dynamic and index >= VGPR_BLOCK and check:
            exists = self._allocated(index, f"v{index} is read (hardware reads v0 instead)")
            touched.note_read(0, merge=True)
            return self._b.select(exists, self._quads.read(index), self._quads.read(0))
        value = self._quads.read(index)
        return self.undefined.filled(index, value) if check else value

    def write_vgpr(
        self,
        index: int,
        value: ir.Value,
        masked: bool = True,
        *,
        kept: int = 0,
        undefined: ir.Value | None = None,
    ) -> None:
        """Write <W x i32>. Lanes outside EXEC (and `limited`) are kept, unless not `masked`. `kept`: bits that
        come from the register's old value. `undefined`: undefined bits of the value.
        """
        if self.undefined.captured(value):
            return
        if undefined is None:
            undefined = self.undefined.next()
        if self._deferred is not None:
            self._deferred.append((index, value, masked, undefined))
            return
        if index >= self.vgprs:
            self._out_of_range(f"v{index} is written (hardware ignores the write)")
            return
        if self._checks.defect:
            value = self._defective(index, value)
        b, touched, bit = self._b, self._slots.touched, 1 << index
        if kept:
            touched.halves |= bit
        if self.dynamic and index >= VGPR_BLOCK:
            exists = self._allocated(index, f"v{index} is written (hardware ignores the write)")
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
            self.undefined.wrote(index, undefined, lanes=lanes, kept=kept)
        else:
            if masked:
                touched.masked |= bit
            else:
                touched.writes |= bit
            self.undefined.wrote(index, undefined, kept=kept)
        self._slots.store(index, value)
        self._quads.wrote(index, value)

    def _defective(self, index: int, value: ir.Value) -> ir.Value:
        """Return a result as changed by the defect of the context (sim.defects)."""
        b, field = self._b, self._slots.frame.field
        lane = b.equal(b.numbers(), b.splat(field("defect_lane")))
        register = b.any(b.equal(field("defect_register"), index), b.equal(field("defect_register"), ANY))
        equal = b.or_(b.equal(value, b.splat(field("defect_value"))), b.splat(b.equal(field("defect_any"), 1)))
        changed = b.or_(b.xor(value, b.splat(field("defect_flip"))), b.splat(field("defect_stuck")))
        return b.select(b.and_(b.and_(lane, equal), b.splat(register)), changed, value)

    def read_sgpr(self, index: int, *, check: bool = True) -> ir.Value:
        """Return an SGPR as i32. `index` is as in the encoding; `null` reads 0."""
        if index == NULL:
            return constant(0)
        return self._read_scalar(VGPR_LIMIT + index, check=check)

    def write_sgpr(self, index: int, value: ir.Value) -> None:
        """Write an i32 to an SGPR; writes to `null` are ignored."""
        if index != NULL:
            self._write_scalar(VGPR_LIMIT + index, value)

    @property
    def scc(self) -> ir.Value:
        """Return SCC as i1."""
        return self._read_scalar(VGPR_LIMIT + SCC)

    @scc.setter
    def scc(self, value: ir.Value) -> None:
        self._write_scalar(VGPR_LIMIT + SCC, value)

    def _read_scalar(self, key: int, *, check: bool = True) -> ir.Value:
        carried = key in self.undefined.carried
        self._slots.touched.note_read(key, merge=not check, carried=carried)
        if check and not carried and self.undefined.unproven(key):
            self._check_scalar(key)
        return self.undefined.filled(key, self._slots.load(key))

    def _write_scalar(self, key: int, value: ir.Value) -> None:
        if self.undefined.captured(value):
            return
        self._slots.touched.writes |= 1 << key
        undefined = self.undefined.next()
        if undefined is not None and key in EXEC_KEYS:  # a decision: nothing is carried on
            self._reports.report_if("uninitialised-sgpr", self._b.unequal(undefined, 0), self._named(key, ALL))
            undefined = None
        self.undefined.wrote(key, undefined)
        self._slots.store(key, value)

    def write_exec(self, mask: ir.Value) -> None:
        """Write EXEC from <W x i1> or iW, as v_cmpx does with a mask that is already within EXEC."""
        for index, part in zip((EXEC_LO, EXEC_HI), self._b.split(self._b.bits(mask)), strict=False):
            self.write_sgpr(index, part)

    def is_zero(self, index: int) -> ir.Value:
        """Return i1: a lane mask (VCC, EXEC), by SGPR number, is all zero."""
        parts = [self.read_sgpr(index + at) for at in range(self._b.wave // 32)]
        return self._b.equal(self._b.join(parts), 0)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer VGPR writes to the end of the context: dual instructions read all operands before they write."""
        self._deferred = []
        try:
            yield
        finally:
            waiting, self._deferred = self._deferred, None
        for index, value, masked, undefined in waiting:
            self.write_vgpr(index, value, masked, undefined=undefined)

    def virtual(self, operand: Operand, values: Sequence[ir.Value]) -> Operand:
        """Return a virtual operand with the modifiers and half of `operand` and `values` as contents, <W x i32>
        per dword.
        """
        index = _VIRTUAL + len(self._virtual)
        for at, value in enumerate(values):
            self._virtual[index + at] = value
        return replace(operand, kind=Kind.VGPR, index=index, width=len(values))

    # --- checks

    def _out_of_range(self, text: str) -> None:
        if self._checks.fast:
            sentence = f"{text}; the kernel has {self.vgprs} VGPRs"
            self._reports.report_if("vgpr-out-of-range", constant(1, I1), sentence)

    def _allocated(self, index: int, text: str) -> ir.Value:
        """Return i1: the register is allocated; report a finding if it is not."""
        exists = self._b.below(constant(index), self._slots.frame.state_field("vgprs"))
        if self._checks.fast:
            self._reports.report_if("vgpr-out-of-range", self._b.not_(exists), f"{text}; the wave has released it")
        return exists

    def _check_vgpr(self, index: int, lanes: ir.Value | None, used: int) -> None:
        if (index, used) in self._checked and lanes is None:
            return
        self._checked.add((index, used))
        b = self._b
        missing = b.bits(b.unequal(b.and_(self.undefined.of(index), used), 0))
        bits = self._exec.bits() if lanes is None else b.bits(lanes)
        self._reports.report("uninitialised-vgpr", b.and_(bits, missing), text=self._named(index, used))

    def _check_scalar(self, key: int) -> None:
        if (key, ALL) in self._checked:
            return
        self._checked.add((key, ALL))
        missing = self._b.unequal(self.undefined.of(key), 0)
        self._reports.report_if("uninitialised-sgpr", missing, self._named(key, ALL))

    def _named(self, key: int, used: int) -> str:
        half = {0xFFFF: "'s lower half", 0xFFFF0000: "'s upper half"}.get(used, "")
        computed = self._slots.unproven.computed >> key & 1 or key in EXEC_KEYS
        return f"{self._slots.name(key)}{half}" + (", computed from undefined bits" if computed else "")
