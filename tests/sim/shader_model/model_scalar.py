"""SOP1, SOP2, SOPC, SOPK: scalar arithmetic over Python integers.

A row's function takes the sources (and SCC last, where it is marked) and gives the result, or (result, SCC).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sim.shader_model import model_floats as floats
from sim.shader_model import model_modes as modes
from sim.shader_model.model_state import (
    M0,
    ModelWave,
    pack_mask,
    register_code,
    scalar_reader,
    scalar_writer,
)

from zinc_rt.isa import Instruction

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def to_signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


def add_scc_test(function: Callable[..., int], bits: int) -> Callable[..., tuple[int, int]]:
    """Set SCC if the result is not zero."""

    def run_with_test(*sources: int) -> tuple[int, int]:
        result = function(*sources) & (1 << bits) - 1
        return result, int(result != 0)

    return run_with_test


def with_overflow(total: int) -> tuple[int, int]:
    return total & M32, int(total != to_signed(total))


def select_extreme(pick: Callable[[int, int], bool], is_signed: bool) -> Callable[[int, int], tuple[int, int]]:
    def function(a: int, b: int) -> tuple[int, int]:
        first = pick(to_signed(a), to_signed(b)) if is_signed else pick(a, b)
        return (a if first else b), int(first)

    return function


def extract_field(bits: int, is_signed: bool) -> Callable[[int, int], tuple[int, int]]:
    def function(a: int, b: int) -> tuple[int, int]:
        offset, count = b & bits - 1, b >> 16 & 0x7F
        field = a >> offset & (1 << min(count, bits - offset)) - 1
        kept = min(count, bits - offset)
        if is_signed and count and kept == count:
            field = to_signed(field, count) if count else 0
        elif is_signed and count:
            field = to_signed(to_signed(a, bits) >> offset, bits)
        field &= (1 << bits) - 1
        return field, int(field != 0)

    return function


def find_bit(value: int, bits: int, from_top: bool) -> int:
    value &= (1 << bits) - 1
    if not value:
        return M32
    return bits - value.bit_length() if from_top else (value & -value).bit_length() - 1


def _sign_run(value: int, bits: int) -> int:
    value = to_signed(value, bits)
    flipped = ~value if value < 0 else value
    return M32 if flipped == 0 else bits - flipped.bit_length()


def reverse_bits(value: int, bits: int) -> int:
    return int(f"{value & (1 << bits) - 1:0{bits}b}"[::-1], 2)


def spread_bits(value: int) -> int:
    return sum((value >> i & 1) * 3 << 2 * i for i in range(32))


def reduce_quads(value: int, bits: int, all_set: bool) -> int:
    any_set = [value >> 4 * i & 15 != 0 for i in range(bits // 4)]
    return sum((15 << 4 * i if all_set else 1 << i) for i, on in enumerate(any_set) if on)


def to_f32(value: int) -> np.ndarray:
    return np.array([value & M32], np.uint32).view(np.float32)


def f32_bits(value: np.ndarray) -> int:
    return int(np.ascontiguousarray(value, np.float32).view(np.uint32)[0])


def to_f16(value: int) -> np.ndarray:
    return np.array([value & 0xFFFF], np.uint16).view(np.float16)


def f16_bits(value: np.ndarray) -> int:
    return int(np.ascontiguousarray(value, np.float16).view(np.uint16)[0])


def on_floats(function: Callable[..., Any]) -> Callable[..., int]:
    return lambda *sources: f32_bits(function(*map(to_f32, sources)))


def on_halves(function: Callable[..., Any]) -> Callable[..., int]:
    return lambda *sources: f16_bits(function(*map(to_f16, sources)))


_LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b), "xnor": lambda a, b: ~(a ^ b), "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b, "and_not0": lambda a, b: ~a & b, "or_not0": lambda a, b: ~a | b,
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b, "lg": lambda a, b: (a < b) | (a > b), "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "o": lambda a, b: (a == a) & (b == b), "u": lambda a, b: (a != a) | (b != b), "neq": lambda a, b: ~(a == b),
    "nge": lambda a, b: ~(a >= b), "nlg": lambda a, b: ~((a < b) | (a > b)), "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b), "nlt": lambda a, b: ~(a < b),
}  # fmt: skip

# Two sources.
TWO: dict[str, Callable[..., Any]] = {
    "s_add_co_u32": lambda a, b: ((a + b) & M32, a + b >> 32),
    "s_sub_co_u32": lambda a, b: ((a - b) & M32, int(b > a)),
    "s_add_co_i32": lambda a, b: with_overflow(to_signed(a) + to_signed(b)),
    "s_sub_co_i32": lambda a, b: with_overflow(to_signed(a) - to_signed(b)),
    "s_absdiff_i32": add_scc_test(lambda a, b: abs(to_signed(to_signed(a) - to_signed(b))), 32),
    "s_add_nc_u64": lambda a, b: a + b & M64,
    "s_sub_nc_u64": lambda a, b: a - b & M64,
    "s_mul_i32": lambda a, b: a * b & M32,
    "s_mul_hi_u32": lambda a, b: a * b >> 32,
    "s_mul_hi_i32": lambda a, b: to_signed(a) * to_signed(b) >> 32 & M32,
    "s_mul_u64": lambda a, b: a * b & M64,
    "s_lshl_b32": add_scc_test(lambda a, b: a << (b & 31), 32),
    "s_lshl_b64": add_scc_test(lambda a, b: a << (b & 63), 64),
    "s_lshr_b32": add_scc_test(lambda a, b: a >> (b & 31), 32),
    "s_lshr_b64": add_scc_test(lambda a, b: a >> (b & 63), 64),
    "s_ashr_i32": add_scc_test(lambda a, b: to_signed(a) >> (b & 31), 32),
    "s_ashr_i64": add_scc_test(lambda a, b: to_signed(a, 64) >> (b & 63), 64),
    **{f"s_{name}_b{bits}": add_scc_test(f, bits) for name, f in _LOGIC.items() for bits in (32, 64)},
    "s_bfe_u32": extract_field(32, False),
    "s_bfe_i32": extract_field(32, True),
    "s_bfe_u64": extract_field(64, False),
    "s_bfe_i64": extract_field(64, True),
    "s_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1 << (b & 31)) & M32,
    "s_bfm_b64": lambda a, b: ((1 << (a & 63)) - 1 << (b & 63)) & M64,
    "s_min_i32": select_extreme(lambda a, b: a < b, True),
    "s_min_u32": select_extreme(lambda a, b: a < b, False),
    "s_max_i32": select_extreme(lambda a, b: a >= b, True),
    "s_max_u32": select_extreme(lambda a, b: a >= b, False),
    **{
        f"s_lshl{n}_add_u32": lambda a, b, n=n: ((a << n) + b & M32, int((a << n) + b > M32)) for n in (1, 2, 3, 4)
    },
    "s_pack_ll_b32_b16": lambda a, b: b << 16 & M32 | a & 0xFFFF,
    "s_pack_lh_b32_b16": lambda a, b: b & 0xFFFF0000 | a & 0xFFFF,
    "s_pack_hh_b32_b16": lambda a, b: b & 0xFFFF0000 | a >> 16,
    "s_pack_hl_b32_b16": lambda a, b: b << 16 & M32 | a >> 16,
    "s_add_f32": on_floats(lambda a, b: a + b),
    "s_sub_f32": on_floats(lambda a, b: a - b),
    "s_mul_f32": on_floats(lambda a, b: a * b),
    "s_min_num_f32": on_floats(floats.min_num),
    "s_max_num_f32": on_floats(floats.max_num),
    "s_minimum_f32": on_floats(floats.minimum),
    "s_maximum_f32": on_floats(floats.maximum),
    "s_add_f16": on_halves(lambda a, b: a + b),
    "s_sub_f16": on_halves(lambda a, b: a - b),
    "s_mul_f16": on_halves(lambda a, b: a * b),
    "s_cvt_pk_rtz_f16_f32": lambda a, b: (
        f16_bits(floats.toward_zero16(to_f32(a))) | f16_bits(floats.toward_zero16(to_f32(b))) << 16
    ),
    **{
        f"s_{name}_f16": on_halves(f)
        for name, f in (("min_num", floats.min_num), ("max_num", floats.max_num), ("minimum", floats.minimum),
                        ("maximum", floats.maximum))
    },
}  # fmt: skip
# Two sources and SCC.
TWO_AND_SCC: dict[str, Callable[..., Any]] = {
    "s_add_co_ci_u32": lambda a, b, c: ((a + b + c) & M32, a + b + c >> 32),
    "s_sub_co_ci_u32": lambda a, b, c: ((a - b - c) & M32, int(b + c > a)),
    "s_cselect_b32": lambda a, b, c: a if c else b,
    "s_cselect_b64": lambda a, b, c: a if c else b,
}
_ROUND = {"ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "rndne": np.rint}
ONE: dict[str, Callable[..., Any]] = {
    "s_mov_b32": lambda a: a,
    "s_mov_b64": lambda a: a,
    "s_not_b32": add_scc_test(lambda a: ~a, 32),
    "s_not_b64": add_scc_test(lambda a: ~a, 64),
    "s_brev_b32": lambda a: reverse_bits(a, 32),
    "s_brev_b64": lambda a: reverse_bits(a, 64),
    "s_ctz_i32_b32": lambda a: find_bit(a, 32, False),
    "s_ctz_i32_b64": lambda a: find_bit(a, 64, False),
    "s_clz_i32_u32": lambda a: find_bit(a, 32, True),
    "s_clz_i32_u64": lambda a: find_bit(a, 64, True),
    "s_cls_i32": lambda a: _sign_run(a, 32),
    "s_cls_i32_i64": lambda a: _sign_run(a, 64),
    "s_bcnt0_i32_b32": add_scc_test(lambda a: 32 - a.bit_count(), 32),
    "s_bcnt0_i32_b64": add_scc_test(lambda a: 64 - a.bit_count(), 32),
    "s_bcnt1_i32_b32": add_scc_test(lambda a: a.bit_count(), 32),
    "s_bcnt1_i32_b64": add_scc_test(lambda a: a.bit_count(), 32),
    "s_sext_i32_i8": lambda a: to_signed(a, 8) & M32,
    "s_sext_i32_i16": lambda a: to_signed(a, 16) & M32,
    "s_bitreplicate_b64_b32": spread_bits,
    "s_abs_i32": add_scc_test(lambda a: abs(to_signed(a)), 32),
    "s_quadmask_b32": add_scc_test(lambda a: reduce_quads(a, 32, False), 32),
    "s_quadmask_b64": add_scc_test(lambda a: reduce_quads(a, 64, False), 64),
    "s_wqm_b32": add_scc_test(lambda a: reduce_quads(a, 32, True), 32),
    "s_wqm_b64": add_scc_test(lambda a: reduce_quads(a, 64, True), 64),
    **{f"s_{name}_f32": on_floats(f) for name, f in _ROUND.items()},
    **{f"s_{name}_f16": on_halves(f) for name, f in _ROUND.items()},
    "s_cvt_f32_i32": lambda a: f32_bits(np.array([to_signed(a)], np.int64).astype(np.float32)),
    "s_cvt_f32_u32": lambda a: f32_bits(np.array([a], np.int64).astype(np.float32)),
    "s_cvt_i32_f32": lambda a: int(floats.to_integer(to_f32(a), -(1 << 31), (1 << 31) - 1)[0]) & M32,
    "s_cvt_u32_f32": lambda a: int(floats.to_integer(to_f32(a), 0, M32)[0]),
    "s_cvt_f16_f32": lambda a: f16_bits(to_f32(a).astype(np.float16)),
    "s_cvt_f32_f16": lambda a: f32_bits(to_f16(a).astype(np.float32)),
    "s_cvt_hi_f32_f16": lambda a: f32_bits(to_f16(a >> 16).astype(np.float32)),
}
_COMPARED = {"i32": lambda a: to_signed(a), "u32": lambda a: a, "u64": lambda a: a, "f32": to_f32, "f16": to_f16}
COMPARES: dict[str, Callable[[int, int], Any]] = {
    **{
        f"s_cmp_{name}_{kind}": lambda a, b, f=f, to=to: f(to(a), to(b))
        for name, f in COMPARE.items()
        for kind, to in _COMPARED.items()
    },
    "s_bitcmp0_b32": lambda a, b: not a >> (b & 31) & 1,
    "s_bitcmp1_b32": lambda a, b: a >> (b & 31) & 1,
    "s_bitcmp0_b64": lambda a, b: not a >> (b & 63) & 1,
    "s_bitcmp1_b64": lambda a, b: a >> (b & 63) & 1,
}


def bind_scalar(instruction: Instruction) -> Callable[[ModelWave], None] | None:
    """Return the instruction as a function of a wave, None if it is not in this family."""
    name, operands = instruction.mnemonic, instruction.operands
    special = _SPECIAL.get(name)
    if special is not None:
        return special(instruction)
    if name in COMPARES and instruction.encoding == "SOPC":
        return _bind_compare(COMPARES[name], instruction)
    if "_saveexec_" in name or "_wrexec_" in name:
        return _bind_saveexec(instruction)
    uses_scc = name in TWO_AND_SCC
    function = TWO_AND_SCC.get(name) or TWO.get(name) or ONE.get(name)
    if function is None:
        return None
    is_signed = name.endswith("_i64")
    readers = [scalar_reader(o, 32 * o.width if "f16" not in name else 32, signed=is_signed) for o in operands[1:]]
    if name.endswith("_f16") and not name.startswith("s_cvt_"):
        readers = [scalar_reader(o, 16) for o in operands[1:]]
    write = scalar_writer(operands[0])

    def step(wave: ModelWave) -> None:
        sources = [read(wave) for read in readers]
        if name == "s_cvt_pk_rtz_f16_f32" and wave.mode & 0xFF != 0xF0:
            f32s = [to_f32(a) for a in sources]
            under = modes.compute_in_mode(
                wave.mode, "v" + name[1:], "u32", ("f32", "f32"), _packed_toward_zero, f32s
            )
            write(wave, int(under[0]))
            return
        if (
            wave.mode & 0xFF != 0xF0
            and (rounded := compute_in_mode(wave.mode, name, function, sources)) is not None
        ):
            write(wave, rounded)
            return
        result = function(*sources, wave.scc) if uses_scc else function(*sources)
        if isinstance(result, tuple):
            result, wave.scc = result
        write(wave, int(result))

    return step


def _packed_toward_zero(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    halves = [floats.toward_zero16(x).view(np.uint16).astype(np.uint32) for x in (a, b)]
    return halves[0] | halves[1] << np.uint32(16)


def _float_kinds(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the formats of a scalar float operation's result and sources."""
    if name in ("s_cvt_f32_i32", "s_cvt_f32_u32"):
        return "f32", (name[-3:],)
    if name.startswith("s_cvt_"):
        kinds = {
            "s_cvt_f16_f32": ("f16", "f32"),
            "s_cvt_f32_f16": ("f32", "f16"),
            "s_cvt_hi_f32_f16": ("f32", "f16"),
        }
        return (kinds[name][0], (kinds[name][1],)) if name in kinds else None
    for kind in ("f32", "f16"):
        if name.endswith(kind) and not name.startswith("s_cmp"):
            count = 3 if name.startswith("s_fma") else 2 if name in TWO else 1
            return kind, (kind,) * count
    return None


