"""WMMA: products of 16x16 matrices spread over a wave. Sums of 8-bit floats are float64: nothing says how."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sim.shader_model import model_dot as dot
from sim.shader_model import model_floats as floats
from sim.shader_model import model_modes as modes
from sim.shader_model.model_packed import modifier_bits
from sim.shader_model.model_state import ModelWave, vector_reader

from zinc_rt.isa import Instruction, Kind, Operand

Array = np.ndarray
Step = Callable[[ModelWave], None]
U16, U32, F16, F32, F64, I64 = np.uint16, np.uint32, np.float16, np.float32, np.float64, np.int64


def result_position(width: int) -> tuple[Array, Array]:
    """Return lane and VGPR (32-bit results) of D[row][col] (manual 7.12.2)."""
    row, col = np.meshgrid(np.arange(16), np.arange(16), indexing="ij")
    if width == 32:
        return (row >> 3) * 16 + col, row & 7
    return (row >> 2 & 1) * 32 + (row >> 3) * 16 + col, row & 3


def read_matrix(
    wave: ModelWave, operand: Operand, bits: int, decode: Callable[[Array], Array], groups: int
) -> Array:
    """[16, K]: lane i of every group of 16 holds row i of A (column i of B). The order of k does not affect the
    product, because A and B use the same order.
    """
    parts = []
    for group in range(groups):
        for register in range(operand.width):
            value = wave.v[operand.index + register][16 * group : 16 * group + 16]
            parts += [decode(value >> U32(bits * i) & U32((1 << bits) - 1)) for i in range(32 // bits)]
    return np.stack(parts, axis=1)


def element_decoder(kind: str, signed: bool = False) -> tuple[int, Callable[[Array], Array]]:
    if kind in ("iu8", "iu4"):
        bits = int(kind[2])
        sign = 1 << bits - 1
        return bits, lambda x: ((x.astype(I64) ^ sign) - sign) if signed else x.astype(I64)
    if kind == "f16":
        return 16, lambda x: x.astype(U16).view(F16).astype(F64)
    if kind == "bf16":
        return 16, lambda x: floats.bf16_to_f32(x).astype(F64)
    return 8, lambda x: floats.small_to_f32(x, 4 if kind == "fp8" else 5).astype(F64)


def bind_wmma(instruction: Instruction, width: int) -> Step:
    parts = instruction.mnemonic.split("_")  # v wmma RESULT SHAPE A [B]
    result_kind, shape, kind_a = parts[2], parts[3], parts[4]
    kind_b = parts[5] if len(parts) > 5 else kind_a
    to, a, b, c = instruction.operands
    neg_low, neg_high = (
        modifier_bits(instruction, "neg_lo", (0, 0, 0)),
        modifier_bits(instruction, "neg_hi", (0, 0, 0)),
    )
    is_integer = kind_a in ("iu8", "iu4")
    bits_a, decode_a = element_decoder(kind_a, bool(neg_low[0]))
    bits_b, decode_b = element_decoder(kind_b, bool(neg_low[1]))
    groups = 2 if shape == "16x16x16" and kind_a == "iu4" else width // 16
    lanes, registers = result_position(width)
    clamp = instruction.modifier("clamp") is not None
    half_result = result_kind in ("f16", "bf16")
    constant = None
    if c.kind is not Kind.VGPR:
        bits = 16 if result_kind == "f16" else 32
        constant = int(vector_reader(c, bits, 1, is_float=not is_integer)(None)[0])  # type: ignore[arg-type]
        constant = constant >> 16 if result_kind == "bf16" and c.kind is Kind.FLOAT else constant

    def load_c(wave: ModelWave) -> Array:
        if half_result:
            if constant is not None:
                bits = np.full((16, 16), constant, U16)
            else:
                words = np.array([wave.v[c.index + i] for i in range(c.width)])[registers >> 1, lanes]
                bits = (words >> (16 * (registers & 1)).astype(U32)).astype(U16)
            return (floats.bf16_to_f32(bits) if result_kind == "bf16" else bits.view(F16)).astype(F64)
        if constant is not None:
            words = np.full((16, 16), constant, U32)
        else:
            words = np.array([wave.v[c.index + i] for i in range(c.width)])[registers, lanes]
        return words.view(np.int32).astype(I64) if is_integer else words.view(F32).astype(F64)

    def load(wave: ModelWave, operand: Operand, bits: int, decode: Callable[[Array], Array], place: int) -> Array:
        values = read_matrix(wave, operand, bits, decode, groups)
        if not is_integer and bits == 16:
            values[:, 0::2] *= -1.0 if neg_low[place] else 1.0
            values[:, 1::2] *= -1.0 if neg_high[place] else 1.0
        return values

    def raw_c(wave: ModelWave) -> Array:
        """uint32 [16, 16]: bits of C, under abs and neg."""
        if constant is not None:
            bits = np.full((16, 16), constant & (0xFFFF if half_result else 0xFFFFFFFF), U32)
        else:
            words = np.array([wave.v[c.index + i] for i in range(c.width)])
            bits = words[registers >> 1 if half_result else registers, lanes]
            bits = bits >> (16 * (registers & 1)).astype(U32) & U32(0xFFFF) if half_result else bits
        sign = U32(0x8000 if half_result else 0x80000000)
        bits = bits & ~sign if neg_high[2] else bits
        return bits ^ sign if neg_low[2] else bits

    def multiply_in_steps(wave: ModelWave) -> Array:
        """uint32 [16, 16]: four products a step; a wave of 32 takes each lane group's upper registers last."""
        factors = []
        for location, operand in enumerate((a, b)):
            bits = read_matrix(wave, operand, 16, lambda x: x.astype(U16), groups)
            bits[:, 0::2] ^= U16(0x8000 * neg_low[location])
            bits[:, 1::2] ^= U16(0x8000 * neg_high[location])
            factors.append(bits)
        total = raw_c(wave)
        for start in (0, 8, 4, 12) if width == 32 else (0, 4, 8, 12):
            left, right = (factor[:, start : start + 4] for factor in factors)
            shape = (16, 16, 4)
            rows, columns = np.broadcast_to(left[:, None], shape), np.broadcast_to(right[None, :], shape)
            total = dot.dot_step(
                rows, columns, total, kind_a, result_kind, saturates=modes.is_saturating(wave.mode)
            )
        return total

    def step(wave: ModelWave) -> None:
        if bits_a == 16 and not is_integer:
            bits = multiply_in_steps(wave)
            out = np.zeros((to.width, width), U32)
            if half_result:
                np.bitwise_or.at(out, (registers >> 1, lanes), bits << (16 * (registers & 1)).astype(U32))
            else:
                out[registers, lanes] = bits
            for i in range(to.width):
                wave.write_v(to.index + i, out[i])
            return
        old = load_c(wave)
        if not is_integer:
            old = np.abs(old) if neg_high[2] else old
            old = -old if neg_low[2] else old
        left, right = load(wave, a, bits_a, decode_a, 0), load(wave, b, bits_b, decode_b, 1)
        total = left @ right.T + old if is_integer else (left[:, None, :] * right[None, :, :]).sum(axis=2) + old
        if is_integer and clamp:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        if half_result:
            bits = floats.f32_to_bf16(total.astype(F32)) if result_kind == "bf16" else total.astype(F16).view(U16)
            out = np.zeros((to.width, width), U32)
            np.bitwise_or.at(out, (registers >> 1, lanes), bits.astype(U32) << (16 * (registers & 1)).astype(U32))
        else:
            out = np.zeros((to.width, width), U32)
            out[registers, lanes] = total.astype(U32) if is_integer else total.astype(F32).view(U32)
        for i in range(to.width):
            wave.write_v(to.index + i, out[i])

    return step
