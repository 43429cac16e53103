"""VOP3P: packed 16-bit arithmetic, mixed precision, dot products.

Dot products of two halves are model_dot's; those of four 8-bit floats are summed in float64: nothing says how.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sim.shader_model import model_dot as dot
from sim.shader_model import model_floats as floats
from sim.shader_model import model_modes as modes
from sim.shader_model.model_lanes import dpp_reader
from sim.shader_model.model_state import ModelWave, vector_reader
from sim.shader_model.model_valu import destination_of, finish_result, selected_halves, write_result

from zinc_rt.isa import Instruction, Kind, Operand

Array = np.ndarray
Step = Callable[[ModelWave], None]
Read = Callable[[ModelWave], Array]
U16, U32, F16, F32, F64, I64 = np.uint16, np.uint32, np.float16, np.float32, np.float64, np.int64


def modifier_bits(instruction: Instruction, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    modifier = instruction.modifier(name)
    if modifier is None or not isinstance(modifier.value, tuple):
        return default
    return (*modifier.value, *default[len(modifier.value) :])


# --- packed arithmetic ---------------------------------------------------------------------------------------

_I16 = (-(1 << 15), (1 << 15) - 1)
_U16 = (0, 0xFFFF)
PACKED: dict[str, tuple[str, Callable[..., Array]]] = {
    "v_pk_add_f16": ("f16", lambda a, b: a + b),
    "v_pk_mul_f16": ("f16", lambda a, b: a * b),
    "v_pk_fma_f16": ("f16", floats.fma16),
    "v_pk_min_num_f16": ("f16", floats.min_num),
    "v_pk_max_num_f16": ("f16", floats.max_num),
    "v_pk_minimum_f16": ("f16", floats.minimum),
    "v_pk_maximum_f16": ("f16", floats.maximum),
    "v_pk_add_u16": ("u16", lambda a, b: a + b),
    "v_pk_sub_u16": ("u16", lambda a, b: a - b),
    "v_pk_add_i16": ("i16", lambda a, b: a + b),
    "v_pk_sub_i16": ("i16", lambda a, b: a - b),
    "v_pk_mul_lo_u16": ("u16", lambda a, b: a * b),
    "v_pk_mad_u16": ("u16", lambda a, b, c: a * b + c),
    "v_pk_mad_i16": ("i16", lambda a, b, c: a * b + c),
    "v_pk_min_u16": ("u16", np.minimum),
    "v_pk_max_u16": ("u16", np.maximum),
    "v_pk_min_i16": ("i16", np.minimum),
    "v_pk_max_i16": ("i16", np.maximum),
    "v_pk_lshlrev_b16": ("u16", lambda n, a: a << (n & 15)),
    "v_pk_lshrrev_b16": ("u16", lambda n, a: a >> (n & 15)),
    "v_pk_ashrrev_i16": ("i16", lambda n, a: a >> (n & 15)),
}


def packed_source(operand: Operand, kind: str, width: int) -> Read:
    """Both halves. A constant is a sign-extended integer; a float one is float16 in the lower half for float16
    instructions, float32 for integer ones (LLVM's SIDefines, getInlineEncodingV216)."""
    if kind == "f16" and operand.kind is Kind.FLOAT:
        return vector_reader_constant(operand, width)
    return vector_reader(operand, 32, width)


def vector_reader_constant(operand: Operand, width: int) -> Read:
    read = vector_reader(operand, 16, width, is_float=True)
    return lambda wave: read(wave).astype(U32)


def select_half(value: Array, kind: str, high: int, negate: int) -> Array:
    half = (value >> U32(16 * high)).astype(U16)
    if kind == "f16":
        return (half ^ U16(0x8000) if negate else half).view(F16)
    return half.view(np.int16).astype(I64) if kind == "i16" else half.astype(I64)


def _bind_packed(instruction: Instruction, width: int) -> Step:
    kind, function = PACKED[instruction.mnemonic]
    reads = [packed_source(o, kind, width) for o in instruction.operands[1:]]
    count = len(reads)
    low, high = (
        modifier_bits(instruction, "op_sel", (0,) * count),
        modifier_bits(instruction, "op_sel_hi", (1,) * count),
    )
    neg_low, neg_high = (
        modifier_bits(instruction, "neg_lo", (0,) * count),
        modifier_bits(instruction, "neg_hi", (0,) * count),
    )
    clamp = instruction.modifier("clamp") is not None
    register = instruction.operands[0].index

    def compute_half(mode: int, values: list[Array], select: tuple[int, ...], negate: tuple[int, ...]) -> Array:
        mode = modes.instruction_mode(mode, instruction.mnemonic)
        parts = [select_half(v, kind, s, n) for v, s, n in zip(values, select, negate, strict=True)]
        result = modes.compute_in_mode(mode, instruction.mnemonic, kind, (kind,) * count, function, parts)
        return modes.flush_result(
            mode, kind, finish_result(result, kind if kind == "f16" else "w" + kind, clamp, 0)
        )

    def step(wave: ModelWave) -> None:
        values = [read(wave) for read in reads]
        bottom, top = (compute_half(wave.mode, values, *how) for how in ((low, neg_low), (high, neg_high)))
        wave.write_v(register, bottom.astype(U32) | top.astype(U32) << U32(16))

    return step


# --- mixed precision -----------------------------------------------------------------------------------------


def _bind_mix(instruction: Instruction, width: int) -> Step:
    operands = instruction.operands[1:]
    pick, is_half = (
        modifier_bits(instruction, "op_sel", (0, 0, 0)),
        modifier_bits(instruction, "op_sel_hi", (0, 0, 0)),
    )
    moved = None
    if "DPP" in instruction.encoding:
        moved = dpp_reader(instruction, operands[0].index, width)
    reads = []
    for location, operand in enumerate(operands):
        if is_half[location]:
            read = vector_reader(operand, 16, width, is_float=True, high=pick[location])
        else:
            read = vector_reader(operand, 32, width, is_float=True)
        reads.append(read)
    clamp = instruction.modifier("clamp") is not None
    name = instruction.mnemonic.removesuffix("_e64_dpp")
    register = instruction.operands[0].index

    def step(wave: ModelWave) -> None:
        where = None
        sources = []
        for location, read in enumerate(reads):
            if location == 0 and moved is not None:
                value, where = moved(wave)
                value = (value >> U32(16 * pick[0])).astype(U16) if is_half[0] else value
            else:
                value = read(wave)
            kind = "f16" if is_half[location] else "f32"
            number = modes.flushed_sources(wave.mode, (kind,), (value.view(F16 if is_half[location] else F32),))[0]
            number = number.astype(F32)
            number = np.abs(number) if operands[location].absolute else number
            sources.append(-number if operands[location].negate else number)
        if name == "v_fma_mix_f32":
            total = _first_nan(floats.fma32(*sources), sources)
            total = modes.compute_rounded("v_fma_f32", "f32", modes.rounding_of(wave.mode, "f32"), total, sources)
            total = modes.flush_denormal_results(wave.mode, "v_fma_f32", "f32", total, sources)
            wave.write_v(
                register, modes.flush_result(wave.mode, "f32", finish_result(total, "f32", clamp, 0)), where
            )
            return
        rounding = modes.rounding_of(wave.mode, "f16")
        half = floats.fma_to_half(*sources)
        half = modes.compute_rounded("v_fma_f16", "f16", rounding, half, sources)
        half = modes.flush_denormal_results(wave.mode, "v_fma_f16", "f16", half, sources)
        if modes.is_saturating(wave.mode):
            half = modes.limit_overflow(wave.mode, "f16", half, ~np.any([np.isinf(x) for x in sources], axis=0))
        half = _first_nan(half, sources)
        half = modes.flush_result(wave.mode, "f16", finish_result(half, "f16", clamp, 0))
        write_result(wave, register, half, int("hi" in name), where)

    return step


def _first_nan(result: Array, sources: list[Array]) -> Array:
    """Return the first NaN among the factors, then the NaN of an invalid product, then the addend (all
    captured).
    """
    a, b, c = sources
    to = result.dtype.type
    invalid = np.array([0xFE00], U16).view(F16)[0] if to is F16 else np.array([0xFFC00000], U32).view(F32)[0]
    chosen = np.where(np.isnan(a * b) | ~np.isnan(c), invalid, floats.quiet_nans(c, F32).astype(to))
    chosen = np.where(np.isnan(b), floats.quiet_nans(b, F32).astype(to), chosen)
    chosen = np.where(np.isnan(a), floats.quiet_nans(a, F32).astype(to), chosen)
    return np.where(np.isnan(result), chosen, result)


# --- dot products --------------------------------------------------------------------------------------------


def unpack_fields(value: Array, bits: int, signed: bool) -> list[Array]:
    mask, sign = (1 << bits) - 1, 1 << bits - 1
    parts = [value.astype(I64) >> bits * i & mask for i in range(32 // bits)]
    return [(part ^ sign) - sign for part in parts] if signed else parts


def _bind_dot_integer(instruction: Instruction, width: int) -> Step:
    """v_dot4 and v_dot8: exact; neg_lo says which inputs are signed. The manual lists clamp as ignored."""
    name = instruction.mnemonic
    bits = 8 if "dot4" in name else 4
    signs = modifier_bits(instruction, "neg_lo", (0, 0, 0)) if "_i32_" in name else (0, 0, 0)
    a, b, c = (vector_reader(o, 32, width) for o in instruction.operands[1:])
    register = instruction.operands[0].index

    def step(wave: ModelWave) -> None:
        total = c(wave).astype(I64)
        for x, y in zip(
            unpack_fields(a(wave), bits, bool(signs[0])), unpack_fields(b(wave), bits, bool(signs[1])), strict=True
        ):
            total = total + x * y
        wave.write_v(register, total.astype(U32))

    return step


def to_pair(value: Array) -> Array:
    """uint16 [lanes, 2]: the halves."""
    return np.stack([value.astype(U16), (value >> U32(16)).astype(U16)], axis=-1)


def _dot_source(operand: Operand, is_bf16: bool, width: int) -> Read:
    """An inline constant is placed in both halves (manual 7.2.2)."""
    if operand.kind is Kind.FLOAT:
        read = vector_reader(operand, 32 if is_bf16 else 16, width, is_float=True)
        if is_bf16:
            return lambda wave: read(wave) >> U32(16) | read(wave) & U32(0xFFFF0000)
        return lambda wave: read(wave).astype(U32) * U32(0x10001)
    return vector_reader(operand, 32, width)


def _bind_dot2(instruction: Instruction, width: int) -> Step:
    name = instruction.mnemonic.removesuffix("_e64_dpp")
    is_bf16 = "bf16" in name
    operands = instruction.operands
    a, b = (_dot_source(o, is_bf16, width) for o in operands[1:3])
    c = vector_reader(operands[3], 32, width, is_float=True)
    low, high = modifier_bits(instruction, "op_sel", (0, 0, 0)), modifier_bits(instruction, "op_sel_hi", (1, 1, 1))
    neg_low, neg_high = (
        modifier_bits(instruction, "neg_lo", (0, 0, 0)),
        modifier_bits(instruction, "neg_hi", (0, 0, 0)),
    )
    moved = dpp_reader(instruction, operands[1].index, width) if "DPP" in instruction.encoding else None
    kind = "bf16" if is_bf16 else "f16"
    register = operands[0].index

    def step(wave: ModelWave) -> None:
        where = None
        if moved is not None:
            first, where = moved(wave)
        else:
            first = a(wave)
        addend = c(wave)
        addend = addend & U32(0x7FFFFFFF) if neg_high[2] else addend
        addend = addend ^ U32(0x80000000) if neg_low[2] else addend
        factors = []
        for location, value in enumerate((first, b(wave))):
            halves = [
                (value >> U32(16 * select[location])).astype(U16) ^ U16(0x8000 * negate[location])
                for select, negate in ((low, neg_low), (high, neg_high))
            ]
            factors.append(np.stack(halves, axis=-1))
        wave.write_v(register, dot.dot_step(*factors, addend, kind, "f32"), where)

    return step


def _bind_dot4_float(instruction: Instruction, width: int) -> Step:
    name = instruction.mnemonic.removesuffix("_e64_dpp")
    kinds = name.split("_")[3:5]
    operands = instruction.operands
    reads = [vector_reader(o, 32, width) for o in operands[1:3]]
    c = vector_reader(operands[3], 32, width, is_float=True)
    negate, absolute = (
        modifier_bits(instruction, "neg_lo", (0, 0, 0))[2],
        modifier_bits(instruction, "neg_hi", (0, 0, 0))[2],
    )
    moved = dpp_reader(instruction, operands[1].index, width) if "DPP" in instruction.encoding else None
    register = operands[0].index

    def step(wave: ModelWave) -> None:
        first, where = moved(wave) if moved is not None else (reads[0](wave), None)
        total = c(wave).view(F32).astype(F64)
        total = np.abs(total) if absolute else total
        total = -total if negate else total
        for i in range(4):
            x, y = (
                floats.small_to_f32(value >> U32(8 * i), 4 if kind == "fp8" else 5).astype(F64)
                for value, kind in zip((first, reads[1](wave)), kinds, strict=True)
            )
            total = total + x * y
        wave.write_v(register, total.astype(F32).view(U32), where)

    return step


def bind_dot2_half(instruction: Instruction, width: int) -> Step:
    """v_dot2_f16_f16 and v_dot2_bf16_bf16 (VOP3): op_sel[2] is source 2's half, op_sel[3] the result's."""
    name = instruction.mnemonic.removesuffix("_dpp").removesuffix("_e64")
    is_bf16 = "bf16" in name
    operands = instruction.operands
    select = selected_halves(instruction)
    a, b = (_dot_source(o, is_bf16, width) for o in operands[1:3])
    c = vector_reader(operands[3], 16, width, is_float=True, high=select[2])
    if is_bf16 and operands[3].kind is Kind.FLOAT:
        wide = vector_reader(operands[3], 32, width, is_float=True)
        c = lambda wave: (wide(wave) >> U32(16)).astype(U16)  # noqa: E731
    moved = dpp_reader(instruction, operands[1].index, width) if "DPP" in instruction.encoding else None
    kind = "bf16" if is_bf16 else "f16"
    register, high = destination_of(instruction, 16)
    signs = [U16(0x8000 * o.negate) for o in operands[1:4]]

    def step(wave: ModelWave) -> None:
        first, where = moved(wave) if moved is not None else (a(wave), None)
        factors = [to_pair(value) ^ sign for value, sign in zip((first, b(wave)), signs, strict=False)]
        bits = dot.dot_step(*factors, (c(wave) ^ signs[2]).astype(U32), kind, kind).astype(U16)
        write_result(wave, register, bits, high, where)

    return step


def bind_dot2acc(kind: str) -> Callable[[tuple[Operand, ...], int], Read]:
    def bind_half(operands: tuple[Operand, ...], width: int) -> Read:
        a, b = (_dot_source(o, kind == "bf16", width) for o in operands[1:3])
        register = operands[0].index
        return lambda wave: dot.dot_step(to_pair(a(wave)), to_pair(b(wave)), wave.v[register], kind, "f32")

    return bind_half


DOT2ACC = {"v_dot2acc_f32_f16": bind_dot2acc("f16"), "v_dot2acc_f32_bf16": bind_dot2acc("bf16")}


def bind_packed(instruction: Instruction, width: int) -> Step | None:
    name = instruction.mnemonic.removesuffix("_e64_dpp")
    if name in PACKED:
        return _bind_packed(instruction, width)
    for prefix, binder in _BINDERS.items():
        if name.startswith(prefix):
            return binder(instruction, width)
    return None


_BINDERS: dict[str, Callable[[Instruction, int], Step]] = {
    "v_fma_mix": _bind_mix,
    "v_dot4_f32": _bind_dot4_float,
    "v_dot4": _bind_dot_integer,
    "v_dot8": _bind_dot_integer,
    "v_dot2_f32": _bind_dot2,
    "v_dot2_f16": bind_dot2_half,
    "v_dot2_bf16": bind_dot2_half,
}