def compute_in_mode(mode: int, name: str, function: Callable[..., Any], sources: list[int]) -> int | None:
    kinds = _float_kinds(name)
    if kinds is None:
        return None
    result, argument = kinds
    mode = modes.instruction_mode(mode, name)
    sources = [a >> 16 if name == "s_cvt_hi_f32_f16" else a for a in sources]
    name = name.replace("_hi", "")
    arrays: list[np.ndarray] = [
        np.array([to_signed(a)]) if kind == "i32" else np.array([a & M32]) if kind == "u32"
        else to_f32(a) if kind == "f32" else to_f16(a)
        for kind, a in zip(argument, sources, strict=True)
    ]  # fmt: skip
    arrays = modes.flushed_sources(mode, argument, arrays)
    bits = [
        int(a[0]) & M32 if a.dtype.kind == "i" else f32_bits(a) if a.dtype == np.float32 else f16_bits(a)
        for a in arrays
    ]
    near = int((ONE["s_cvt_f32_f16"] if name == "s_cvt_f32_f16" else function)(*bits))
    flushed = modes.compute_rounded(
        name, result, modes.rounding_of(mode, result), (to_f32 if result == "f32" else to_f16)(near), arrays
    )
    flushed = modes.flush_denormal_results(mode, name, result, flushed, arrays)
    unsigned = np.uint32 if result == "f32" else np.uint16
    return int(modes.flush_result(mode, result, np.ascontiguousarray(flushed).view(unsigned))[0])


