"""`zinc-rt launch` of sources: each compiler's recipe in docs/launch.md, and the shipped headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zinc_rt
from zinc_rt.host.errors import InputError, NothingRan
from zinc_rt.kernels.assemble import is_available
from zinc_rt.launching import source
from zinc_rt.launching.source import find_toolchains
from zinc_rt.launching.values import inout, out

SOURCES = Path(__file__).parent / "sources"
needs_compiler = pytest.mark.skipif(
    not list(find_toolchains()), reason="no clang for gfx1201 in PATH, and the package ziglang is not installed"
)


def make_arguments() -> dict[str, Any]:
    x = np.random.default_rng(7).standard_normal(256).astype(np.float32)
    return {"sums": out(4, np.float32), "x": x, "count": inout(np.zeros(1, np.int32)), "shape": out(4, np.uint32)}


@needs_compiler
@pytest.mark.rest
@pytest.mark.parametrize("name", ["sums.cl", "sums.hip"])
def test_shipped_headers_have_ids_barriers_and_atomics(name: str) -> None:
    args = make_arguments()
    result = zinc_rt.launch(SOURCES / name, "sums", grid=4, block=64, args=args, device="sim")
    sums = np.sqrt(np.abs(args["x"].astype(np.float64).reshape(4, 64).sum(axis=1)))
    assert np.allclose(result.outputs["sums"], sums, rtol=1e-5)
    assert result.outputs["count"] == (args["x"] > 0).sum()
    assert result.outputs["shape"].tolist() == [256, 4, 1, 1]
    assert result.findings == ()


@needs_compiler
def test_own_assembly_is_launched() -> None:
    args = {"in": np.arange(32, dtype=np.int32), "out": out(32, np.int32)}
    result = zinc_rt.launch(SOURCES / "double.s", grid=1, block=32, args=args, device="sim")
    assert np.array_equal(result.outputs["out"], 2 * np.arange(32)) and result.findings == ()


@pytest.mark.rest
@pytest.mark.skipif(not is_available(), reason="the package ziglang is not installed")
def test_assembly_with_the_container_macros_is_launched(tmp_path: Path) -> None:
    path = tmp_path / "add.s"
    path.write_bytes((Path(zinc_rt.__file__).parent / "kernels/gfx1201/add.s").read_bytes())
    values = np.arange(100, dtype=np.float32)
    args = {"a": values, "b": values, "y": out(100, np.float32), "n": np.uint32(100)}
    assert np.array_equal(zinc_rt.launch(path, grid=1, args=args, device="sim").outputs["y"], 2 * values)


@needs_compiler
@pytest.mark.rest
def test_rejected_source_shows_the_compilers_message_and_flags_reach_it(tmp_path: Path) -> None:
    path = tmp_path / "k.cl"
    path.write_text("kernel void k(global int *out) { out[get_local_id(0)] = VALUE; }")
    with pytest.raises(InputError, match=r"k\.cl:1:\d+: error: use of undeclared identifier 'VALUE'"):
        zinc_rt.launch(path, grid=1, block=32, args={"out": out(32, np.int32)}, device="sim")
    result = zinc_rt.launch(
        path, grid=1, block=32, args={"out": out(32, np.int32)}, device="sim", flags=["-DVALUE=7"]
    )
    assert (result.outputs["out"] == 7).all()


def test_missing_compiler_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "find_toolchains", lambda arch: iter(()))
    with pytest.raises(NothingRan, match=r"no compiler for gfx1201.*ziglang") as error:
        zinc_rt.launch(SOURCES / "sums.cl", grid=1, block=64, args={}, device="sim")
    assert error.value.next == "pip install 'zinc-rt[asm]'"


def test_clang_that_cannot_build_for_the_chip_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, status in (("clang", 1), ("ld.lld", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [toolchain.name for toolchain in find_toolchains()] == ["ziglang"] * is_available()
    (tmp_path / "clang").write_text("#!/bin/sh\nexit 0\n")
    assert next(find_toolchains()).clang == (str(tmp_path / "clang"),)
