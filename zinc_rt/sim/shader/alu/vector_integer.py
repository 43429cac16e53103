"""Integer and bitwise rows of the vector ALU."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind
from zinc_rt.sim.shader.alu import dpp
from zinc_rt.sim.shader.alu.vector import (
    Build,
    Value,
    by_intrinsic,
    compose,
    join_halves,
    op,
    outline,
    set_result,
    source,
    swap_operands,
)
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, NotSimulated
from zinc_rt.sim.shader.emit.values import I1, I8, I16, I32, I64, VectorConstant, constant, vector_of


def _binary(name: str) -> Build:
    return lambda e, a, b: getattr(e.b, name)(a, b)


add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
and_, or_, xor = _binary("and_"), _binary("or_"), _binary("xor")
smin, smax = by_intrinsic("llvm.smin"), by_intrinsic("llvm.smax")
umin, umax = by_intrinsic("llvm.umin"), by_intrinsic("llvm.umax")
uadd_sat, usub_sat = by_intrinsic("llvm.uadd.sat"), by_intrinsic("llvm.usub.sat")
sadd_sat, ssub_sat = by_intrinsic("llvm.sadd.sat"), by_intrinsic("llvm.ssub.sat")


def _amount(e: Emitter, count: Value, value: Value) -> Value:
    """Return a shift count modulo the width of `value`, in its type."""
    bits = value.type.element.width
    if count.type.element.width < bits:
        count = e.b.zext(count, value.type)
    elif count.type.element.width > bits:
        count = e.b.trunc(count, value.type)
    return e.b.and_(count, bits - 1)


def shift_left(e: Emitter, value: Value, count: Value) -> Value:
    return e.b.shl(value, _amount(e, count, value))


def shift_right(e: Emitter, value: Value, count: Value) -> Value:
    return e.b.lshr(value, _amount(e, count, value))


def shift_arithmetic(e: Emitter, value: Value, count: Value) -> Value:
    return e.b.ashr(value, _amount(e, count, value))


def _signed(e: Emitter, value: Value, bits: int) -> Value:
    """Sign-extend the lower `bits` bits within the type."""
    by = constant(value.type.element.width - bits, value.type)
    return e.b.ashr(e.b.shl(value, by), by)


def _unsigned(e: Emitter, value: Value, bits: int) -> Value:
    return e.b.and_(value, (1 << bits) - 1)


def clamped(e: Emitter, value: Value, low: int, high: int, to: ir.Type) -> Value:
    """Clamp a signed wide integer to low..high, then narrow it to lanes of `to`."""
    value = smin(e, smax(e, value, constant(low, value.type)), constant(high, value.type))
    return e.b.trunc(value, e.b.lanes(to))


def multiply_add(extend: Callable[[Emitter, Value], Value]) -> Build:
    return lambda e, a, b, c: e.b.add(e.b.mul(extend(e, a), extend(e, b)), c)


def saturated_multiply_add(extend: Callable[[Emitter, Value], Value], signed: bool, bits: int) -> Build:
    """Return the builder of the exact a * b + c, saturated to `bits`."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def build(e: Emitter, a: Value, b: Value, c: Value) -> Value:
        wide = e.b.lanes(I64)
        widen = e.b.sext if signed else e.b.zext
        product = e.b.mul(widen(extend(e, a), wide), widen(extend(e, b), wide))
        return clamped(e, e.b.add(product, widen(c, wide)), low, high, ir.IntType(bits))

    return build


def _s24(e: Emitter, value: Value) -> Value:
    return _signed(e, value, 24)


def _u24(e: Emitter, value: Value) -> Value:
    return _unsigned(e, value, 24)


def _same(e: Emitter, value: Value) -> Value:
    return value


def _wide_signed(e: Emitter, value: Value) -> Value:
    return value if value.type.element is I32 else e.b.sext(value, e.b.lanes(I32))


def _wide_unsigned(e: Emitter, value: Value) -> Value:
    return value if value.type.element is I32 else e.b.zext(value, e.b.lanes(I32))