def _bind_compare(function: Callable[[int, int], Any], instruction: Instruction) -> Callable[[ModelWave], None]:
    bits = 16 if instruction.mnemonic.endswith("_f16") else None
    left, right = (scalar_reader(o, bits) for o in instruction.operands)

    kind = instruction.mnemonic[-3:]

    def step(wave: ModelWave) -> None:
        sources = [left(wave), right(wave)]
        if kind in ("f16", "f32") and wave.mode & 0xFF != 0xF0:
            to, back = (to_f16, f16_bits) if kind == "f16" else (to_f32, f32_bits)
            sources = [back(a) for a in modes.flushed_sources(wave.mode, (kind,) * 2, [to(s) for s in sources])]
        result = function(*sources)
        wave.scc = int(bool(result[0] if isinstance(result, np.ndarray) else result))

    return step


def _bind_saveexec(instruction: Instruction) -> Callable[[ModelWave], None]:
    name = instruction.mnemonic
    bits = 32 * instruction.operands[0].width
    operation = _LOGIC[name[2:].rsplit("_", 2)[0]]
    read, write = scalar_reader(instruction.operands[1]), scalar_writer(instruction.operands[0])
    keeps_old = "_saveexec_" in name

    def step(wave: ModelWave) -> None:
        old = wave.s[126] | (wave.s[127] << 32 if bits == 64 else 0)
        result = operation(read(wave), old) & (1 << bits) - 1
        write(wave, old if keeps_old else result)
        wave.set_exec(result | (wave.s[127] << 32 if bits == 32 else 0))
        wave.scc = int(result != 0)

    return step


