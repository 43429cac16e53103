"""VOP1, VOP2, VOP3, VOPC, VOPD: what one lane computes, over arrays of lanes.

A row is "result: sources" in types, and a function of arrays of those types. Types: u i f and the bits; `w` before
an integer result: the function gives the exact sum as int64, which wraps or, under clamp, saturates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sim.shader_model import model_floats as floats
from sim.shader_model.model_scalar import COMPARE

Array = np.ndarray
I64, U64, U32, I32, F32, F64, F16 = np.int64, np.uint64, np.uint32, np.int32, np.float32, np.float64, np.float16


@dataclass(frozen=True, slots=True)
class VectorRow:
    result: str
    sources: tuple[str, ...]
    function: Callable[..., Any]


def make_row(types: str, function: Callable[..., Any]) -> VectorRow:
    result, sources = types.split(":")
    return VectorRow(result.strip(), tuple(sources.split()), function)


def widen(value: Array) -> Array:
    return value.astype(I64)


def _shift_left(bits: int) -> Callable[[Array, Array], Array]:
    kind = {16: np.uint16, 32: U32, 64: U64}[bits]
    return lambda n, value: (value << (n.astype(kind) & kind(bits - 1))).astype(kind)


def _shift_right(bits: int, *, signed: bool = False) -> Callable[[Array, Array], Array]:
    kind = {16: np.int16 if signed else np.uint16, 32: I32 if signed else U32, 64: I64 if signed else U64}[bits]
    return lambda n, value: value >> (n & (bits - 1)).astype(kind)


def low_24_bits(value: Array) -> Array:
    return widen(value) & 0xFFFFFF


def signed_24_bits(value: Array) -> Array:
    return (widen(value) & 0xFFFFFF ^ 0x800000) - 0x800000


def reverse_bits(value: Array) -> Array:
    out = value.astype(U32)
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        out = (out >> U32(shift)) & U32(mask) | (out & U32(mask)) << U32(shift)
    return out


def leading_zeros(value: Array) -> Array:
    return np.array([32 - int(x).bit_length() if x else -1 for x in value], I64).astype(U32)


def trailing_zeros(value: Array) -> Array:
    return np.array([(int(x) & -int(x)).bit_length() - 1 if x else -1 for x in value], I64).astype(U32)


def sign_run(value: Array) -> Array:
    flipped = np.where(value < 0, ~value, value)
    return np.array([32 - int(x).bit_length() if x else -1 for x in flipped], I64).astype(U32)


def count_ones(value: Array) -> Array:
    return np.array([int(x).bit_count() for x in value], U32)


def _mask_count(first_lane: int) -> Callable[[Array, Array], Array]:
    """Return the number of set mask bits below the lane, plus the second source. Arrays are in lane order."""

    def function(mask: Array, add: Array) -> Array:
        shown = np.clip(np.arange(len(mask)) - first_lane, 0, 32)
        return count_ones(mask & ((1 << shown.astype(I64)) - 1).astype(U32)) + add

    return function


def _bfe_u32(a: Array, offset: Array, count: Array) -> Array:
    return (widen(a) >> widen(offset & U32(31)) & (1 << widen(count & U32(31))) - 1).astype(U32)


def _bfe_i32(a: Array, offset: Array, count: Array) -> Array:
    n = widen(count & U32(31))
    field = widen(a.view(I32)) >> widen(offset & U32(31)) & (1 << n) - 1
    top = np.where(n > 0, 1 << np.maximum(n - 1, 0), 0)
    return ((field ^ top) - top).astype(U32)


def align_bits(unit: int) -> Callable[..., Array]:
    def function(high: Array, low: Array, n: Array) -> Array:
        pair = high.astype(U64) << U64(32) | low.astype(U64)
        return (pair >> ((n.astype(U64) & U64(31 if unit == 1 else 3)) * U64(unit))).astype(U32)

    return function


def permute_bytes(first: Array, second: Array, selector: Array) -> Array:
    """V_PERM_B32: selectors 0 to 3 are bytes of `second`, 4 to 7 bytes of `first`, 8 to 11 signs, 12 is zero, and
    larger ones are all ones.
    """
    pair = first.astype(U64) << U64(32) | second.astype(U64)
    out = np.zeros(len(pair), U32)
    for index in range(4):
        select = (selector >> U32(8 * index) & U32(0xFF)).astype(I64)
        byte = pair >> (np.minimum(select, 7) * 8).astype(U64) & U64(0xFF)
        sign = np.where(pair >> (np.clip(select - 8, 0, 3) * 16 + 15).astype(U64) & U64(1), 0xFF, 0)
        chosen = np.where(select < 8, byte, np.where(select < 12, sign, np.where(select == 12, 0, 0xFF)))
        out |= chosen.astype(U32) << U32(8 * index)
    return out


def median_of(kind: str) -> Callable[..., Array]:
    return lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def med3_num(a: Array, b: Array, c: Array) -> Array:
    """Return the median, with -0 below +0; if an operand is NaN, return the smallest number (captured)."""
    low = floats.min_num(floats.min_num(a, b), c)
    bits = {2: np.int16, 4: I32}[a.dtype.itemsize]
    keys = [np.where(x.view(bits) < 0, ~x.view(bits) ^ np.iinfo(bits).min, x.view(bits)) for x in (a, b, c)]
    order = np.argsort(np.stack(keys), axis=0, kind="stable")[1]
    middle = np.choose(order, [a, b, c])
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), low, middle)


def fract(a: Array) -> Array:
    """a - floor(a), never as much as 1."""
    with np.errstate(all="ignore"):
        out = (a.astype(F64) - np.floor(a.astype(F64))).astype(a.dtype) + a.dtype.type(0)
    return np.minimum(out, np.nextafter(a.dtype.type(1), a.dtype.type(0)))


def frexp_exponent(a: Array) -> Array:
    _, exponent = np.frexp(a)
    return np.where(np.isfinite(a), exponent, 0).astype(I32)


def frexp_mantissa(a: Array) -> Array:
    fraction, _ = np.frexp(a)
    return np.where(np.isfinite(a), fraction, floats.quiet_nans(a, a.dtype.type))


def ldexp32(a: Array, n: Array) -> Array:
    steps = np.clip(n, -1000, 1000)
    return np.ldexp(a.astype(F64), steps).astype(F32)


def ldexp64(a: Array, n: Array) -> Array:
    half = np.clip(n.astype(I64), -5000, 5000)
    out = a.copy()
    for lane, steps in enumerate(half):
        if np.isfinite(a[lane]) and a[lane]:
            mantissa, exponent = np.frexp(a[lane])
            total = int(exponent) + int(steps)
            if total > 1024:
                out[lane] = np.copysign(np.inf, a[lane])
            elif total < -1100:
                out[lane] = np.copysign(0.0, a[lane])
            else:
                out[lane] = np.ldexp(mantissa, total)  # one rounding, in C
    return out


def cvt_pk_u8(a: Array, byte: Array, old: Array, rounding: int = 0) -> Array:
    """Rounded as MODE says: captured."""
    whole = (np.rint, np.ceil, np.floor, np.trunc)[rounding](a)
    value = floats.to_integer(whole, 0, 255).astype(U32)
    shift = (byte & U32(3)) * U32(8)
    return old & ~(U32(0xFF) << shift) | value << shift


def normalise16(a: Array, b: Array) -> Array:
    """Convert two values in [-1, 1] to 16 bits each, rounded to nearest even."""

    def normalise(value: Array) -> Array:
        scaled = np.clip(value.astype(F64), -1.0, 1.0) * 32767.0
        return np.where(np.isnan(scaled), 0.0, np.rint(scaled)).astype(I64) & 0xFFFF

    return (normalise(a) | normalise(b) << 16).astype(U32)


def normalise16_unsigned(a: Array, b: Array) -> Array:
    def normalise(value: Array) -> Array:
        scaled = np.clip(value.astype(F64), 0.0, 1.0) * 65535.0
        return np.where(np.isnan(scaled), 0.0, np.rint(scaled)).astype(I64)

    return (normalise(a) | normalise(b) << 16).astype(U32)


def pack16(a: Array, b: Array) -> Array:
    return a.astype(np.uint16).astype(U32) | b.astype(np.uint16).astype(U32) << U32(16)


def pack_quiet(a: Array, b: Array) -> Array:
    """V_PACK_B32_F16: NaNs are quieted (captured)."""
    return pack_bits(floats.quiet_nans(a, F16), floats.quiet_nans(b, F16))


def pack_bits(a: Array, b: Array) -> Array:
    return pack16(a.view(np.uint16), b.view(np.uint16))


def _pack_saturated(kind: str) -> Callable[[Array, Array], Array]:
    return lambda a, b: pack16(*(np.clip(widen(x), *_LIMITS[kind]) for x in (a, b)))


def _sad_bytes(a: Array, b: Array, c: Array) -> Array:
    return sum(np.abs((widen(a) >> 8 * i & 255) - (widen(b) >> 8 * i & 255)) for i in range(4)) + widen(c)


def to_half(value: Array) -> Array:
    kind = value.dtype.type
    return (floats.quiet_nans(value, kind) if kind in floats.QUIET else value).astype(F16)


def offset_int4(a: Array) -> Array:
    """The low four bits, signed, over 16."""
    nibble = widen(a) & 15
    return ((nibble ^ 8) - 8).astype(F32) / F32(16)


def trigonometric(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda a: function(a.astype(F64) * (2 * np.pi)).astype(F32)


def mul_dx9(a: Array, b: Array) -> Array:
    """Zero times anything is +0."""
    return np.where((a == 0) | (b == 0), F32(0), a * b)


def fma_dx9(a: Array, b: Array, c: Array) -> Array:
    """Zero times any value is +0, to which the addend is added."""
    return np.where((a == 0) | (b == 0), F32(0) + c, floats.fma32(a, b, c))


def dot2(a0: Array, b0: Array, a1: Array, b1: Array, c: Array) -> Array:
    """float64 throughout: the manual leaves order and rounding open, so comparisons have a tolerance."""
    return (a0.astype(F64) * b0 + a1.astype(F64) * b1 + c).astype(F32)


def make_div_fixup(kind: type) -> Callable[..., Array]:
    bits, fraction, top, minimum = {
        F16: (np.uint16, 10, 0x1F, -100), F32: (U32, 23, 0xFF, -150), F64: (U64, 52, 0x7FF, -1075)
    }[kind]  # fmt: skip
    sign_bit = bits(1 << 8 * np.dtype(bits).itemsize - 1)

    def function(quotient: Array, denominator: Array, numerator: Array) -> Array:
        """S0 is the quotient so far, S1 the denominator, S2 the numerator (manual, V_DIV_FIXUP)."""
        n_bits, d_bits = numerator.view(bits), denominator.view(bits)
        sign = (n_bits ^ d_bits) & sign_bit
        exponent_n = (n_bits >> bits(fraction) & bits(top)).astype(I64)
        exponent_d = (d_bits >> bits(fraction) & bits(top)).astype(I64)
        infinity = kind(np.inf)
        signed = np.where(sign, kind(-1), kind(1))
        # The macro's steps leave a NaN where a quotient overflows; the manual does not say so, but division must.
        out = np.copysign(np.where(np.isnan(quotient), infinity, np.abs(quotient)), signed)
        out = np.where(exponent_n - exponent_d < minimum, signed * kind(0), out)
        out = np.where(np.isinf(denominator) | (numerator == 0), signed * kind(0), out)
        out = np.where((denominator == 0) | np.isinf(numerator), signed * infinity, out)
        invalid = (denominator == 0) & (numerator == 0) | np.isinf(denominator) & np.isinf(numerator)
        out = np.where(invalid, -kind(np.nan), out)
        out = np.where(np.isnan(denominator), floats.quiet_nans(denominator, kind), out)
        return np.where(np.isnan(numerator), floats.quiet_nans(numerator, kind), out).astype(kind)

    return function


_ROUNDS = {"trunc": np.trunc, "ceil": np.ceil, "floor": np.floor, "rndne": np.rint}
_LIMITS = {"i32": (-(1 << 31), (1 << 31) - 1), "u32": (0, (1 << 32) - 1), "i16": (-(1 << 15), (1 << 15) - 1),
           "u16": (0, 0xFFFF)}  # fmt: skip


def integer_converter(kind: str) -> Callable[[Array], Array]:
    low, high = _LIMITS[kind]
    return lambda a: floats.to_integer(a, low, high)


def _signed_nan(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Convert to integers; a NaN becomes the limit of its sign (captured; the manual specifies 0)."""

    def convert(a: Array) -> Array:
        end = np.where(np.signbit(a), -(1 << 31), (1 << 31) - 1)
        return np.where(np.isnan(a), end, integer_converter("i32")(function(a)))

    return convert


