"""Propagation of undefined bits through instructions, as in memcheck.

Compilers leave unused bits undefined: the upper half of an addend, the side of a select that is not taken, the
masked half of a pair. Instructions that move, mask or combine bits, or add integers, therefore do not report
undefined bits; they propagate them bit by bit. All other instructions use their operands: an address, a branch, a
comparison, float arithmetic, a store. Reading undefined bits there is a finding.

Selectors (a shift count, a mask, a lane) count as used too: a table row names the data operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, selects_upper
from zinc_rt.sim.shader.emit.values import constant
from zinc_rt.sim.shader.layout import NULL, TTMP0, VGPR_LIMIT


@dataclass(frozen=True, slots=True)
class Carry:
    """A propagation rule. `bits(e, data operands, instruction, emit)` returns the undefined bits of the values
    written by `emit`, in order.
    """

    bits: Callable[[Emitter, list[Operand], Instruction, Callable[[], None]], list[ir.Value]]
    data: tuple[int, ...]


def add_propagation(name: str, emit: EmitFunction) -> EmitFunction:
    """Wrap `emit`, of the mnemonic without suffix, with its propagation rule. Most rows have no rule."""
    rule, used = CARRIED.get(name), USED.get(name)
    if rule is None and used is None:
        return emit

    def emit_propagated(e: Emitter, i: Instruction) -> None:
        if i.encoding.endswith(("_DPP16", "_DPP8")) or i.modifier("clamp") is not None:
            emit(e, i)
            return
        partly = {key: mask for index, mask in (used or {}).items() for key in list_keys(i.operands[index])}
        data = [] if rule is None else [i.operands[item] for item in rule.data]
        others = {
            key
            for index, operand in enumerate(i.operands)
            if index and operand not in data
            for key in list_keys(operand)
        }
        known = frozenset(key for operand in data for key in list_keys(operand)) - others
        bits = e.regs.undefined
        with bits.carrying(known, partly):
            if rule is None or not any(bits.unproven(key) for key in known):
                emit(e, i)
                return
            result = rule.bits(e, data, i, partial(emit, e, i))
            with bits.given(result):
                emit(e, i)

    return emit_propagated


def list_keys(operand: Operand) -> range:
    """Return the register keys of an operand: r for VGPR r, VGPR_LIMIT + n for SGPR n; none for a constant."""
    if operand.kind is Kind.VGPR:
        first = operand.index
    elif operand.kind is Kind.TTMP:
        first = VGPR_LIMIT + TTMP0 + operand.index
    elif operand.kind is Kind.SGPR or (operand.kind is Kind.SPECIAL and operand.index < 128):
        if operand.index == NULL:
            return range(0)
        first = VGPR_LIMIT + operand.index
    else:
        return range(0)
    return range(first, first + max(operand.width, 1))


def _find_undefined(e: Emitter, operand: Operand, vector: bool) -> ir.Value:
    """Return the undefined bits of the operand as an integer (or <W x integer>) of the width of its registers."""
    e_bits = e.regs.undefined
    words = [e_bits.of(key) for key in list_keys(operand)] or [constant(0)]
    if vector and operand.kind is not Kind.VGPR:
        words = [e.b.splat(word) for word in words]
    return e.b.join(words)


def _join_bits(e: Emitter, data: list[Operand], dwords: int) -> ir.Value:
    """Return the bits that are undefined in any of the operands, `dwords` wide."""
    vector = any(operand.kind is Kind.VGPR for operand in data)
    of = e.b.lanes(ir.IntType(32 * dwords)) if vector else ir.IntType(32 * dwords)
    result = constant(0, of)
    for operand in data:
        bits = _find_undefined(e, operand, vector)
        if bits.type != of:
            width = len(list_keys(operand)) or 1
            bits = e.b.zext(bits, of) if width < dwords else e.b.trunc(bits, of)
        result = e.b.or_(result, bits)
    return result


# --- how


def _move_bits(e: Emitter, data: list[Operand], i: Instruction, emit: Callable[[], None]) -> list[ir.Value]:
    """Return the undefined bits of results that are monotonic in each data bit: those that differ if the undefined
    bits are replaced by zeros and by ones.
    """
    undefined = e.regs.undefined
    zeros, ones = undefined.results(emit, 0), undefined.results(emit, 1)
    return [e.b.xor(zero, one) for zero, one in zip(zeros, ones, strict=True)]


def _join_undefined(e: Emitter, data: list[Operand], i: Instruction, emit: Callable[[], None]) -> list[ir.Value]:
    """Return the undefined bits of results whose bits depend on the same bit of each data operand; SCC depends on
    all bits.
    """
    together = _join_bits(e, data, len(list_keys(i.operands[0])))
    return _with_flag(e, together, i)


def _carry_sum(e: Emitter, data: list[Operand], i: Instruction, emit: Callable[[], None]) -> list[ir.Value]:
    """Return the undefined bits of sums and products: all from the lowest undefined bit upwards. A carry or SCC
    depends on all bits.
    """
    dwords = max(len(list_keys(operand)) for operand in (i.operands[0], *data))
    together = _join_bits(e, data, dwords)
    together = e.b.or_(together, e.b.sub(0, together))
    if dwords > len(list_keys(i.operands[0])):
        together = e.b.trunc(
            together, e.b.lanes(ir.IntType(32)) if isinstance(together.type, ir.VectorType) else ir.IntType(32)
        )
    return _with_flag(e, together, i)


def _carry_half_sum(e: Emitter, data: list[Operand], i: Instruction, emit: Callable[[], None]) -> list[ir.Value]:
    """Return the undefined bits of 16-bit sums and products: of the half that is written, all from the lowest
    undefined bit of the halves that are read upwards.
    """
    together = constant(0, e.b.lanes(ir.IntType(32)))
    for place, operand in enumerate(data):
        bits = _find_undefined(e, operand, True)
        bits = e.b.lshr(bits, 16) if _is_upper(i, operand, place) else bits
        together = e.b.or_(together, e.b.and_(bits, 0xFFFF))
    together = e.b.and_(e.b.or_(together, e.b.sub(0, together)), 0xFFFF)
    return [e.b.shl(together, 16) if _is_upper(i, i.operands[0], 3) else together]


def _is_upper(i: Instruction, operand: Operand, place: int) -> bool:
    """Return whether a 16-bit operand is the upper half of its register."""
    return bool(operand.half) if operand.half is not None else selects_upper(i, place)


def _with_flag(e: Emitter, found: ir.Value, i: Instruction) -> list[ir.Value]:
    bits = e.b.split(found)
    any_bit = e.b.unequal(found, 0)
    if not isinstance(found.type, ir.VectorType):
        return [*bits, any_bit]  # SCC, if it exists
    if "_co_" in i.mnemonic:
        lanes = e.b.and_(e.b.bits(any_bit), e.exec.bits())
        bits += e.b.split(lanes)
    return bits


def _propagate_halves(e: Emitter, data: list[Operand], i: Instruction, emit: Callable[[], None]) -> list[ir.Value]:
    """Return the undefined bits of packed arithmetic: a result half depends on all bits of its source halves."""
    words = [_find_undefined(e, operand, True) for operand in data]
    result = constant(0, e.b.lanes(ir.IntType(32)))
    for half, name in enumerate(("op_sel", "op_sel_hi")):
        modifier = i.modifier(name)
        chosen = modifier.value if modifier is not None and isinstance(modifier.value, tuple) else ()
        for index, word in enumerate(words):
            upper = chosen[index] if index < len(chosen) else half
            bits = e.b.and_(word, 0xFFFF0000 if upper else 0xFFFF)
            whole = constant(0xFFFF << 16 * half, result.type)
            result = e.b.or_(result, e.b.select(e.b.unequal(bits, 0), whole, 0))
    return [result]


# --- which

_MOVED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("v_mov_b32", "v_mov_b16", "v_not_b32", "v_not_b16", "v_bfrev_b32"), (1,)),
    **dict.fromkeys(("v_cvt_u32_u16", "v_cvt_i32_i16", "v_readfirstlane_b32", "v_readlane_b32"), (1,)),
    **dict.fromkeys(("v_writelane_b32", "v_bfe_u32", "v_bfe_i32"), (1,)),
    **dict.fromkeys((f"v_{name}_b{bits}" for name in ("and", "or") for bits in (16, 32)), (1, 2)),
    **dict.fromkeys(("v_cndmask_b32", "v_cndmask_b16", "v_perm_b32", "v_alignbit_b32", "v_alignbyte_b32"), (1, 2)),
    **dict.fromkeys((f"v_lsh{to}rev_b{bits}" for to in "lr" for bits in (16, 32, 64)), (2,)),
    **dict.fromkeys((f"v_ashrrev_i{bits}" for bits in (16, 32, 64)), (2,)),
    **dict.fromkeys(("v_and_or_b32", "v_or3_b32"), (1, 2, 3)),
    "v_pack_b32_f16": (1, 2),
    "v_bfi_b32": (2, 3),
    "v_lshl_or_b32": (1, 3),
    **dict.fromkeys(("v_swap_b32", "v_swap_b16"), (0, 1)),
    **{
        f"s_{name}_b{bits}": data
        for bits in (32, 64)
        for names, data in (
            (("mov", "not", "brev", "lshl", "lshr"), (1,)),
            (("and", "or", "nand", "nor", "and_not1", "or_not1", "cselect"), (1, 2)),
            (("cmov",), (0, 1)),
        )
        for name in names
    },
    **{
        f"s_{name}_{kind}_b{bits}": (1,)
        for bits in (32, 64)
        for kind, names in (
            ("saveexec", ("and", "or", "nand", "nor", "and_not0", "and_not1", "or_not0", "or_not1")),
            ("wrexec", ("and_not0", "and_not1")),
        )
        for name in names
    },
    **dict.fromkeys(("s_ashr_i32", "s_ashr_i64", "s_sext_i32_i8", "s_sext_i32_i16"), (1,)),
    **dict.fromkeys(("s_bfe_u32", "s_bfe_i32", "s_bfe_u64", "s_bfe_i64"), (1,)),
    **dict.fromkeys((f"s_pack_{halves}_b32_b16" for halves in ("ll", "lh", "hh", "hl")), (1, 2)),
}
_JOINED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("v_xor_b32", "v_xnor_b32"), (1, 2)),
    **dict.fromkeys((f"s_{name}_b{bits}" for name in ("xor", "xnor") for bits in (32, 64)), (1, 2)),
    "v_xor3_b32": (1, 2, 3),
}
_SUMMED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("v_add_nc_u32", "v_sub_nc_u32", "v_subrev_nc_u32", "v_mul_lo_u32"), (1, 2)),
    **dict.fromkeys(("v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32"), (2, 3)),
    **dict.fromkeys(("v_add_co_ci_u32", "v_sub_co_ci_u32", "v_subrev_co_ci_u32"), (2, 3)),
    **dict.fromkeys(("v_mad_co_u64_u32", "v_mad_co_i64_i32"), (2, 3, 4)),
    **dict.fromkeys(("v_add3_u32", "v_xad_u32"), (1, 2, 3)),
    **dict.fromkeys(("v_lshl_add_u32",), (1, 3)),
    **dict.fromkeys(("v_add_lshl_u32",), (1, 2)),
    **dict.fromkeys(("s_add_co_u32", "s_sub_co_u32", "s_add_co_ci_u32", "s_sub_co_ci_u32"), (1, 2)),
    **dict.fromkeys(
        ("s_add_co_i32", "s_sub_co_i32", "s_mul_i32", "s_add_nc_u64", "s_sub_nc_u64", "s_mul_u64"), (1, 2)
    ),
    **dict.fromkeys((f"s_lshl{by}_add_u32" for by in (1, 2, 3, 4)), (1, 2)),
}
_HALF_SUMMED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("v_add_nc_u16", "v_sub_nc_u16", "v_add_nc_i16", "v_sub_nc_i16", "v_mul_lo_u16"), (1, 2)),
    **dict.fromkeys(("v_mad_u16", "v_mad_i16"), (1, 2, 3)),
}
_HALVES: dict[str, tuple[int, ...]] = {
    **{
        f"v_pk_{name}": (1, 2)
        for name in (
            "mul_lo_u16", "add_i16", "sub_i16", "add_u16", "sub_u16", "lshlrev_b16", "lshrrev_b16", "ashrrev_i16",
            "max_i16", "min_i16", "max_u16", "min_u16", "add_f16", "mul_f16", "min_num_f16", "max_num_f16",
            "min_f16", "max_f16",
            "minimum_f16", "maximum_f16",
        )
    },
    **dict.fromkeys(("v_pk_mad_i16", "v_pk_mad_u16", "v_pk_fma_f16"), (1, 2, 3)),
}  # fmt: skip

CARRIED: dict[str, Carry] = {
    name: Carry(bits, data)
    for bits, rows in (
        (_move_bits, _MOVED),
        (_join_undefined, _JOINED),
        (_carry_sum, _SUMMED),
        (_carry_half_sum, _HALF_SUMMED),
        (_propagate_halves, _HALVES),
    )
    for name, data in rows.items()
}
"""Mnemonic without its suffix -> how, and of which operands (the destination is 0)."""

_24 = {1: 0xFFFFFF, 2: 0xFFFFFF}
USED: dict[str, dict[int, int]] = {
    **{f"v_cvt_f32_ubyte{byte}": {1: 0xFF << 8 * byte} for byte in range(4)},
    **{f"v_{name}_{sign}24": _24 for sign in ("u32_u", "i32_i") for name in ("mul", "mul_hi", "mad")},
}
"""Mnemonic -> operand -> the bits that the instruction looks at, where these are not all."""