def _bind_conditional_move(instruction: Instruction) -> Callable[[ModelWave], None]:
    read, write = scalar_reader(instruction.operands[1]), scalar_writer(instruction.operands[0])

    def step(wave: ModelWave) -> None:
        if wave.scc:
            write(wave, read(wave))

    return step


def _bind_set_bit(instruction: Instruction) -> Callable[[ModelWave], None]:
    destination = instruction.operands[0]
    bits = 32 * destination.width
    index, old, write = (
        scalar_reader(instruction.operands[1]),
        scalar_reader(destination),
        scalar_writer(destination),
    )
    on = "bitset1" in instruction.mnemonic

    def step(wave: ModelWave) -> None:
        bit = 1 << (index(wave) & bits - 1)
        write(wave, old(wave) | bit if on else old(wave) & ~bit)

    return step


def _bind_relative(instruction: Instruction) -> Callable[[ModelWave], None]:
    to, source = instruction.operands
    if "movrels" in instruction.mnemonic:
        first, write = register_code(source), scalar_writer(to)

        def load(wave: ModelWave) -> None:
            index = first + wave.s[M0]
            write(wave, sum(wave.s[index + i] << 32 * i for i in range(to.width)))

        return load
    first, read = register_code(to), scalar_reader(source)

    def store(wave: ModelWave) -> None:
        value = read(wave)
        for i in range(to.width):
            wave.write_s(first + wave.s[M0] + i, value >> 32 * i)

    return store


