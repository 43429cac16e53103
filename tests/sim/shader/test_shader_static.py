"""Faults of machine code that no run shows, told when the code first runs: the static sanitizer in the device."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from shader_launch import open_machine, open_stage, parse_dwords, split_va

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa.rows import SEGMENTS, make_rows
from zinc_rt.isa.target import make_default_target
from zinc_rt.sim.shader.checks import static_lint
from zinc_rt.sim.shader.checks.static_lint import find_static_findings
from zinc_rt.sim.shader.launch_setup import LaunchSetup
from zinc_rt.sim.shader.translate.evidence import list_decoded_rows
from zinc_rt.sim.shader.translate.semantics import EMIT
from zinc_rt.sim.shader.unsimulated import NAMES, find_reason, list_unsimulated

# v_lshlrev_b32 v1, 2, v0; global_load_b32 v2, v1, s[0:1]; [s_wait_loadcnt 0]; v_add_nc_u32 v2, v2, v2;
# global_store_b32 v1, v2, s[0:1]; s_endpgm
_LOAD = "30020082 ee050000 00000002 00000001"
_REST = "4a040502 ee068000 01000000 00000001 bfb00000"
DOUBLE = parse_dwords(f"{_LOAD} bfc00000 {_REST}")
DOUBLE_WITHOUT_WAIT = parse_dwords(f"{_LOAD} {_REST}")


def test_missing_wait_is_reported_although_the_result_is_correct() -> None:
    with open_machine(sanitizer="fast") as owner, open_stage(owner) as s:
        va, out = s.buffer()
        out[:32] = range(32)
        program = s.load(DOUBLE_WITHOUT_WAIT)
        for _ in range(3):
            s.run(program, split_va(va))
        assert out[5] == 40
        (finding,) = owner.findings
        assert finding.rule == "wait"
        for part in ("pc 0x10", "v_add_nc_u32_e32 v2, v2, v2", "s_wait_loadcnt 0", "[0x4 `global_load_b32"):
            assert part in finding.sentence, finding.sentence


@pytest.mark.parametrize("level", ["fast", "full"])
def test_code_with_waits_has_no_findings(level: str) -> None:
    with open_machine(sanitizer=level) as owner, open_stage(owner) as s:
        va, out = s.buffer()
        out[:32] = range(32)
        s.run(s.load(DOUBLE), split_va(va))
        assert out[5] == 10 and not owner.findings


def test_sanitizer_off_reports_nothing() -> None:
    with open_machine(sanitizer="off") as owner, open_stage(owner) as s:
        va, _ = s.buffer()
        s.run(s.load(DOUBLE_WITHOUT_WAIT), split_va(va))
        assert not owner.findings


def test_findings_are_cached_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, cache = LaunchSetup((1, 1, 1), (32, 1, 1), (32, 1, 1), 32, vgprs=8), ObjectCache(tmp_path)
    first = find_static_findings(DOUBLE_WITHOUT_WAIT, make_default_target(), "one", launch, cache)
    assert (
        first == find_static_findings(DOUBLE_WITHOUT_WAIT, make_default_target(), "one", launch)
        and len(first) == 1
    )
    monkeypatch.setattr(static_lint, "lint", None)
    (second,) = find_static_findings(DOUBLE_WITHOUT_WAIT, make_default_target(), "another", launch, cache)
    assert second.sentence == first[0].sentence.replace("one: ", "another: ") and second.pc == first[0].pc
    with pytest.raises(TypeError):  # other limits are looked at anew
        find_static_findings(DOUBLE_WITHOUT_WAIT, make_default_target(), "one", replace(launch, vgprs=2), cache)


def test_unsimulated_instructions_are_known_by_name() -> None:
    """The rest of the tables has an emit function."""
    tables = {
        "scalar": ("SOP1", "SOP2", "SOPC", "SOPK", "SOPP"),
        "vector": ("VOP1", "VOP2", "VOPC", "VOP3"),
        "packed": ("VOP3P",),
        "vopd": ("VOPD",),
        "memory": ("DS", "SMEM", *SEGMENTS),
        "graphics": ("VINTERP", "VDSDIR", "LDSDIR", "EXP", "MIMG", "VIMAGE", "VSAMPLE"),
    }
    named = [(table, encoding) for table, encodings in tables.items() for encoding in encodings]
    result = [
        row
        for isa in (11, 11.5, 12)
        for table, encoding in named
        for row in make_rows(table, encoding, isa).values()
    ]
    assert {row.name for row in result if find_reason(row)} == {row.name for row in result} - EMIT.keys()
    both_readings = {row.name: bool(find_reason(row)) for _, row in list_decoded_rows(make_default_target())}
    assert {name for name, refused in both_readings.items() if refused} == both_readings.keys() - EMIT.keys()
    for pattern in NAMES:
        assert any(fnmatchcase(row.name, pattern) for row in result), pattern
    export = bytes.fromhex("0f0800f800000001" + "0000b0bf")
    assert list_unsimulated(export, make_default_target()) == {"export": "exports of graphics shaders"}
    assert list_unsimulated(export[8:], make_default_target()) == {}
