"""The committed .zrt files are what the committed sources give."""

from __future__ import annotations

from pathlib import Path

import pytest

from zinc_rt.commands.asm import main
from zinc_rt.kernels.assemble import KERNELS, available, source_hash, sources
from zinc_rt.kernels.zrt import read_zrt


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_a_committed_kernel_has_the_hash_of_its_source(path: Path) -> None:
    zrt = read_zrt(path.with_suffix(".zrt").read_bytes(), path.stem)
    assert zrt.source_hash == source_hash(path), "stale: zinc-rt asm --all"
    assert zrt.name == path.stem


@pytest.mark.skipif(not available(), reason='no assembler: extra "asm" is not installed')
def test_the_committed_kernels_are_what_their_sources_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_every_committed_kernel_has_a_source() -> None:
    assert {path.stem for path in KERNELS.glob("*.zrt")} == {path.stem for path in sources()}