def _bind_constant(instruction: Instruction) -> Callable[[ModelWave], None]:
    """SOPK: the 16-bit constant is signed."""
    name, destination = instruction.mnemonic, instruction.operands[0]
    number = to_signed(int(instruction.operands[1].value or 0), 16)
    read, write = scalar_reader(destination), scalar_writer(destination)

    def step(wave: ModelWave) -> None:
        if name == "s_movk_i32":
            write(wave, number)
        elif name == "s_cmovk_i32":
            if wave.scc:
                write(wave, number)
        elif name == "s_addk_co_i32":
            total, wave.scc = with_overflow(to_signed(read(wave)) + number)
            write(wave, total)
        else:
            write(wave, to_signed(read(wave)) * number)

    return step


def _bind_fused(instruction: Instruction) -> Callable[[ModelWave], None]:
    name, operands = instruction.mnemonic, instruction.operands
    write = scalar_writer(operands[0])
    order = (1, 2, 0) if "fmac" in name else (1, 2, 3)  # fmamk's and fmaak's text is in the order a, b, c
    halves = name.endswith("f16")
    readers = [scalar_reader(operands[i], 16 if halves else 32) for i in order]

    def step(wave: ModelWave) -> None:
        a, b, c = (read(wave) for read in readers)
        if wave.mode & 0xFF != 0xF0:
            fused = (
                (lambda *x: f16_bits(floats.fma16(*map(to_f16, x))))
                if halves
                else (lambda *x: f32_bits(floats.fma32(*map(to_f32, x))))
            )
            write(wave, compute_in_mode(wave.mode, name, fused, [a, b, c]) or 0)
        elif halves:
            write(wave, f16_bits(floats.fma16(to_f16(a), to_f16(b), to_f16(c))))
        else:
            write(wave, f32_bits(floats.fma32(to_f32(a), to_f32(b), to_f32(c))))

    return step


