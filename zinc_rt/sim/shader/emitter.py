"""What an instruction's emit function writes its IR with: registers, masks, reports.

Registers are allocas that LLVM promotes. Every access is noted in `touched`, from which analysis.py learns each
instruction's reads and writes; so an emit function is the only place that says what an instruction does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader import reports
from zinc_rt.sim.shader.layout import (
    CONTEXT,
    EXEC_HI,
    EXEC_LO,
    FIXED,
    NULL,
    SCC,
    STATE,
    TTMP0,
    VGPR_LIMIT,
    Access,
    Checks,
    Layout,
    Site,
    Status,
)  # fmt: skip
from zinc_rt.sim.shader.quads import Forms, Quads

if TYPE_CHECKING:
    from zinc_rt.sim.shader.flow import Flow

I1, I8, I16, I32, I64, I128 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64, 128))
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
POINTER = ir.PointerType()
VOID = ir.VoidType()
WAVE_FUNCTION = ir.FunctionType(I32, [POINTER, POINTER])

_TYPES = {"u8": I8, "u32": I32, "i32": I32, "u64": I64, "i64": I64, "ptr": POINTER}
_FLOAT_BITS = {HALF: 16, FLOAT: 32, DOUBLE: 64}
_FLOAT_CODES = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)
_ONE_OVER_2PI = {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}
_PACK = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}
_VIRTUAL = 1 << 16  # indices of virtual vector registers start here
_NEVER = 1 << 20  # branch weight of what is expected


class NotSimulated(Exception):
    """Raised by an emit function for an instruction (or a form of it) that is not built. The sentence's subject is
    the instruction: "wants a named barrier". The wave ends with Status.ILLEGAL there if it ever comes so far."""


def type_bits(of: ir.Type) -> int:
    return of.width if isinstance(of, ir.IntType) else _FLOAT_BITS[of]


def inline_float(code: int, bits: int) -> int:
    """The bits of source code 240 to 248 in a format of 16, 32 or 64 bits."""
    if code == 248:
        return _ONE_OVER_2PI[bits]
    pack, unpack = _PACK[bits]
    return struct.unpack(unpack, struct.pack(pack, _FLOAT_CODES[code - 240]))[0]


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
    whole: int = 0  # VGPR reads of lanes that EXEC may leave out
    exec_reads: int = 0  # EXEC bits read by masking alone: none where EXEC is known to be full


@dataclass
class Facts:
    """What analysis.py found out, for the second pass. Bit sets as in Touched."""

    tracked: int = 0  # registers whose written lanes are kept at run time
    unproven: dict[int, int] = field(default_factory=dict)  # pc -> reads to be checked there


class Emitter:
    """One kernel's function under construction. `instruction` and `pc` are the one being emitted."""

    def __init__(
        self,
        module: ir.Module,
        name: str,
        wave: int,
        checks: Checks,
        vgprs: int,
        sgprs: int,
        facts: Facts,
        forms: Forms | None = None,
    ) -> None:
        self.module, self.wave, self.checks = module, wave, checks
        self.vgprs, self.sgprs, self.facts = vgprs, sgprs, facts
        self.function = ir.Function(module, WAVE_FUNCTION, name)
        self.state, self.context = self.function.args
        self.state.name, self.context.name = "state", "context"
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self.allocas = ir.IRBuilder(self.function.append_basic_block("registers"))
        self.first = self.function.append_basic_block("start")
        self.b = ir.IRBuilder(self.first)
        self.flow: Flow = None  # type: ignore[assignment]
        self.instruction: Instruction = None  # type: ignore[assignment]
        self.pc = 0
        self.exec_full = False
        self.sites: list[Site] = []
        self.counts: dict[str, int] = {}
        self.touched = Touched()
        self.mask_bits = ir.IntType(wave)
        self._registers: dict[int, ir.Value] = {}
        self._written: dict[int, ir.Value] = {}
        self._virtual: dict[int, ir.Value] = {}
        self._limit: ir.Value | None = None
        self._deferred: list[tuple[int, ir.Value, bool]] | None = None
        self._checked: set[int] = set()
        self._first_lane = ir.Constant(self.lanes(I32), None)
        self._shared: dict[str, ir.Value] = {}
        self._fixed: dict[str, ir.Value] = {}
        self._numbers: dict[Site, int] = {}
        self.fuel = self.local(I64, "fuel")
        self.quads = Quads(self, forms or Forms())

    def begin(self, pc: int, instruction: Instruction, *, exec_full: bool) -> Touched:
        """Go on to the next instruction; gives the registers it is going to touch."""
        self.pc, self.instruction, self.exec_full = pc, instruction, exec_full
        self._checked.clear()
        self.touched = Touched()
        return self.touched

    # --- types and constants

    def lanes(self, of: ir.Type) -> ir.VectorType:
        return ir.VectorType(of, self.wave)

    def constant(self, value: int | float, of: ir.Type = I32) -> ir.Constant:
        """A constant of a scalar type, or of a vector type with the same value in each lane."""
        if isinstance(of, ir.VectorType):
            return SplatConstant(self.constant(value, of.element), of.count)
        if isinstance(of, ir.IntType):
            value = int(value) & (1 << of.width) - 1
        return ir.Constant(of, value)

    def splat(self, value: ir.Value) -> ir.Value:
        """A scalar in every lane."""
        if isinstance(value, ir.Constant):
            return SplatConstant(value, self.wave)
        undefined = ir.Constant(self.lanes(value.type), ir.Undefined)
        one = self.b.insert_element(undefined, value, self.constant(0))
        return self.b.shuffle_vector(one, undefined, self._first_lane)

    def local(self, of: ir.Type, name: str = "") -> ir.Value:
        """Memory of the function's frame, which LLVM promotes: a pointer for load and store."""
        slot = self.allocas.alloca(of, name=name)
        slot.type = POINTER
        return slot

    def shared(self, name: str, of: ir.Type) -> ir.Value:
        """Memory of the frame that every instruction may use for its own while: a pointer."""
        if name not in self._shared:
            self._shared[name] = self.local(of, name)
        return self._shared[name]

    def load(self, pointer: ir.Value, of: ir.Type, align: int | None = None) -> ir.Value:
        return self.b.load(pointer, typ=of, align=align)

    def offset(self, pointer: ir.Value, size_bytes: int | ir.Value) -> ir.Value:
        index = self.constant(size_bytes, I64) if isinstance(size_bytes, int) else size_bytes
        return self.b.gep(pointer, [index], source_etype=I8)

    # --- memory shared with Python

    def field_pointer(self, name: str) -> ir.Value:
        return self.offset(self.context, CONTEXT.fields[name].offset)

    def field(self, name: str) -> ir.Value:
        """A field of the context; those that no wave changes are loaded once, at the function's beginning."""
        if name not in FIXED:
            return self.load(self.field_pointer(name), _TYPES[CONTEXT.fields[name].type])
        found = self._fixed.get(name)
        if found is None:
            row = CONTEXT.fields[name]
            place = self.allocas.gep(self.context, [self.constant(row.offset, I64)], source_etype=I8)
            found = self._fixed[name] = self.allocas.load(place, name, typ=_TYPES[row.type])
        return found

    def set_field(self, name: str, value: ir.Value) -> None:
        self.b.store(value, self.field_pointer(name))

    def state_pointer(self, name: str, index: int = 0, layout: Layout = STATE) -> ir.Value:
        row = layout.fields[name]
        return self.offset(self.state, row.offset + index * type_bits(_memory_type(row.type)) // 8)

    def state_field(self, name: str, index: int = 0) -> ir.Value:
        return self.load(self.state_pointer(name, index), _TYPES[STATE.fields[name].type])

    def set_state_field(self, name: str, value: ir.Value | int, index: int = 0) -> None:
        if isinstance(value, int):
            value = self.constant(value, _TYPES[STATE.fields[name].type])
        self.b.store(value, self.state_pointer(name, index))

    # --- registers by number

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

    # --- sources

    def scalar(self, operand: Operand, bits: int = 32, *, signed: bool = False) -> ir.Value:
        """iN of a scalar register (tuple), constant or literal.

        16 bits are the lower half of a register. Inline float constants come in the format of `bits`. `signed`: a
        64-bit operand extends its literal's sign.
        """
        of = ir.IntType(bits)
        kind = operand.kind
        if kind in (Kind.INTEGER, Kind.IMMEDIATE, Kind.NAME):
            return self.constant(int(operand.value or 0), of)
        if kind is Kind.FLOAT:
            return self.constant(inline_float(operand.index, min(bits, 64)), of)
        if kind is Kind.LITERAL:
            value = int(operand.value or 0)
            return self.constant(value - (value >> 31 << 32) if signed else value, of)
        if kind is Kind.SPECIAL and operand.index > 127:
            return self.resize(self._special(operand), bits)
        first = operand.index + (TTMP0 if kind is Kind.TTMP else 0)
        if kind not in (Kind.SGPR, Kind.TTMP, Kind.SPECIAL):
            raise NotSimulated(f"has {operand.text} where a scalar should be")
        if operand.index == NULL and kind is Kind.SPECIAL:
            return self.constant(0, of)
        parts = [self.read_sgpr(first + at) for at in range(max(1, bits // 32))]
        return self.resize(self.join(parts), bits)

    def vector(self, operand: Operand, of: ir.Type = I32, *, signed: bool = False) -> ir.Value:
        """<W x of>: vector registers, or a scalar source in every lane; float types with their modifiers.

        `signed` is for I64: a literal's sign is extended. A DOUBLE's literal is its upper half.
        """
        bits = type_bits(of)
        if operand.kind is not Kind.VGPR:
            if of is DOUBLE and operand.kind is Kind.LITERAL:
                value = self.constant(int(operand.value or 0) << 32, I64)
            else:
                value = self.scalar(operand, max(bits, 16), signed=signed)
            value = self._modified(value, operand, of)
            return self.splat(self.resize(value, bits) if isinstance(of, ir.IntType) else value)
        words = [self.read_vgpr(operand.index + at) for at in range(max(1, bits // 32))]
        if bits < 32:
            word = words[0]
            if operand.half:
                word = self.b.lshr(word, self.constant(16, word.type))
            return self._modified(self.b.trunc(word, self.lanes(ir.IntType(bits))), operand, of)
        return self._modified(self.join(words), operand, of)

    def mask(self, operand: Operand) -> ir.Value:
        """<W x i1> of an SGPR (pair) or constant."""
        return self.b.bitcast(self.scalar(operand, self.wave), self.lanes(I1))

    def modified(self, value: ir.Value, operand: Operand) -> ir.Value:
        """`operand`'s abs, then neg, on a float value or vector, as bit operations."""
        element = value.type.element if isinstance(value.type, ir.VectorType) else value.type
        if not (operand.negate or operand.absolute):
            return value
        width = ir.IntType(type_bits(element))
        of = ir.VectorType(width, value.type.count) if isinstance(value.type, ir.VectorType) else width
        return self._modified(self.b.bitcast(value, of), operand, element)

    def _modified(self, value: ir.Value, operand: Operand, of: ir.Type) -> ir.Value:
        """Integer bits to `of`, with the modifiers where it is a float type."""
        if isinstance(of, ir.IntType):
            return value
        sign = 1 << type_bits(of) - 1
        if operand.absolute:
            value = self.b.and_(value, self.constant(sign - 1, value.type))
        if operand.negate:
            value = self.b.xor(value, self.constant(sign, value.type))
        return self.b.bitcast(value, self.lanes(of) if isinstance(value.type, ir.VectorType) else of)

    def _special(self, operand: Operand) -> ir.Value:
        text = operand.text.split("/*")[0].strip("-|")
        match text:
            case "src_scc":
                return self.b.zext(self.scc, I32)
            case "src_vccz":
                return self.b.zext(self.is_zero(106), I32)
            case "src_execz":
                return self.b.zext(self.is_zero(EXEC_LO), I32)
            case "src_shared_base" | "src_private_base":
                return self.field(text.removeprefix("src_"))
            case "src_shared_limit" | "src_private_limit":
                base = self.field(text.removeprefix("src_").replace("limit", "base"))
                return self.b.or_(base, self.constant(0xFFFFFFFF, I64))
            case "src_flat_scratch_base_lo":
                return self.state_field("scratch_base")
            case "src_flat_scratch_base_hi":
                return self.b.lshr(self.state_field("scratch_base"), self.constant(32, I64))
        raise NotSimulated(f"reads {text}")

    def is_zero(self, index: int) -> ir.Value:
        """i1: whether a lane mask (VCC, EXEC) by SGPR number is all zero."""
        parts = [self.read_sgpr(index + at) for at in range(self.wave // 32)]
        value = self.join(parts)
        return self.b.icmp_unsigned("==", value, self.constant(0, value.type))

    # --- results

    def set_scalar(self, operand: Operand, value: ir.Value) -> None:
        """iN (16 to 512 bits, or i1) or a float to a scalar register (tuple); `null` discards."""
        if operand.kind is Kind.SPECIAL and operand.index == NULL:
            return
        if operand.kind not in (Kind.SGPR, Kind.TTMP, Kind.SPECIAL):
            raise NotSimulated(f"writes to {operand.text}")
        if not isinstance(value.type, ir.IntType):
            value = self.b.bitcast(value, ir.IntType(type_bits(value.type)))
        first = operand.index + (TTMP0 if operand.kind is Kind.TTMP else 0)
        for at, part in enumerate(self.split(value)):
            self.write_sgpr(first + at, part)

    def set_vector(self, operand: Operand, value: ir.Value) -> None:
        """<W x T>, T of 1, 16, 32 or 64 bits, float or integer. 16 bits go to operand.half (the lower one without)
        and leave the other half; lanes outside EXEC keep theirs."""
        bits = type_bits(value.type.element)
        if not isinstance(value.type.element, ir.IntType):
            value = self.b.bitcast(value, self.lanes(ir.IntType(bits)))
        if bits == 1:
            value = self.b.zext(value, self.lanes(I32))
        elif bits == 16:
            wide = self.b.zext(value, self.lanes(I32))
            old = self.read_vgpr(operand.index, check=False) if operand.index < self.vgprs else wide
            if operand.half:
                wide = self.b.shl(wide, self.constant(16, wide.type))
            kept = self.b.and_(old, self.constant(0xFFFF if operand.half else 0xFFFF0000, old.type))
            value = self.b.or_(kept, wide)
        for at, part in enumerate(self.split(value)):
            self.write_vgpr(operand.index + at, part)

    def set_mask(self, operand: Operand, value: ir.Value) -> None:
        """<W x i1>, 0 in lanes outside EXEC, to an SGPR (pair)."""
        if self._limit is not None or not self.exec_full:
            value = self.b.and_(value, self.active_mask())
        self.set_scalar(operand, self.b.bitcast(value, self.mask_bits))

    # --- joining and splitting dwords

    def join(self, parts: Sequence[ir.Value]) -> ir.Value:
        """Dwords (i32 or <W x i32>), lowest first, as one wide integer (or vector of them)."""
        if len(parts) == 1:
            return parts[0]
        vector = isinstance(parts[0].type, ir.VectorType)
        wide = ir.IntType(32 * len(parts))
        of = self.lanes(wide) if vector else wide
        result = self.b.zext(parts[0], of)
        for at, part in enumerate(parts[1:], 1):
            high = self.b.shl(self.b.zext(part, of), self.constant(32 * at, of))
            result = self.b.or_(result, high)
        return result

    def split(self, value: ir.Value) -> list[ir.Value]:
        """The reverse of join; what is narrower than a dword is zero-extended."""
        vector = isinstance(value.type, ir.VectorType)
        bits = type_bits(value.type.element if vector else value.type)
        word = self.lanes(I32) if vector else I32
        if bits <= 32:
            return [value if bits == 32 else self.b.zext(value, word)]
        parts = [self.b.trunc(value, word)]
        for at in range(1, bits // 32):
            parts.append(self.b.trunc(self.b.lshr(value, self.constant(32 * at, value.type)), word))
        return parts

    def resize(self, value: ir.Value, bits: int) -> ir.Value:
        """An iN truncated or zero-extended."""
        have = value.type.width
        if have == bits:
            return value
        return self.b.trunc(value, ir.IntType(bits)) if have > bits else self.b.zext(value, ir.IntType(bits))

    # --- control

    def block(self, name: str = "") -> ir.Block:
        return self.function.append_basic_block(name)

    @contextmanager
    def cold(self, condition: ir.Value) -> Iterator[None]:
        """A block for a condition (i1) that is expected to be false; both ways go on behind it."""
        inside, behind = self.block("cold"), self.block("")
        self.b.cbranch(condition, inside, behind).set_weights([1, _NEVER])
        self.b.position_at_end(inside)
        yield
        if not self.b.block.is_terminated:
            self.b.branch(behind)
        self.b.position_at_end(behind)

    def any(self, mask: ir.Value) -> ir.Value:
        """i1: whether any lane of <W x i1> is set."""
        return self.b.icmp_unsigned("!=", self.bits(mask), self.constant(0, self.mask_bits))

    def bits(self, mask: ir.Value) -> ir.Value:
        """<W x i1> as an iW."""
        return self.b.bitcast(mask, self.mask_bits)

    def leave(self, status: Status) -> None:
        """Return `status`; live registers are not saved, for the wave does not go on."""
        self.b.store(self.load(self.fuel, I64), self.field_pointer("fuel"))
        self.set_state_field("pc", self.pc)
        self.set_state_field("status", int(status))
        self.b.ret(self.constant(int(status)))

    def stop(self, status: Status, rule: str, text: str) -> None:
        """End the wave with a sentence: ILLEGAL or HALT."""
        self.set_state_field("site", self.site(rule, text))
        self.leave(status)

    def illegal(self, text: str) -> None:
        """End the wave here: `text` continues "the instruction …"."""
        self.stop(Status.ILLEGAL, "illegal", text)

    # --- reports

    def site(self, rule: str, text: str = "") -> int:
        """Index of (this instruction, rule, text) in the site table."""
        site = Site(self.pc, rule, text)
        if site not in self._numbers:
            self._numbers[site] = len(self.sites)
            self.sites.append(site)
        return self._numbers[site]

    def count(self, kind: str) -> int:
        """The next number of its kind, from 0: memory sites, for instance. The totals are Translation.counts."""
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        return number

    def report(self, rule: str, lanes: ir.Value, *, address: ir.Value | None = None, text: str = "") -> None:
        """A finding for the lanes in <W x i1> (or iW), already within EXEC; execution goes on.

        `address`: <W x i64>, shown of the first lane.
        """
        bits = lanes if lanes.type == self.mask_bits else self.bits(lanes)
        with self.cold(self.b.icmp_unsigned("!=", bits, self.constant(0, self.mask_bits))):
            self._record(rule, bits, address, text)

    def report_if(self, rule: str, condition: ir.Value, text: str = "") -> None:
        """The scalar form: a finding of all active lanes where the i1 holds."""
        with self.cold(condition):
            self._record(rule, self.exec_bits(), None, text)

    def _record(self, rule: str, bits: ir.Value, address: ir.Value | None, text: str) -> None:
        shown = self.constant(0, I64) if address is None else self.first_lane(address, bits)
        record = self.helper("zrt.report", reports.REPORT, reports.build)
        site = self.constant(self.site(rule, text))
        self.b.call(record, [self.state, self.context, site, self.resize(bits, 64), shown])

    def first_lane(self, values: ir.Value, bits: ir.Value) -> ir.Value:
        """The element of <W x T> in the lowest lane set in `bits` (iW), lane 0 without any."""
        lane = self.call("llvm.cttz", self.mask_bits, bits, self.constant(0, I1))
        lane = self.b.and_(self.resize(lane, 32), self.constant(self.wave - 1))
        return self.b.extract_element(values, lane)

    def fault(self, lanes: ir.Value, address: ir.Value, access: Access) -> None:
        """A page fault of the lanes in <W x i1>, at <W x i64> (or at one i64): ends the wave."""
        bits = lanes if lanes.type == self.mask_bits else self.bits(lanes)
        with self.cold(self.b.icmp_unsigned("!=", bits, self.constant(0, self.mask_bits))):
            one = self.first_lane(address, bits) if isinstance(address.type, ir.VectorType) else address
            self.set_field("fault_va", one)
            self.set_field("fault_lanes", self.resize(bits, 64))
            self.set_field("fault_access", self.constant(int(access)))
            self.leave(Status.FAULT)

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

    # --- functions

    def helper(
        self, name: str, of: ir.FunctionType, build: Callable[[ir.Function], None], *, inline: bool = False
    ) -> ir.Function:
        """The module's function `name`; `build` writes its body the first time. Out of line unless `inline`."""
        found = self.module.globals.get(name)
        if found is not None:
            return found
        function = ir.Function(self.module, of, name)
        function.linkage = "internal"
        function.attributes.add("alwaysinline" if inline else "noinline")
        build(function)
        return function

    def call(self, intrinsic: str, of: ir.Type, *arguments: ir.Value) -> ir.Value:
        """An LLVM intrinsic that is overloaded on `of` alone (llvm.ctpop, llvm.fma, …) and returns it."""
        return self._call(f"{intrinsic}.{_mangled(of)}", of, arguments)

    def convert(self, intrinsic: str, to: ir.Type, value: ir.Value) -> ir.Value:
        """An LLVM intrinsic that is overloaded on its result and its argument (llvm.fptosi.sat, …)."""
        return self._call(f"{intrinsic}.{_mangled(to)}.{_mangled(value.type)}", to, (value,))

    def _call(self, name: str, of: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
        function = self.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(of, [argument.type for argument in arguments])
            function = ir.Function(self.module, kind, name)
        return self.b.call(function, list(arguments))


class SplatConstant(ir.Constant):
    """A constant vector with the same element throughout, in LLVM's short form."""

    def __init__(self, value: ir.Constant, count: int) -> None:
        super().__init__(ir.VectorType(value.type, count), None)
        self._text = f"splat ({value.type} {value.get_reference()})"

    def _to_string(self) -> str:
        return f"{self.type} {self._text}"

    def _get_reference(self) -> str:
        return self._text


def register_name(key: int) -> str:
    """v3, s5, vcc_lo, scc of a register's key (VGPR r is r, SGPR n 256 + n, SCC 384)."""
    if key < VGPR_LIMIT:
        return f"v{key}"
    index = key - VGPR_LIMIT
    named = {106: "vcc_lo", 107: "vcc_hi", 125: "m0", 126: "exec_lo", 127: "exec_hi", SCC: "scc"}
    if index in named:
        return named[index]
    return f"ttmp{index - TTMP0}" if TTMP0 <= index < NULL else f"s{index}"


def _memory_type(kind: str) -> ir.Type:
    return I64 if kind == "ptr" else _TYPES[kind]


def _mangled(of: ir.Type) -> str:
    if isinstance(of, ir.VectorType):
        return f"v{of.count}{_mangled(of.element)}"
    if isinstance(of, ir.IntType):
        return f"i{of.width}"
    return {HALF: "f16", FLOAT: "f32", DOUBLE: "f64"}[of]