TABLE: dict[str, VectorRow] = {
    "v_mov_b32": make_row("u32: u32", lambda a: a),
    "v_not_b32": make_row("u32: u32", lambda a: ~a),
    "v_not_b16": make_row("u16: u16", lambda a: ~a),
    "v_bfrev_b32": make_row("u32: u32", reverse_bits),
    "v_clz_i32_u32": make_row("u32: u32", leading_zeros),
    "v_ctz_i32_b32": make_row("u32: u32", trailing_zeros),
    "v_cls_i32": make_row("u32: i32", sign_run),
    "v_bcnt_u32_b32": make_row("u32: u32 u32", lambda a, b: count_ones(a) + b),
    "v_mbcnt_lo_u32_b32": make_row("u32: u32 u32", _mask_count(0)),
    "v_mbcnt_hi_u32_b32": make_row("u32: u32 u32", _mask_count(32)),
    # conversions
    "v_cvt_f32_i32": make_row("f32: i32", lambda a: a.astype(F32)),
    "v_cvt_f32_u32": make_row("f32: u32", lambda a: a.astype(F32)),
    "v_cvt_i32_f32": make_row("i32: f32", integer_converter("i32")),
    "v_cvt_u32_f32": make_row("u32: f32", integer_converter("u32")),
    "v_cvt_nearest_i32_f32": make_row("i32: f32", _signed_nan(lambda a: np.floor(a.astype(F64) + 0.5))),
    "v_cvt_floor_i32_f32": make_row("i32: f32", _signed_nan(np.floor)),
    "v_cvt_f16_f32": make_row("f16: f32", to_half),
    "v_cvt_f32_f16": make_row("f32: f16", lambda a: a.astype(F32)),
    "v_cvt_f64_f32": make_row("f64: f32", lambda a: a.astype(F64)),
    "v_cvt_f32_f64": make_row("f32: f64", lambda a: a.astype(F32)),
    "v_cvt_f64_i32": make_row("f64: i32", lambda a: a.astype(F64)),
    "v_cvt_f64_u32": make_row("f64: u32", lambda a: a.astype(F64)),
    "v_cvt_i32_f64": make_row("i32: f64", integer_converter("i32")),
    "v_cvt_u32_f64": make_row("u32: f64", integer_converter("u32")),
    "v_cvt_f16_u16": make_row("f16: u16", to_half),
    "v_cvt_f16_i16": make_row("f16: i16", to_half),
    "v_cvt_u16_f16": make_row("u16: f16", integer_converter("u16")),
    "v_cvt_i16_f16": make_row("i16: f16", integer_converter("i16")),
    "v_cvt_i32_i16": make_row("i32: i16", widen),
    "v_cvt_u32_u16": make_row("u32: u16", widen),
    **{
        f"v_cvt_f32_ubyte{n}": make_row("f32: u32", lambda a, n=n: (a >> U32(8 * n) & U32(0xFF)).astype(F32))
        for n in range(4)
    },
    "v_cvt_off_f32_i4": make_row("f32: u32", offset_int4),
    "v_cvt_pk_u8_f32": make_row("u32: f32 u32 u32", cvt_pk_u8),
    "v_cvt_pk_rtz_f16_f32": make_row(
        "u32: f32 f32", lambda a, b: pack_bits(floats.toward_zero16(a), floats.toward_zero16(b))
    ),
    "v_cvt_norm_i16_f16": make_row("u16: f16", lambda a: normalise16(a, a) & U32(0xFFFF)),
    "v_cvt_norm_u16_f16": make_row("u16: f16", lambda a: normalise16_unsigned(a, a) & U32(0xFFFF)),
    "v_cvt_pk_norm_i16_f32": make_row("u32: f32 f32", normalise16),
    "v_cvt_pk_norm_u16_f32": make_row("u32: f32 f32", normalise16_unsigned),
    "v_cvt_pk_norm_i16_f16": make_row("u32: f16 f16", normalise16),
    "v_cvt_pk_norm_u16_f16": make_row("u32: f16 f16", normalise16_unsigned),
    "v_cvt_pk_i16_i32": make_row("u32: i32 i32", _pack_saturated("i16")),
    "v_cvt_pk_u16_u32": make_row("u32: u32 u32", _pack_saturated("u16")),
    "v_cvt_pk_i16_f32": make_row("u32: f32 f32", lambda a, b: pack16(integer_converter("i16")(a),
    integer_converter("i16")(b))),
    "v_cvt_pk_u16_f32": make_row("u32: f32 f32", lambda a, b: pack16(integer_converter("u16")(a),
    integer_converter("u16")(b))),
    "v_pack_b32_f16": make_row("u32: f16 f16", pack_quiet),
    "v_sat_pk_u8_i16": make_row(
        "u16: u32",
        lambda a: (
            np.clip(a.astype(np.int16).astype(I64), 0, 255)
            | np.clip((a >> U32(16)).astype(np.int16).astype(I64), 0, 255) << 8
        ),
    ),
    # one float source
    **{f"v_{name}_f{bits}": make_row(f"f{bits}: f{bits}", f) for name, f in _ROUNDS.items() for bits in (16,
    32, 64)},
    **{f"v_fract_f{bits}": make_row(f"f{bits}: f{bits}", fract) for bits in (16, 32, 64)},
    **{f"v_frexp_mant_f{bits}": make_row(f"f{bits}: f{bits}", frexp_mantissa) for bits in (16, 32, 64)},
    "v_frexp_exp_i32_f32": make_row("i32: f32", frexp_exponent),
    "v_frexp_exp_i32_f64": make_row("i32: f64", frexp_exponent),
    "v_frexp_exp_i16_f16": make_row("i16: f16", frexp_exponent),
    "v_exp_f32": make_row("f32: f32", floats.exp2),
    "v_log_f32": make_row("f32: f32", floats.log2),
    "v_rcp_f32": make_row("f32: f32", floats.rcp),
    "v_rcp_iflag_f32": make_row("f32: f32", floats.rcp),
    "v_rsq_f32": make_row("f32: f32", floats.rsq),
    "v_sqrt_f32": make_row("f32: f32", floats.sqrt),
    "v_sin_f32": make_row("f32: f32", trigonometric(np.sin)),
    "v_cos_f32": make_row("f32: f32", trigonometric(np.cos)),
    "v_exp_f16": make_row("f16: f16", lambda a: to_half(np.exp2(a.astype(F64)))),
    "v_log_f16": make_row("f16: f16", lambda a: to_half(np.log2(a.astype(F64)))),
    "v_rcp_f16": make_row("f16: f16", lambda a: to_half(1.0 / a.astype(F64))),
    "v_rsq_f16": make_row("f16: f16", lambda a: to_half(1.0 / np.sqrt(a.astype(F64)))),
    "v_sin_f16": make_row("f16: f16", lambda a: to_half(np.sin(a.astype(F64) * (2 * np.pi)))),
    "v_cos_f16": make_row("f16: f16", lambda a: to_half(np.cos(a.astype(F64) * (2 * np.pi)))),
    "v_sqrt_f16": make_row("f16: f16", lambda a: to_half(np.sqrt(a.astype(F64)))),
    "v_rcp_f64": make_row("f64: f64", lambda a: 1.0 / a),
    "v_rsq_f64": make_row("f64: f64", lambda a: 1.0 / np.sqrt(a)),
    "v_sqrt_f64": make_row("f64: f64", np.sqrt),
    # float arithmetic
    **{
        f"v_{name}_f{bits}": make_row(f"f{bits}: f{bits} f{bits}", f)
        for bits in (16, 32, 64)
        for name, f in {
            "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "subrev": lambda a, b: b - a,
            "mul": lambda a, b: a * b, "min_num": floats.min_num, "max_num": floats.max_num,
            "minimum": floats.minimum, "maximum": floats.maximum,
        }.items()
    },
    "v_fma_dx9_zero_f32": make_row("f32: f32 f32 f32", fma_dx9),
    "v_mul_dx9_zero_f32": make_row("f32: f32 f32", mul_dx9),
    "v_ldexp_f32": make_row("f32: f32 i32", ldexp32),
    "v_ldexp_f64": make_row("f64: f64 i32", ldexp64),
    "v_ldexp_f16": make_row("f16: f16 i16", lambda a, n: np.ldexp(a.astype(F64), n).astype(F16)),
    "v_fma_f32": make_row("f32: f32 f32 f32", floats.fma32),
    "v_fma_f16": make_row("f16: f16 f16 f16", floats.fma16),
    "v_fma_f64": make_row("f64: f64 f64 f64", floats.fma64),
    **{
        f"v_{name}_f{bits}": make_row(f"f{bits}: f{bits} f{bits} f{bits}", f)
        for bits in (16, 32)
        for name, f in {
            "min3_num": lambda a, b, c: floats.min_num(floats.min_num(a, b), c),
            "max3_num": lambda a, b, c: floats.max_num(floats.max_num(a, b), c),
            "minimum3": lambda a, b, c: floats.minimum(floats.minimum(a, b), c),
            "maximum3": lambda a, b, c: floats.maximum(floats.maximum(a, b), c),
            "med3_num": med3_num,
            "minmax_num": lambda a, b, c: floats.max_num(floats.min_num(a, b), c),
            "maxmin_num": lambda a, b, c: floats.min_num(floats.max_num(a, b), c),
            "minimummaximum": lambda a, b, c: floats.maximum(floats.minimum(a, b), c),
            "maximumminimum": lambda a, b, c: floats.minimum(floats.maximum(a, b), c),
        }.items()
    },
    "v_div_fixup_f16": make_row("f16: f16 f16 f16", make_div_fixup(F16)),
    "v_div_fixup_f32": make_row("f32: f32 f32 f32", make_div_fixup(F32)),
    "v_div_fixup_f64": make_row("f64: f64 f64 f64", make_div_fixup(F64)),
    # integers
    "v_add_nc_u32": make_row("wu32: u32 u32", lambda a, b: widen(a) + widen(b)),
    "v_sub_nc_u32": make_row("wu32: u32 u32", lambda a, b: widen(a) - widen(b)),
    "v_subrev_nc_u32": make_row("wu32: u32 u32", lambda a, b: widen(b) - widen(a)),
    "v_add_nc_i32": make_row("wi32: i32 i32", lambda a, b: widen(a) + widen(b)),
    "v_sub_nc_i32": make_row("wi32: i32 i32", lambda a, b: widen(a) - widen(b)),
    "v_add_nc_u16": make_row("wu16: u16 u16", lambda a, b: widen(a) + widen(b)),
    "v_sub_nc_u16": make_row("wu16: u16 u16", lambda a, b: widen(a) - widen(b)),
    "v_add_nc_i16": make_row("wi16: i16 i16", lambda a, b: widen(a) + widen(b)),
    "v_sub_nc_i16": make_row("wi16: i16 i16", lambda a, b: widen(a) - widen(b)),
    "v_mul_lo_u16": make_row("u16: u16 u16", lambda a, b: widen(a) * widen(b)),
    "v_mul_u32_u24": make_row("u32: u32 u32", lambda a, b: low_24_bits(a) * low_24_bits(b)),
    "v_mul_i32_i24": make_row("u32: u32 u32", lambda a, b: signed_24_bits(a) * signed_24_bits(b)),
    "v_mul_hi_u32_u24": make_row("u32: u32 u32", lambda a, b: low_24_bits(a) * low_24_bits(b) >> 32),
    "v_mul_hi_i32_i24": make_row("u32: u32 u32", lambda a, b: signed_24_bits(a) * signed_24_bits(b) >> 32),
    "v_mad_u32_u24": make_row("wu32: u32 u32 u32", lambda a, b, c: low_24_bits(a) * low_24_bits(b) + widen(c)),
    "v_mad_i32_i24": make_row("wi32: u32 u32 i32", lambda a, b,
    c: signed_24_bits(a) * signed_24_bits(b) + widen(c)),
    "v_mad_u32_u16": make_row("wu32: u16 u16 u32", lambda a, b, c: widen(a) * widen(b) + widen(c)),
    "v_mad_i32_i16": make_row("wi32: i16 i16 i32", lambda a, b, c: widen(a) * widen(b) + widen(c)),
    "v_mad_u16": make_row("wu16: u16 u16 u16", lambda a, b, c: widen(a) * widen(b) + widen(c)),
    "v_mad_i16": make_row("wi16: i16 i16 i16", lambda a, b, c: widen(a) * widen(b) + widen(c)),
    "v_mul_lo_u32": make_row("u32: u32 u32", lambda a, b: a * b),
    "v_mul_hi_u32": make_row("u32: u32 u32", lambda a, b: a.astype(U64) * b.astype(U64) >> U64(32)),
    "v_mul_hi_i32": make_row("u32: i32 i32", lambda a, b: widen(a) * widen(b) >> 32),
    "v_add3_u32": make_row("u32: u32 u32 u32", lambda a, b, c: a + b + c),
    "v_lshl_add_u32": make_row("u32: u32 u32 u32", lambda a, b, c: (a << (b & U32(31))) + c),
    "v_add_lshl_u32": make_row("u32: u32 u32 u32", lambda a, b, c: (a + b) << (c & U32(31))),
    "v_lshl_or_b32": make_row("u32: u32 u32 u32", lambda a, b, c: a << (b & U32(31)) | c),
    "v_and_or_b32": make_row("u32: u32 u32 u32", lambda a, b, c: a & b | c),
    "v_or3_b32": make_row("u32: u32 u32 u32", lambda a, b, c: a | b | c),
    "v_xor3_b32": make_row("u32: u32 u32 u32", lambda a, b, c: a ^ b ^ c),
    "v_xad_u32": make_row("u32: u32 u32 u32", lambda a, b, c: (a ^ b) + c),
    "v_bfe_u32": make_row("u32: u32 u32 u32", _bfe_u32),
    "v_bfe_i32": make_row("u32: u32 u32 u32", _bfe_i32),
    "v_bfi_b32": make_row("u32: u32 u32 u32", lambda a, b, c: a & b | ~a & c),
    "v_bfm_b32": make_row("u32: u32 u32", lambda a, b: ((1 << widen(a & U32(31))) - 1) << widen(b & U32(31))),
    "v_alignbit_b32": make_row("u32: u32 u32 u16", align_bits(1)),
    "v_alignbyte_b32": make_row("u32: u32 u32 u16", align_bits(8)),
    "v_perm_b32": make_row("u32: u32 u32 u32", permute_bytes),
    **{
        f"v_{name}_b{bits}": make_row(f"u{bits}: u{bits} u{bits}", f)
        for bits in (16, 32)
        for name, f in {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}.items()
    },
    "v_xnor_b32": make_row("u32: u32 u32", lambda a, b: ~(a ^ b)),
    "v_lshlrev_b16": make_row("u16: u16 u16", _shift_left(16)),
    "v_lshlrev_b32": make_row("u32: u32 u32", _shift_left(32)),
    "v_lshlrev_b64": make_row("u64: u32 u64", _shift_left(64)),
    "v_lshrrev_b16": make_row("u16: u16 u16", _shift_right(16)),
    "v_lshrrev_b32": make_row("u32: u32 u32", _shift_right(32)),
    "v_lshrrev_b64": make_row("u64: u32 u64", _shift_right(64)),
    "v_ashrrev_i16": make_row("i16: u16 i16", _shift_right(16, signed=True)),
    "v_ashrrev_i32": make_row("i32: u32 i32", _shift_right(32, signed=True)),
    "v_ashrrev_i64": make_row("i64: u32 i64", _shift_right(64, signed=True)),
    **{
        f"v_{name}_{kind}": make_row(f"{kind}: {kind} {kind}", f)
        for kind in ("i16", "u16", "i32", "u32")
        for name, f in {"min": np.minimum, "max": np.maximum}.items()
    },
    **{
        f"v_{name}_{kind}": make_row(f"{kind}: {kind} {kind} {kind}", f)
        for kind in ("i16", "u16", "i32", "u32")
        for name, f in {
            "min3": lambda a, b, c: np.minimum(np.minimum(a, b), c),
            "max3": lambda a, b, c: np.maximum(np.maximum(a, b), c),
            "med3": median_of(""),
            "minmax": lambda a, b, c: np.maximum(np.minimum(a, b), c),
            "maxmin": lambda a, b, c: np.minimum(np.maximum(a, b), c),
        }.items()
    },
    "v_sad_u32": make_row("wu32: u32 u32 u32", lambda a, b, c: np.abs(widen(a) - widen(b)) + widen(c)),
    "v_sad_u8": make_row("wu32: u32 u32 u32", _sad_bytes),
}  # fmt: skip
# The result is also the last source.
ACCUMULATE = {
    "v_fmac_f32": make_row("f32: f32 f32 f32", floats.fma32),
    "v_fmac_f16": make_row("f16: f16 f16 f16", floats.fma16),
    "v_pk_fmac_f16": make_row("u32: u32 u32 u32", lambda a, b, c: _pk_fmac(a, b, c)),
}
# The text has the constant where it belongs: fmamk is a * K + b, fmaak a * b + K.
FUSED = {
    "v_fmamk_f32": make_row("f32: f32 f32 f32", floats.fma32),
    "v_fmaak_f32": make_row("f32: f32 f32 f32", floats.fma32),
    "v_fmamk_f16": make_row("f16: f16 f16 f16", floats.fma16),
    "v_fmaak_f16": make_row("f16: f16 f16 f16", floats.fma16),
}


