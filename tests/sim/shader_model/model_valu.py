"""Binds the rows of model_vector and model_packed to operands, modifiers and DPP."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sim.shader_model import model_floats as floats
from sim.shader_model import model_modes as modes
from sim.shader_model.model_lanes import BINDERS as LANE_BINDERS
from sim.shader_model.model_lanes import dpp_reader
from sim.shader_model.model_state import (
    VCC,
    ModelWave,
    apply_modifiers,
    pack_mask,
    register_code,
    unpack_mask,
    vector_reader,
)
from sim.shader_model.model_vector import ACCUMULATE, COMPARES, TABLE, VectorRow

from zinc_rt.isa import Instruction, Kind, Operand

Array = np.ndarray
Step = Callable[[ModelWave], None]
U32, U64, I64 = np.uint32, np.uint64, np.int64
_DTYPES = {
    "u16": np.uint16, "i16": np.int16, "f16": np.float16, "u32": np.uint32, "i32": np.int32, "f32": np.float32,
    "u64": np.uint64, "i64": np.int64, "f64": np.float64,
}  # fmt: skip
_LIMITS = {kind: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) for kind, dtype in _DTYPES.items()
           if kind[0] != "f" and kind[1:] != "64"}  # fmt: skip


def base_name(mnemonic: str) -> str:
    """Without the encoding's suffix."""
    return mnemonic.removesuffix("_dpp").removesuffix("_e64").removesuffix("_e32")


def selected_halves(instruction: Instruction) -> tuple[int, int, int, int]:
    """Return the halves selected by op_sel for three sources and the result. LLVM's text shows it only for some
    instructions; the hardware uses the bits (manual 7.2.2.3).
    """
    if not instruction.encoding.startswith("VOP3") or instruction.encoding.startswith("VOP3P"):
        return 0, 0, 0, 0
    bits = instruction.words[0] >> 11
    return bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1


class SourceReaders:
    """Reads an instruction's sources; with DPP, also determines which lanes may write."""

    def __init__(
        self, instruction: Instruction, operands: tuple[Operand, ...], types: tuple[str, ...], width: int
    ):
        picks = selected_halves(instruction)
        if (
            operands and operands[-1] is instruction.operands[0]
        ):  # an accumulator: the half that is written is read
            picks = (*picks[:2], picks[3], picks[3])
        self.readers = []
        self.dpp = None
        for location, (operand, kind) in enumerate(zip(operands, types, strict=True)):
            bits = int(kind[1:])
            high = picks[location] if bits == 16 else 0
            if location == 0 and instruction.encoding.endswith(("_DPP16", "_DPP8")):
                index = operand.index & 127 if "Invalid register" in operand.text else operand.index
                high = 1 if "Invalid register" in operand.text else high
                self.dpp = dpp_reader(instruction, index, width)
                read = read_narrow(bits, operand.half if operand.half is not None else high)
            else:
                read = vector_reader(
                    operand, bits, width, is_float=kind[0] == "f", signed=kind[0] == "i", high=high
                )
            read = modify_operand(read, bits, operand)
            dtype = _DTYPES[kind]
            self.readers.append(lambda wave, read=read, dtype=dtype: read(wave).view(dtype))

    def read(self, wave: ModelWave) -> tuple[list[Array], Array | None]:
        if self.dpp is None:
            return [read(wave) for read in self.readers], None
        value, may_write = self.dpp(wave)
        wave.dpp_value = value  # type: ignore[attr-defined]
        return [read(wave) for read in self.readers], may_write


def read_narrow(bits: int, high: int) -> Callable[[ModelWave], Array]:
    if bits == 16:
        return lambda wave: (wave.dpp_value >> U32(16 * high)).astype(np.uint16)  # type: ignore[attr-defined]
    return lambda wave: wave.dpp_value  # type: ignore[attr-defined]


def modify_operand(
    read: Callable[[ModelWave], Array], bits: int, operand: Operand
) -> Callable[[ModelWave], Array]:
    return apply_modifiers(read, bits, operand.negate, operand.absolute)


