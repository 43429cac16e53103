"""Arithmetic as it was captured on gfx1201 silicon: rows with their source, by group, on engine and NumPy model.

`pytest --slow -rP` shows the table: rows tried, equal, by group; without --slow one in four of the largest groups.
exp, log, sqrt, rcp and rsq of ordinary 32-bit numbers, whose tables were not derived (docs/vector-alu.md), are
equal or one unit beside: each such row is named.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captured_rows import FP16_OVFL, WORD, CapturedRow, load_rows, run_rows
from machine_words import ENDPGM, LITERAL, code_of, sopp, v_mov
from sim.shader_model import model_dot as dot
from sim.shader_model.model_device import ModelDevice
from support import Counts
from vector_programs import read_programs, run_program

from zinc_rt.sim.shader.run.engine_device import EngineDevice

Array = np.ndarray
U16, U32 = np.uint16, np.uint32
FILE = Path(__file__).with_name("silicon_rows.txt")
COUNTS = {"dot2 f16": 50, "dot2 bf16": 71, "wmma f16": 12, "wmma bf16": 12, "packed operands": 440}
INSTRUCTIONS = load_rows()
GROUPS = {  # and how many rows
    "conversions": 84,
    "tininess": 11,
    "overflow": 12,
    "policy": 29,
    "choices": 33,
    "mixed": 20,
    "exp and log, modes": 192,
    "functions": 125,
    "arithmetic": 573,
}
NAN, NEGATIVE_NAN, SIGNALLING = 0x7FC12345, 0xFFC54321, 0x7F812345
ONE, TWO, MINUS_ZERO, INFINITY = 0x3F800000, 0x40000000, 0x80000000, 0x7F800000
DENORMAL, SMALLEST, LARGEST, HALF = 0x00000003, 0x00800000, 0x7F7FFFFF, 0x3F000000


def captured_matrices() -> dict[str, Array]:
    """Rows [n, words] of each group."""
    result: dict[str, list[list[int]]] = {}
    for line in FILE.read_text().splitlines():
        if line in COUNTS:
            result[line] = []
        elif not line.startswith("#"):
            result[list(result)[-1]].append([int(word, 16) for word in line.split()])
    return {name: np.array(rows, U32) for name, rows in result.items()}


ROWS = captured_matrices()


def assert_equal_rows(group: str, got: Array, want: Array) -> None:
    wrong = [(hex(g), hex(w)) for g, w in zip(got, want, strict=True) if g != w]
    print(f"{group:24} tried {len(want):4}  equal {len(want) - len(wrong):4}")
    assert not wrong, f"{group}: got and expected {wrong[:4]}"


def test_every_captured_row_is_present() -> None:
    assert {name: len(rows) for name, rows in ROWS.items()} == COUNTS
    assert Counter(row.group for row in INSTRUCTIONS) == GROUPS


def run_captured_rows(
    device: type[EngineDevice] | type[ModelDevice], rows: list[CapturedRow]
) -> list[tuple[CapturedRow, int]]:
    """Rows with their results."""
    result: list[tuple[CapturedRow, int]] = []
    for overflow in (0, FP16_OVFL):
        some = [row for row in rows if row.mode & FP16_OVFL == overflow]
        result += zip(some, run_rows(device(level="off"), some), strict=True)
    return result


@pytest.mark.rest
@pytest.mark.parametrize("device", [EngineDevice, ModelDevice])
def test_captured_instructions_match(device: type[EngineDevice] | type[ModelDevice], slow_counts: Counts) -> None:
    step = slow_counts(4, 1)
    taken = [row for index, row in enumerate(INSTRUCTIONS) if GROUPS[row.group] < 150 or index % step == 0]
    got = run_captured_rows(device, taken)
    wrong: list[str] = []
    for group in GROUPS:
        rows = [(row, value) for row, value in got if row.group == group]
        beside = [(row, value) for row, value in rows if value != row.want]
        print(f"{group}, {device.__name__}: tried {len(rows)}, equal {len(rows) - len(beside)}")
        for row, value in beside:
            text = " ".join(f"{item:x}" for item in row.given)
            named = f"{row.text}, mode {row.mode:#x}, of {text}: {value:#x}, silicon {row.want:#x}"
            print("   ", named)
            if not is_one_ulp_off(row, value):
                wrong.append(named)
    assert not wrong, "\n".join(wrong)


@pytest.mark.rest
def test_stochastic_rounding_matches() -> None:
    """Engine and model, of random bits and of the formats' edges, denormals flushed or not."""
    rng = np.random.default_rng(8)
    rows = []
    for row in INSTRUCTIONS:
        if row.name.startswith("v_cvt_sr") and not row.mode & FP16_OVFL:
            for trial in range(20):
                scale = rng.integers(*((90, 140), (0, 256))[trial % 2]) << 23
                value = int(rng.integers(1 << 23) | scale | rng.integers(2) << 31)
                random = int((0, WORD, rng.integers(WORD))[trial % 3])
                rows.append(replace(row, mode=(0xF0, 0x00)[trial % 2], given=(value, random)))
    got = run_rows(EngineDevice(level="off"), rows)
    assert got == run_rows(ModelDevice(), rows)
    assert len(set(got)) > len(rows) // 2


