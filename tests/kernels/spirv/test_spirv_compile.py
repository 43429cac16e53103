"""`zinc-rt vulkan compile`: what it says of kernels that are new, changed, refused, or of no source."""

from __future__ import annotations

from pathlib import Path

import pytest

from zinc_rt.cli.vulkan import main
from zinc_rt.host.errors import InputError
from zinc_rt.kernels.spirv import compile as compiler
from zinc_rt.spirv.module import read_module

needs_glslang = pytest.mark.skipif(
    not compiler.is_available(), reason='no compiler: extra "glsl" is not installed'
)
KERNEL = """#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

KERNARG(F32 x; F32RW y; uint n;)

void main() { if (lane < args.n) args.y.v[lane] = args.x.v[lane] * args.x.v[lane]; }
"""


@pytest.fixture
def kernel_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one kernel, which the command uses instead of the package's folder."""
    (tmp_path / "built").mkdir()
    (tmp_path / "square.comp").write_text(KERNEL)
    of = compiler.list_sources
    monkeypatch.setattr(compiler, "list_sources", lambda folder=None: of(tmp_path) if folder is None else [])
    monkeypatch.setattr(compiler, "BUILT", tmp_path / "built")
    monkeypatch.setattr(compiler, "PROBES", tmp_path / "probes")
    return tmp_path


@needs_glslang
def test_stale_kernels_are_compiled(kernel_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--check"]) == 1
    assert "stale   square.spv: differs from the output of square.comp" in capsys.readouterr().out
    assert main(["compile"]) == 0
    assert "wrote  square.spv" in capsys.readouterr().out
    assert main(["compile"]) == 0
    assert capsys.readouterr().out == "PASS  0 of 0 kernels compiled\n"
    assert main(["compile", "--check"]) == 0
    (kernel_folder / "square.comp").write_text(KERNEL.replace("args.x.v[lane];", "args.x.v[0];"))
    assert main(["compile", "--check"]) == 1
    assert main(["compile", "square"]) == 0
    assert main(["compile", "--check"]) == 0


@needs_glslang
def test_changed_include_makes_the_kernel_stale(kernel_folder: Path) -> None:
    (kernel_folder / "more.glsl").write_text("float twice(float x) { return x + x; }\n")
    (kernel_folder / "square.comp").write_text(
        KERNEL.replace('kernel.glsl"\n', 'kernel.glsl"\n#include "more.glsl"\n')
    )
    assert main(["compile"]) == 0
    (source,) = compiler.list_sources()
    assert not compiler.is_stale(source)
    (kernel_folder / "more.glsl").write_text("float twice(float x) { return 2.0 * x; }\n")
    assert compiler.is_stale(source)


def test_kernel_without_a_source_is_reported(kernel_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kernel_folder / "built" / "gone.spv").write_bytes(b"")
    assert main(["compile", "--check"]) == 1
    assert "orphan  gone.spv: no source" in capsys.readouterr().out


def test_unknown_kernel_is_reported(kernel_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "cube"]) == 2
    assert "no kernel cube\n  next: one of square" in capsys.readouterr().err


@needs_glslang
@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("args.x.v[lane] * args.y;", "error from glslangValidator"),
        ("args.x.v[lane] / 3.0;", "lint rejects it\ndivision: word"),
        ("no_such(args.x.v[lane]);", "no_such"),
    ],
)
def test_rejected_kernel_is_reported_and_not_written(
    kernel_folder: Path, written: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (kernel_folder / "square.comp").write_text(KERNEL.replace("args.x.v[lane] * args.x.v[lane];", written))
    assert main(["compile"]) == 2
    output = capsys.readouterr()
    assert message in output.err and output.out == "FAIL  0 of 1 kernels compiled\n"
    assert not list((kernel_folder / "built").iterdir())


def test_missing_include_is_reported(kernel_folder: Path) -> None:
    (kernel_folder / "square.comp").write_text(KERNEL.replace("kernel.glsl", "colonel.glsl"))
    (source,) = compiler.list_sources()
    with pytest.raises(InputError, match=r"includes colonel\.glsl, which is in neither its folder nor"):
        compiler.hash_source(source)


def test_hashes_are_checked_without_a_compiler(
    kernel_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiler, "_find_program", lambda name: None)
    assert main(["compile"]) == 77
    assert "pip install 'zinc-rt[glsl]'" in capsys.readouterr().err
    assert main(["compile", "--check"]) == 1
    assert "by the hashes of their sources: no compiler" in capsys.readouterr().out


@needs_glslang
def test_family_members_have_distinct_macros(kernel_folder: Path) -> None:
    (kernel_folder / "flash_attn.comp").write_text(KERNEL.replace("args.n)", "min(args.n, uint(WIDEST)))"))
    result = {source.name: compiler.compile_source(source) for source in compiler.list_sources() if source.member}
    assert {"flash_attn_128", "flash_attn_512"} <= set(result)
    hashes = {compiler.read_source_hash(read_module(data)) for data in result.values()}
    assert len(hashes) == len(result)
