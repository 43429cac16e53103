"""The macros of arith.inc against NumPy's IEEE operations and the oracle, bit for bit, whatever the seeds."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from harness import assert_same_bits, inexact_instructions
from support import Counts

import zinc_rt.kernels.gfx1201
from zinc_rt.kernels.assemble import Source, assemble, hash_source, is_available
from zinc_rt.kernels.reference.arithmetic import activations, exp_log
from zinc_rt.kernels.reference.arithmetic.dot import tree
from zinc_rt.kernels.zrt import read_zrt
from zinc_rt.sim.shader.perturbation import perturb_results
from zinc_rt.sim.shader.run.engine_device import EngineDevice

SOURCE = Path(__file__).parent / "arith_functions.s"
GFX1201 = Path(zinc_rt.kernels.gfx1201.__file__).parent
Function = Callable[[np.ndarray, np.ndarray], np.ndarray]
ONE = np.float32(1)


def sum_groups(function: Callable[[np.ndarray], np.ndarray]) -> Function:
    """Reduce over the 32 elements of each workgroup, all of which receive the result."""
    return lambda a, b: np.repeat(function(a.reshape(-1, 32)), 32)


EVERYTHING: dict[int, Function] = {  # by the number in arith_functions.s
    0: lambda a, b: exp_log.exp(a),
    1: lambda a, b: exp_log.exp(-a),
    2: lambda a, b: exp_log.log(a),
    4: lambda a, b: a / b,
    7: lambda a, b: np.sqrt(a),
    8: lambda a, b: activations.rsqrt(a),
    9: lambda a, b: activations.sigmoid(a),
    10: lambda a, b: activations.silu(a),
    11: lambda a, b: activations.gelu(a),
    12: lambda a, b: activations.tanh(a),
    13: lambda a, b: activations.softplus(a),
    14: lambda a, b: (a + b) + (b * a + (b + a)),
    15: lambda a, b: (a + b) + (b * a + (b + a)),
    16: np.maximum,
    17: np.minimum,
    18: sum_groups(tree),
    19: sum_groups(lambda a: a.max(axis=1)),
    20: lambda a, b: exp_log.exp(a),
    21: lambda a, b: exp_log.log(a),
    22: lambda a, b: a / b,
    23: lambda a, b: np.sqrt(a),
    24: lambda a, b: activations.rsqrt(a),
    25: lambda a, b: activations.sigmoid(a),
    26: lambda a, b: activations.silu(a),
    27: lambda a, b: activations.gelu(a),
    28: lambda a, b: activations.tanh(a),
}
RESTRICTED: dict[int, tuple[Function, Callable[[np.ndarray], np.ndarray]]] = {  # and which inputs it takes
    3: (lambda a, b: exp_log.log(a), lambda a: ((a > 0) & np.isfinite(a)) | np.isnan(a)),
    5: (lambda a, b: ONE / a, lambda a: _normal_quotient(a) | (a == 0) | ~np.isfinite(a)),
    6: (lambda a, b: ONE / a, lambda a: _normal_quotient(a) | np.isnan(a)),
    29: (lambda a, b: ONE / a, lambda a: _normal_quotient(a) | (a == 0) | ~np.isfinite(a)),
}
SIGN_OF_ZERO = {16, 17, 19}  # NumPy does not say which zero is the larger


def _normal_quotient(a: np.ndarray) -> np.ndarray:
    return (np.abs(a) >= np.float32(2.0**-126)) & (np.abs(a) <= np.float32(2.0**126))


def edge_values() -> np.ndarray:
    """Zeros, denormals, powers of two and their neighbours, branch points of exp and log, infinities, NaN."""
    exponents = (-149, -148, -127, -126, -125, -97, -96, -95, -64, -24, -1, 0, 1, 23, 24, 63, 126, 127)
    others = (20.0, 87.0, 88.0, 0.70710678, 0.34657359, 0.044715, 3.0, 0.1, 1e-38, 3.4e38)
    middle = np.array([*(2.0**e for e in exponents), *others], np.float32)
    values = [middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf))]
    values.append(np.array([0.0, np.inf, np.nan], np.float32))
    return np.concatenate([*values, *(-part for part in values)])


def make_inputs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of edge values, random bits, quotients near and below the smallest normal number, and ties
    there.
    """
    edge, random = edge_values(), np.random.default_rng(seed)
    shape = (2, count)
    small = random.uniform(1, 2, shape), random.integers([[-149], [-30]], [[-100], [60]], shape)
    short = random.integers(1, 64, shape), random.integers([[-149], [-6]], [[-140], [8]], shape)
    parts = [
        np.stack([pair.ravel() for pair in np.meshgrid(edge, edge)]),
        random.integers(0, 1 << 32, shape, np.uint64).astype(np.uint32).view(np.float32),
        np.ldexp(*small).astype(np.float32),
        np.ldexp(*short).astype(np.float32),
        (random.standard_normal(shape) * 8).astype(np.float32),
    ]
    a, b = np.concatenate(parts, axis=1)
    whole = len(a) // 32 * 32
    return a[:whole].copy(), b[:whole].copy()


