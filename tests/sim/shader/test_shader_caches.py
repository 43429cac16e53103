"""--coherence caches: one invalidation left out, of each cache, changes what waves load; with it nothing does."""

from __future__ import annotations

import numpy as np
import pytest
from shader_launch import ACQUIRE, ShaderStage, open_machine, open_stage, parse_dwords, split_va

GLI_INV, GLK_INV, GLV_INV = 0x1, 1 << 7, 1 << 8
GROUPS = 8
SEEDS = range(6)

COPY = parse_dwords("""
    30020082                    ; v_lshlrev_b32_e32 v1, 2, v0
    ee050000 00000002 00000001  ; global_load_b32 v2, v1, s[0:1]
    84048775                    ; s_lshl_b32 s4, ttmp9, 7
    4a020204                    ; v_add_nc_u32_e32 v1, s4, v1
    bfc00000                    ; s_wait_loadcnt 0x0
    ee068002 01000000 00000001  ; global_store_b32 v1, v2, s[2:3]
    bfb00000                    ; s_endpgm
""")
"""s[2:3][32 * group + lane] = s[0:1][lane], by a vector load."""
SCALAR_COPY = parse_dwords("""
    f4000100 f8000000           ; s_load_b32 s4, s[0:1], 0x0
    84058775                    ; s_lshl_b32 s5, ttmp9, 7
    30020082                    ; v_lshlrev_b32_e32 v1, 2, v0
    4a020205                    ; v_add_nc_u32_e32 v1, s5, v1
    bfc70000                    ; s_wait_kmcnt 0x0
    7e040204                    ; v_mov_b32_e32 v2, s4
    ee068002 01000000 00000001  ; global_store_b32 v1, v2, s[2:3]
    bfb00000                    ; s_endpgm
""")
"""The same of its first word, by a scalar load."""
FILL = parse_dwords("""
    30020082                    ; v_lshlrev_b32_e32 v1, 2, v0
    7e040202                    ; v_mov_b32_e32 v2, s2
    ee068000 01000000 00000001  ; global_store_b32 v1, v2, s[0:1]
    bfb00000                    ; s_endpgm
""")
"""s[0:1][lane] = s2."""


def copy_after_store(s: ShaderStage, program: bytes, acquire: int) -> np.ndarray:
    """Return what `program` loads in its second run after the words were changed to 2, with that GCR_CNTL before
    the second run.
    """
    source, _ = s.buffer(name="source")
    out, words = s.buffer(name="copied")
    copy, fill = s.load(program, "copy"), s.load(FILL, "fill")
    s.run(fill, (*split_va(source), 1))
    s.run(copy, (*split_va(source), *split_va(out)), groups=(GROUPS, 1, 1))
    assert (words[: 32 * GROUPS] == 1).all()
    s.run(fill, (*split_va(source), 2), acquire=acquire)
    s.run(copy, (*split_va(source), *split_va(out)), groups=(GROUPS, 1, 1), acquire=acquire)
    return words[: 32 * GROUPS].copy()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("program", "omitted", "message"),
    [(COPY, GLV_INV, ("L0", "GLV_INV")), (SCALAR_COPY, GLK_INV, ("scalar cache", "GLK_INV"))],
    ids=["vector", "scalar"],
)
def test_load_without_invalidation_returns_stale_data(
    program: bytes, omitted: int, message: tuple[str, ...]
) -> None:
    stale = 0
    for seed in SEEDS:
        with open_machine(coherence="caches", reorder=seed) as owner, open_stage(owner) as s:
            loaded = copy_after_store(s, program, ACQUIRE & ~omitted)
            assert set(loaded) <= {1, 2}
            result = [finding for finding in owner.findings if finding.rule == "stale-line"]
            assert bool(result) == bool((loaded == 1).any())
            if result:
                stale += 1
                for word in (*message, "between them"):
                    assert word in result[0].sentence, result[0].sentence
    assert 2 * stale > len(SEEDS)


@pytest.mark.parametrize("program", [COPY, SCALAR_COPY], ids=["vector", "scalar"])
@pytest.mark.rest(keep=1)
def test_loads_after_full_invalidation_are_fresh_under_every_seed(program: bytes) -> None:
    for seed in SEEDS:
        with open_machine(coherence="caches", reorder=seed) as owner, open_stage(owner) as s:
            assert (copy_after_store(s, program, ACQUIRE) == 2).all()
            assert owner.findings == []