def finish_result(result: Array, kind: str, clamp: bool, omod: int, mode: int = 0) -> Array:
    """Return a row's result as unsigned bits, with clamp and omod applied; the mode determines the result of an
    overflow by omod.
    """
    saturates = kind[0] == "w"
    kind = kind.removeprefix("w")
    dtype, bits = _DTYPES[kind], int(kind[1:])
    if kind[0] == "f":
        value = np.asarray(result, dtype)
        if omod:
            tiny = np.finfo(dtype).tiny
            scaled = value * dtype({2: 2.0, 4: 4.0, -2: 0.5}[omod])
            scaled = modes.limit_overflow(mode, kind, scaled, np.isfinite(value))
            if omod < 0:  # by the exponent, before the product would be rounded
                scaled = np.where(np.abs(value) < 2 * tiny, np.copysign(dtype(0), value), scaled)
            value = np.where(np.abs(value) < tiny, dtype(0), scaled).astype(dtype)  # captured: +0 of any sign
        if clamp:
            value = np.where(np.isnan(value), dtype(0), np.clip(value, dtype(0), dtype(1))).astype(dtype) + dtype(
                0
            )
        return np.ascontiguousarray(value).view(f"u{bits // 8}")
    if saturates and clamp:
        result = np.clip(result, *_LIMITS[kind])
    return np.asarray(result).astype(U64).astype(f"u{bits // 8}")


def write_result(wave: ModelWave, register: int, bits: Array, high: int | None, where: Array | None) -> None:
    """16, 32 or 64 bits; of 16 the half that is named, the other is kept."""
    if bits.dtype == np.uint16:
        old = wave.v[register]
        shift = U32(16 * (high or 0))
        wave.write_v(register, old & ~(U32(0xFFFF) << shift) | bits.astype(U32) << shift, where)
    elif bits.dtype == np.uint64:
        wave.write_v(register, bits.astype(U32), where)
        wave.write_v(register + 1, (bits >> U64(32)).astype(U32), where)
    else:
        wave.write_v(register, bits, where)


def output_modifiers(instruction: Instruction) -> tuple[bool, int]:
    omod = instruction.modifier("omod")
    return instruction.modifier("clamp") is not None, int(omod.value) if omod is not None else 0  # type: ignore[arg-type]


def destination_of(instruction: Instruction, bits: int) -> tuple[int, int]:
    """Return the register, and the half if 16 bits are written."""
    operand = instruction.operands[0]
    if bits != 16:
        return operand.index, 0
    if operand.half is not None:
        return operand.index, operand.half
    if "Invalid register" in operand.text:
        return operand.index & 127, 1
    return operand.index, selected_halves(instruction)[3]


def bind_valu(instruction: Instruction, width: int) -> Step | None:
    if instruction.second is not None:
        return _bind_dual(instruction, width)
    name = base_name(instruction.mnemonic)
    if name in ("v_nop", "v_pipeflush"):
        return lambda wave: None
    if name in LANE_BINDERS:
        if "DPP" in instruction.encoding:
            raise NotImplementedError(f"{instruction.text}: the model does not implement DPP for this instruction")
        return LANE_BINDERS[name](instruction, width)
    if name.startswith("v_cmp_") and name[6:] in COMPARES:
        return _bind_compare(instruction, COMPARES[name[6:]], width, to_exec=False)
    if name.startswith("v_cmpx_") and name[7:] in COMPARES:
        return _bind_compare(instruction, COMPARES[name[7:]], width, to_exec=True)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(instruction, width)
    if name in ACCUMULATE:
        return _bind_row(
            instruction, ACCUMULATE[name], (*instruction.operands[1:], drop_suffix(instruction)), width
        )
    if name in TABLE:
        return _bind_row(instruction, TABLE[name], instruction.operands[1:], width)
    return None


def drop_suffix(instruction: Instruction) -> Operand:
    """Return the destination as a source, without its modifiers."""
    return instruction.operands[0]


