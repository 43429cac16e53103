"""Cross-lane moves and indexed registers: readlane, permlane, swap, movrel (RDNA4 ISA 7.9, 7.11)."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.alu.dpp import shuffle
from zinc_rt.sim.shader.alu.vector import Value
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, NotSimulated
from zinc_rt.sim.shader.emit.values import I1, I16, I32, I64, constant, vector_of
from zinc_rt.sim.shader.layout import M0

_NO_LANE = "EXEC disables every lane; lane 0 is read"


def permute(e: Emitter, values: Value, index: Value) -> Value:
    """Return <W x i32> whose lane i is values[index[i]]; both operands are <W x i32>, the indices below W."""
    kind = ir.FunctionType(e.b.lanes(I32), [e.b.lanes(I32)] * 2)
    return e.b.call(e.b.helper(f"zrt.permute.{e.wave}", kind, _build_permute), [values, index])


def _build_permute(function: ir.Function) -> None:
    b = ir.IRBuilder(function.append_basic_block("entry"))
    values, index = function.args
    of = values.type
    memory = b.alloca(of)
    b.store(values, memory)
    result = ir.Constant(of, ir.Undefined)
    for lane in range(of.count):
        position = b.extract_element(index, ir.Constant(I32, lane))
        document = b.load(b.gep(memory, [position], source_etype=I32), typ=I32)
        result = b.insert_element(result, document, ir.Constant(I32, lane))
    b.ret(result)


def _lane_mask(e: Emitter, lane: Value) -> Value:
    """Return <W x i1> with one bit set, at an i32 index below W."""
    wide = lane if e.wave == 32 else e.b.zext(lane, I64)
    return e.b.bitcast(e.b.shl(1, wide), e.b.lanes(I1))


def _lane(e: Emitter, operand: Operand) -> Value:
    """Return a lane select operand with its upper bits ignored."""
    if operand.kind is Kind.VGPR:
        raise NotSimulated(f"does not support {operand.text} as the lane select")
    return e.b.and_(e.scalar(operand), e.wave - 1)


def _emit_readfirstlane(e: Emitter, instruction: Instruction) -> None:
    destination, origin = instruction.operands
    if origin.kind is not Kind.VGPR:
        e.set_scalar(destination, e.scalar(origin))
        return
    if e.exec.full:
        first = constant(1, e.b.mask_bits)
        value = e.regs.read_vgpr(origin.index, lanes=e.b.bitcast(first, e.b.lanes(I1)))
        e.set_scalar(destination, e.b.extract_element(value, constant(0)))
        return
    bits = e.exec.bits()
    if e.checks.full:
        e.reports.report_if("exec-empty", e.b.equal(bits, 0), _NO_LANE)
    lowest = e.b.and_(bits, e.b.neg(bits))
    value = e.regs.read_vgpr(origin.index, lanes=e.b.bitcast(lowest, e.b.lanes(I1)))
    e.set_scalar(destination, e.b.first_lane(value, bits))


def _emit_readlane(e: Emitter, instruction: Instruction) -> None:
    """Emit v_readlane. It ignores EXEC: compilers keep scalars in lanes of a vector register."""
    destination, origin, select = instruction.operands
    if origin.kind is not Kind.VGPR:
        raise NotSimulated(f"cannot read a lane of {origin.text}")
    lane = _lane(e, select)
    lane_mask = _lane_mask(e, lane)
    e.set_scalar(destination, e.b.extract_element(e.regs.read_vgpr(origin.index, lanes=lane_mask), lane))


def _emit_writelane(e: Emitter, instruction: Instruction) -> None:
    """Emit v_writelane, which ignores EXEC."""
    destination, origin, select = instruction.operands
    old = e.regs.read_vgpr(destination.index, check=False)
    e.regs.write_vgpr(destination.index, e.b.insert_element(old, e.scalar(origin), _lane(e, select)), masked=False)


def _emit_swap(e: Emitter, instruction: Instruction) -> None:
    first, second = instruction.operands
    if second.kind is not Kind.VGPR:
        raise NotSimulated(f"swaps with {second.text}")
    of = I32 if first.half is None else I16
    a, b = e.vector(first, of), e.vector(second, of)
    e.set_vector(first, b)
    e.set_vector(second, a)


# --- permlane


def _emit_permlane64(e: Emitter, instruction: Instruction) -> None:
    """Swap the halves of a wave64, reading inactive lanes too. Does nothing in wave32."""
    if e.wave == 32:
        return
    destination, origin = instruction.operands
    value = e.regs.read_vgpr(origin.index)
    e.regs.write_vgpr(destination.index, shuffle(e, value, tuple(lane ^ 32 for lane in range(64))))


def _emit_permlane16(across: int, *, by_lane: bool) -> EmitFunction:
    """Return an emitter of v_permlane16: each lane reads any lane of its row of 16 (`across` 16: of the
    neighbouring row). The lane numbers come from scalars or a register.

    op_sel[0] is FI and op_sel[1] is BOUND_CTRL, with the same meaning as in DPP.
    """

    def emit(e: Emitter, instruction: Instruction) -> None:
        destination, origin, *selects = instruction.operands
        if origin.kind is not Kind.VGPR:
            raise NotSimulated(f"permutes {origin.text}")
        value = e.regs.read_vgpr(origin.index)
        rows = vector_of(lane & ~15 ^ across for lane in range(e.wave))
        if by_lane:
            chosen = e.b.and_(e.vector(selects[0]), 15)
        else:
            chosen = _nibbles(e, *selects)
        index = e.b.add(rows, chosen)
        moved = permute(e, value, index)
        fetch_inactive, zero = (bool(instruction.words[0] >> bit & 1) for bit in (11, 12))
        if e.exec.full or fetch_inactive:
            e.regs.write_vgpr(destination.index, moved)
            return
        bits = e.b.sext(e.exec.mask(), e.b.lanes(I32))
        active = e.b.unequal(permute(e, bits, index), 0)
        if zero:
            e.regs.write_vgpr(destination.index, e.b.select(active, moved, 0))
            return
        if e.checks.full:
            lost = e.b.and_(e.exec.mask(), e.b.not_(active))
            e.reports.report(
                "inactive-lane", lost, text="permlane reads a lane disabled by EXEC, without fi or bound_ctrl"
            )
        with e.exec.limited(active):
            e.regs.write_vgpr(destination.index, moved)

    return emit


def _nibbles(e: Emitter, low: Operand, high: Operand) -> Value:
    """Return <W x i32> of nibbles: lane i gets nibble i mod 16 of two scalars."""
    words = [e.b.splat(e.scalar(operand)) for operand in (low, high)]
    upper = vector_of((lane >> 3 & 1 for lane in range(e.wave)), I1)
    word = e.b.select(upper, words[1], words[0])
    shift = vector_of(4 * (lane & 7) for lane in range(e.wave))
    return e.b.and_(e.b.lshr(word, shift), 15)


# --- registers by M0


def _indexed_read(e: Emitter, base: int, offset: Value) -> Value:
    """Return VGPR base + offset (i32). Out of range, read v0 and report a finding."""
    value = e.regs.read_vgpr(0, check=False)
    for index in range(base, e.regs.vgprs):
        here = e.b.equal(offset, index - base)
        value = e.b.select(here, e.regs.read_vgpr(index, check=False), value)
    _check_index(e, base, offset, "is read (hardware reads v0 instead)")
    return value


def _indexed_write(e: Emitter, base: int, offset: Value, value: Value) -> None:
    for index in range(base, e.regs.vgprs):
        here = e.b.equal(offset, index - base)
        e.regs.write_vgpr(index, e.b.select(here, value, e.regs.read_vgpr(index, check=False)))
    _check_index(e, base, offset, "is written (hardware ignores the write)")


def _check_index(e: Emitter, base: int, offset: Value, what: str) -> None:
    if e.checks.fast:
        beyond = e.b.icmp_unsigned(">=", offset, max(e.regs.vgprs - base, 0))
        e.reports.report_if(
            "vgpr-out-of-range", beyond, f"v{base} + M0 {what}; the kernel has {e.regs.vgprs} VGPRs"
        )


def _offsets(e: Emitter, split: bool) -> tuple[Value, Value]:
    """Return the offsets that M0 adds to the source and destination register numbers."""
    m0 = e.regs.read_sgpr(M0)
    if not split:
        return m0, m0
    ten = constant(0x3FF)
    return e.b.and_(m0, ten), e.b.and_(e.b.lshr(m0, 16), ten)


def _emit_movrel(*, source: bool, destination: bool, split: bool = False) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        if instruction.encoding.endswith(("_DPP16", "_DPP8")):
            raise NotSimulated("moves by M0 under DPP")
        if e.regs.dynamic:
            raise NotSimulated("uses a relative move by M0 in a wave with dynamic VGPRs")
        to, origin = instruction.operands
        from_offset, to_offset = _offsets(e, split)
        value = _indexed_read(e, origin.index, from_offset) if source else e.vector(origin)
        if destination:
            _indexed_write(e, to.index, to_offset, value)
        else:
            e.set_vector(to, value)

    return emit


def _emit_swaprel(e: Emitter, instruction: Instruction) -> None:
    to, origin = instruction.operands
    from_offset, to_offset = _offsets(e, split=True)
    a, b = _indexed_read(e, to.index, to_offset), _indexed_read(e, origin.index, from_offset)
    _indexed_write(e, to.index, to_offset, b)
    _indexed_write(e, origin.index, from_offset, a)


EMIT: dict[str, EmitFunction] = {
    "v_readfirstlane_b32": _emit_readfirstlane,
    "v_readlane_b32": _emit_readlane,
    "v_writelane_b32": _emit_writelane,
    **dict.fromkeys(("v_swap_b32", "v_swap_b16"), _emit_swap),
    "v_permlane64_b32": _emit_permlane64,
    "v_permlane16_b32": _emit_permlane16(0, by_lane=False),
    "v_permlanex16_b32": _emit_permlane16(16, by_lane=False),
    "v_permlane16_var_b32": _emit_permlane16(0, by_lane=True),
    "v_permlanex16_var_b32": _emit_permlane16(16, by_lane=True),
    "v_movreld_b32": _emit_movrel(source=False, destination=True),
    "v_movrels_b32": _emit_movrel(source=True, destination=False),
    "v_movrelsd_b32": _emit_movrel(source=True, destination=True),
    "v_movrelsd_2_b32": _emit_movrel(source=True, destination=True, split=True),
    "v_swaprel_b32": _emit_swaprel,
}