def is_one_ulp_off(row: CapturedRow, value: int) -> bool:
    """A function for ordinary numbers whose table was not derived."""
    ordinary = 0 < row.given[0] & 0x7F800000 < 0x7F800000
    return row.group == "functions" and ordinary and abs(value - row.want) == 1


@pytest.mark.rest
@pytest.mark.parametrize("device", [EngineDevice, ModelDevice])
def test_packed_matrix_operands_match(device: type[EngineDevice] | type[ModelDevice], slow_counts: Counts) -> None:
    """Modifiers, selectors and constants of 16-bit WMMA; selectors of halves mean nothing to gfx12."""
    rows = ROWS["packed operands"][:: slow_counts(5, 1)]
    out = np.zeros((len(rows), 32, 4), U32)
    words, present = [0x360000FF, 0x3FF, 0x30000084], (0, 0, 0)  # v0 = 16 times the lane
    for location, (first, second, *argument, _) in enumerate(rows.tolist()):
        for start, before, value in zip((4, 8, 16), present, argument, strict=True):
            if location == 0 or before != value:
                words += [part for index in range(4) for part in (v_mov(start + index, LITERAL), value)]
        present = tuple(argument)
        moved = (second & ~0x1FF) | 0x104  # A to v[4:7]: v0 has the addresses
        words += [part for index in range(4) for part in (v_mov(24 + index, LITERAL), 0x56781234)]
        words += [first, moved, 0xEE074000, 24 << 23, location << 17]  # global_store_b128 v0, v[24:27], s[0:1]
    built = device(level="off")
    va = built.place(out, "out")
    assert not built.run(code_of(words, ENDPGM), user_data=(va & WORD, va >> 32))
    assert (out == out[:, :1, :1]).all()
    assert_equal_rows(f"packed operands, {device.__name__}", out[:, 0, 0], rows[:, -1])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_dot2_matches(kind: str) -> None:
    rows = ROWS[f"dot2 {kind}"]
    padded = np.resize(rows, (-(-len(rows) // 32) * 32, 4))
    out, findings = run_program("dot2_rows", tuple(padded[:, index].copy() for index in range(3)))
    assert not findings
    assert_equal_rows(f"dot2 {kind}, engine", out[kind == "bf16"][: len(rows)], rows[:, 3])
    a, b = (np.stack([rows[:, index] & 0xFFFF, rows[:, index] >> 16], axis=-1) for index in range(2))
    assert_equal_rows(f"dot2 {kind}, model", dot.dot_step(a, b, rows[:, 2], kind, "f32"), rows[:, 3])


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_wmma_matches(kind: str) -> None:
    """All rows of A and columns of B are the same, so all of D is."""
    rows = ROWS[f"wmma {kind}"]
    of_lanes = [
        np.repeat(rows[:, first : first + 16].astype(U16).reshape(-1, 2, 1, 8), 16, axis=2).reshape(-1)
        for first in (0, 16)
    ]
    device = EngineDevice()
    out = [np.zeros(5 * 1024, U32), *(np.zeros(32 * len(rows), U32) for _ in range(3))]
    placed = [*(item.view(U32).copy() for item in of_lanes), np.repeat(rows[:, 32], 32), *out]
    addresses = [device.place(item) for item in placed]
    words = [part for va in addresses for part in (va & 0xFFFFFFFF, va >> 32)]
    assert not device.run(read_programs()[f"wmma_rows_{kind}"], groups=(len(rows), 1, 1), user_data=words)
    got = out[1].reshape(len(rows), 32)
    assert (got == got[:, :1]).all()
    assert_equal_rows(f"wmma {kind}, engine", got[:, 0], rows[:, 33])
    for wave, order, want in ((32, (0, 8, 4, 12), rows[:, 33]), (64, (0, 4, 8, 12), rows[:, 34])):
        total = rows[:, 32]
        for first in order:
            total = dot.dot_step(rows[:, first : first + 4], rows[:, 16 + first : 20 + first], total, kind, "f32")
        assert_equal_rows(f"wmma {kind}, model wave{wave}", total, want)


def packed_matrices() -> dict[str, dict[str, Array]]:
    """A [4, 16], B [16, 16], C and D [4, 16] of each, as uint32 bits of halves."""
    result: dict[str, dict[str, list[list[int]]]] = {}
    for line in FILE.with_name("packed_matrices.txt").read_text().splitlines():
        if line.startswith("packed"):
            _, name, matrix = line.split()
            rows = result.setdefault(name, {}).setdefault(matrix, [])
        elif not line.startswith("#"):
            rows.append([int(word, 16) for word in line.split()])
    return {name: {key: np.array(rows, U32) for key, rows in item.items()} for name, item in result.items()}


def multiply_halves(device: EngineDevice | ModelDevice, a: Array, b: Array, c: Array, mode: int = 0xF0) -> Array:
    """The first rows of v_wmma_f16_16x16x16_f16, wave32: uint32 bits of halves [rows, 16]."""
    rows = len(a)
    left, start = np.zeros((2, 16, 16), U32)
    left[:rows], start[:rows] = a, c
    argument = np.zeros((3, 32, 4), U32)  # of each lane four registers
    for index, matrix in enumerate((left, b.T)):  # a row of A, a column of B: eight k in each half of the lanes
        halves = matrix.reshape(16, 2, 4, 2).transpose(1, 0, 2, 3).reshape(32, 4, 2)
        argument[index] = halves[..., 0] | halves[..., 1] << U32(16)
    of_lanes = start.reshape(2, 4, 2, 16).transpose(0, 3, 1, 2).reshape(32, 4, 2)
    argument[2] = of_lanes[..., 0] | of_lanes[..., 1] << U32(16)
    out = np.zeros((32, 4), U32)
    words = [0x360000FF, 0x3FF, 0x30000084]  # v0 = 16 times the lane
    for index, register in enumerate((4, 8, 16)):  # global_load_b128 v[register:register + 3], v0, s[2:3]
        words += [0xEE05C002, register, 512 * index << 8]
    words += [sopp("s_wait_loadcnt"), 0xCC424018, 0x1C421104, 0xEE074000, 24 << 23, 0, ENDPGM]
    addresses = [device.place(out, "out"), device.place(argument, "given")]
    user_data = [part for va in addresses for part in (va & WORD, va >> 32)]
    assert not device.run(code_of(words), user_data=user_data, mode=mode)
    parts = np.stack([out & U32(0xFFFF), out >> U32(16)], axis=-1).reshape(2, 16, 8)
    return parts.transpose(0, 2, 1).reshape(16, 16)[:rows]


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("device", [EngineDevice, ModelDevice])
@pytest.mark.parametrize("name", ["fractional", "underflow"])
def test_packed_matrices_match(name: str, device: type[EngineDevice] | type[ModelDevice]) -> None:
    of = packed_matrices()[name]
    got = multiply_halves(device(level="off"), of["A"], of["B"], of["C"])
    assert_equal_rows(f"packed {name}, {device.__name__}", got.ravel(), of["D"].ravel())


@pytest.mark.parametrize("device", [EngineDevice, ModelDevice])
def test_packed_matrix_steps_saturate(device: type[EngineDevice] | type[ModelDevice]) -> None:
    """Two largest numbers times 2 overflow the first step, the second takes one off again: nothing is left under
    FP16_OVFL, an infinity stays."""
    a, b, c = np.zeros((1, 16), U32), np.zeros((16, 16), U32), np.zeros((1, 16), U32)
    a[0, [0, 1, 8]], b[:2], b[8] = (0x7BFF, 0x7BFF, 0xFBFF), 0x4000, 0x3C00
    assert (multiply_halves(device(level="off"), a, b, c) == 0x7C00).all()
    assert (multiply_halves(device(level="off"), a, b, c, mode=FP16_OVFL | 0xF0) == 0).all()
    a[0, 0] = 0x7C00
    assert (multiply_halves(device(level="off"), a, b, c, mode=FP16_OVFL | 0xF0) == 0x7C00).all()


# FNV-1a over the little-endian words of v_exp_f16, log, rcp, rsq, sqrt of every half, in this order, captured on
# gfx1201 (emulation/rocjitsu/tests/transcendental_valu_test.cpp): modifiers, MODE, digest.
HALVES = [
    ("none", 0xF0, 0x17C9EF1078F9B1A5),
    ("none", 0x00, 0x0527382759F0B7A6),
    ("none", 0x8000F0, 0x97D6D7CC080DE2E1),
    ("div2", 0x8000F0, 0x9ECEFD3A65B12162),
    ("mul4", 0x70, 0x1BCB83EB3A4A5BE1),
    ("clampmul2", 0xF0, 0xD857FF04D20B5141),
    ("negabs", 0xB0, 0xA07F6EF2768FF661),
    ("neg", 0x0F, 0x7B270CCF1AF75986),
]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("modifiers", "mode", "digest"), HALVES)
def test_functions_of_every_half_float_match(modifiers: str, mode: int, digest: int) -> None:
    every = np.arange(1 << 16, dtype=U32).reshape(-1, 1024)
    parts = [run_program(f"halves_{modifiers}", (part,), level="off", mode=mode)[0] for part in every]
    result = 0xCBF29CE484222325
    prime, rest = 0x100000001B3, 0x100000001B3**3 % 2**64  # the upper two of four bytes are 0
    for function in range(5):
        for word in np.concatenate([part[function] for part in parts]).tolist():
            result = ((result ^ word & 0xFF) * prime ^ word >> 8 & 0xFF) * rest % 2**64
    print(f"halves {modifiers}, mode {mode:#x}: tried {5 << 16}, equal {(5 << 16) * (result == digest)}")
    assert result == digest


# By the rules that rocjitsu's authors state of gfx1201 (minmax.h, output modifiers, conversion.h): given, wanted
CHOICES = [  # v1, v2, v3: min_num, max_num, minimum, maximum, med3_num
    ((NAN, NEGATIVE_NAN, ONE), (NAN, NAN, NAN, NAN, ONE)),
    ((NEGATIVE_NAN, SIGNALLING, ONE), (NEGATIVE_NAN,) * 4 + (ONE,)),
    ((SIGNALLING, NAN, ONE), (0x7FC12345,) * 4 + (ONE,)),
    ((ONE, SIGNALLING, TWO), (ONE, ONE, 0x7FC12345, 0x7FC12345, ONE)),
    ((SIGNALLING, TWO, ONE), (TWO, TWO, 0x7FC12345, 0x7FC12345, ONE)),
    ((MINUS_ZERO, 0, MINUS_ZERO), (MINUS_ZERO, 0, MINUS_ZERO, 0, MINUS_ZERO)),
    ((0, MINUS_ZERO, 0), (MINUS_ZERO, 0, MINUS_ZERO, 0, 0)),
    ((TWO, ONE, INFINITY), (ONE, TWO, ONE, TWO, TWO)),
]
FRACTIONS = [(INFINITY, 0xFFC00000), (0xFF800000, 0xFFC00000), (MINUS_ZERO, 0), (TWO, 0), (0xC0000000, 0),
             (HALF, HALF), (0xBF000000, HALF), (0x80000001, 0x3F7FFFFF)]  # fmt: skip
OMOD = [  # v1, v2: v1 * v2 twice, and half of it
    ((MINUS_ZERO, ONE), (0, 0)),
    ((DENORMAL, ONE), (0, 0)),
    ((DENORMAL | 1 << 31, ONE), (0, 0)),
    ((SMALLEST, ONE), (SMALLEST << 1, 0)),
    ((SMALLEST | 1 << 31, ONE), (0x81000000, MINUS_ZERO)),
    ((LARGEST, TWO), (INFINITY, INFINITY)),
    ((LARGEST, ONE), (INFINITY, 0x7EFFFFFF)),
    ((ONE, TWO), (0x40800000, ONE)),
]
CONVERSIONS = [  # v1: floor, nearest, truncating
    (NAN, (0x7FFFFFFF, 0x7FFFFFFF, 0)),
    (NEGATIVE_NAN, (0x80000000, 0x80000000, 0)),
    (SIGNALLING, (0x7FFFFFFF, 0x7FFFFFFF, 0)),
    (INFINITY, (0x7FFFFFFF,) * 3),
    (0xFF800000, (0x80000000,) * 3),
    (0xBF000000, (0xFFFFFFFF, 0, 0)),
    (HALF, (0, 1, 0)),
    (0x3EFFFFFF, (0, 0, 0)),
]
NARROW = [(NAN, (0xFF, 0xFE)), (NEGATIVE_NAN, (0xFF, 0xFE)), (ONE, (0x38, 0x3C)), (0xBF800000, (0xB8, 0xBC))]
WIDE = [(0x7F, "fp8"), (0xFF, "fp8"), (0x7D, "bf8"), (0xFE, "bf8")]
CLAMPED = [(NAN, 0), (NEGATIVE_NAN, 0), (MINUS_ZERO, 0), (TWO, ONE)]


def fill_lanes(values: list[int]) -> Array:
    return np.resize(np.array(values, U32), 32)


def test_min_max_and_median_with_nans_and_zeros_match() -> None:
    argument = [fill_lanes([row[0][index] for row in CHOICES]) for index in range(3)]
    out, _ = run_program("captured_choices", tuple(argument))
    for index, name in enumerate(("min_num", "max_num", "minimum", "maximum", "med3_num")):
        assert_equal_rows(
            name, out[index][: len(CHOICES)], fill_lanes([row[1][index] for row in CHOICES])[: len(CHOICES)]
        )


def test_fract_instructions_match() -> None:
    out, _ = run_program("captured_choices", (fill_lanes([row[0] for row in FRACTIONS]),))
    assert_equal_rows(
        "fract", out[5][: len(FRACTIONS)], fill_lanes([row[1] for row in FRACTIONS])[: len(FRACTIONS)]
    )


def test_output_modifiers_match() -> None:
    argument = [fill_lanes([row[0][index] for row in OMOD]) for index in range(2)]
    out, _ = run_program("captured_choices", tuple(argument))
    for index, name in ((0, "mul:2"), (1, "div:2")):
        assert_equal_rows(
            f"omod {name}", out[6 + index][: len(OMOD)], fill_lanes([row[1][index] for row in OMOD])[: len(OMOD)]
        )
    out, _ = run_program("captured_conversions", (fill_lanes([row[0] for row in CLAMPED]),))
    assert_equal_rows("clamp", out[7][: len(CLAMPED)], fill_lanes([row[1] for row in CLAMPED])[: len(CLAMPED)])


def test_conversions_match() -> None:
    out, _ = run_program("captured_conversions", (fill_lanes([row[0] for row in CONVERSIONS]),))
    for index, name in enumerate(("floor", "nearest", "truncating")):
        want = fill_lanes([row[1][index] for row in CONVERSIONS])[: len(CONVERSIONS)]
        assert_equal_rows(f"to integer, {name}", out[index][: len(CONVERSIONS)], want)
    out, _ = run_program("captured_conversions", (fill_lanes([row[0] for row in NARROW]),))
    for index, name in ((0, "fp8"), (1, "bf8")):
        want = fill_lanes([row[1][index] for row in NARROW])[: len(NARROW)]
        assert_equal_rows(f"to {name}", out[5 + index][: len(NARROW)] & U32(0xFF), want)
    argument = fill_lanes([code for code, _ in WIDE])
    out, _ = run_program("captured_conversions", (argument, argument))
    from_8 = [out[3 if kind == "fp8" else 4][index] for index, (_, kind) in enumerate(WIDE)]
    assert_equal_rows("from fp8 and bf8", np.array(from_8), np.full(len(WIDE), 0xFFC00000, U32))
