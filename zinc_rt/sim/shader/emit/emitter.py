"""The interface with which an emit function writes IR: operands as values, results to operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.emit.exec_mask import ExecMask
from zinc_rt.sim.shader.emit.float_mode import FloatMode
from zinc_rt.sim.shader.emit.quads import QuadForms, Quads
from zinc_rt.sim.shader.emit.registers import Registers
from zinc_rt.sim.shader.emit.reports import Reports
from zinc_rt.sim.shader.emit.slots import RegisterSlots, Touched
from zinc_rt.sim.shader.emit.undefined import ALL
from zinc_rt.sim.shader.emit.values import DOUBLE, I1, I32, constant, inline_float, type_bits
from zinc_rt.sim.shader.layout import EXEC_LO, NULL, TTMP0, VCC_LO, KernelVariant, Status


class NotSimulated(Exception):
    """Raised by an emit function for an instruction, or a form of it, that is not implemented. The message is a
    predicate of the instruction: "is not simulated". The wave ends with Status.ILLEGAL when it reaches the
    instruction.
    """


class ControlFlow(Protocol):
    """The blocks of the function, as used by instructions that branch or wait. Implemented in
    translate/flow.py.
    """

    def edge(self, target: int, pc: int) -> ir.Block: ...
    def jump(self, offset: ir.Value, pc: int) -> None: ...
    def suspension(self, target: int, status: Status) -> ir.Block: ...


class Emitter:
    """The state of one kernel's function under construction, and access to operands of instructions.

    `rules` are those of the chip. `b` builds instructions. `frame` has the fields of the wave's state and context,
    `exec` the lanes that are on, `regs` registers by number, `reports` findings and ends, `flow` (set before the
    first instruction) the blocks.
    """

    flow: ControlFlow
    instruction: Instruction
    guesses: bool = False  # the present instruction is a load of races.find_atomic_loads

    def __init__(self, slots: RegisterSlots, variant: KernelVariant, forms: QuadForms) -> None:
        self.wave, self.checks, self.rules = variant.wave, variant.checks, variant.target.rules
        self.slots, self.frame = slots, slots.frame
        self.b = self.frame.b
        self.exec = ExecMask(self.slots)
        self.reports = Reports(self.frame, self.exec)
        self.quads = Quads(self.slots, forms)
        self.regs = Registers(self.slots, self.exec, self.reports, self.quads, variant)
        self.counts: dict[str, int] = {}
        self.memory_pcs: list[int] = []  # the instruction of each memory site
        self.launch_mode = FloatMode(variant.mode)
        self._mode: FloatMode | None = self.launch_mode

    def begin(self, pc: int, instruction: Instruction, *, exec_full: bool, mode: FloatMode | None) -> Touched:
        """Advance to the next instruction. Return the record of registers that it touches."""
        self._mode = mode
        self.frame.pc, self.instruction, self.exec.full = pc, instruction, exec_full
        self.regs.begin()
        self.slots.touched = Touched()
        return self.slots.touched

    @property
    def mode(self) -> FloatMode:
        """Return the rounding and denormal mode of the current instruction."""
        if self._mode is None:
            raise NotSimulated("is reached on paths with different float modes")
        return self._mode

    @contextmanager
    def flushing_results(self) -> Iterator[None]:
        """Flush denormal results to zero inside the context, in any mode."""
        before = self._mode
        self._mode = self.mode.without_denormal_results()
        yield
        self._mode = before

    def count(self, kind: str) -> int:
        """Return the next number of a kind, from 0, e.g. of memory sites. Translation.counts has the totals."""
        number = self.counts.get(kind, 0)
        self.counts[kind] = number + 1
        return number

    # --- sources

    def scalar(self, operand: Operand, bits: int = 32, *, signed: bool = False) -> ir.Value:
        """Return a scalar register (tuple), constant or literal as iN.

        16 bits are the lower half of a register. Inline float constants come in the format of `bits`. `signed`: a
        64-bit operand extends its literal's sign.
        """
        of = ir.IntType(bits)
        kind = operand.kind
        if kind in (Kind.INTEGER, Kind.IMMEDIATE, Kind.NAME):
            return constant(int(operand.value or 0), of)
        if kind is Kind.FLOAT:
            return constant(inline_float(operand.index, min(bits, 64)), of)
        if kind is Kind.LITERAL:
            return self.literal(operand, bits, signed=signed)
        if kind is Kind.SPECIAL and operand.index > 127:
            return self.b.resize(self._special(operand), bits)
        first = operand.index + (TTMP0 if kind is Kind.TTMP else 0)
        if kind not in (Kind.SGPR, Kind.TTMP, Kind.SPECIAL):
            raise NotSimulated(f"requires a scalar operand, not {operand.text}")
        if operand.index == NULL and kind is Kind.SPECIAL:
            return constant(0, of)
        if kind is Kind.TTMP and not self.rules.ids_in_ttmp:  # they read 0 outside a trap handler (RDNA3 3.3.1.4)
            return constant(0, of)
        parts = [self.regs.read_sgpr(first + index) for index in range(max(1, bits // 32))]
        return self.b.resize(self.b.join(parts), bits)

    def vector(self, operand: Operand, of: ir.Type = I32, *, signed: bool = False) -> ir.Value:
        """Return an operand as <W x of>: vector registers, or a scalar source in every lane. Float types have
        their modifiers applied.

        `signed` is for I64: a literal is sign-extended. A literal of a DOUBLE is its upper half.
        """
        bits = type_bits(of)
        if operand.kind is not Kind.VGPR:
            if of is DOUBLE and operand.kind is Kind.LITERAL:
                value = self.b.shl(self.literal(operand, 64), 32)
            else:
                value = self.scalar(operand, max(bits, 16), signed=signed)
            value = self._modified(value, operand, of)
            return self.b.splat(self.b.resize(value, bits) if isinstance(of, ir.IntType) else value)
        used = ALL if bits >= 32 else 0xFFFF0000 if operand.half else 0xFFFF
        words = [self.regs.read_vgpr(operand.index + index, used=used) for index in range(max(1, bits // 32))]
        if bits < 32:
            word = words[0]
            if operand.half:
                word = self.b.lshr(word, 16)
            return self._modified(self.b.trunc(word, self.b.lanes(ir.IntType(bits))), operand, of)
        return self._modified(self.b.join(words), operand, of)

    def literal(self, operand: Operand, bits: int = 32, *, signed: bool = False) -> ir.Value:
        """Return a literal operand as iN: zero-extended, or sign-extended if `signed`."""
        of = ir.IntType(bits)
        if operand.value is None:
            value = self.frame.parameter("literal", operand.index)
            return self.b.sext(value, of) if signed and bits > 32 else self.b.resize(value, bits)
        value = int(operand.value)
        return constant(value - (value >> 31 << 32) if signed else value, of)

    def offset(self, name: str = "offset") -> ir.Value:
        """Return a modifier of the instruction that is an offset, as an i32; 0 without it."""
        found = self.instruction.modifier(name)
        if found is not None and found.value is None:
            return self.frame.parameter(name)
        return constant(found.value if found is not None and isinstance(found.value, int) else 0)

    def mask(self, operand: Operand) -> ir.Value:
        """Return an SGPR (pair) or constant as <W x i1>."""
        return self.b.bitcast(self.scalar(operand, self.wave), self.b.lanes(I1))

    def modified(self, value: ir.Value, operand: Operand) -> ir.Value:
        """Apply the abs modifier, then neg, of `operand` to a float value or vector, as bit operations."""
        element = value.type.element if isinstance(value.type, ir.VectorType) else value.type
        if not (operand.negate or operand.absolute):
            return value
        width = ir.IntType(type_bits(element))
        of = ir.VectorType(width, value.type.count) if isinstance(value.type, ir.VectorType) else width
        return self._modified(self.b.bitcast(value, of), operand, element)

    def _modified(self, value: ir.Value, operand: Operand, of: ir.Type) -> ir.Value:
        """Convert integer bits to `of`, and apply the modifiers if it is a float type."""
        if isinstance(of, ir.IntType):
            return value
        sign = 1 << type_bits(of) - 1
        if operand.absolute:
            value = self.b.and_(value, sign - 1)
        if operand.negate:
            value = self.b.xor(value, sign)
        return self.b.bitcast(value, self.b.lanes(of) if isinstance(value.type, ir.VectorType) else of)

    def _special(self, operand: Operand) -> ir.Value:
        text = operand.text.split("/*")[0].strip("-|")
        match text:
            case "src_scc":
                return self.b.zext(self.regs.scc, I32)
            case "src_vccz":
                return self.b.zext(self.regs.is_zero(VCC_LO), I32)
            case "src_execz":
                return self.b.zext(self.regs.is_zero(EXEC_LO), I32)
            case "src_shared_base" | "src_private_base":
                return self.frame.field(text.removeprefix("src_"))
            case "src_shared_limit" | "src_private_limit":
                base = self.frame.field(text.removeprefix("src_").replace("limit", "base"))
                return self.b.or_(base, 0xFFFFFFFF)
            case "src_flat_scratch_base_lo":
                return self.frame.state_field("scratch_base")
            case "src_flat_scratch_base_hi":
                return self.b.lshr(self.frame.state_field("scratch_base"), 32)
        raise NotSimulated(f"reads {text}")

    # --- results

    def set_scalar(self, operand: Operand, value: ir.Value) -> None:
        """Write iN (16 to 512 bits, or i1) or a float to a scalar register (tuple); writes to `null` are
        discarded.
        """
        if operand.kind is Kind.SPECIAL and operand.index == NULL:
            return
        if operand.kind is Kind.TTMP and not self.rules.ids_in_ttmp:  # the write is lost
            return
        if operand.kind not in (Kind.SGPR, Kind.TTMP, Kind.SPECIAL):
            raise NotSimulated(f"writes to {operand.text}")
        if not isinstance(value.type, ir.IntType):
            value = self.b.bitcast(value, ir.IntType(type_bits(value.type)))
        first = operand.index + (TTMP0 if operand.kind is Kind.TTMP else 0)
        for index, part in enumerate(self.b.split(value)):
            self.regs.write_sgpr(first + index, part)

    def set_vector(self, operand: Operand, value: ir.Value) -> None:
        """Write <W x T>, T a float or integer of 1, 16, 32 or 64 bits. 16 bits are written to operand.half
        (default: lower) and the other half is kept. Lanes outside EXEC are kept.
        """
        bits, kept = type_bits(value.type.element), 0
        if not isinstance(value.type.element, ir.IntType):
            value = self.b.bitcast(value, self.b.lanes(ir.IntType(bits)))
        if bits == 1:
            value = self.b.zext(value, self.b.lanes(I32))
        elif bits == 16:
            wide = self.b.zext(value, self.b.lanes(I32))
            old = self.regs.read_vgpr(operand.index, check=False) if operand.index < self.regs.vgprs else wide
            if operand.half:
                wide = self.b.shl(wide, 16)
            kept = 0xFFFF if operand.half else 0xFFFF0000
            value = self.b.or_(self.b.and_(old, kept), wide)
        for index, part in enumerate(self.b.split(value)):
            self.regs.write_vgpr(operand.index + index, part, kept=kept)

    def set_mask(self, operand: Operand, value: ir.Value) -> None:
        """Write <W x i1>, 0 in lanes outside EXEC, to an SGPR (pair)."""
        if self.exec.limit is not None or not self.exec.full:
            value = self.b.and_(value, self.exec.written())
        self.set_scalar(operand, self.b.bitcast(value, self.b.mask_bits))


def selects_upper(instruction: Instruction, place: int) -> bool:
    """Return op_sel of source `place` (3: the destination) in VOP3; LLVM's text does not show it for every
    opcode.
    """
    is_vop3 = instruction.encoding.startswith("VOP3") and not instruction.encoding.startswith("VOP3P")
    return is_vop3 and bool(instruction.words[0] >> 11 + place & 1)


EmitFunction = Callable[[Emitter, Instruction], None]


def nothing(e: Emitter, i: Instruction) -> None:
    """Emit nothing, for hints and for waits that are always satisfied."""
