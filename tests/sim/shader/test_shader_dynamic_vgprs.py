"""Dynamic VGPRs: waves begin with a block of 16, ask for others, may be refused, and have no more than that."""

from __future__ import annotations

from typing import Any

import pytest
from shader_launch import INITIATOR, open_machine, open_stage, parse_dwords, split_va

DYNAMIC = 2 << 1 | 1 << 6 | 1 << 7  # two user SGPRs, DYNAMIC_VGPR, TGID_X
GROUPS = 16
ALLOCATE_64, ALLOCATE_144, SET_SCC = "be8053c0 bf800000", "be8053ff 00000090", "bf068080 bf800000"
PROGRAM = """
    30020082                    ; v_lshlrev_b32_e32 v1, 2, v0
    84048775                    ; s_lshl_b32 s4, ttmp9, 7
    4a020204                    ; v_add_nc_u32_e32 v1, s4, v1
    {asks}
    bfa1000{failed:x}           ; s_cbranch_scc0 failed
    7e500287                    ; v_mov_b32_e32 v40, 7
    {between}
    ee068000 14000000 00000001  ; global_store_b32 v1, v40, s[0:1]
    bfb00000                    ; s_endpgm
    7e040289                    ; failed: v_mov_b32_e32 v2, 9
    ee068000 01000000 00000001  ; global_store_b32 v1, v2, s[0:1]
    bfb00000                    ; s_endpgm
"""


def run_waves(requests: str, *, release: bool = False, **options: Any) -> tuple[list[list[int]], list[str]]:
    """[GROUPS] what the lanes of each workgroup's wave stored, and what was found."""
    between = "be805390 ; s_alloc_vgpr 16" if release else ""
    program = PROGRAM.format(asks=requests, between=between, failed=5 + release)
    with open_machine(**options) as owner, open_stage(owner) as s:
        out, words = s.buffer()
        s.run(
            s.load(parse_dwords(program)), split_va(out), groups=(GROUPS, 1, 1), rsrc2=DYNAMIC, initiator=INITIATOR
        )
        sentences = [finding.sentence for finding in owner.findings if finding.rule == "vgpr-out-of-range"]
        assert len(sentences) == len(owner.findings), owner.findings
        return words[: 32 * GROUPS].reshape(GROUPS, 32).tolist(), sentences


def test_allocated_vgprs_are_usable() -> None:
    assert run_waves(ALLOCATE_64) == ([[7] * 32] * GROUPS, [])


def test_more_than_eight_blocks_is_rejected() -> None:
    assert run_waves(ALLOCATE_144) == ([[9] * 32] * GROUPS, [])


@pytest.mark.parametrize("seed", [0, 3])
def test_seed_deterministically_fails_some_wave_allocations(seed: int) -> None:
    first, result = run_waves(ALLOCATE_64, reorder=seed)
    assert {value for wave in first for value in wave} == {7, 9} and result == []
    assert run_waves(ALLOCATE_64, reorder=seed, threads=1) == (first, [])


def test_never_allocated_vgpr_is_out_of_range() -> None:
    """The write is lost, the read gives v0: the lane's number."""
    lanes, result = run_waves(SET_SCC)
    assert lanes == [list(range(32))] * GROUPS
    assert any("v40 is written" in item for item in result) and any("v40 is read" in item for item in result)


def test_freed_vgpr_is_out_of_range() -> None:
    lanes, result = run_waves(ALLOCATE_64, release=True)
    assert lanes == [list(range(32))] * GROUPS
    assert result and all("v40 is read" in item or "more times" in item for item in result)