def run_function(function_name: int, a: np.ndarray, b: np.ndarray, device: EngineDevice) -> np.ndarray:
    kernel = read_zrt(SOURCE.with_suffix(".zrt").read_bytes(), "arith_functions.zrt")
    out = np.zeros_like(a)
    block = struct.pack(
        "<3QI", *(device.place(array, name) for array, name in ((a, "a"), (b, "b"), (out, "out"))), function_name
    )
    va = device.place(np.frombuffer(block, np.uint8).copy(), "arguments", write=False)
    findings = device.run(
        kernel.code,
        groups=(len(a) // 32, 1, 1),
        threads=kernel.workgroup,
        user_data=(va & 0xFFFFFFFF, va >> 32),
        vgprs=kernel.vgprs,
        sgprs=kernel.sgprs,
        name=kernel.name,
    )
    assert not findings, findings[0]
    return out


UP, DOWN = perturb_results(1), perturb_results(-1)
ROOTS = (7, 8, 23, 24)  # those of square roots, which use two inexact instructions
ALONE = [
    (which, perturb_results(by, function)) for which in ROOTS for by in (1, -1) for function in ("rcp", "sqrt")
]


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("perturb", [0, 1, UP, DOWN])
@pytest.mark.parametrize("function_name", [*EVERYTHING, *RESTRICTED])
def test_macro_gives_the_defined_bits(function_name: int, perturb: int, slow_counts: Counts) -> None:
    compare_with_reference(function_name, perturb, slow_counts(2_000, 1_000_000))


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize(("function_name", "perturb"), ALONE)
def test_one_inexact_instruction_does_not_change_results(
    function_name: int, perturb: int, slow_counts: Counts
) -> None:
    compare_with_reference(function_name, perturb, slow_counts(2_000, 1_000_000))


def compare_with_reference(function_name: int, perturb: int, count: int) -> None:
    a, b = make_inputs(count, function_name)
    function = EVERYTHING.get(function_name)
    if function is None:
        function, takes = RESTRICTED[function_name]
        a = np.where(takes(a), a, ONE)
    with np.errstate(all="ignore"):
        want = function(a, b).astype(np.float32)
    got = run_function(function_name, a, b, EngineDevice(level="full", perturb=perturb))
    if function_name in SIGN_OF_ZERO:
        want[want == 0], got[got == 0] = 0, 0
    assert_same_bits(got, want, f"function {function_name}")


@pytest.mark.rest
def test_reciprocal_of_every_mantissa_near_two_is_exact() -> None:
    """1 / (2 - ulp) and its neighbours: where one Newton step from a rounded seed is wrong."""
    a = np.ascontiguousarray((0x40000000 - np.arange(1 << 12, dtype=np.uint32)).view(np.float32))
    for perturb in (1, UP, DOWN):
        device = EngineDevice(level="off", perturb=perturb)
        assert_same_bits(run_function(5, a, a, device), ONE / a, "reciprocal")
        assert_same_bits(run_function(4, np.ones_like(a), a, device), ONE / a, "quotient")


@pytest.mark.rest
@pytest.mark.parametrize("perturb", [UP, DOWN])
def test_consecutive_mantissas_match_the_reference(perturb: int, slow_counts: Counts) -> None:
    """1 / a and sqrt(a), of every 1024th mantissa of two exponents, with --slow of each."""
    step = slow_counts(1 << 10, 1)
    device = EngineDevice(level="off", perturb=perturb)
    for start in range(0, 1 << 24, step << 14):
        bits = np.arange(start, start + (step << 14), step, dtype=np.uint32)
        a = np.ascontiguousarray((bits + 0x3F800000).view(np.float32))
        assert_same_bits(run_function(5, a, a, device), ONE / a, "reciprocal")
        assert_same_bits(run_function(7, a, a, device), np.sqrt(a), "root")


@pytest.mark.rest
def test_inexact_instructions_appear_only_where_corrected() -> None:
    """exp, log, rcp, rsq and sqrt are good to 1 ULP on silicon, not correctly rounded. They occur in macros of
    arith.inc alone; the tests above move each of their results by -1, 0 or +1 ULP."""
    result = Counter(name for names in inexact_instructions().values() for name in names)
    assert set(result) == {"v_rcp_f32", "v_sqrt_f32"}, "exp, log and rsq are nowhere used"
    inexact = re.compile(r"^\s*v_(s_)?(exp|log|rcp|rsq|sqrt|sin|cos)_", re.MULTILINE)
    sources = [*GFX1201.glob("*.s"), *GFX1201.glob("include/*.inc")]
    assert len(sources) > 50
    assert [path.name for path in sources if inexact.search(path.read_text())] == ["arith.inc"]


def test_committed_code_matches_the_source() -> None:
    kernel = read_zrt(SOURCE.with_suffix(".zrt").read_bytes(), "arith_functions.zrt")
    assert kernel.source_hash == hash_source(Source(SOURCE)), "assemble it: zinc-rt-asm " + SOURCE.name
    if is_available():
        assert assemble(Source(SOURCE)) == SOURCE.with_suffix(".zrt").read_bytes()