# --- within a dispatch: workgroup 0 loads, waits for workgroup 1's flag, loads again -----------------------------

NOPS = "bf800000"
GLOBAL_INV, DCACHE_INV = "ee0ac07c 00080000 00000000", "f4042000 00000000"
WAITS = """
    bf078075                    ; s_cmp_lg_u32 ttmp9, 0
    30020082                    ; v_lshlrev_b32_e32 v1, 2, v0
    7e080280                    ; v_mov_b32_e32 v4, 0
    bfa200{writer:02x}          ; s_cbranch_scc1 writer
    {load}
    ee050000 00080003 00020004  ; poll: global_load_b32 v3, v4, s[0:1] offset:512 scope:SCOPE_DEV
    bfc00000                    ; s_wait_loadcnt 0x0
    7e080503                    ; v_readfirstlane_b32 s4, v3
    bf068004                    ; s_cmp_eq_u32 s4, 0
    bfa2fff9                    ; s_cbranch_scc1 poll
    {invalidate}
    {load}
    {take}
    ee068002 01000000 00000001  ; global_store_b32 v1, v2, s[2:3]
    bfb00000                    ; s_endpgm
    7e040282                    ; writer: v_mov_b32_e32 v2, 2
    ee068000 01000000 00000001  ; global_store_b32 v1, v2, s[0:1]
    bfc10000                    ; s_wait_storecnt 0x0
    ee068000 01080000 00020004  ; global_store_b32 v4, v2, s[0:1] offset:512 scope:SCOPE_DEV
    bfb00000                    ; s_endpgm
"""
VECTOR_LOAD = "ee050000 00000002 00000001 bfc00000"  # global_load_b32 v2, v1, s[0:1], s_wait_loadcnt 0x0
SCALAR_LOAD = "f4000140 f8000000 bfc70000"  # s_load_b32 s5, s[0:1], 0x0, s_wait_kmcnt 0x0


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("load", "receive", "writer", "invalidate", "message"),
    [
        (VECTOR_LOAD, "", 0x16, GLOBAL_INV, "global_inv"),
        (SCALAR_LOAD, "7e040205 ; v_mov_b32_e32 v2, s5", 0x14, DCACHE_INV, "s_dcache_inv"),
    ],
    ids=["global_inv", "s_dcache_inv"],
)
def test_waiting_wave_sees_stores_of_another_workgroup_after_invalidation(
    load: str, receive: str, writer: int, invalidate: str, message: str
) -> None:
    with open_machine(coherence="caches", reorder=1) as owner, open_stage(owner) as s:
        for result, word in ((invalidate, 2), (" ".join([NOPS] * len(invalidate.split())), 0)):
            program = s.load(parse_dwords(WAITS.format(load=load, take=receive, writer=writer, invalidate=result)))
            shared, _ = s.buffer()
            out, words = s.buffer()
            s.run(program, (*split_va(shared), *split_va(out)), groups=(2, 1, 1))
            assert (words[:32] == word).all()
            assert (word == 2) == ("stale-line" not in s.rules())
        [result] = [finding for finding in owner.findings if finding.rule == "stale-line"]
        assert message in result.sentence and "waves of this dispatch" in result.sentence


def test_replaced_code_runs_after_invalidation_and_stale_code_is_reported() -> None:
    with open_machine(coherence="caches", reorder=1) as owner, open_stage(owner) as s:
        program = s.load(FILL)
        out, words = s.buffer()
        s.run(program, (*split_va(out), 1))
        s.words(program)[1] = 0x7E040287  # v_mov_b32_e32 v2, 7
        s.run(program, (*split_va(out), 2), acquire=ACQUIRE & ~GLI_INV)
        assert (words[:32] == 2).all()
        [result] = [finding for finding in owner.findings if finding.rule == "stale-line"]
        assert (
            "instruction cache" in result.sentence and "GLI_INV" in result.sentence and "pc 0x4" in result.sentence
        )
        s.run(program, (*split_va(out), 2))
        assert (words[:32] == 7).all()
