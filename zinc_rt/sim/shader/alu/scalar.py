"""Integer operations of the scalar ALU: SOP1, SOP2, SOPC, and SOPK except for hardware register access.

Source: RDNA4 ISA guide, 16.1 to 16.4.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Operand
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I1, I8, I16, I32, I64, constant

Binary = Callable[[Emitter, ir.Value, ir.Value], ir.Value]
Unary = Callable[[Emitter, ir.Value], ir.Value]
EMIT: dict[str, EmitFunction] = {}


# --- two sources


def _binary(
    function: Binary, bits: int, *, sets_scc: bool, shift: bool = False, signed: bool = False
) -> EmitFunction:
    """Return the emitter of a binary operation. For a `shift` the second source is 32 bits wide."""

    def emit(e: Emitter, i: Instruction) -> None:
        destination, first, second = i.operands
        a = e.scalar(first, bits, signed=signed)
        result = function(e, a, e.scalar(second, 32 if shift else bits, signed=signed))
        e.set_scalar(destination, result)
        if sets_scc:
            e.regs.scc = e.b.unequal(result, 0)

    return emit


def _amount(e: Emitter, count: ir.Value, value: ir.Value) -> ir.Value:
    """Return a shift count modulo the width, in the type of the value."""
    width = value.type.width
    count = e.b.and_(count, width - 1)
    return e.b.zext(count, value.type) if count.type != value.type else count


def _shift_left(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    return e.b.shl(a, _amount(e, b, a))


def _shift_right(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    return e.b.lshr(a, _amount(e, b, a))


def _shift_arithmetic(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    return e.b.ashr(a, _amount(e, b, a))


BITWISE: dict[str, Binary] = {
    "and": lambda e, a, b: e.b.and_(a, b),
    "or": lambda e, a, b: e.b.or_(a, b),
    "xor": lambda e, a, b: e.b.xor(a, b),
    "nand": lambda e, a, b: e.b.not_(e.b.and_(a, b)),
    "nor": lambda e, a, b: e.b.not_(e.b.or_(a, b)),
    "xnor": lambda e, a, b: e.b.not_(e.b.xor(a, b)),
    "and_not1": lambda e, a, b: e.b.and_(a, e.b.not_(b)),
    "or_not1": lambda e, a, b: e.b.or_(a, e.b.not_(b)),
}
for _name, _function in BITWISE.items():
    EMIT[f"s_{_name}_b32"] = _binary(_function, 32, sets_scc=True)
    EMIT[f"s_{_name}_b64"] = _binary(_function, 64, sets_scc=True)


def _bit_field(e: Emitter, a: ir.Value, b: ir.Value, *, signed: bool) -> ir.Value:
    """Extract a bit field. Width 0 gives 0; bits beyond the top bit are 0 before sign extension."""
    width = a.type.width
    offset = _amount(e, b, a)
    count = e.b.and_(e.b.lshr(b, 16), 127)
    maximum = constant(width)
    count = e.b.select(e.b.below(count, maximum), count, maximum)
    if count.type != a.type:
        count = e.b.zext(count, a.type)
    value = (e.b.ashr if signed else e.b.lshr)(a, offset)
    unused = e.b.sub(width, count)  # up to the width itself, where shifts are undefined
    none = e.b.equal(count, 0)
    unused = e.b.select(none, 0, unused)
    value = (e.b.ashr if signed else e.b.lshr)(e.b.shl(value, unused), unused)
    return e.b.select(none, 0, value)


for _name, _function, _bits in (
    ("lshl", _shift_left, "b"),
    ("lshr", _shift_right, "b"),
    ("ashr", _shift_arithmetic, "i"),
):
    for _width in (32, 64):
        EMIT[f"s_{_name}_{_bits}{_width}"] = _binary(
            _function, _width, sets_scc=True, shift=True, signed=_name == "ashr"
        )
for _width in (32, 64):
    EMIT[f"s_bfe_u{_width}"] = _binary(
        lambda e, a, b: _bit_field(e, a, b, signed=False), _width, sets_scc=True, shift=True
    )
    EMIT[f"s_bfe_i{_width}"] = _binary(
        lambda e, a, b: _bit_field(e, a, b, signed=True), _width, sets_scc=True, shift=True, signed=True
    )


def _bit_mask(bits: int) -> EmitFunction:
    def emit(e: Emitter, i: Instruction) -> None:
        one = constant(1, ir.IntType(bits))
        count, offset = (_amount(e, e.scalar(operand), one) for operand in i.operands[1:])
        ones = e.b.sub(e.b.shl(one, count), one)
        e.set_scalar(i.operands[0], e.b.shl(ones, offset))

    return emit


EMIT["s_bfm_b32"], EMIT["s_bfm_b64"] = _bit_mask(32), _bit_mask(64)


def _high_half(extend: str) -> Binary:
    def function(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
        wide = getattr(e.b, extend)
        product = e.b.mul(wide(a, I64), wide(b, I64))
        return e.b.trunc(e.b.lshr(product, 32), I32)

    return function


def _packed(a_half: int, b_half: int) -> Binary:
    def function(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
        low = e.b.lshr(a, 16) if a_half else e.b.and_(a, 0xFFFF)
        high = e.b.and_(b, 0xFFFF0000) if b_half else e.b.shl(b, 16)
        return e.b.or_(low, high)

    return function


EMIT |= {
    "s_mul_i32": _binary(lambda e, a, b: e.b.mul(a, b), 32, sets_scc=False),
    "s_mul_hi_u32": _binary(_high_half("zext"), 32, sets_scc=False),
    "s_mul_hi_i32": _binary(_high_half("sext"), 32, sets_scc=False),
    "s_add_nc_u64": _binary(lambda e, a, b: e.b.add(a, b), 64, sets_scc=False),
    "s_sub_nc_u64": _binary(lambda e, a, b: e.b.sub(a, b), 64, sets_scc=False),
    "s_mul_u64": _binary(lambda e, a, b: e.b.mul(a, b), 64, sets_scc=False),
    "s_pack_ll_b32_b16": _binary(_packed(0, 0), 32, sets_scc=False),
    "s_pack_lh_b32_b16": _binary(_packed(0, 1), 32, sets_scc=False),
    "s_pack_hh_b32_b16": _binary(_packed(1, 1), 32, sets_scc=False),
    "s_pack_hl_b32_b16": _binary(_packed(1, 0), 32, sets_scc=False),
}


def _absolute(e: Emitter, a: ir.Value) -> ir.Value:
    negative = e.b.icmp_signed("<", a, 0)
    return e.b.select(negative, e.b.sub(0, a), a)


EMIT["s_absdiff_i32"] = _binary(lambda e, a, b: _absolute(e, e.b.sub(a, b)), 32, sets_scc=True)


def _add(shift: int = 0, carry_in: bool = False) -> EmitFunction:
    """Return the emitter of an unsigned addition; SCC is the carry."""

    def emit(e: Emitter, i: Instruction) -> None:
        a, b = (e.b.zext(e.scalar(operand), I64) for operand in i.operands[1:])
        total = e.b.add(e.b.shl(a, shift), b)
        if carry_in:
            total = e.b.add(total, e.b.zext(e.regs.scc, I64))
        e.set_scalar(i.operands[0], e.b.trunc(total, I32))
        e.regs.scc = e.b.unequal(e.b.lshr(total, 32), 0)

    return emit


def _subtract(borrow_in: bool = False) -> EmitFunction:
    """Return the emitter of an unsigned subtraction; SCC is the borrow."""

    def emit(e: Emitter, i: Instruction) -> None:
        a, b = (e.b.zext(e.scalar(operand), I64) for operand in i.operands[1:])
        total = e.b.sub(a, b)
        if borrow_in:
            total = e.b.sub(total, e.b.zext(e.regs.scc, I64))
        e.set_scalar(i.operands[0], e.b.trunc(total, I32))
        e.regs.scc = e.b.icmp_signed("<", total, 0)

    return emit


def _add_signed(e: Emitter, destination: Operand, a: ir.Value, b: ir.Value, *, subtract: bool = False) -> None:
    """Emit a signed addition; SCC is the signed overflow."""
    wide_a, wide_b = e.b.sext(a, I64), e.b.sext(b, I64)
    total = e.b.sub(wide_a, wide_b) if subtract else e.b.add(wide_a, wide_b)
    low = e.b.trunc(total, I32)
    e.set_scalar(destination, low)
    e.regs.scc = e.b.icmp_signed("!=", total, e.b.sext(low, I64))


def _signed(subtract: bool) -> EmitFunction:
    return lambda e, i: _add_signed(
        e, i.operands[0], e.scalar(i.operands[1]), e.scalar(i.operands[2]), subtract=subtract
    )


EMIT |= {
    "s_add_co_u32": _add(),
    "s_add_co_ci_u32": _add(carry_in=True),
    "s_sub_co_u32": _subtract(),
    "s_sub_co_ci_u32": _subtract(borrow_in=True),
    "s_add_co_i32": _signed(subtract=False),
    "s_sub_co_i32": _signed(subtract=True),
}
for _width in (1, 2, 3, 4):
    EMIT[f"s_lshl{_width}_add_u32"] = _add(shift=_width)


def _extreme(comparison: str, *, signed: bool) -> EmitFunction:
    """Return the emitter of a minimum or maximum; SCC is set if the first source was selected."""

    def emit(e: Emitter, i: Instruction) -> None:
        a, b = e.scalar(i.operands[1]), e.scalar(i.operands[2])
        first = (e.b.icmp_signed if signed else e.b.icmp_unsigned)(comparison, a, b)
        e.set_scalar(i.operands[0], e.b.select(first, a, b))
        e.regs.scc = first

    return emit


EMIT |= {
    "s_min_i32": _extreme("<", signed=True),
    "s_min_u32": _extreme("<", signed=False),
    "s_max_i32": _extreme(">=", signed=True),
    "s_max_u32": _extreme(">=", signed=False),
}


def _select(bits: int) -> EmitFunction:
    def emit(e: Emitter, i: Instruction) -> None:
        a, b = e.scalar(i.operands[1], bits), e.scalar(i.operands[2], bits)
        e.set_scalar(i.operands[0], e.b.select(e.regs.scc, a, b))

    return emit


EMIT["s_cselect_b32"], EMIT["s_cselect_b64"] = _select(32), _select(64)


# --- one source


def unary(function: Unary, bits: int = 32, *, sets_scc: bool = False) -> EmitFunction:
    def emit(e: Emitter, i: Instruction) -> None:
        result = function(e, e.scalar(i.operands[1], bits))
        e.set_scalar(i.operands[0], result)
        if sets_scc:
            e.regs.scc = e.b.unequal(result, 0)

    return emit


def _or_minus_one(e: Emitter, missing: ir.Value, count: ir.Value) -> ir.Value:
    count = e.b.trunc(count, I32) if count.type.width > 32 else count
    return e.b.select(missing, -1, count)


def _first_one(intrinsic: str) -> Unary:
    def function(e: Emitter, a: ir.Value) -> ir.Value:
        count = e.b.intrinsic(intrinsic, a.type, a, constant(0, I1))
        return _or_minus_one(e, e.b.equal(a, 0), count)

    return function


def _sign_bits(e: Emitter, a: ir.Value) -> ir.Value:
    changed = e.b.xor(a, e.b.ashr(a, a.type.width - 1))
    return _or_minus_one(e, e.b.equal(changed, 0), e.b.intrinsic("llvm.ctlz", a.type, changed, constant(0, I1)))


def _population(e: Emitter, a: ir.Value) -> ir.Value:
    count = e.b.intrinsic("llvm.ctpop", a.type, a)
    return e.b.trunc(count, I32) if count.type.width > 32 else count


def _quads(e: Emitter, a: ir.Value) -> ir.Value:
    """Set bit 0 of each group of four bits if any bit of the group is set."""
    for distance in (1, 2):
        a = e.b.or_(a, e.b.lshr(a, distance))
    return e.b.and_(a, 0x1111111111111111)


def _quad_mask(e: Emitter, a: ir.Value) -> ir.Value:
    a = _quads(e, a)
    for distance, mask in (
        (3, 0x0303030303030303),
        (6, 0x000F000F000F000F),
        (12, 0x000000FF000000FF),
        (24, 0xFFFF),
    ):
        a = e.b.and_(e.b.or_(a, e.b.lshr(a, distance)), mask)
    return a


def _replicate(e: Emitter, a: ir.Value) -> ir.Value:
    a = e.b.zext(a, I64)
    for distance, mask in (
        (16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):  # fmt: skip
        a = e.b.and_(e.b.or_(a, e.b.shl(a, distance)), mask)
    return e.b.mul(a, 3)


for _width in (32, 64):
    EMIT |= {
        f"s_mov_b{_width}": unary(lambda e, a: a, _width),
        f"s_not_b{_width}": unary(lambda e, a: e.b.not_(a), _width, sets_scc=True),
        f"s_brev_b{_width}": unary(lambda e, a: e.b.intrinsic("llvm.bitreverse", a.type, a), _width),
        f"s_ctz_i32_b{_width}": unary(_first_one("llvm.cttz"), _width),
        f"s_clz_i32_u{_width}": unary(_first_one("llvm.ctlz"), _width),
        f"s_bcnt0_i32_b{_width}": unary(lambda e, a: _population(e, e.b.not_(a)), _width, sets_scc=True),
        f"s_bcnt1_i32_b{_width}": unary(_population, _width, sets_scc=True),
        f"s_quadmask_b{_width}": unary(_quad_mask, _width, sets_scc=True),
        f"s_wqm_b{_width}": unary(lambda e, a: e.b.mul(_quads(e, a), 15), _width, sets_scc=True),
    }
EMIT |= {
    "s_cls_i32": unary(_sign_bits),
    "s_cls_i32_i64": unary(_sign_bits, 64),
    "s_sext_i32_i8": unary(lambda e, a: e.b.sext(e.b.trunc(a, I8), I32)),
    "s_sext_i32_i16": unary(lambda e, a: e.b.sext(e.b.trunc(a, I16), I32)),
    "s_bitreplicate_b64_b32": unary(_replicate),
    "s_abs_i32": unary(_absolute, sets_scc=True),
}


def _conditional_move(bits: int) -> EmitFunction:
    def emit(e: Emitter, i: Instruction) -> None:
        destination, source = i.operands
        value, old = e.scalar(source, bits), e.scalar(destination, bits)
        e.set_scalar(destination, e.b.select(e.regs.scc, value, old))

    return emit


def _set_bit(bits: int, to: int) -> EmitFunction:
    def emit(e: Emitter, i: Instruction) -> None:
        old = e.scalar(i.operands[0], bits)
        bit = e.b.shl(1, _amount(e, e.scalar(i.operands[1]), old))
        e.set_scalar(i.operands[0], e.b.or_(old, bit) if to else e.b.and_(old, e.b.not_(bit)))

    return emit


for _width in (32, 64):
    EMIT[f"s_cmov_b{_width}"] = _conditional_move(_width)
    EMIT[f"s_bitset0_b{_width}"], EMIT[f"s_bitset1_b{_width}"] = _set_bit(_width, 0), _set_bit(_width, 1)

# --- comparisons

_INTEGER = {"eq": "==", "lg": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def _compare(comparison: str, kind: str) -> EmitFunction:
    signed, bits = kind[0] == "i", int(kind[1:])

    def emit(e: Emitter, i: Instruction) -> None:
        a, b = (e.scalar(operand, bits, signed=signed) for operand in i.operands)
        e.regs.scc = (e.b.icmp_signed if signed else e.b.icmp_unsigned)(comparison, a, b)

    return emit


def _compare_constant(comparison: str, *, signed: bool) -> EmitFunction:
    """Return the emitter of a comparison with a 16-bit constant, which only gfx11 has."""

    def emit(e: Emitter, i: Instruction) -> None:
        compare = e.b.icmp_signed if signed else e.b.icmp_unsigned
        number = _constant16(i) if signed else int(i.operands[-1].value or 0)
        e.regs.scc = compare(comparison, e.scalar(i.operands[0]), constant(number))

    return emit


def _test_bit(bits: int, wanted: int) -> EmitFunction:
    def emit(e: Emitter, i: Instruction) -> None:
        value = e.scalar(i.operands[0], bits)
        bit = e.b.trunc(e.b.lshr(value, _amount(e, e.scalar(i.operands[1]), value)), I1)
        e.regs.scc = bit if wanted else e.b.not_(bit)

    return emit


for _name, _comparison in _INTEGER.items():
    EMIT[f"s_cmp_{_name}_i32"] = _compare(_comparison, "i32")
    EMIT[f"s_cmp_{_name}_u32"] = _compare(_comparison, "u32")
    EMIT[f"s_cmpk_{_name}_i32"] = _compare_constant(_comparison, signed=True)
    EMIT[f"s_cmpk_{_name}_u32"] = _compare_constant(_comparison, signed=False)
EMIT["s_cmp_eq_u64"], EMIT["s_cmp_lg_u64"] = _compare("==", "u64"), _compare("!=", "u64")
for _width in (32, 64):
    EMIT[f"s_bitcmp0_b{_width}"], EMIT[f"s_bitcmp1_b{_width}"] = _test_bit(_width, 0), _test_bit(_width, 1)


# --- a 16-bit constant


def _constant16(i: Instruction) -> int:
    value = int(i.operands[-1].value or 0)
    return value - (value >> 15 << 16)


def _move_constant(e: Emitter, i: Instruction) -> None:
    e.set_scalar(i.operands[0], constant(_constant16(i)))


def _conditional_constant(e: Emitter, i: Instruction) -> None:
    old = e.scalar(i.operands[0])
    e.set_scalar(i.operands[0], e.b.select(e.regs.scc, _constant16(i), old))


def _multiply_constant(e: Emitter, i: Instruction) -> None:
    e.set_scalar(i.operands[0], e.b.mul(e.scalar(i.operands[0]), _constant16(i)))


EMIT |= {
    "s_movk_i32": _move_constant,
    "s_cmovk_i32": _conditional_constant,
    "s_addk_co_i32": lambda e, i: _add_signed(e, i.operands[0], e.scalar(i.operands[0]), constant(_constant16(i))),
    "s_mulk_i32": _multiply_constant,
}
