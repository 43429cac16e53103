"""VOP3P except WMMA: packed 16-bit arithmetic, mixed fma, dot products (RDNA4 ISA 7.7).

op_sel and op_sel_hi select the half of each source for the lower and the upper result. The manual does not define
the rounding of float dot products. For two halves it follows silicon captures (dot_step.py). For four 8-bit floats
each product is rounded to 32 bits and added to the third source in increasing order; each sum is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.alu import dpp, vector_float, vector_integer
from zinc_rt.sim.shader.alu.directed import directed, narrow, round_directed
from zinc_rt.sim.shader.alu.dot_step import dot_step
from zinc_rt.sim.shader.alu.small_float import from_bf8, from_fp8
from zinc_rt.sim.shader.alu.vector import (
    INTEGERS,
    NAN,
    Build,
    Value,
    clamp_to_one,
    flush_denormals,
    fused_multiply_add,
    is_nan,
    join_halves,
    largest_for_infinity,
    narrow_in_two_steps,
    quiet_nan,
    set_result,
    source,
    sum_to_odd,
    swap_operands,
)
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.float_mode import Rounding
from zinc_rt.sim.shader.emit.undefined import ALL
from zinc_rt.sim.shader.emit.values import DOUBLE, FLOAT, HALF, I16, I32, constant, inline_float


def modifier_bits(instruction: Instruction, name: str, default: int) -> tuple[int, int, int]:
    """Return op_sel, op_sel_hi, neg_lo or neg_hi as one bit per source."""
    modifier = instruction.modifier(name)
    bits = modifier.value if modifier is not None and isinstance(modifier.value, tuple) else (default,) * 3
    return (*bits, default, default, default)[:3]  # type: ignore[return-value]


def word(e: Emitter, operand: Operand, kind: str, used: int = ALL) -> Value:
    """Return a source that holds two halves as <W x i32>, of which only the bits `used` are read.

    Inline integers are 32 bits, sign-extended. Inline floats: "i" a 32-bit float, "h" a half in the lower 16 bits,
    "hh" and "yy" a half or bfloat16 in both.
    """
    if operand.kind is Kind.FLOAT and kind != "i":
        if kind == "yy":
            bits = inline_float(operand.index, 32) >> 16
        else:
            bits = inline_float(operand.index, 16)
        return constant(bits if kind == "h" else bits << 16 | bits, e.b.lanes(I32))
    if operand.kind is Kind.VGPR and used != ALL:
        return e.regs.read_vgpr(operand.index, used=used)
    return e.vector(operand, I32)


def half_of(e: Emitter, value: Value, upper: int) -> Value:
    if upper:
        value = e.b.lshr(value, 16)
    return e.b.trunc(value, e.b.lanes(I16))


def float_half(e: Emitter, value: Value, upper: int, negate: int) -> Value:
    result = e.b.bitcast(half_of(e, value, upper), e.b.lanes(HALF))
    return e.b.fneg(result) if negate else result


def _in_mode(e: Emitter, value: Value, flushes: bool) -> Value:
    return flush_denormals(e, value) if flushes else value


def float_of_bfloat(e: Emitter, value: Value, upper: int, negate: int) -> Value:
    """Convert one half of <W x i32> from bfloat16 to a 32-bit float."""
    if upper:
        bits = e.b.and_(value, 0xFFFF0000)
    else:
        bits = e.b.shl(value, 16)
    result = e.b.bitcast(bits, e.b.lanes(FLOAT))
    return e.b.fneg(result) if negate else result


def bfloat_of_float(e: Emitter, value: Value) -> Value:
    """Convert <W x float> to bfloat16 bits (<W x i16>), rounded to nearest even; NaNs are quieted."""
    b, of = e.b, e.b.lanes(I32)
    bits = b.bitcast(value, of)
    odd = b.and_(b.lshr(bits, 16), 1)
    rounded = b.add(bits, b.add(odd, 0x7FFF))
    nan = b.fcmp_unordered("uno", value, value)
    rounded = b.select(nan, b.or_(bits, 0x400000), rounded)
    return b.trunc(b.lshr(rounded, 16), b.lanes(I16))


@dataclass(frozen=True, slots=True)
class Packed:
    """An operation that applies `build` to each half. Float rows support neg_lo and neg_hi."""

    sources: int
    floats: bool
    build: Build
    saturated: Build | None = None
    accumulates: bool = False
    flushes: bool = True  # results, if the mode requires it

    def __call__(self, e: Emitter, instruction: Instruction) -> None:
        taken = instruction.operands[1:]
        if self.accumulates:
            taken = taken + instruction.operands[:1]
        words = [word(e, operand, "h" if self.floats else "i") for operand in taken]
        halves = []
        for select, negate, default in (("op_sel", "neg_lo", 0), ("op_sel_hi", "neg_hi", 1)):
            select_bits = modifier_bits(instruction, select, default)
            if self.floats:
                negate_bits = modifier_bits(instruction, negate, 0)
                values = [
                    _in_mode(e, float_half(e, w, *bits), e.mode.flushes_sources(HALF))
                    for w, *bits in zip(words, select_bits, negate_bits, strict=False)
                ]
            else:
                values = [half_of(e, w, upper) for w, upper in zip(words, select_bits, strict=False)]
            halves.append(self._half(e, instruction, values))
        e.set_vector(instruction.operands[0], join_halves(e, *halves))

    def _half(self, e: Emitter, instruction: Instruction, values: list[Value]) -> Value:
        clamp = instruction.modifier("clamp") is not None
        value = (self.saturated if clamp and self.saturated else self.build)(e, *values)
        if not self.floats:
            return value
        value = clamp_to_one(e, instruction, largest_for_infinity(e, value, values))
        value = _in_mode(e, value, self.flushes and e.mode.flushes_results(HALF))
        return e.b.bitcast(value, e.b.lanes(I16))


def _emit_mix(result: str) -> EmitFunction:
    """Emit a fused multiply-add in 32-bit floats; each source is a float or a half. neg_hi is the abs modifier
    (the decoder reports it so).
    """

    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            halves = modifier_bits(instruction, "op_sel_hi", 0)
            uppers = modifier_bits(instruction, "op_sel", 0)
            values = []
            for operand, is_half, upper in zip(operands[1:], halves, uppers, strict=True):
                if not is_half:
                    values.append(_in_mode(e, e.vector(operand, FLOAT), e.mode.flushes_sources(FLOAT)))
                    continue
                bits = half_of(e, word(e, operand, "h", 0xFFFF << 16 * upper), upper)
                value = e.modified(e.b.bitcast(bits, e.b.lanes(HALF)), operand)
                value = _in_mode(e, value, e.mode.flushes_sources(HALF))
                values.append(e.b.fpext(value, e.b.lanes(FLOAT)))
            if result == "f32":
                value = clamp_to_one(e, instruction, _first_nan(e, fused_multiply_add(e, *values), *values))
                e.set_vector(operands[0], _in_mode(e, value, e.mode.flushes_results(FLOAT)))
                return
            half = largest_for_infinity(e, _half_of_fused(e, *values), values)
            half = _in_mode(e, clamp_to_one(e, instruction, half), e.mode.flushes_results(HALF))
            bits = e.b.bitcast(half, e.b.lanes(I16))
            wide = e.b.zext(bits, e.b.lanes(I32))
            old = e.regs.read_vgpr(operands[0].index, check=False)
            kept = 0xFFFF0000 if result == "lo" else 0xFFFF
            if result == "hi":
                wide = e.b.shl(wide, 16)
            e.regs.write_vgpr(operands[0].index, e.b.or_(e.b.and_(old, kept), wide), kept=kept)

    return emit


def _half_of_fused(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """Return a * b + c of 32-bit floats as halves, rounded once (captured on silicon). Their product is exact
    in 64 bits.
    """
    wide = e.b.lanes(DOUBLE)
    x, y, z = (e.b.fpext(value, wide) for value in (a, b, c))
    product, rounding = e.b.fmul(x, y), e.mode.rounding(HALF)
    if rounding is Rounding.NEAREST:
        return narrow_in_two_steps(e, _first_nan(e, sum_to_odd(e, product, z), x, y, z))
    total = _first_nan(e, round_directed(e, "fadd", rounding, product, z), x, y, z)
    return narrow(e, directed(e, "fptrunc", e.b.lanes(FLOAT), rounding, total), HALF)


def _first_nan(e: Emitter, result: Value, a: Value, b: Value, c: Value) -> Value:
    """Select the NaN result: the first NaN factor, then the NaN of an invalid product, then the addend
    (captured on silicon).
    """
    of = result.type.element
    product = e.b.fmul(a, b)
    invalid = e.b.bitcast(constant(NAN[of], e.b.lanes(INTEGERS[of])), result.type)
    chosen = e.b.select(is_nan(e, product), invalid, e.b.select(is_nan(e, c), quiet_nan(e, c), invalid))
    for value in (b, a):
        chosen = e.b.select(is_nan(e, value), quiet_nan(e, value), chosen)
    return e.b.select(is_nan(e, result), chosen, result)


# --- integer dot products


def field(e: Emitter, value: Value, number: int, bits: int, signed: bool) -> Value:
    """Extract and extend field `number` number of <W x i32>."""
    if signed:
        up = constant(32 - bits * (number + 1), value.type)
        return e.b.ashr(e.b.shl(value, up), 32 - bits)
    shifted = e.b.lshr(value, bits * number) if number else value
    return e.b.and_(shifted, (1 << bits) - 1)


def _emit_integer_dot(bits: int, mixed: bool) -> EmitFunction:
    """Emit an integer dot product. With `mixed`, neg_lo selects the signed sources and the sum is signed."""

    def emit(e: Emitter, instruction: Instruction) -> None:
        operands = instruction.operands
        a, b = (word(e, operand, "i") for operand in operands[1:3])
        start = e.vector(operands[3], I32)
        signed = modifier_bits(instruction, "neg_lo", 0) if mixed else (0, 0, 0)
        total: Value = None
        for number in range(32 // bits):
            x, y = (field(e, value, number, bits, bool(sign)) for value, sign in zip((a, b), signed, strict=False))
            product = e.b.mul(x, y)
            total = product if total is None else e.b.add(total, product)
        if instruction.modifier("clamp") is None:
            e.set_vector(operands[0], e.b.add(total, start))
        else:
            name = "llvm.sadd.sat" if mixed else "llvm.uadd.sat"
            e.set_vector(operands[0], e.b.intrinsic(name, total.type, total, start))

    return emit


# --- float dot products


def _pick_half(e: Emitter, value: Value, uppers: tuple[int, int], negates: tuple[int, int]) -> Value:
    """Return the halves of <W x i32> selected by op_sel, with neg modifiers applied."""
    if uppers != (0, 1):
        low, high = (half_of(e, value, upper) for upper in uppers)
        value = join_halves(e, low, high)
    mask = negates[0] * 0x8000 | negates[1] * 0x80000000
    return e.b.xor(value, mask) if mask else value


def _emit_dot2_f32(kind: str) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            low_neg, high_neg = (modifier_bits(instruction, name, 0) for name in ("neg_lo", "neg_hi"))
            uppers = [
                modifier_bits(instruction, name, index) for index, name in enumerate(("op_sel", "op_sel_hi"))
            ]
            a, b = (
                _pick_half(
                    e,
                    word(e, operand, BOTH[kind]),
                    (uppers[0][index], uppers[1][index]),
                    (low_neg[index], high_neg[index]),
                )
                for index, operand in enumerate(operands[1:3])
            )
            start = e.vector(operands[3], I32)
            if high_neg[2]:
                start = e.b.and_(start, 0x7FFFFFFF)
            if low_neg[2]:
                start = e.b.xor(start, 0x80000000)
            e.set_vector(operands[0], dot_step(e, kind, "f32", [a], [b], start))

    return emit


BOTH = {"f16": "hh", "bf16": "yy"}


def emit_dot2acc(kind: str) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            a, b = (word(e, operand, BOTH[kind]) for operand in operands[1:3])
            e.set_vector(operands[0], dot_step(e, kind, "f32", [a], [b], e.vector(operands[0], I32)))

    return emit


def _emit_dot2_16(kind: str) -> EmitFunction:
    """Emit v_dot2_f16_f16 or v_dot2_bf16_bf16."""

    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            a, b = (
                _pick_half(e, word(e, operand, BOTH[kind]), (0, 1), (int(operand.negate),) * 2)
                for operand in operands[1:3]
            )
            if operands[3].kind is Kind.FLOAT:
                third = half_of(e, word(e, operands[3], BOTH[kind]), 0)
            else:
                third = source(e, instruction, operands[3], 2, "s")
            addend = e.b.zext(third, e.b.lanes(I32))
            if operands[3].negate:
                addend = e.b.xor(addend, 0x8000)
            bits = e.b.trunc(dot_step(e, kind, kind, [a], [b], addend), e.b.lanes(I16))
            set_result(e, instruction, operands[0], e.b.bitcast(bits, e.b.lanes(HALF)) if kind == "f16" else bits)

    return emit


def _emit_dot4_8(first: Build, second: Build) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction) as operands:
            a, b = (e.vector(operand, I32) for operand in operands[1:3])
            total = e.vector(operands[3], FLOAT)
            if modifier_bits(instruction, "neg_hi", 0)[2]:
                total = e.b.intrinsic("llvm.fabs", total.type, total)
            if modifier_bits(instruction, "neg_lo", 0)[2]:
                total = e.b.fneg(total)
            for number in range(4):
                x, y = first(e, field(e, a, number, 8, False)), second(e, field(e, b, number, 8, False))
                total = e.b.fadd(total, e.b.fmul(x, y))
            e.set_vector(operands[0], total)

    return emit


def _wide_mad(signed: bool) -> Build:
    return vector_integer.saturated_multiply_add(lambda e, value: value, signed, 16)


_v = vector_integer
EMIT: dict[str, EmitFunction] = {
    "v_pk_mad_i16": Packed(3, False, _v.multiply_add(lambda e, value: value), _wide_mad(True)),
    "v_pk_mad_u16": Packed(3, False, _v.multiply_add(lambda e, value: value), _wide_mad(False)),
    "v_pk_mul_lo_u16": Packed(2, False, _v.mul),
    "v_pk_add_i16": Packed(2, False, _v.add, _v.sadd_sat),
    "v_pk_sub_i16": Packed(2, False, _v.sub, _v.ssub_sat),
    "v_pk_add_u16": Packed(2, False, _v.add, _v.uadd_sat),
    "v_pk_sub_u16": Packed(2, False, _v.sub, _v.usub_sat),
    "v_pk_lshlrev_b16": Packed(2, False, swap_operands(_v.shift_left)),
    "v_pk_lshrrev_b16": Packed(2, False, swap_operands(_v.shift_right)),
    "v_pk_ashrrev_i16": Packed(2, False, swap_operands(_v.shift_arithmetic)),
    "v_pk_max_i16": Packed(2, False, _v.smax),
    "v_pk_min_i16": Packed(2, False, _v.smin),
    "v_pk_max_u16": Packed(2, False, _v.umax),
    "v_pk_min_u16": Packed(2, False, _v.umin),
    "v_pk_fma_f16": Packed(3, True, fused_multiply_add),
    "v_pk_fmac_f16": Packed(3, True, fused_multiply_add, accumulates=True),
    "v_pk_add_f16": Packed(2, True, vector_float.fadd),
    "v_pk_mul_f16": Packed(2, True, vector_float.fmul),
    "v_pk_min_num_f16": Packed(2, True, vector_float.min_num, flushes=False),
    "v_pk_max_num_f16": Packed(2, True, vector_float.max_num, flushes=False),
    "v_pk_min_f16": Packed(2, True, vector_float.ieee_min, flushes=False),
    "v_pk_max_f16": Packed(2, True, vector_float.ieee_max, flushes=False),
    "v_pk_minimum_f16": Packed(2, True, vector_float.minimum, flushes=False),
    "v_pk_maximum_f16": Packed(2, True, vector_float.maximum, flushes=False),
    "v_fma_mix_f32": _emit_mix("f32"),
    "v_fma_mixlo_f16": _emit_mix("lo"),
    "v_fma_mixhi_f16": _emit_mix("hi"),
    "v_dot4_i32_iu8": _emit_integer_dot(8, True),
    "v_dot4_u32_u8": _emit_integer_dot(8, False),
    "v_dot8_i32_iu4": _emit_integer_dot(4, True),
    "v_dot8_u32_u4": _emit_integer_dot(4, False),
    "v_dot2acc_f32_f16": emit_dot2acc("f16"),
    "v_dot2_f32_f16": _emit_dot2_f32("f16"),
    "v_dot2_f32_bf16": _emit_dot2_f32("bf16"),
    "v_dot2_f16_f16": _emit_dot2_16("f16"),
    "v_dot2_bf16_bf16": _emit_dot2_16("bf16"),
    **{
        f"v_dot4_f32_{x}_{y}": _emit_dot4_8(first, second)
        for x, first in (("fp8", from_fp8), ("bf8", from_bf8))
        for y, second in (("fp8", from_fp8), ("bf8", from_bf8))
    },
}