def _bind_row(instruction: Instruction, row: VectorRow, operands: tuple[Operand, ...], width: int) -> Step:
    sources = SourceReaders(instruction, operands, row.sources, width)
    clamp, omod = output_modifiers(instruction)
    kind, function, name = row.result, row.function, base_name(instruction.mnemonic)
    bits = int(kind.removeprefix("w")[1:])
    register, high = destination_of(instruction, bits)

    def step(wave: ModelWave) -> None:
        values, where = sources.read(wave)
        mode = modes.instruction_mode(wave.mode, name)
        result = modes.compute_in_mode(modes.omod_mode(mode, omod), name, kind, row.sources, function, values)
        out = modes.flush_result(mode, kind, finish_result(result, kind, clamp, omod, mode))
        write_result(wave, register, out, high, where)

    return step


def _bind_compare(instruction: Instruction, row: VectorRow, width: int, *, to_exec: bool) -> Step:
    operands = instruction.operands if to_exec else instruction.operands[1:]
    sources = SourceReaders(instruction, operands, row.sources, width)
    target = 126 if to_exec else register_code(instruction.operands[0])
    function = row.function
    name = base_name(instruction.mnemonic).removeprefix("v_cmpx_" if to_exec else "v_cmp_")

    def step(wave: ModelWave) -> None:
        values, where = sources.read(wave)
        under = modes.compute_in_mode(wave.mode, name, "mask", row.sources, function, values)
        result = np.asarray(under).astype(bool)
        bits = pack_mask(result & (wave.lanes if where is None else where))
        if to_exec:
            wave.set_exec(bits | (wave.s[127] << 32 if width == 32 else 0))
        else:
            wave.write_mask(target, bits)

    return step


def _bind_carry(instruction: Instruction, width: int) -> Step:
    """v_add_co_u32 and its relations: result, carry out, two sources and perhaps the carry in."""
    name = base_name(instruction.mnemonic)
    register, carry_out = instruction.operands[0].index, register_code(instruction.operands[1])
    sources = SourceReaders(instruction, instruction.operands[2:4], ("u32", "u32"), width)
    carry_in = register_code(instruction.operands[4]) if len(instruction.operands) > 4 else None
    clamp = instruction.modifier("clamp") is not None

    def step(wave: ModelWave) -> None:
        (a, b), where = sources.read(wave)
        carry = unpack_mask(wave.mask(carry_in), width).astype(I64) if carry_in is not None else 0
        x, y = a.astype(I64), b.astype(I64)
        if name.startswith("v_subrev"):
            x, y = y, x
        total = x + y + carry if name.startswith("v_add") else x - y - carry
        over = (total >> 32 != 0) if name.startswith("v_add") else total < 0
        if clamp:
            total = np.clip(total, 0, 0xFFFFFFFF)
        active = wave.lanes if where is None else where
        wave.write_v(register, total.astype(U32), active)
        wave.write_mask(carry_out, pack_mask(over & active))

    return step


def _bind_mad64(instruction: Instruction, width: int) -> Step:
    register, carry_out = instruction.operands[0].index, register_code(instruction.operands[1])
    kind = "i" if "_i64_" in instruction.mnemonic else "u"
    sources = SourceReaders(instruction, instruction.operands[2:5], (kind + "32", kind + "32", kind + "64"), width)
    clamp = instruction.modifier("clamp") is not None

    def step(wave: ModelWave) -> None:
        (a, b, c), _ = sources.read(wave)
        low = np.zeros(width, U64)
        over = np.zeros(width, bool)
        bottom, top = (-(1 << 63), (1 << 63) - 1) if kind == "i" else (0, (1 << 64) - 1)
        for lane in range(width):
            total = int(a[lane]) * int(b[lane]) + int(c[lane])
            over[lane] = bool(total >> 64 & 1)  # bit 64 of the sum: of a signed one its sign
            if clamp:
                total = min(max(total, bottom), top)
            low[lane] = total & (1 << 64) - 1
        write_result(wave, register, low, None, None)
        wave.write_mask(carry_out, pack_mask(over & wave.lanes))

    return step


def _bind_select(instruction: Instruction, width: int) -> Step:
    """v_cndmask: source 1 where the mask has a one."""
    kind = "u16" if base_name(instruction.mnemonic).endswith("b16") else "u32"
    sources = SourceReaders(instruction, instruction.operands[1:3], (kind, kind), width)
    mask = register_code(instruction.operands[3])
    register, high = destination_of(instruction, int(kind[1:]))

    def step(wave: ModelWave) -> None:
        (a, b), where = sources.read(wave)
        write_result(wave, register, np.where(unpack_mask(wave.mask(mask), width), b, a), high, where)

    return step