def _bind_getreg(instruction: Instruction) -> Callable[[ModelWave], None]:
    field = int(instruction.operands[1].value or 0)
    write = scalar_writer(instruction.operands[0])
    register, offset, size = field & 63, field >> 6 & 31, (field >> 11) + 1

    def step(wave: ModelWave) -> None:
        write(wave, read_hardware(wave, register) >> offset & (1 << size) - 1)

    return step


def read_hardware(wave: ModelWave, register: int) -> int:
    if register == 1:
        return wave.mode
    return wave.hardware.get(register, 0)


def _bind_setreg(instruction: Instruction) -> Callable[[ModelWave], None]:
    field = int(instruction.operands[0].value or 0)
    read = scalar_reader(instruction.operands[1])
    register, offset, size = field & 63, field >> 6 & 31, (field >> 11) + 1
    mask = (1 << size) - 1

    def step(wave: ModelWave) -> None:
        value = read_hardware(wave, register) & ~(mask << offset) | (read(wave) & mask) << offset
        _set_mode(wave, value & M32) if register == 1 else wave.hardware.update({register: value & M32})

    return step


def _set_mode(wave: ModelWave, value: int) -> None:
    wave.mode = value


def _bind_mode(instruction: Instruction) -> Callable[[ModelWave], None]:
    value = int(instruction.operands[0].value or 0) & 15
    shift = 4 if "denorm" in instruction.mnemonic else 0
    return lambda wave: _set_mode(wave, wave.mode & ~(15 << shift) | value << shift)


_SPECIAL: dict[str, Callable[[Instruction], Callable[[ModelWave], None]]] = {
    "s_cmov_b32": _bind_conditional_move,
    "s_cmov_b64": _bind_conditional_move,
    **{f"s_bitset{n}_b{bits}": _bind_set_bit for n in (0, 1) for bits in (32, 64)},
    **{f"s_movrel{way}_b{bits}": _bind_relative for way in "sd" for bits in (32, 64)},
    **dict.fromkeys(("s_movk_i32", "s_cmovk_i32", "s_addk_co_i32", "s_mulk_i32"), _bind_constant),
    **dict.fromkeys(("s_fmac_f32", "s_fmac_f16", "s_fmaak_f32", "s_fmamk_f32"), _bind_fused),
    "s_getreg_b32": _bind_getreg,
    "s_setreg_b32": _bind_setreg,
    "s_setreg_imm32_b32": _bind_setreg,
    "s_round_mode": _bind_mode,
    "s_denorm_mode": _bind_mode,
}

__all__ = ["COMPARE", "M32", "M64", "bind_scalar", "pack_mask", "to_signed"]
