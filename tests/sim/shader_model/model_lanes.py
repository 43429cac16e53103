"""Data that crosses lanes: DPP, permutes, readlane, writelane, mbcnt, swizzles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sim.shader_model.model_state import (
    M0,
    ModelWave,
    register_code,
    scalar_reader,
    scalar_writer,
    vector_reader,
)

from zinc_rt.isa import Instruction

Array = np.ndarray
Step = Callable[[ModelWave], None]
_OUT_OF_ROW = -1


def dpp_sources(instruction: Instruction, width: int) -> Array:
    """Return the source lane of each lane's source 0; -1 if the pattern leaves the row."""
    lane = np.arange(width)
    eights = instruction.modifier("dpp8")
    if eights is not None:
        return (lane & ~7) + np.array(eights.value)[lane & 7]
    for modifier in instruction.modifiers:
        pattern = _PATTERNS.get(modifier.name)
        if pattern is not None:
            return pattern(lane, modifier.value)
    raise NotImplementedError(instruction.text)


def lane_in_row(lane: Array, moved: Array) -> Array:
    return np.where((moved < 0) | (moved > 15), _OUT_OF_ROW, (lane & ~15) + moved)


_PATTERNS: dict[str, Callable[..., Array]] = {
    "quad_perm": lambda lane, value: (lane & ~3) + np.array(value)[lane & 3],
    "row_shl": lambda lane, n: lane_in_row(lane, (lane & 15) + n),
    "row_shr": lambda lane, n: lane_in_row(lane, (lane & 15) - n),
    "row_ror": lambda lane, n: lane_in_row(lane, (lane & 15) - n & 15),
    "row_mirror": lambda lane, _: lane_in_row(lane, 15 - (lane & 15)),
    "row_half_mirror": lambda lane, _: lane ^ 7,
    "row_share": lambda lane, n: lane_in_row(lane, lane * 0 + n),
    "row_xmask": lambda lane, n: lane ^ n,
}


def dpp_reader(instruction: Instruction, register: int, width: int) -> Callable[[ModelWave], tuple[Array, Array]]:
    """Return source 0 as uint32 [lanes], and the lanes that may write."""
    source = dpp_sources(instruction, width)
    fetch_inactive = instruction.modifier("fi") is not None
    is_eight = instruction.modifier("dpp8") is not None
    zero = is_eight or instruction.modifier("bound_ctrl") is not None
    inside = source >= 0
    take = np.where(inside, source, 0)
    allowed = np.ones(width, bool)
    if not is_eight:
        lane = np.arange(width)
        rows, banks = (modifier_value(instruction, name, 15) for name in ("row_mask", "bank_mask"))
        allowed = (rows >> (lane >> 4) & 1 & banks >> (lane >> 2 & 3)).astype(bool)

    def read(wave: ModelWave) -> tuple[Array, Array]:
        valid = inside if fetch_inactive else inside & wave.lanes[take]
        value = np.where(valid, wave.v[register][take], np.uint32(0))
        return value, wave.lanes & allowed & (valid | zero)

    return read


def modifier_value(instruction: Instruction, name: str, default: int) -> int:
    modifier = instruction.modifier(name)
    return default if modifier is None or not isinstance(modifier.value, int) else modifier.value


def bind_readfirstlane(instruction: Instruction) -> Step:
    write = scalar_writer(instruction.operands[0])
    read = vector_reader(instruction.operands[1], 32, 64)

    def step(wave: ModelWave) -> None:
        bits = wave.exec_bits()
        write(wave, int(read(wave)[(bits & -bits).bit_length() - 1 if bits else 0]))

    return step


def bind_readlane(instruction: Instruction) -> Step:
    write = scalar_writer(instruction.operands[0])
    read, select = vector_reader(instruction.operands[1], 32, 64), scalar_reader(instruction.operands[2])
    return lambda wave: write(wave, int(read(wave)[select(wave) & wave.width - 1]))


def bind_writelane(instruction: Instruction) -> Step:
    register = instruction.operands[0].index
    read, select = scalar_reader(instruction.operands[1]), scalar_reader(instruction.operands[2])

    def step(wave: ModelWave) -> None:
        wave.v[register][select(wave) & wave.width - 1] = read(wave)

    return step


