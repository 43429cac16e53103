"""Unkind inputs: NaNs, infinities, denormals, both zeros, ties, extreme and all-ones integers, big shifts."""

from __future__ import annotations

import numpy as np
from instruction_kernels import INPUTS, SCALAR_INPUTS, VECTOR_INPUTS, input_bytes

Array = np.ndarray
_F32 = (
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x00800001,
    0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F800001, 0x3F000000, 0xBF000000, 0x3FC00000, 0x40200000, 0xC0200000,
    0x40490FDB, 0x42FE0000, 0x437F0000, 0x437F8000, 0x4B000000, 0x4B000001, 0x4AFFFFFF, 0x4F000000, 0xCF000000,
    0xCF000001, 0x4F7FFFFF, 0x4F800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001,
    0x7F800001, 0xFFA00000, 0x7FFFFFFF, 0xC2FC0000, 0xC3160000, 0x43000000, 0x38800000, 0x33800000, 0x477FE000,
    0x477FF000, 0x7E800000, 0x7F000000, 0x00400000, 0x3E22F983, 0xBF7FFFFF, 0x46FFFE00,
)  # fmt: skip
_F16 = (
    0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x3BFF, 0x3C01, 0x3800, 0x4100,
    0x4248, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01, 0xFD00, 0x6400, 0x6401, 0x7800, 0x0801, 0x1400,
)  # fmt: skip
_U32 = (
    0x00000000, 0x00000001, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x80000001, 0x0000FFFF, 0xFFFF0000, 0x00008000,
    0x00007FFF, 0xFFFF8000, 0x00010000, 0x00FFFFFF, 0x01000000, 0x00800000, 0x007FFFFF, 0xFF800000, 0xAAAAAAAA,
    0x55555555, 0x000000FF, 0x00000080, 0x80808080, 0x7F7F7F7F, 0x0F0F0F0F, 0x88888888, 0x12345678, 0x0C0D0E0F,
    0x03020100, 0x0B0A0908, 0x01000001,
)  # fmt: skip
_F64 = (
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x800FFFFFFFFFFFFF, 0x0010000000000000,
    0x3FF0000000000000, 0xBFF0000000000000, 0x3FE0000000000000, 0xC004000000000000, 0x3FEFFFFFFFFFFFFF,
    0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001,
    0x41DFFFFFFFC00000, 0xC1E0000000000000, 0x41EFFFFFFFE00000, 0x4330000000000001, 0x3FF0000010000000,
    0x3810000000000000, 0x369FFFFFFFFFFFFF, 0x47EFFFFFF0000000, 0x400921FB54442D18, 0x43E0000000000000,
)  # fmt: skip


def mix_values(specials: tuple[int, ...], bits: int, rng: np.random.Generator, count: int, near: Array) -> Array:
    """Return values: half special, a quarter random bits, a quarter of ordinary magnitude."""
    kind = np.uint64
    picked = np.array(specials, kind)[rng.integers(len(specials), size=count)]
    any_bits = (
        rng.integers(0, 1 << bits, size=count, dtype=kind)
        if bits < 64
        else rng.integers(0, (1 << 64) - 1, size=count, dtype=kind)
    )
    which = rng.integers(4, size=count)
    return np.where(which < 2, picked, np.where(which == 2, any_bits, near.astype(kind)))


def random_floats(kind: type, unsigned: type, rng: np.random.Generator, count: int, scale: float) -> Array:
    return (rng.standard_normal(count) * scale).astype(kind).view(unsigned)


