"""The committed .zrt files are what their sources give, and the static sanitizer has nothing to say of them."""

from __future__ import annotations

import struct

import pytest

from zinc_rt.cli.asm import main
from zinc_rt.isa import target_of
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.lint import Limits, LintFinding, lint
from zinc_rt.kernels.assemble import BUILT, KERNELS, Source, hash_source, is_available, list_sources
from zinc_rt.kernels.zrt import Zrt, read_zrt

S_NOP = 0xBF800000
committed = pytest.mark.parametrize("source", list_sources(), ids=lambda source: source.name)


def read_kernel(source: Source) -> Zrt:
    return read_zrt(source.container.read_bytes(), source.name)


def lint_findings(zrt: Zrt, code: bytes) -> list[LintFinding]:
    limits = Limits(zrt.vgprs, zrt.sgprs, zrt.lds_bytes, zrt.scratch_bytes, 2, zrt.kernarg_bytes)
    return lint(code, target_of(zrt.target, zrt.wave), limits, entry=zrt.entry_offset)


@committed
def test_committed_kernel_has_the_hash_of_its_source(source: Source) -> None:
    zrt = read_kernel(source)
    assert zrt.source_hash == hash_source(source), "stale: zinc-rt asm --all"
    assert zrt.name == source.name


@pytest.mark.skipif(not is_available(), reason='no assembler: extra "asm" is not installed')
@pytest.mark.rest
def test_committed_kernels_match_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_every_committed_kernel_has_a_source() -> None:
    assert {path.stem for path in (KERNELS / BUILT).glob("*.zrt")} == {source.name for source in list_sources()}


@committed
@pytest.mark.rest(keep=5)
def test_static_sanitizer_reports_nothing(source: Source) -> None:
    zrt = read_kernel(source)
    texts = [f"{finding.sentence()}  {zrt.find_line(finding.pc)}" for finding in lint_findings(zrt, zrt.code)]
    assert texts == []


@committed
@pytest.mark.rest(keep=3)
@pytest.mark.slow(keep=40)
def test_static_sanitizer_reports_removed_waits_of_a_counter(source: Source) -> None:
    """Single waits may be careful rather than needed; all of a counter together never are."""
    zrt = read_kernel(source)
    instructions = find_control_flow(zrt.code, target_of(zrt.target, zrt.wave), zrt.entry_offset).instructions()
    for counter, results in (("kmcnt", "s_load"), ("loadcnt", "global_load")):
        if not any(instruction.mnemonic.startswith(results) for _, instruction in instructions):
            continue
        code = bytearray(zrt.code)
        for pc, instruction in instructions:
            if counter in instruction.mnemonic:
                struct.pack_into("<I", code, pc, S_NOP)
        result = lint_findings(zrt, bytes(code))
        rules = {finding.rule for finding in result}
        assert "wait" in rules and rules <= {"wait", "order"}, rules  # order: loads pending at an invalidation
        assert any(f"s_wait_{counter}" in finding.message for finding in result)