def _multiply_high(signed: bool, extend: Callable[[Emitter, Value], Value] = _same) -> Build:
    def build(e: Emitter, a: Value, b: Value) -> Value:
        wide = e.b.lanes(I64)
        widen = e.b.sext if signed else e.b.zext
        product = e.b.mul(widen(extend(e, a), wide), widen(extend(e, b), wide))
        return e.b.trunc(e.b.lshr(product, 32), e.b.lanes(I32))

    return build


def _bfe_u32(e: Emitter, value: Value, offset: Value, width: Value) -> Value:
    one = constant(1, value.type)
    return e.b.and_(shift_right(e, value, offset), e.b.sub(shift_left(e, one, width), one))


def _bfe_i32(e: Emitter, value: Value, offset: Value, width: Value) -> Value:
    b, none = e.b, constant(0, value.type)
    width = _unsigned(e, width, 5)
    by = _unsigned(e, b.sub(none, width), 5)
    field = shift_arithmetic(e, value, offset)
    return b.select(b.equal(width, none), none, b.ashr(b.shl(field, by), by))


def _bfi(e: Emitter, mask: Value, inside: Value, outside: Value) -> Value:
    return e.b.xor(outside, e.b.and_(mask, e.b.xor(inside, outside)))


def _bfm(e: Emitter, width: Value, offset: Value) -> Value:
    one = constant(1, width.type)
    return shift_left(e, e.b.sub(shift_left(e, one, width), one), offset)


def _align(unit: int) -> Build:
    def build(e: Emitter, high: Value, low: Value, by: Value) -> Value:
        by = e.b.zext(by, high.type)
        if unit == 8:
            by = e.b.mul(_unsigned(e, by, 2), 8)
        return e.b.intrinsic("llvm.fshr", high.type, high, low, _unsigned(e, by, 5))

    return build


def _or_minus_one(intrinsic: str) -> Build:
    def build(e: Emitter, value: Value) -> Value:
        none = e.b.equal(value, 0)
        count = e.b.intrinsic(intrinsic, value.type, value, constant(0, I1))
        return e.b.select(none, -1, count)

    return build


def _cls(e: Emitter, value: Value) -> Value:
    """Count the leading bits equal to the sign; -1 if all are."""
    signs = e.b.ashr(value, 31)
    return _or_minus_one("llvm.ctlz")(e, e.b.xor(value, signs))


def _mbcnt(first: int) -> Build:
    def build(e: Emitter, mask: Value, start: Value) -> Value:
        below = [((1 << lane) - 1) >> first & 0xFFFFFFFF for lane in range(e.wave)]
        lanes = vector_of(below)
        return e.b.add(e.b.intrinsic("llvm.ctpop", mask.type, e.b.and_(mask, lanes)), start)

    return build


def _median(smallest: Build, greatest: Build) -> Build:
    def build(e: Emitter, a: Value, b: Value, c: Value) -> Value:
        return greatest(e, smallest(e, a, b), smallest(e, greatest(e, a, b), c))

    return build


def _difference(e: Emitter, a: Value, b: Value) -> Value:
    return e.b.sub(umax(e, a, b), umin(e, a, b))


def _sad(bits: int, *, high: bool = False, masked: bool = False, saturates: bool = False) -> Build:
    """Return the builder of a sum of unsigned field differences. With `masked`, fields that are 0 in b are
    ignored.
    """

    def build(e: Emitter, a: Value, b: Value, total: Value) -> Value:
        of = total.type
        result = constant(0, of)
        for low in range(0, 32, bits):
            x, y = (_unsigned(e, e.b.lshr(v, low), bits) if bits < 32 else v for v in (a, b))
            difference = _difference(e, x, y)
            if masked:
                unwanted = e.b.equal(y, 0)
                difference = e.b.select(unwanted, 0, difference)
            result = e.b.add(result, difference)
        if high:
            result = e.b.shl(result, 16)
        return uadd_sat(e, result, total) if saturates else e.b.add(result, total)

    return build