def random_values(kind: str, rng: np.random.Generator, count: int) -> Array:
    """uint32 [count] of a kind; f64lo and f64hi come from `random_pairs`."""
    if kind == "f32":
        return mix_values(_F32, 32, rng, count, random_floats(np.float32, np.uint32, rng, count, 100.0)).astype(
            np.uint32
        )
    if kind == "f16":
        halves = [
            mix_values(_F16, 16, rng, count, random_floats(np.float16, np.uint16, rng, count, 10.0))
            for _ in range(2)
        ]
        return (halves[0] | halves[1] << np.uint64(16)).astype(np.uint32)
    if kind == "shift":
        return np.where(
            rng.integers(3, size=count) > 0, rng.integers(0, 70, size=count), rng.integers(0, 1 << 32, size=count)
        ).astype(np.uint32)
    if kind in ("lane", "index"):
        return rng.integers(0, 256, size=count).astype(np.uint32)
    if kind == "class":
        return rng.integers(0, 1 << 10, size=count).astype(np.uint32)
    if kind == "bit":
        return rng.integers(0, 2, size=count).astype(np.uint32)
    if kind == "mild":
        return random_floats(np.float32, np.uint32, rng, count, 2.0)
    if kind in ("mild16", "bf16"):
        if kind == "bf16":
            halves = [random_floats(np.float32, np.uint32, rng, count, 2.0) >> np.uint32(16) for _ in range(2)]
        else:
            halves = [random_floats(np.float16, np.uint16, rng, count, 2.0).astype(np.uint32) for _ in range(2)]
        return halves[0] | halves[1] << np.uint32(16)
    if kind == "mild8":  # FP8 of about 1: exponents 4 to 9 of 15
        parts = [rng.integers(0x20, 0x50, size=count) | rng.integers(0, 2, size=count) << 7 for _ in range(4)]
        return sum(part << 8 * i for i, part in enumerate(parts)).astype(np.uint32)
    if kind == "fp8":
        return rng.integers(0, 1 << 32, size=count, dtype=np.uint64).astype(np.uint32)
    if kind == "bfe":
        return (rng.integers(0, 32, size=count) | rng.integers(0, 40, size=count) << 16).astype(np.uint32)
    if kind in ("u32", "selector", "exec"):
        return mix_values(_U32, 32, rng, count, rng.integers(0, 300, size=count)).astype(np.uint32)
    raise KeyError(kind)


def random_pairs(rng: np.random.Generator, count: int) -> Array:
    near = (rng.standard_normal(count) * 1000).view(np.uint64)
    return mix_values(_F64, 64, rng, count, near)


def exec_masks(wave: int, trials: int, rng: np.random.Generator) -> list[int]:
    """Return masks: all lanes, none, alternating, one lane, a tail, and a few random ones."""
    full = (1 << wave) - 1
    fixed = [full, 0x5555555555555555 & full, 1 << (wave - 3), full >> (wave // 2 - 3), 0, full ^ 0x0F0F00F0F]
    while len(fixed) < trials:
        fixed.append(int.from_bytes(rng.bytes(8), "little") & full)
    return fixed[:trials]


def random_inputs(wave: int, trials: int, seed: int) -> Array:
    """uint32 [trials, INPUTS * wave + 32]: what a kernel's workgroups read."""
    rng = np.random.default_rng(seed)
    out = np.zeros((trials, input_bytes(wave) // 4), np.uint32)
    for trial, mask in enumerate(exec_masks(wave, trials, rng)):
        vectors = out[trial, : INPUTS * wave].reshape(INPUTS, wave)
        fill_registers(vectors, VECTOR_INPUTS, rng)
        scalars = out[trial, INPUTS * wave :].reshape(32, 1)
        fill_registers(scalars, SCALAR_INPUTS, rng)
        scalars[20:22, 0] = mask & 0xFFFFFFFF, mask >> 32
    return out


def fill_registers(registers: Array, kinds: tuple[str, ...], rng: np.random.Generator) -> None:
    count = registers.shape[1]
    for i, kind in enumerate(kinds):
        if kind == "f64lo":
            pair = random_pairs(rng, count)
            registers[i], registers[i + 1] = pair.astype(np.uint32), (pair >> np.uint64(32)).astype(np.uint32)
        elif kind != "f64hi":
            registers[i] = random_values(kind, rng, count)
