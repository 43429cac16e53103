"""exp, log and what is built on them, against float64 and mpmath; the constants against the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scalar_arithmetic as scalar

from zinc_rt.kernels.reference.arithmetic import ORDERINGS, activations, arithmetic, exp_log

canonical = arithmetic("canonical-1")
Function = Callable[[np.ndarray], np.ndarray]

# Exhaustive maxima are 0.9517 and 0.8217: docs/canonical-1.md, and the slow tests below.
EXP_ULP = 0.952
LOG_ULP = 0.822


def ulp_error(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Return the error in units of float32's spacing at the true value `want` (float64)."""
    return np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32)).astype(np.float64)


def float_bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def largest_error(function: Function, true: Function, first: int, last: int) -> float:
    """Largest error over every float32 whose bits lie in [first, last)."""
    worst = 0.0
    for start in range(first, last, 1 << 20):
        x = np.arange(start, min(last, start + (1 << 20)), dtype=np.uint32).view(np.float32)
        worst = max(worst, float(np.nanmax(ulp_error(function(x), true(x.astype(np.float64))))))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("sign", [0, 1 << 31])
def test_exp_error_is_below_one_ulp_for_every_float(sign: int) -> None:
    # below 2^-27 both the result and the true value round to 1
    assert largest_error(canonical.exp, np.exp, sign | float_bits(2**-27), sign | (float_bits(87) + 1)) < EXP_ULP


@pytest.mark.slow
def test_log_error_is_below_one_ulp_for_every_positive_float() -> None:
    assert largest_error(canonical.log, np.log, 1, float_bits(np.inf)) < LOG_ULP


def test_exp_error_is_below_one_ulp_over_samples() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-87, 87, 1_000_000), rng.normal(size=1_000_000)]).astype(np.float32)
    assert 0.5 < ulp_error(canonical.exp(x), np.exp(x.astype(np.float64))).max() < EXP_ULP


def test_log_error_is_below_one_ulp_over_samples() -> None:
    rng = np.random.default_rng(1)
    anything = rng.integers(1, float_bits(np.inf), 1_000_000, dtype=np.uint32).view(np.float32)
    near_one = rng.uniform(0.5, 2, 1_000_000).astype(np.float32)
    x = np.concatenate([anything, near_one])
    assert 0.5 < ulp_error(canonical.log(x), np.log(x.astype(np.float64))).max() < LOG_ULP


@pytest.mark.parametrize("name", ["exp", "log", "sigmoid", "silu", "tanh", "gelu", "softplus", "rsqrt"])
def test_every_function_matches_its_scalar_sequence_bit_for_bit(name: str) -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate(
        [rng.uniform(-90, 90, 1000), rng.normal(size=3000), np.arange(-90, 91) * np.log(2) / 2, [0, 1e-45, 3e38]]
    ).astype(np.float32)
    if name in ("log", "rsqrt"):
        x = np.concatenate([abs(x), x * np.float32(1e-38)])
        x = x[x > 0]
    with np.errstate(all="ignore"):
        want = np.array([getattr(scalar, name)(value) for value in x])
    assert np.array_equal(getattr(canonical, name)(x).view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (0.0, 1.0),
        (-0.0, 1.0),
        (1e-45, 1.0),
        (87.0, canonical.exp(np.float32(87))),
        (88.0, canonical.exp(np.float32(87))),
        (np.inf, canonical.exp(np.float32(87))),
        (-np.inf, canonical.exp(np.float32(-87))),
        (-1000.0, canonical.exp(np.float32(-87))),
        (np.nan, np.nan),
    ],
)
def test_exp_at_its_limits_is_exact(x: float, want: float) -> None:
    assert np.array_equal(canonical.exp(np.float32(x)), np.float32(want), equal_nan=True)