def _pk_fmac(a: Array, b: Array, c: Array) -> Array:
    low, high = (
        floats.fma16(*((x >> U32(shift)).astype(np.uint16).view(F16) for x in (a, b, c))) for shift in (0, 16)
    )
    return pack_bits(low, high)


TABLE |= FUSED


# --- compares ------------------------------------------------------------------------------------------------

CLASSES = (
    (0, lambda v, kind: floats.is_signalling(v, kind)),
    (1, lambda v, kind: np.isnan(v) & ~floats.is_signalling(v, kind)),
    (2, lambda v, kind: np.isneginf(v)),
    (3, lambda v, kind: is_normal(v, kind) & np.signbit(v)),
    (4, lambda v, kind: is_denormal(v, kind) & np.signbit(v)),
    (5, lambda v, kind: (v == 0) & np.signbit(v)),
    (6, lambda v, kind: (v == 0) & ~np.signbit(v)),
    (7, lambda v, kind: is_denormal(v, kind) & ~np.signbit(v)),
    (8, lambda v, kind: is_normal(v, kind) & ~np.signbit(v)),
    (9, lambda v, kind: np.isposinf(v)),
)


def is_normal(v: Array, kind: type) -> Array:
    return np.isfinite(v) & (np.abs(v) >= np.finfo(kind).tiny)


def is_denormal(v: Array, kind: type) -> Array:
    return (v != 0) & (np.abs(v) < np.finfo(kind).tiny)


def make_classifier(kind: type) -> Callable[[Array, Array], Array]:
    def function(value: Array, array: Array) -> Array:
        out = np.zeros(len(value), bool)
        for bit, test in CLASSES:
            out |= test(value, kind) & (array >> array.dtype.type(bit) & array.dtype.type(1)).astype(bool)
        return out

    return function


COMPARES: dict[str, VectorRow] = {
    **{
        f"{name}_{kind}": make_row(f"mask: {kind} {kind}", f)
        for name, f in COMPARE.items()
        for kind in ("f16", "f32", "f64", "i16", "u16", "i32", "u32", "i64", "u64")
    },
    "class_f32": make_row("mask: f32 u32", make_classifier(F32)),
    "class_f16": make_row("mask: f16 u16", make_classifier(F16)),
    "class_f64": make_row("mask: f64 u32", make_classifier(F64)),
}
