"""wmma-f16 and wmma-bf16: the oracle's sums against the simulated instructions, and against scalar rules."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from kernels.op_cases import random_floats

from zinc_rt.kernels.cases import draw_weight
from zinc_rt.kernels.reference.arithmetic import arithmetic, wmma
from zinc_rt.kernels.zrt import patch_literals, read_zrt
from zinc_rt.sim.shader.run.engine_device import EngineDevice

Array = np.ndarray
LANES, ROWS = 32, 16


def draw_halves(kind: str, seed: int, k: int, form: wmma.Halves) -> Array:
    """Bits of halves, uint16 [16, k], of one kind of difficult values."""
    random = np.random.default_rng(seed)
    size = (ROWS, k)
    if kind in ("bits", "special"):  # any half; any finite one
        bits = random.integers(0, 1 << 16, size, dtype=np.uint16)
        return bits if kind == "special" else np.where(bits & form.infinity == form.infinity, bits & 0x8001, bits)
    if kind == "denormal":
        return random.integers(0, 2 << form.fraction, size).astype(np.uint16)
    values = random.standard_normal(size)
    if kind == "cancelling":
        values[:, 1::2] = -values[:, 0::2][:, : k // 2] * (1 + 2.0**-9 * random.integers(-1, 2, (ROWS, k // 2)))
    if kind == "huge":
        values = random.choice([-65504.0, 65504.0, 65472.0, 2.0**-24, 0.0], size)
        if form is wmma.BF16:  # some sums overflow, and later ones come back to a large finite number
            values *= random.choice([2.0**46, 2.0**47, 2.0**-100], size)
    if kind == "sparse":
        values[random.random(size) < 0.8] = 0
    return wmma.round_halves(values.astype(np.float32), form)


def simulate_products(a: Array, b: Array, form: wmma.Halves) -> Array:
    """float32 [16, 16] of halves [16, K]: a chain of instructions, one for 16 elements of k, from +0."""
    device = EngineDevice(level="off")
    kernel = read_zrt(files("zinc_rt.probes").joinpath("kernels/wmma.zrt").read_bytes(), "wmma.zrt")
    if form is wmma.BF16:  # the next opcode
        words = np.frombuffer(kernel.code, np.uint32).copy()
        words[words >> 16 == 0xCC40] += 1 << 16
        kernel = replace(kernel, code=words.tobytes())
    out = np.zeros((LANES, 8), np.float32)
    for start in range(0, a.shape[1], ROWS):
        operands = [
            np.stack([side[lane % ROWS, start + 8 * (lane // ROWS) :][:8] for lane in range(LANES)])
            for side in (a, b)
        ]
        c, out = out, np.zeros((LANES, 8), np.float32)
        places = [device.place(np.ascontiguousarray(array)) for array in (*operands, c, out)]
        block = device.place(np.array(places, np.uint64))
        device.run(
            patch_literals(kernel, {}),
            groups=(1, 1, 1),
            threads=kernel.workgroup,
            user_data=(block & 0xFFFFFFFF, block >> 32),
            vgprs=kernel.vgprs,
            sgprs=kernel.sgprs,
        )
    return np.array([[out[(row // 8) * ROWS + column, row % 8] for column in range(ROWS)] for row in range(ROWS)])


@pytest.mark.parametrize(
    "kinds",
    [
        "bits bits",
        "denormal bits",
        "cancelling normal",
        "huge huge",
        "sparse denormal",
        "denormal huge",
        "special bits",
    ],
)
@pytest.mark.parametrize("k", [16, 80])
@pytest.mark.parametrize("ordering", wmma.FORMATS)
def test_sums_equal_the_simulated_instruction(ordering: str, kinds: str, k: int) -> None:
    form = wmma.FORMATS[ordering]
    a, b = (draw_halves(kind, seed, k, form) for seed, kind in enumerate(kinds.split()))
    if kinds.startswith("special"):
        a[np.random.default_rng(9).random(a.shape) < 0.95] &= 0x8FFF  # few are infinite or NaN
    got, want = wmma.products(a, b, form), simulate_products(a, b, form)
    assert np.count_nonzero(want) > 100 or (kinds, form) == ("denormal bits", wmma.BF16)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    number = ~np.isnan(want)
    np.testing.assert_array_equal(got[number].view(np.uint32), want[number].view(np.uint32))


@pytest.mark.parametrize("ordering", wmma.FORMATS)
def test_padding_of_k_changes_no_bit(ordering: str) -> None:
    form = wmma.FORMATS[ordering]
    a, b = draw_halves("bits", 1, 37, form), draw_halves("normal", 2, 37, form)
    padded = wmma.products(*(np.pad(side, ((0, 0), (0, 11))) for side in (a, b)), form)
    np.testing.assert_array_equal(wmma.products(a, b, form).view(np.uint32), padded.view(np.uint32))


@pytest.mark.parametrize("ordering", wmma.FORMATS)
def test_a_row_of_any_magnitude_is_scaled_into_half_range(ordering: str) -> None:
    """Gemma 3's activations exceed float16; scaling a row by a power of two scales its results exactly."""
    x, w = random_floats(1, 3, 64), draw_weight((5, 64), "q4_0", np.random.default_rng(2))
    math = arithmetic("canonical-1").with_wmma(ordering)
    plain = math.linear(x, w)
    assert np.isfinite(plain).all() and (plain != 0).all()
    for power in (-60, -3, 20, 80):
        np.testing.assert_array_equal(math.linear(np.ldexp(x, power), w), np.ldexp(plain, power))
    assert not math.linear(np.zeros_like(x), w).any()


@pytest.mark.parametrize("ordering", wmma.FORMATS)
def test_a_row_does_not_depend_on_the_other_rows(ordering: str) -> None:
    x, w = random_floats(1, 7, 96), draw_weight((9, 96), "q8_0", np.random.default_rng(2))
    math = arithmetic("canonical-1-q8").with_wmma(ordering)
    together = math.linear(x, w)
    np.testing.assert_array_equal(together, np.concatenate([math.linear(row[None], w) for row in x]))
    np.testing.assert_array_equal(together, arithmetic("canonical-1").with_wmma(ordering).linear(x, w))


@pytest.mark.parametrize("ordering", wmma.FORMATS)
def test_infinity_and_nan_stay_in_their_rows(ordering: str) -> None:
    x, w = random_floats(1, 3, 32), draw_weight((4, 32), "f16", np.random.default_rng(2))
    x[0, 3], x[1, 5] = np.inf, np.nan
    got = arithmetic("canonical-1").with_wmma(ordering).linear(x, w)
    assert np.isinf(got[0]).all() and np.isnan(got[1]).all() and np.isfinite(got[2]).all()
