"""exp, log, the activations and 1 / sqrt in vectors: the oracle's bits, at every level that this CPU runs."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support import Counts

from zinc_rt.backends.cpu.self_test import has_same_bits
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.native import build
from zinc_rt.kernels.reference.arithmetic import activations, exp_log


@np.errstate(all="ignore")
def round_to_half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float32)


WANTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": exp_log.exp,
    "log": exp_log.log,
    "sigmoid": activations.sigmoid,
    "silu": activations.silu,
    "tanh": activations.tanh,
    "gelu": activations.gelu,
    "softplus": activations.softplus,
    "rsqrt": activations.rsqrt,
    "half": round_to_half,
}
BLOCK = 1 << 20


@cache
def compile_functions(level: str, folder: Path) -> ctypes.CDLL:
    try:
        using = build.find_compiler()
        if level not in build.list_levels():
            pytest.skip(f"{level} is no level of this machine")
    except UnsupportedError as error:
        pytest.skip(str(error))
    output = folder / f"functions-{level}.so"
    source = Path(__file__).with_name("functions.c")
    command = [*using.command, *build.FLAGS, f"-mcpu={level}", "-o", str(output), str(source)]
    subprocess.run(command, check=True, env=build.make_environment())
    return ctypes.CDLL(str(output))


def call_function(library: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    pointer = ctypes.c_void_p
    getattr(library, f"test_{name}")(pointer(x.ctypes.data), pointer(y.ctypes.data), ctypes.c_uint32(x.size))
    return y


def values_of_every_exponent() -> np.ndarray:
    """Both signs and all 256 exponents, with mantissas at both ends, in the middle, and around ties of halves."""
    ties = [0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FEFFF, 0x7FF000]
    mantissas = np.array(
        [*ties, 0, 1, 2, 3, 0x3504F2, 0x3504F3, 0x3504F4, 0x400000, 0x7FFFFE, 0x7FFFFF], np.uint32
    )
    bits = np.arange(512, dtype=np.uint32)[:, None] << 23 | mantissas
    return bits.reshape(-1).view(np.float32)


def branch_points() -> np.ndarray:
    """Neighbours of clamps, of softplus's branch point, of multiples of ln 2 / 2, and of points where the result's
    exponent changes.
    """
    edges = np.concatenate([[87, 20, 16.6, 1, 0.5, 0.70710678], (np.arange(-127, 128) + 0.5) * np.log(2)])
    centres = np.concatenate([edges, -edges]).astype(np.float32).view(np.int32)
    return (centres[:, None] + np.arange(-8, 8, dtype=np.int32)).reshape(-1).view(np.float32)


def pattern_blocks(count: int) -> Iterator[np.ndarray]:
    """Random bit patterns; or all of them."""
    if count >= 1 << 32:
        for first in range(0, 1 << 32, BLOCK):
            yield np.arange(first, first + BLOCK, dtype=np.uint64).astype(np.uint32).view(np.float32)
        return
    random = np.random.default_rng(5)
    for _ in range(0, count, BLOCK):
        yield random.integers(0, 1 << 32, BLOCK, dtype=np.uint32).view(np.float32)


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize("name", WANTED)
def test_bits_match_at_every_exponent(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    x = np.concatenate([values_of_every_exponent(), branch_points()])
    for level in build.list_levels():
        assert_same(compile_functions(level, tmp_path_factory.getbasetemp()), name, x)


@pytest.mark.parametrize("name", WANTED)
def test_bits_match_for_random_patterns(
    name: str, slow_counts: Counts, tmp_path_factory: pytest.TempPathFactory
) -> None:
    library = compile_functions(build.list_levels()[0], tmp_path_factory.getbasetemp())
    for x in pattern_blocks(slow_counts(BLOCK, 1 << 32)):
        assert_same(library, name, x)


def assert_same(library: ctypes.CDLL, name: str, x: np.ndarray) -> None:
    x = np.resize(x, (x.size + 15) // 16 * 16)
    with np.errstate(all="ignore"):
        want = WANTED[name](x).astype(np.float32)
    got = call_function(library, name, x)
    wrong = np.flatnonzero(~has_same_bits(got, want))
    assert wrong.size == 0, (
        f"{name}: {wrong.size} of {x.size} differ, as at {x[wrong[0]]!r}: "
        f"got {got[wrong[0]]!r}, expected {want[wrong[0]]!r}"
    )