def _bind_div_scale(instruction: Instruction, width: int) -> Step:
    """Result and VCC: see V_DIV_SCALE in the manual. The manual compares 1/denominator of float32 with float64's
    denormals, which is impossible; it must mean float32's, otherwise the macro would lose quotients. A denominator
    whose inverse is a denormal is also scaled down, because scaling up twice would give infinity. VCC is set for
    zeros, as on RDNA3 (sim/shader/gfx11_programs.txt).
    """
    kind = "f64" if "f64" in instruction.mnemonic else "f32"
    dtype = _DTYPES[kind]
    register, mask = instruction.operands[0].index, register_code(instruction.operands[1])
    sources = SourceReaders(instruction, instruction.operands[2:5], (kind,) * 3, width)
    clamp, omod = output_modifiers(instruction)
    tiny = float(np.finfo(dtype).tiny)
    far, small, power = (96, 23, 64) if kind == "f32" else (768, 53, 128)
    unsigned, fraction, top = (U32, 23, 0xFF) if kind == "f32" else (U64, 52, 0x7FF)

    def biased_exponent(value: Array) -> Array:
        return (value.view(unsigned) >> unsigned(fraction) & unsigned(top)).astype(I64)

    def step(wave: ModelWave) -> None:
        (value, denominator, numerator), _ = sources.read(wave)
        value, denominator, numerator = modes.flushed_sources(
            wave.mode, (kind,) * 3, (value, denominator, numerator)
        )
        out = value.copy()
        scaled = np.zeros(width, bool)
        with np.errstate(all="ignore"):
            up = np.ldexp(value, power).astype(dtype)
            down = np.ldexp(value, -power).astype(dtype)
            inverse = np.abs(dtype(1) / denominator)
            quotient = np.abs(numerator / denominator)
        is_denominator = value == denominator
        is_numerator = value == numerator
        inverse_small = (inverse < tiny) & (inverse > 0)
        quotient_small = (quotient < tiny) & (quotient > 0)
        denormal = (np.abs(denominator) < tiny) & (denominator != 0)
        for lane in range(width):
            if numerator[lane] == 0 or denominator[lane] == 0:
                out[lane], scaled[lane] = np.nan, True
            elif biased_exponent(numerator)[lane] - biased_exponent(denominator)[lane] >= far:
                scaled[lane] = True
                if is_denominator[lane]:
                    out[lane] = up[lane]
            elif denormal[lane]:
                out[lane] = up[lane]
            elif inverse_small[lane] and quotient_small[lane]:
                scaled[lane] = True
                if is_denominator[lane]:
                    out[lane] = down[lane]
            elif inverse_small[lane]:
                out[lane] = down[lane]
            elif quotient_small[lane]:
                scaled[lane] = True
                if is_numerator[lane]:
                    out[lane] = up[lane]
            elif biased_exponent(numerator)[lane] <= small:
                out[lane] = up[lane]
        out = floats.quiet_nans(out, dtype)
        bits = modes.flush_result(wave.mode, kind, finish_result(out, kind, clamp, omod))
        write_result(wave, register, bits, None, None)
        wave.write_mask(mask, pack_mask(scaled & wave.lanes))

    return step