def _quad_sad(masked: bool, wide: bool) -> Build:
    """Return the builder of four SADs of a sliding window over the lower 7 bytes of a."""

    def build(e: Emitter, a: Value, b: Value, totals: Value) -> Value:
        sad, of = _sad(8, masked=masked), totals.type
        bits = 32 if wide else 16
        result = constant(0, of)
        for index in range(4):
            window = e.b.trunc(e.b.lshr(a, 8 * index), e.b.lanes(I32))
            shifted = e.b.lshr(totals, bits * index)
            total = _unsigned(e, e.b.trunc(shifted, e.b.lanes(I32)), bits)
            results = e.b.zext(_unsigned(e, sad(e, window, b, total), bits), of)
            result = e.b.or_(result, e.b.shl(results, bits * index))
        return result

    return build


def _emit_mqsad_u32_u8(e: Emitter, instruction: Instruction) -> None:
    """Emit the window's four SADs, each in its own register."""
    destination, *operands = instruction.operands
    if operands[2].kind is not Kind.VGPR:
        raise NotSimulated(f"does not support {operands[2].text} as the addend")
    a, b = source(e, instruction, operands[0], 0, "l"), source(e, instruction, operands[1], 1, "i")
    saturates = instruction.modifier("clamp") is not None
    sad = _sad(8, masked=True, saturates=saturates)
    totals = [e.regs.read_vgpr(operands[2].index + index) for index in range(4)]
    for location, total in enumerate(totals):
        window = e.b.trunc(e.b.lshr(a, 8 * location), e.b.lanes(I32))
        e.regs.write_vgpr(destination.index + location, sad(e, window, b, total))


def _lerp_u8(e: Emitter, a: Value, b: Value, rounds: Value) -> Value:
    """Return (a + b + bit 0 of rounds) >> 1 for each byte."""
    ones = constant(0x01010101, a.type)
    common = e.b.add(e.b.and_(a, b), e.b.and_(rounds, e.b.and_(e.b.xor(a, b), ones)))
    halves = e.b.and_(e.b.lshr(e.b.xor(a, b), 1), 0x7F7F7F7F)
    return e.b.add(common, halves)


def _perm(e: Emitter, high: Value, low: Value, select: Value) -> Value:
    """Emit v_perm_b32: select bytes of {high, low} by the selector bytes."""
    if isinstance(select, VectorConstant):
        selects = int(select.elements[0]).to_bytes(4, "little")
        if all(byte < 8 or byte >= 12 for byte in selects):
            return _perm_constant(e, high, low, selects)
    return outline(e, f"zrt.perm.{e.wave}", e.b.lanes(I32), _perm_bytes, high, low, select)


