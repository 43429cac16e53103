"""Every module of kernel set spirv is committed as RADV's machine code too, and of just that module."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from zinc_rt.cli.vulkan import main
from zinc_rt.isa import target_of
from zinc_rt.isa.lint import Limits, lint
from zinc_rt.kernels.archive import pack_archive, read_archive
from zinc_rt.kernels.radv import gfx1100
from zinc_rt.kernels.radv.container import COMPILER, MOVE_ARGUMENTS, hash_module, list_arguments, read_workgroup
from zinc_rt.kernels.radv.table import BUILT, load, names
from zinc_rt.kernels.remarks import is_remark
from zinc_rt.kernels.rsrc import count_initial_sgprs
from zinc_rt.kernels.spirv import table as spirv
from zinc_rt.spirv.module import read_module

AGAIN = "zinc-rt vulkan compile --radv gfx1201"


def test_every_module_has_a_container_and_every_container_a_module() -> None:
    assert set(names()) == set(spirv.KERNELS.names()), AGAIN


def test_all_containers_were_built_by_one_mesa() -> None:
    result = Counter(load(name).compiler for name in names())
    assert list(result) == [f"{COMPILER}25.0.7"], result


@pytest.mark.parametrize("name", names())
def test_container_matches_the_committed_module(name: str) -> None:
    zrt, data = load(name), spirv.KERNELS.module(name)
    assert zrt.source_hash == hash_module(data), f"stale: {AGAIN}"
    module = read_module(data, name)
    buffers, constants = list_arguments(module, name)
    assert (zrt.name, zrt.buffers, zrt.constant_bytes) == (name, buffers, 4 * constants)
    assert zrt.workgroup == read_workgroup(module, name) and zrt.wave == 32
    assert zrt.code.startswith(MOVE_ARGUMENTS) and not zrt.scratch_bytes


@pytest.mark.rest(keep=6)
@pytest.mark.slow(keep=40)
@pytest.mark.parametrize("name", names())
def test_static_sanitizer_reports_only_remarks(name: str) -> None:
    zrt = load(name)
    limits = Limits(zrt.vgprs, zrt.sgprs, zrt.lds_bytes, zrt.scratch_bytes, 2, zrt.kernarg_bytes)
    result = lint(zrt.code, target_of(zrt.target, zrt.wave), limits)
    assert [item.sentence() for item in result if not is_remark(item.rule, zrt.compiler)] == []


def test_gfx1100_archive_has_every_module_up_to_date() -> None:
    again = "zinc-rt vulkan compile --radv gfx1100"
    assert sorted(gfx1100.read_compiled()) == sorted(spirv.KERNELS.names()), again
    for name in gfx1100.KERNELS.names():
        zrt = gfx1100.load(name)
        assert (zrt.target, zrt.compiler) == ("gfx1100", f"{COMPILER}25.0.7")
        assert zrt.source_hash == hash_module(spirv.KERNELS.module(name)), f"stale: {again}"
        assert zrt.code.startswith(MOVE_ARGUMENTS) and not zrt.scratch_bytes


def test_container_without_a_module_is_dropped_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, committed = tmp_path / "gfx1100.tar.xz", gfx1100.read_compiled()
    path.write_bytes(pack_archive({**committed, "gone": committed["add"]}))
    monkeypatch.setattr(gfx1100, "ARCHIVE", path)
    assert main(["compile", "--radv", "gfx1100"]) == 0
    assert "removed gone.zrt: no module gone.spv" in capsys.readouterr().out
    assert read_archive(path) == committed


@pytest.mark.rest(keep=6)
@pytest.mark.slow(keep=40)
@pytest.mark.parametrize("name", gfx1100.KERNELS.names())
def test_static_sanitizer_reports_nothing_in_gfx1100_code(name: str) -> None:
    zrt = gfx1100.load(name)
    sgprs = count_initial_sgprs(zrt.rules)
    limits = Limits(zrt.vgprs, zrt.sgprs, zrt.lds_bytes, zrt.scratch_bytes, sgprs, zrt.kernarg_bytes)
    assert [item.sentence() for item in lint(zrt.code, target_of(zrt.target, zrt.wave), limits)] == []


def test_containers_are_smaller_than_4_mib_in_total() -> None:
    """They are package data."""
    assert sum(path.stat().st_size for path in BUILT.glob("*.zrt")) < 4 << 20