def _bind_div_fmas(instruction: Instruction, width: int) -> Step:
    """What v_div_scale scaled by 2**64 (2**128) is scaled back: up for a large quotient, whose denominator was
    scaled, down for a small one. The manual writes 2**32 (2**64), which fits neither."""
    kind = "f64" if "f64" in instruction.mnemonic else "f32"
    register = instruction.operands[0].index
    sources = SourceReaders(instruction, instruction.operands[1:4], (kind,) * 3, width)
    power, bias = (128, 1023) if kind == "f64" else (64, 127)
    clamp, omod = output_modifiers(instruction)
    unsigned, fraction, top = (U64, 52, 0x7FF) if kind == "f64" else (U32, 23, 0xFF)

    def step(wave: ModelWave) -> None:
        values = modes.flushed_sources(wave.mode, (kind,) * 3, sources.read(wave)[0])
        bits = values[2].view(unsigned)
        large = (bits >> unsigned(fraction) & unsigned(top)).astype(I64) > bias
        moved = (np.where(large, power, -power) * unpack_mask(wave.mask(VCC), width)).astype(np.int32)
        # one rounding, or denormal quotients would not be IEEE's
        result = (floats.fma32_scaled if kind == "f32" else floats.fma64)(*values, moved)
        rounding = modes.rounding_of(wave.mode, kind)
        if rounding:
            scaled = [values[0], values[1], values[2], moved]
            result = modes.compute_rounded(f"v_scaled_{kind}", kind, rounding, result, scaled)
        if kind == "f32":
            result = modes.flush_denormal_results(wave.mode, "v_scaled_f32", kind, result, [*values, moved])
        bits = modes.flush_result(wave.mode, kind, finish_result(result, kind, clamp, omod))
        write_result(wave, register, bits, None, None)

    return step


def _bind_cvt_fp8(instruction: Instruction, width: int) -> Step:
    """v_cvt_f32_fp8 and _bf8: one byte, by byte_sel."""
    sources = SourceReaders(instruction, instruction.operands[1:2], ("u32",), width)
    byte = instruction.modifier("byte_sel")
    shift = U32(8 * int(byte.value) if byte is not None else 0)  # type: ignore[arg-type]
    exponent_bits = 4 if "_fp8" in instruction.mnemonic else 5
    register = instruction.operands[0].index

    def step(wave: ModelWave) -> None:
        (value,), where = sources.read(wave)
        wave.write_v(register, floats.small_to_f32(value >> shift, exponent_bits).view(U32), where)

    return step


def _bind_pair_from_fp8(instruction: Instruction, width: int) -> Step:
    """v_cvt_pk_f32_fp8 and _bf8: two bytes of one half."""
    sources = SourceReaders(instruction, instruction.operands[1:2], ("u16",), width)
    exponent_bits = 4 if "_fp8" in instruction.mnemonic else 5
    register = instruction.operands[0].index

    def step(wave: ModelWave) -> None:
        (value,), where = sources.read(wave)
        for index in range(2):
            number = floats.small_to_f32(value >> np.uint16(8 * index), exponent_bits)
            wave.write_v(register + index, number.view(U32), where)

    return step


def _bind_pack_fp8(instruction: Instruction, width: int) -> Step:
    sources = SourceReaders(instruction, instruction.operands[1:3], ("f32", "f32"), width)
    exponent_bits = 4 if "_fp8" in instruction.mnemonic else 5
    register, high = destination_of(instruction, 16)

    def step(wave: ModelWave) -> None:
        (a, b), where = sources.read(wave)
        a, b = modes.flushed_sources(wave.mode, ("f32", "f32"), (a, b))
        low, top = (
            floats.f32_to_small(x, exponent_bits, saturates=modes.is_saturating(wave.mode)) for x in (a, b)
        )
        write_result(wave, register, (low | top << U32(8)).astype(np.uint16), high, where)

    return step


def _bind_stochastic_fp8(instruction: Instruction, width: int) -> Step:
    """v_cvt_sr_fp8_f32 and _bf8: one byte of the destination, by byte_sel."""
    sources = SourceReaders(instruction, instruction.operands[1:3], ("f32", "u32"), width)
    byte = instruction.modifier("byte_sel")
    shift = U32(8 * int(byte.value) if byte is not None else 0)  # type: ignore[arg-type]
    exponent_bits = 4 if "_fp8" in instruction.mnemonic else 5
    register = instruction.operands[0].index

    def step(wave: ModelWave) -> None:
        (value, random), where = sources.read(wave)
        value = modes.flushed_sources(wave.mode, ("f32",), (value,))[0]
        code = floats.f32_to_small(value, exponent_bits, random=random, saturates=modes.is_saturating(wave.mode))
        wave.write_v(register, wave.v[register] & ~(U32(0xFF) << shift) | code << shift, where)

    return step


