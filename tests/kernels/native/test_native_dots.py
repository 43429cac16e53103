"""The dots of dot_*.h against the portable ones, at every level that this CPU runs."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import Counts

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.native import build

NAMES = ("dot4", "dot4_small", "scaled", "dot2", "lanes", "affine")


@pytest.fixture(scope="module", params=("native", "x86_64_v3", "x86_64_v2", "generic"))
def dot_libraries(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ctypes.CDLL]:
    level = request.param
    try:
        using = build.find_compiler()
        if level not in build.list_levels():
            pytest.skip(f"{level} is no level of this machine")
    except UnsupportedError as error:
        pytest.skip(str(error))
    output = tmp_path_factory.mktemp("dots") / f"dots-{level}.so"
    source = Path(__file__).with_name("dots.c")
    command = [
        *using.command,
        *build.FLAGS,
        f"-I{build.HEADERS}",
        f"-I{build.SOURCES}",
        f"-mcpu={level}",
        "-o",
        str(output),
        str(source),
    ]
    subprocess.run(command, check=True, env=build.make_environment())
    yield ctypes.CDLL(str(output))


@pytest.mark.rest
@pytest.mark.parametrize("name", NAMES)
def test_dot_matches_the_portable_version(dot_libraries: ctypes.CDLL, name: str, slow_counts: Counts) -> None:
    count = slow_counts(20_000, 2_000_000)
    random = np.random.default_rng(7)
    w = random.integers(-128, 128, (count, 32)).astype(np.int8)
    x = random.integers(-127, 128, (count, 32)).astype(np.int8)
    w[:16], x[:16] = -128, 127  # the largest sums there are
    w[16:32], x[16:32] = -128, -127
    w[32:48], x[32:48] = 127, -127
    pointer = ctypes.c_void_p
    wrong = getattr(dot_libraries, f"wrong_{name}")(
        pointer(w.ctypes.data), pointer(x.ctypes.data), ctypes.c_uint32(count)
    )
    assert wrong == 0


@pytest.mark.rest(keep=1)
def test_scales_are_rounded_through_float16(dot_libraries: ctypes.CDLL) -> None:
    """Every float16 and its neighbours' middles, with the floats beside them."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[:-1].astype(np.float64) + halves[1:]) / 2
    some = np.concatenate([halves, middles.astype(np.float32), np.float32([65519.996, 65520, 65536, 3e38])])
    bits = some.view(np.uint32)[:, None].astype(np.int64) + np.array([-1, 0, 1])
    values = np.clip(bits, 0, 0x7F7FFFFF).astype(np.uint32).reshape(-1).view(np.float32)
    got = np.empty_like(values)
    pointer = ctypes.c_void_p
    dot_libraries.halved(pointer(values.ctypes.data), pointer(got.ctypes.data), ctypes.c_uint32(values.size))
    with np.errstate(over="ignore"):
        want = values.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