def test_exp_of_its_limits_is_normal() -> None:
    low, high = canonical.exp(np.array([-87, 87], np.float32))
    assert np.finfo(np.float32).smallest_normal < low < 1.7e-38
    assert 6.0e37 < high < 6.1e37


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (1.0, 0.0),
        (0.0, -np.inf),
        (-0.0, -np.inf),
        (-1.0, np.nan),
        (np.inf, np.inf),
        (-np.inf, np.nan),
        (np.nan, np.nan),
    ],
)
def test_log_at_its_limits_is_exact(x: float, want: float) -> None:
    got = canonical.log(np.float32(x))
    assert np.array_equal(got, np.float32(want), equal_nan=True)
    assert x != 1 or not np.signbit(got)


def test_log_of_denormals_is_exact() -> None:
    x = np.array([1e-45, 1e-40, 1.1754942e-38], np.float32)
    want = [float(mpmath.log(mpmath.mpf(float(value)))) for value in x]
    assert ulp_error(canonical.log(x), np.array(want)).max() < LOG_ULP


def exact_gelu(x: mpmath.mpf) -> mpmath.mpf:
    u = mpmath.sqrt(2 / mpmath.pi) * x * (1 + mpmath.mpf("0.044715") * x * x)
    return x / 2 * (1 + mpmath.tanh(u))


TRUE = {
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
    "gelu": exact_gelu,
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(abs(x)),
}


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("name", TRUE)
def test_activations_are_close_to_exact_values(ordering: str, name: str) -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=300) * 4, [-30, -20.5, -1e-3, 1e-3, 19.999, 20.0, 20.001, 30]])
    x = (abs(x) if name == "rsqrt" else x).astype(np.float32)
    got = getattr(arithmetic(ordering), name)(x)
    want = np.array([float(TRUE[name](mpmath.mpf(float(value)))) for value in x])
    assert got.dtype == np.float32
    # tanh and softplus subtract from or add to 1, so their error is absolute: half an ULP of 1 and a little
    # gelu's argument u reaches 30 and carries its own rounding into exp
    relative = {"gelu": 4e-6, "tanh": 0, "softplus": 3e-7}.get(name, 4e-7)
    absolute = {"tanh": 3e-7, "softplus": 1.3e-7, "gelu": 3e-7}.get(name, 0)
    assert (np.abs(got - want) <= relative * np.abs(want) + absolute).all()


def test_rsqrt_rounds_twice_even_for_denormals() -> None:
    x = np.array([1e-45, 3e-40, 2, 3e38, np.inf, 0], np.float32)
    want = [np.float32(1) / np.float32(np.sqrt(np.float64(value))) if value else np.inf for value in x]
    assert np.array_equal(canonical.rsqrt(x), np.array(want, np.float32))


@pytest.mark.parametrize("name", ["sigmoid", "silu", "tanh", "gelu", "softplus", "exp", "log"])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_nan_propagates_and_shapes_are_preserved(ordering: str, name: str) -> None:
    x = np.array([[np.nan, 1.0, 2.0]], np.float32)
    got = getattr(arithmetic(ordering), name)(x)
    assert got.shape == (1, 3)
    assert np.isnan(got[0, 0])
    assert np.isfinite(got[0, 1:]).all()


@pytest.mark.parametrize("name", ["sigmoid", "silu", "tanh", "gelu", "softplus", "exp", "log"])
def test_value_does_not_depend_on_its_neighbours(name: str) -> None:
    rng = np.random.default_rng(4)
    x = (rng.normal(size=37) * 10).astype(np.float32)
    function = getattr(canonical, name)
    assert np.array_equal(function(x), [function(x[i : i + 1])[0] for i in range(37)], equal_nan=True)
    assert np.array_equal(function(x[::3]), function(x)[::3], equal_nan=True)


def test_documented_constants_match_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "canonical-1.md").read_text(encoding="utf-8")
    documented = {np.float32(float.fromhex(match)) for match in re.findall(r"-?0x1(?:\.[0-9a-f]+)?p[+-]\d+", text)}
    used = {
        *exp_log.EXP_P5,
        *exp_log.LOG_P8,
        exp_log.LOG2E,
        exp_log.LN2_HIGH,
        exp_log.LN2_LOW,
        exp_log.SQRT_HALF,
        activations.SQRT_2_OVER_PI,
        activations.GELU_CUBIC,
    }
    assert used <= documented
