"""Sparse matrix products on the engine, against dense ones: A with its zeros written out, times B, added to C."""

from __future__ import annotations

import numpy as np
import pytest
from sim.shader_model import model_dot as dot
from sim.shader_model import model_floats as floats
from sim.shader_model.model_wmma import result_position
from swmmac_programs import FORMS, index_key_count, list_programs, operand_widths, read_programs

from zinc_rt.sim.shader.run.engine_device import EngineDevice

Array = np.ndarray
U16, U32 = np.uint16, np.uint32
PROGRAMS = read_programs()
TWO_OF_FOUR = np.array([low | high << 2 for low in range(4) for high in range(low + 1, 4)], U32)
QUICK = {
    ("v_swmmac_f32_16x16x32_f16", 32, 1), ("v_swmmac_bf16_16x16x32_bf16", 64, 3),
    ("v_swmmac_i32_16x16x32_iu8", 32, 0), ("v_swmmac_i32_16x16x32_iu4", 64, 1),
    ("v_swmmac_f32_16x16x32_fp8_bf8", 32, 1),
}  # fmt: skip


def unpack_fields(words: Array, bits: int) -> Array:
    """uint32 [lanes, elements] of registers [lanes, registers]."""
    parts = words[:, :, None] >> (U32(bits) * np.arange(32 // bits, dtype=U32)) & U32((1 << bits) - 1)
    return parts.reshape(len(words), -1)


def to_numbers(bits: Array, kind: str, *, signed: bool = False) -> Array:
    """float64 of elements."""
    if kind.startswith("iu"):
        top = 1 << int(kind[2]) - 1
        return ((bits.astype(np.int64) ^ top) - top if signed else bits.astype(np.int64)).astype(float)
    if kind in ("fp8", "bf8"):
        return floats.small_to_f32(bits, 4 if kind == "fp8" else 5).astype(float)
    return dot.to_numbers(bits, kind)


def arrange_rows(elements: Array, wave: int, lane_map: int) -> Array:
    """[16, groups * elements]: what lanes row, row + 16, ... hold, one after the other."""
    groups = elements.reshape(wave // 16, 16, -1)[: lane_map // 16]
    return groups.transpose(1, 0, 2).reshape(16, -1)


def sparse_operands(
    name: str, wave: int, key: int, a: Array, b: Array, index: Array
) -> tuple[Array, Array, Array]:
    """Return the bits of A's stored elements [16, n] and of B's columns [16, 2n], and the index of the element of
    B that each element of A is multiplied by [16, n].
    """
    bits = FORMS[name][3]
    of_a, of_b = unpack_fields(a, bits), unpack_fields(b, bits)
    stored = of_a.shape[1]
    used = 32 if name.endswith("16x16x32_iu4") else wave
    choice = unpack_fields(index[:, None] >> U32(key * 2 * stored % 32), 2)[:, :stored].astype(int)
    rows, choices = arrange_rows(of_a, wave, used), arrange_rows(choice, wave, used)
    if used < of_b.shape[0] and wave == 64:  # lanes 0 to 15 meet 0 to 15 and 32 to 47
        groups = of_b.reshape(4, 16, -1)
        columns = np.concatenate([groups[g] for g in (0, 2, 1, 3)], axis=1)
    else:
        columns = arrange_rows(of_b, wave, wave)
    return rows, columns, np.arange(rows.shape[1])[None] // 2 * 4 + choices


def accumulator_matrix(words: Array, wave: int, half: bool) -> Array:
    """Bits [16, 16] of C or D."""
    lanes, places = result_position(wave)
    if not half:
        return words[lanes, places]
    return words[lanes, places >> 1] >> (16 * (places & 1)).astype(U32) & U32(0xFFFF)


def random_inputs(name: str, wave: int, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """Return A [wave, 4], B, C [wave, 8] and index [wave], with floats of ordinary magnitude."""
    kind = name.split("_")[4]
    if kind not in ("f16", "bf16"):
        a, b = (rng.integers(0, 1 << 32, (wave, n), U32) for n in (4, 8))
        if "8_" in name:  # no NaN, no infinity
            a, b = (x & U32(0xBBBBBBBB) for x in (a, b))
    else:
        result = [rng.standard_normal((wave, 2 * n)).astype(np.float32) for n in (4, 8)]
        a, b = (
            (x.astype(np.float16).view(U16) if kind == "f16" else floats.f32_to_bf16(x)).view(U32) for x in result
        )
    c = rng.standard_normal((wave, 8)).astype(np.float32).view(U32)
    if name.split("_")[2] in ("f16", "bf16"):
        c = (c & U32(0xBFFFBFFF)) >> U32(1) & U32(0x3FFF3FFF)
    if "_i32_" in name:
        c = rng.integers(0, 1 << 32, (wave, 8), U32)
    chosen = TWO_OF_FOUR[rng.integers(0, 6, (wave, 8))] << (U32(4) * np.arange(8, dtype=U32))
    return a, b, c, np.bitwise_or.reduce(chosen, axis=1)


ROWS = [pytest.param(*row, id="-".join(map(str, row)), marks=[] if row in QUICK else [pytest.mark.slow])
        for row in list_programs()]  # fmt: skip


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("name", "wave", "key"), ROWS)
def test_sparse_product_matches_the_dense_one(name: str, wave: int, key: int) -> None:
    rng = np.random.default_rng([wave, key, len(name)])
    result, kind, other = name.split("_")[2], name.split("_")[4], name.split("_")[-1]
    d, wide_a, wide_b = operand_widths(name, wave)
    a, b, c, index = random_inputs(name, wave, rng)
    placed = [a.copy(), b.copy(), c.copy(), index.copy()]
    device = EngineDevice(level="full")
    words = [part for va in (device.place(item) for item in placed) for part in (va & 0xFFFFFFFF, va >> 32)]
    findings = device.run(PROGRAMS[name, wave, key], threads=(wave, 1, 1), wave=wave, user_data=words, name=name)
    assert not findings, [finding.sentence for finding in findings]
    rows, columns, met = sparse_operands(name, wave, key, a[:, :wide_a], b[:, :wide_b], index)
    start, got = (accumulator_matrix(item[:, :d], wave, result in ("f16", "bf16")) for item in (c, placed[2]))
    dense = np.zeros((16, columns.shape[1]))
    left = to_numbers(rows, kind, signed=result == "i32" and key == 0)
    np.put_along_axis(dense, met, left, axis=1)
    assert dense.shape[1] == FORMS[name][4] and (np.count_nonzero(dense.reshape(16, -1, 4), axis=2) <= 2).all()
    total = dense @ to_numbers(columns, other).T
    if result == "i32":
        want = (total.astype(np.int64) + start.view(np.int32)).astype(U32)
        assert (got == want).all()
        return
    near = to_numbers(got, result) - to_numbers(start, result) - total
    scale = {"f32": 2.0**-18, "f16": 2.0**-7, "bf16": 2.0**-4}[result] * np.maximum(1, np.abs(total).max())
    assert np.abs(near).max() < scale
    if kind in ("f16", "bf16"):  # to the bit: the dense form's steps of the stored elements
        bits = np.broadcast_to(rows[:, None], (16, 16, rows.shape[1]))
        others = np.stack([columns[:, met[row]] for row in range(16)])
        want = start
        for first in (0, 8, 4, 12) if wave == 32 else (0, 4, 8, 12):
            step = slice(first, first + 4)
            want = dot.dot_step(bits[..., step], others[..., step], want, kind, result)
        assert (got == want).all()


@pytest.mark.rest
def test_index_key_selects_different_index_fields() -> None:
    """The same index register by another key gives another product."""
    name, wave = "v_swmmac_f32_16x16x32_f16", 32
    a, b, c, index = random_inputs(name, wave, np.random.default_rng(5))
    got = []
    for key in range(index_key_count(name, wave)):
        placed = [a.copy(), b.copy(), c.copy(), index.copy()]
        device = EngineDevice(level="off")
        words = [part for va in (device.place(item) for item in placed) for part in (va & 0xFFFFFFFF, va >> 32)]
        device.run(PROGRAMS[name, wave, key], threads=(wave, 1, 1), wave=wave, user_data=words)
        got.append(placed[2])
    assert (got[0] != got[1]).mean() > 0.9


@pytest.mark.rest
def test_integers_saturate_after_each_half_wave() -> None:
    """Lanes 0 to 15 add 8 to the largest number, lanes 16 to 31 take 8 off again."""
    name, wave = "v_swmmac_i32_16x16x32_iu8", 32
    a = np.full((wave, 4), 0x01010101, U32)
    a[16:] = 0xFFFFFFFF  # -1: A is signed with key 0
    b, c, index = np.full((wave, 8), 0x01010101, U32), np.full((wave, 8), 0x7FFFFFFF, U32), np.zeros(wave, U32)
    code = np.frombuffer(PROGRAMS[name, wave, 0], U32)
    clamp = np.where(code >> U32(16) == 0xCC54, U32(1 << 15), U32(0))
    assert np.count_nonzero(clamp) == 1
    for with_clamp, want in ((True, 0x7FFFFFF7), (False, 0x7FFFFFFF)):
        placed = [a.copy(), b.copy(), c.copy(), index.copy()]
        device = EngineDevice(level="off")
        words = [part for va in (device.place(item) for item in placed) for part in (va & 0xFFFFFFFF, va >> 32)]
        device.run((code | clamp * with_clamp).tobytes(), threads=(wave, 1, 1), wave=wave, user_data=words)
        assert (placed[2] == want).all()