def bind_permlane16(instruction: Instruction, width: int) -> Step:
    """Rows of 16; `x` reads the other row of a pair. op_sel is [fi, bound_ctrl]."""
    to, source = instruction.operands[0].index, instruction.operands[1].index
    flags = instruction.modifier("op_sel")
    fetch_inactive, zero = (flags.value[0], flags.value[1]) if flags is not None else (0, 0)  # type: ignore[index]
    varies = "_var_" in instruction.mnemonic
    other_row = 16 if "permlanex" in instruction.mnemonic else 0
    lane = np.arange(width)
    base = (lane & ~15) ^ other_row
    if varies:
        select_register = instruction.operands[2].index

        def pick_lanes(wave: ModelWave) -> Array:
            return (wave.v[select_register] & 15).astype(np.int64)
    else:
        low, high = (scalar_reader(o) for o in instruction.operands[2:4])

        def pick_lanes(wave: ModelWave) -> Array:
            both = low(wave) | high(wave) << 32
            return np.array([both >> 4 * (i & 15) & 15 for i in range(width)])

    def step(wave: ModelWave) -> None:
        taken = base + pick_lanes(wave)
        active = wave.lanes[taken] | bool(fetch_inactive)
        value = np.where(active, wave.v[source][taken], np.uint32(0))
        wave.write_v(to, value, wave.lanes & (active | bool(zero)))

    return step


def bind_permlane64(instruction: Instruction, width: int) -> Step:
    to, source = instruction.operands[0].index, instruction.operands[1].index
    if width == 32:
        return lambda wave: None
    lane = np.arange(width) ^ 32
    return lambda wave: wave.write_v(to, wave.v[source][lane])


def bind_swap(instruction: Instruction) -> Step:
    to, source = instruction.operands[0].index, instruction.operands[1].index

    def step(wave: ModelWave) -> None:
        a, b = wave.v[to].copy(), wave.v[source].copy()
        wave.write_v(to, b)
        wave.write_v(source, a)

    return step


def bind_relative(instruction: Instruction, width: int) -> Step:
    """V_MOVRELD and V_MOVRELS: a register number plus M0."""
    to, source = instruction.operands
    read = vector_reader(source, 32, width)
    name = instruction.mnemonic

    def step(wave: ModelWave) -> None:
        m0 = wave.s[M0]
        if "movrels_" in name:
            wave.write_v(to.index, wave.v[source.index + m0])
        elif "movreld_" in name:
            wave.write_v(to.index + m0, read(wave))
        elif "movrelsd_2" in name:
            wave.write_v(to.index + (m0 >> 16 & 0x3FF), wave.v[source.index + (m0 & 0x3FF)])
        else:
            wave.write_v(to.index + m0, wave.v[source.index + m0])

    return step


def swizzle_sources(offset: int, width: int) -> Array:
    """ds_swizzle_b32: which lane each lane reads (manual, DS_SWIZZLE_B32)."""
    lane = np.arange(width)
    if offset >= 0xE000:
        return np.array([fft_lane(int(i), offset & 31) for i in lane])
    if offset >= 0xC000:
        mask, count = offset & 31, offset >> 5 & 31
        moved = lane - count if offset >> 10 & 1 else lane + count
        return (lane & ~31) | (lane & mask) | (moved & ~mask & 31)
    if offset & 0x8000:
        picks = np.array([offset >> 2 * i & 3 for i in range(4)])
        return (lane & ~3) + picks[lane & 3]
    keep, put, flip = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return (lane & ~31) | ((lane & keep | put) ^ flip) & 31


def fft_lane(lane: int, mask: int) -> int:
    return int(f"{lane & 31:05b}"[::-1], 2) >> mask.bit_count() | lane & mask | lane & 32


def permute(wave: ModelWave, index: Array, data: Array) -> Array:
    """ds_permute_b32: active lanes push; where several push to one lane the highest wins; the rest is 0."""
    out = np.zeros(wave.width, np.uint32)
    for lane in np.flatnonzero(wave.lanes):
        out[int(index[lane]) >> 2 & wave.width - 1] = data[lane]
    return out


def bpermute(wave: ModelWave, index: Array, data: Array, fetch_inactive: bool) -> Array:
    taken = (index >> np.uint32(2)).astype(np.int64) & wave.width - 1
    value = data[taken]
    return value if fetch_inactive else np.where(wave.lanes[taken], value, np.uint32(0))


BINDERS: dict[str, Callable[..., Step]] = {
    "v_readfirstlane_b32": lambda instruction, width: bind_readfirstlane(instruction),
    "v_readlane_b32": lambda instruction, width: bind_readlane(instruction),
    "v_writelane_b32": lambda instruction, width: bind_writelane(instruction),
    "v_swap_b32": lambda instruction, width: bind_swap(instruction),
    "v_permlane16_b32": bind_permlane16,
    "v_permlanex16_b32": bind_permlane16,
    "v_permlane16_var_b32": bind_permlane16,
    "v_permlanex16_var_b32": bind_permlane16,
    "v_permlane64_b32": bind_permlane64,
    "v_movreld_b32": bind_relative,
    "v_movrels_b32": bind_relative,
    "v_movrelsd_b32": bind_relative,
    "v_movrelsd_2_b32": bind_relative,
}

__all__ = ["BINDERS", "bpermute", "dpp_reader", "permute", "register_code", "swizzle_sources"]