def _perm_constant(e: Emitter, high: Value, low: Value, selects: bytes) -> Value:
    bytes_of = ir.VectorType(I8, 4 * e.wave)
    parts = [e.b.bitcast(value, bytes_of) for value in (low, high)]
    index = []
    for at in range(4 * e.wave):
        byte = selects[at % 4]
        word = 4 * (at // 4)
        index.append(word + byte % 4 + (4 * e.wave if byte & 4 else 0))
    moved = e.b.shuffled(parts[0], index, parts[1])
    result = e.b.bitcast(moved, e.b.lanes(I32))
    zeros = sum(0xFF << 8 * index for index, byte in enumerate(selects) if byte == 12)
    ones = sum(0xFF << 8 * index for index, byte in enumerate(selects) if byte > 12)
    if zeros:
        result = e.b.and_(result, ~zeros)
    return e.b.or_(result, ones) if ones else result


def _perm_bytes(e: Emitter, high: Value, low: Value, select: Value) -> Value:
    b, of = e.b, high.type
    wide = b.lanes(I64)
    data = b.or_(b.shl(b.zext(high, wide), 32), b.zext(low, wide))
    zero, ff = constant(0, of), constant(0xFF, of)
    result = zero
    for index in range(4):
        byte = _unsigned(e, b.lshr(select, 8 * index), 8)
        plain = b.below(byte, 8)
        signs = b.add(b.shl(_unsigned(e, byte, 2), 1), 1)
        shift = b.zext(b.shl(b.select(plain, byte, signs), 3), wide)
        shift = b.and_(shift, 63)
        taken = _unsigned(e, b.trunc(b.lshr(data, shift), of), 8)
        sign = b.select(b.icmp_unsigned(">=", taken, 0x80), ff, zero)
        padding = b.select(b.equal(byte, 12), zero, ff)
        special = b.select(b.below(byte, 12), sign, padding)
        result = b.or_(result, b.shl(b.select(plain, taken, special), 8 * index))
    return result


def _sat_pk_u8_i16(e: Emitter, value: Value) -> Value:
    low = clamped(e, _signed(e, value, 16), 0, 255, I16)
    high = clamped(e, e.b.ashr(value, 16), 0, 255, I16)
    return e.b.or_(low, e.b.shl(high, 8))


# --- carries: the result and a lane mask (VCC or an SGPR), from two sources and perhaps a mask


def _carry_add(e: Emitter, a: Value, b: Value, carry: Value | None) -> tuple[Value, Value]:
    total = e.b.add(a, b)
    out = e.b.below(total, a)
    if carry is not None:
        more = e.b.add(total, e.b.zext(carry, a.type))
        out = e.b.or_(out, e.b.below(more, total))
        total = more
    return total, out


def _carry_sub(e: Emitter, a: Value, b: Value, borrow: Value | None) -> tuple[Value, Value]:
    rest = e.b.sub(a, b)
    out = e.b.below(a, b)
    if borrow is not None:
        less = e.b.sub(rest, e.b.zext(borrow, a.type))
        out = e.b.or_(out, e.b.below(rest, less))
        rest = less
    return rest, out


def _with_carry(build: Callable[..., tuple[Value, Value]], full: int, *, reverse: bool = False) -> EmitFunction:
    """Return the emitter of an operation with carry. `full` is the saturated result if the carry is set."""

    def emit(e: Emitter, instruction: Instruction) -> None:
        with dpp.operands_of(e, instruction, first=2) as operands:
            a, b = (source(e, instruction, operand, index, "i") for index, operand in enumerate(operands[2:4]))
            carry = e.mask(operands[4]) if len(operands) > 4 else None
            value, out = build(e, b, a, carry) if reverse else build(e, a, b, carry)
            if instruction.modifier("clamp"):
                value = e.b.select(out, full, value)
            set_result(e, instruction, operands[0], value)
            e.set_mask(operands[1], out)

    return emit


def _mad_64(signed: bool) -> EmitFunction:
    def emit(e: Emitter, instruction: Instruction) -> None:
        b, operands, wide = e.b, instruction.operands, e.b.lanes(I64)
        widen = b.sext if signed else b.zext
        x, y = (widen(source(e, instruction, operand, 0, "i"), wide) for operand in operands[2:4])
        z = source(e, instruction, operands[4], 2, "L" if signed else "l")
        product = b.mul(x, y)
        total = b.add(product, z)
        if signed:  # bit 64 of the 65-bit sum is its sign
            minus = constant(0, wide)
            overflow = b.and_(b.xor(product, total), b.xor(z, total))
            out = b.xor(b.icmp_signed("<", total, minus), b.icmp_signed("<", overflow, minus))
            ends = b.select(out, constant(1 << 63, wide), constant((1 << 63) - 1, wide))
            saturated = b.select(b.icmp_signed("<", overflow, minus), ends, total)
        else:
            out = b.below(total, z)
            saturated = b.select(out, -1, total)
        e.set_vector(operands[0], saturated if instruction.modifier("clamp") else total)
        e.set_mask(operands[1], out)

    return emit


def _saturate_all(e: Emitter, value: Value, high: int) -> Value:
    return umin(e, value, constant(high, value.type))


OPS = {
    "v_not_b32": op("i=i", lambda e, a: e.b.not_(a)),
    "v_mov_b16": op("s=s", lambda e, a: a),
    "v_not_b16": op("s=s", lambda e, a: e.b.not_(a)),
    "v_bfrev_b32": op("i=i", by_intrinsic("llvm.bitreverse")),
    "v_clz_i32_u32": op("i=i", _or_minus_one("llvm.ctlz")),
    "v_ctz_i32_b32": op("i=i", _or_minus_one("llvm.cttz")),
    "v_cls_i32": op("i=i", _cls),
    "v_cvt_i32_i16": op("i=s", lambda e, a: e.b.sext(a, e.b.lanes(I32))),
    "v_cvt_u32_u16": op("i=s", lambda e, a: e.b.zext(a, e.b.lanes(I32))),
    "v_sat_pk_u8_i16": op("s=i", _sat_pk_u8_i16),
    "v_add_nc_u32": op("i=ii", add, uadd_sat),
    "v_sub_nc_u32": op("i=ii", sub, usub_sat),
    "v_subrev_nc_u32": op("i=ii", swap_operands(sub), swap_operands(usub_sat)),
    "v_add_nc_i32": op("i=ii", add, sadd_sat),
    "v_sub_nc_i32": op("i=ii", sub, ssub_sat),
    "v_add_nc_u16": op("s=ss", add, uadd_sat),
    "v_sub_nc_u16": op("s=ss", sub, usub_sat),
    "v_add_nc_i16": op("s=ss", add, sadd_sat),
    "v_sub_nc_i16": op("s=ss", sub, ssub_sat),
    "v_mul_lo_u32": op("i=ii", mul),
    "v_mul_lo_u16": op("s=ss", mul),
    "v_mul_hi_u32": op("i=ii", _multiply_high(False)),
    "v_mul_hi_i32": op("i=ii", _multiply_high(True)),
    "v_mul_i32_i24": op("i=ii", lambda e, a, b: e.b.mul(_s24(e, a), _s24(e, b))),
    "v_mul_u32_u24": op("i=ii", lambda e, a, b: e.b.mul(_u24(e, a), _u24(e, b))),
    "v_mul_hi_i32_i24": op("i=ii", _multiply_high(True, _s24)),
    "v_mul_hi_u32_u24": op("i=ii", _multiply_high(False, _u24)),
    "v_mad_i32_i24": op("i=iii", multiply_add(_s24), saturated_multiply_add(_s24, True, 32)),
    "v_mad_u32_u24": op("i=iii", multiply_add(_u24), saturated_multiply_add(_u24, False, 32)),
    "v_mad_i32_i16": op("i=ssi", multiply_add(_wide_signed), saturated_multiply_add(_same, True, 32)),
    "v_mad_u32_u16": op("i=ssi", multiply_add(_wide_unsigned), saturated_multiply_add(_same, False, 32)),
    "v_mad_i16": op("s=sss", multiply_add(_same), saturated_multiply_add(_same, True, 16)),
    "v_mad_u16": op("s=sss", multiply_add(_same), saturated_multiply_add(_same, False, 16)),
    "v_lshlrev_b32": op("i=ii", swap_operands(shift_left)),
    "v_lshrrev_b32": op("i=ii", swap_operands(shift_right)),
    "v_ashrrev_i32": op("i=ii", swap_operands(shift_arithmetic)),
    "v_lshlrev_b16": op("s=ss", swap_operands(shift_left)),
    "v_lshrrev_b16": op("s=ss", swap_operands(shift_right)),
    "v_ashrrev_i16": op("s=ss", swap_operands(shift_arithmetic)),
    "v_lshlrev_b64": op("l=il", swap_operands(shift_left)),
    "v_lshrrev_b64": op("l=il", swap_operands(shift_right)),
    "v_ashrrev_i64": op("l=iL", swap_operands(shift_arithmetic)),
    "v_and_b32": op("i=ii", and_),
    "v_or_b32": op("i=ii", or_),
    "v_xor_b32": op("i=ii", xor),
    "v_xnor_b32": op("i=ii", lambda e, a, b: e.b.not_(e.b.xor(a, b))),
    "v_and_b16": op("s=ss", and_),
    "v_or_b16": op("s=ss", or_),
    "v_xor_b16": op("s=ss", xor),
    "v_bfe_u32": op("i=iii", _bfe_u32),
    "v_bfe_i32": op("i=iii", _bfe_i32),
    "v_bfi_b32": op("i=iii", _bfi),
    "v_bfm_b32": op("i=ii", _bfm),
    "v_alignbit_b32": op("i=iis", _align(1)),
    "v_alignbyte_b32": op("i=iis", _align(8)),
    "v_perm_b32": op("i=iii", _perm),
    "v_lerp_u8": op("i=iii", _lerp_u8),
    "v_add3_u32": op("i=iii", compose(add, add)),
    "v_xad_u32": op("i=iii", compose(xor, add)),
    "v_lshl_add_u32": op("i=iii", compose(shift_left, add)),
    "v_add_lshl_u32": op("i=iii", compose(add, shift_left)),
    "v_lshl_or_b32": op("i=iii", compose(shift_left, or_)),
    "v_and_or_b32": op("i=iii", compose(and_, or_)),
    "v_or3_b32": op("i=iii", compose(or_, or_)),
    "v_xor3_b32": op("i=iii", compose(xor, xor)),
    "v_bcnt_u32_b32": op("i=ii", lambda e, a, b: e.b.add(e.b.intrinsic("llvm.ctpop", a.type, a), b)),
    "v_mbcnt_lo_u32_b32": op("i=ii", _mbcnt(0)),
    "v_mbcnt_hi_u32_b32": op("i=ii", _mbcnt(32)),
    "v_sad_u8": op("i=iii", _sad(8), _sad(8, saturates=True)),
    "v_sad_hi_u8": op("i=iii", _sad(8, high=True), _sad(8, high=True, saturates=True)),
    "v_sad_u16": op("i=iii", _sad(16), _sad(16, saturates=True)),
    "v_sad_u32": op("i=iii", _sad(32), _sad(32, saturates=True)),
    "v_msad_u8": op("i=iii", _sad(8, masked=True), _sad(8, masked=True, saturates=True)),
    "v_qsad_pk_u16_u8": op("l=lil", _quad_sad(masked=False, wide=False)),
    "v_mqsad_pk_u16_u8": op("l=lil", _quad_sad(masked=True, wide=False)),
    "v_cvt_pk_u16_u32": op(
        "i=ii",
        lambda e, a, b: e.b.or_(_saturate_all(e, a, 0xFFFF), e.b.shl(_saturate_all(e, b, 0xFFFF), 16)),
    ),
    "v_cvt_pk_i16_i32": op(
        "i=ii",
        lambda e, a, b: join_halves(e, clamped(e, a, -0x8000, 0x7FFF, I16), clamped(e, b, -0x8000, 0x7FFF, I16)),
    ),
    **{
        f"v_{name}_{letter}{bits}": op(types, build)
        for bits, types, three in ((32, "i=ii", "i=iii"), (16, "s=ss", "s=sss"))
        for letter, low, high in (("i", smin, smax), ("u", umin, umax))
        for name, types, build in (
            ("min", types, low),
            ("max", types, high),
            ("min3", three, compose(low, low)),
            ("max3", three, compose(high, high)),
            ("med3", three, _median(low, high)),
            *(
                (("maxmin", three, compose(high, low)), ("minmax", three, compose(low, high)))
                if bits == 32
                else ()
            ),
        )
    },
}

EMIT: dict[str, EmitFunction] = {
    **OPS,
    "v_add_co_u32": _with_carry(_carry_add, -1),
    "v_sub_co_u32": _with_carry(_carry_sub, 0),
    "v_subrev_co_u32": _with_carry(_carry_sub, 0, reverse=True),
    "v_add_co_ci_u32": _with_carry(_carry_add, -1),
    "v_sub_co_ci_u32": _with_carry(_carry_sub, 0),
    "v_subrev_co_ci_u32": _with_carry(_carry_sub, 0, reverse=True),
    "v_mad_co_u64_u32": _mad_64(False),
    "v_mad_co_i64_i32": _mad_64(True),
    "v_mqsad_u32_u8": _emit_mqsad_u32_u8,
}