def _bind_scalar_function(instruction: Instruction, width: int) -> Step:
    """v_s_exp_f32 and the like: of one lane, from and to scalar registers."""
    name = "v_" + base_name(instruction.mnemonic).removeprefix("v_s_")
    row, bits = TABLE[name], int(TABLE[name].result[1:])
    read = modify_operand(
        vector_reader(instruction.operands[1], bits, 1, is_float=True), bits, instruction.operands[1]
    )
    clamp, omod = output_modifiers(instruction)
    register = register_code(instruction.operands[0])

    def step(wave: ModelWave) -> None:
        mode = modes.instruction_mode(wave.mode, name)
        value = read(wave).view(_DTYPES[row.result])
        result = modes.compute_in_mode(
            modes.omod_mode(mode, omod), name, row.result, row.sources, row.function, [value]
        )
        out = modes.flush_result(mode, row.result, finish_result(result, row.result, clamp, omod, mode))
        wave.write_s(register, int(out[0]))

    return step


def _bind_dual(instruction: Instruction, width: int) -> Step:
    """VOPD: both halves read before either writes."""
    assert instruction.second is not None
    halves = [_dual_half(half, width) for half in (instruction, instruction.second)]

    def step(wave: ModelWave) -> None:
        results = [(register, compute(wave)) for register, compute in halves]
        for register, value in results:
            wave.write_v(register, value)

    return step


def _dual_half(half: Instruction, width: int) -> tuple[int, Callable[[ModelWave], Array]]:
    from sim.shader_model.model_packed import DOT2ACC

    name = half.mnemonic.replace("v_dual_", "v_")
    operands = half.operands
    register = operands[0].index
    if name == "v_cndmask_b32":
        low, high = (vector_reader(o, 32, width) for o in operands[1:3])
        return register, lambda wave: np.where(unpack_mask(wave.mask(VCC), width), high(wave), low(wave))
    if name in DOT2ACC:
        return register, DOT2ACC[name](operands, width)
    if name in ACCUMULATE:
        row, operands = ACCUMULATE[name], (*operands[1:3], operands[0])
    else:
        row, operands = TABLE[name], operands[1:]
    readers = [
        vector_reader(operand, 32, width, is_float=kind[0] == "f")
        for operand, kind in zip(operands, row.sources, strict=True)
    ]

    def compute_half(wave: ModelWave) -> Array:
        values = [read(wave).view(_DTYPES[kind]) for read, kind in zip(readers, row.sources, strict=True)]
        mode = modes.instruction_mode(wave.mode, name)
        result = modes.compute_in_mode(mode, name, row.result, row.sources, row.function, values)
        return modes.flush_result(mode, row.result, finish_result(result, row.result, False, 0))

    return register, compute_half


_SPECIAL: dict[str, Callable[[Instruction, int], Step]] = {
    **{f"v_{name}{how}_u32": _bind_carry for name in ("add", "sub", "subrev") for how in ("_co", "_co_ci")},
    "v_mad_co_u64_u32": _bind_mad64,
    "v_mad_co_i64_i32": _bind_mad64,
    "v_cndmask_b32": _bind_select,
    "v_cndmask_b16": _bind_select,
    "v_div_scale_f32": _bind_div_scale,
    "v_div_scale_f64": _bind_div_scale,
    "v_div_fmas_f32": _bind_div_fmas,
    "v_div_fmas_f64": _bind_div_fmas,
    "v_cvt_f32_fp8": _bind_cvt_fp8,
    "v_cvt_f32_bf8": _bind_cvt_fp8,
    "v_cvt_pk_f32_fp8": _bind_pair_from_fp8,
    "v_cvt_pk_f32_bf8": _bind_pair_from_fp8,
    "v_cvt_pk_fp8_f32": _bind_pack_fp8,
    "v_cvt_pk_bf8_f32": _bind_pack_fp8,
    "v_cvt_sr_fp8_f32": _bind_stochastic_fp8,
    "v_cvt_sr_bf8_f32": _bind_stochastic_fp8,
    **{
        f"v_s_{name}_{kind}": _bind_scalar_function
        for name in ("exp", "log", "rcp", "rsq", "sqrt")
        for kind in ("f16", "f32")
    },
}

__all__ = ["Kind", "base_name", "bind_valu", "finish_result", "write_result"]
