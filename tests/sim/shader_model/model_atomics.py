"""What atomic operations do to the old value: integers of 32 or 64 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sim.shader_model import model_floats as floats
from sim.shader_model.model_state import ModelWave

Array = np.ndarray


def _f32_bits(value: np.ndarray) -> int:
    return int(np.asarray(value, np.float32).reshape(1).view(np.uint32)[0])


def make_float_atomic(function: Callable[[Array, Array], Array]) -> Callable[[int, int, int], int]:
    def apply_atomic(old: int, value: int, bits: int) -> int:
        a, b = (np.array([x], np.uint32).view(np.float32) for x in (old, value))
        return _f32_bits(function(a, b))

    return apply_atomic


def to_signed(value: int, bits: int) -> int:
    return value - (value >> bits - 1 << bits)


_ATOMICS: dict[str, Callable[[int, int, int], int]] = {
    "add_u": lambda old, x, bits: old + x,
    "sub_u": lambda old, x, bits: old - x,
    "rsub_u": lambda old, x, bits: x - old,
    "inc_u": lambda old, x, bits: 0 if old >= x else old + 1,
    "dec_u": lambda old, x, bits: x if old == 0 or old > x else old - 1,
    "min_i": lambda old, x, bits: min(old, x, key=lambda y: to_signed(y, bits)),
    "max_i": lambda old, x, bits: max(old, x, key=lambda y: to_signed(y, bits)),
    "min_u": lambda old, x, bits: min(old, x),
    "max_u": lambda old, x, bits: max(old, x),
    "and_b": lambda old, x, bits: old & x,
    "or_b": lambda old, x, bits: old | x,
    "xor_b": lambda old, x, bits: old ^ x,
    "swap_b": lambda old, x, bits: x,
    "storexchg_b": lambda old, x, bits: x,
    "add_f": make_float_atomic(lambda a, b: a + b),
    "min_num_f": make_float_atomic(floats.min_num),
    "max_num_f": make_float_atomic(floats.max_num),
}


def atomic_name(name: str) -> tuple[str, int] | None:
    """("add_u", 32) of add_u32, add_rtn_u32 …"""
    text = name.replace("_rtn", "")[:-2]
    bits = 64 if name.endswith("64") else 32
    if not name[-2:].isdigit() or (bits == 64 and text.endswith("_f")):
        return None
    return (text, bits) if text in _ATOMICS or text in ("cmpswap_b", "cmpstore_b", "mskor_b") else None


def to_number(data: Array) -> int:
    return int.from_bytes(data.tobytes(), "little")


def apply_atomic(kind: str, old: int, values: list[int], bits: int) -> int:
    if kind == "cmpswap_b":
        return values[0] if old == values[1] else old
    if kind == "cmpstore_b":
        return values[0] if old == values[1] else old
    if kind == "mskor_b":
        return old & ~values[0] | values[1]
    return _ATOMICS[kind](old, values[0], bits) & (1 << bits) - 1


def lane_value(wave: ModelWave, register: int, lane: int, bits: int) -> int:
    value = int(wave.v[register][lane])
    return value | int(wave.v[register + 1][lane]) << 32 if bits == 64 else value


def write_lane(wave: ModelWave, register: int, lane: int, value: int, bits: int) -> None:
    wave.v[register][lane] = value & 0xFFFFFFFF
    if bits == 64:
        wave.v[register + 1][lane] = value >> 32
