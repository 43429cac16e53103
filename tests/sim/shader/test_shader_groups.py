"""Workgroups on a bare device: barriers, waves and workgroups that wait for each other, fuel, threads, order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shader_launch import REVERSE, SPIN, STORE_IDS, parse_dwords, split_va

from zinc_rt.sim.interfaces import AccessKind, Fault
from zinc_rt.sim.shader.run.engine_device import EngineDevice
from zinc_rt.sim.shader.run.group_shapes import make_group_shape

HALF_COMES = parse_dwords("""
    9302ff74 00050019           ; s_bfe_u32 s2, ttmp8, 0x50019: the wave's number
    bf078002                    ; s_cmp_lg_u32 s2, 0
    bfa20002                    ; s_cbranch_scc1 to the end
    be804ec1                    ; s_barrier_signal -1
    bf94ffff                    ; s_barrier_wait 0xffff
    bfb00000                    ; s_endpgm
""")
COUNT = parse_dwords("""
    7e020280                    ; v_mov_b32_e32 v1, 0
    7e040281                    ; v_mov_b32_e32 v2, 1
    b0020400                    ; s_movk_i32 s2, 0x400
    80828102                    ; s_sub_co_u32 s2, s2, 1
    bf078002                    ; s_cmp_lg_u32 s2, 0
    bfa2fffd                    ; s_cbranch_scc1 back
    ee0d4000 01000000 00000001  ; global_atomic_add_u32 v1, v2, s[0:1]
    bfb00000                    ; s_endpgm
""")
LAST_GROUP_FIRST = parse_dwords("""
    f4000080 f8000000           ; s_load_b32 s2, s[0:1], 0x0
    bfc70000                    ; s_wait_kmcnt 0x0
    80037502                    ; s_add_co_u32 s3, s2, ttmp9
    bf068703                    ; s_cmp_eq_u32 s3, 7
    bfa1fffa                    ; s_cbranch_scc0 back to the load
    80028102                    ; s_add_co_u32 s2, s2, 1
    7e020280                    ; v_mov_b32_e32 v1, 0
    7e040202                    ; v_mov_b32_e32 v2, s2
    befe0081                    ; s_mov_b32 exec_lo, 1: one lane, as 32 stores to a word may be seen one by one
    ee068000 01000000 00000001  ; global_store_b32 v1, v2, s[0:1]
    bfb00000                    ; s_endpgm
""")
"""Workgroup 7 - n waits until word 0 is n, then makes it n + 1."""
LAST_WAVE_FIRST = parse_dwords("""
    9304ff74 00050019           ; s_bfe_u32 s4, ttmp8, 0x50019
    f4000080 f8000000           ; s_load_b32 s2, s[0:1], 0x0
    bfc70000                    ; s_wait_kmcnt 0x0
    80030402                    ; s_add_co_u32 s3, s2, s4
    bf068703                    ; s_cmp_eq_u32 s3, 7
    bfa1fffa                    ; s_cbranch_scc0 back to the load
    80028102                    ; s_add_co_u32 s2, s2, 1
    7e020280                    ; v_mov_b32_e32 v1, 0
    7e040202                    ; v_mov_b32_e32 v2, s2
    ee068000 01000000 00000001  ; global_store_b32 v1, v2, s[0:1]
    bfb00000                    ; s_endpgm
""")
READS_V7 = parse_dwords("7e040d07 bfb00000 ; v_cvt_f32_u32 v2, v7")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", ["off", "fast", "full"])
def test_every_workgroup_has_its_lds_and_barrier(level: str, threads: int) -> None:
    device = EngineDevice(level=level, threads=threads)
    out = np.zeros(64, np.uint32)
    va = device.place(out, "out")
    result = device.run(REVERSE, groups=(200, 1, 1), threads=(64, 1, 1), user_data=split_va(va), lds_bytes=256)
    assert np.array_equal(out, np.arange(64)[::-1])
    assert {item.rule for item in result} <= {"race"}, result  # 200 workgroups store the same


def test_wave_ending_before_the_barrier_is_reported_and_others_continue() -> None:
    result = EngineDevice(level="fast").run(HALF_COMES, threads=(128, 1, 1), groups=(2, 3, 1), name="half")
    assert {item.rule for item in result} == {"barrier-mismatch"}
    first = result[0].sentence
    assert first.startswith(
        "half: barrier-mismatch at pc 0x10 `s_barrier_signal -1`, wave 0 of workgroup (0, 0, 0)"
    )
    assert "waves 1-3 of the workgroup ended, the first at pc 0x18 `s_endpgm`, without reaching" in first
    assert (result[0].place.pc, result[0].place.wave, result[0].place.group) == (0x10, 0, (0, 0, 0))


@pytest.mark.parametrize("waves", [0, 1])
def test_wave_missing_a_barrier_may_end_before_or_during_the_wait(waves: int) -> None:
    """Of two waves the last one, or the first, ends: the other has come already, or comes later and alone."""
    program = parse_dwords(f"""
        9302ff74 00050019           ; s_bfe_u32 s2, ttmp8, 0x50019: the wave's number
        bf06{128 + 1 - waves:02x}02                    ; s_cmp_eq_u32 s2, {1 - waves}
        bfa20002                    ; s_cbranch_scc1 to the end
        be804ec1                    ; s_barrier_signal -1
        bf94ffff                    ; s_barrier_wait -1
        bfb00000
    """)
    [result] = EngineDevice(level="full").run(program, threads=(64, 1, 1))
    assert (
        f"wave {waves} of workgroup" in result.sentence
        and f": wave {1 - waves} of the workgroup" in result.sentence
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_large_grids_run_every_workgroup_once(threads: int) -> None:
    device = EngineDevice(level="off", threads=threads)
    count = np.zeros(1, np.uint32)
    va = device.place(count, "count")
    for groups in ((3000, 1, 1), (10, 20, 15)):
        count[0] = 0
        assert not device.run(COUNT, groups=groups, user_data=split_va(va), threads=(64, 1, 1))
        assert count[0] == 3000 * 64


@pytest.mark.parametrize("threads", [1, 2])
def test_workgroups_may_wait_for_later_workgroups(threads: int) -> None:
    device = EngineDevice(level="fast", threads=threads)
    word = np.zeros(1, np.uint32)
    va = device.place(word, "word")
    assert not device.run(LAST_GROUP_FIRST, groups=(8, 1, 1), user_data=split_va(va))
    assert word[0] == 8


def test_waves_of_a_workgroup_may_wait_for_later_waves() -> None:
    device = EngineDevice(level="fast")
    word = np.zeros(1, np.uint32)
    va = device.place(word, "word")
    assert not device.run(LAST_WAVE_FIRST, threads=(256, 1, 1), user_data=split_va(va))
    assert word[0] == 8


def test_exhausted_fuel_is_reported_with_its_location() -> None:
    device = EngineDevice(level="fast", fuel=500_000)
    words = np.zeros(2, np.uint32)
    va = device.place(words, "words")
    [result] = device.run(SPIN, user_data=split_va(va))
    assert result.rule == "out-of-fuel" and "s_load_b32" in result.sentence and words[1] == 0
    assert (
        "in a loop of 4 instructions, pc 0x0 to 0x14, with exits at pc 0x10 `s_cbranch_scc1 65531`"
        in result.sentence
    )
    assert "after `s_cmp_eq_u32 s2, 0`" in result.sentence
    assert f"the exit conditions depend on s0 = {va & 0xFFFFFFFF:#x}, s1 = {va >> 32:#x}" in result.sentence
    words[0] = 1
    assert not device.run(SPIN, user_data=split_va(va)) and words[1] == 7


def test_findings_do_not_depend_on_threads() -> None:
    sentences = [
        [item.sentence for item in EngineDevice(level="fast", threads=threads).run(READS_V7, groups=(40, 2, 1))]
        for threads in (1, 2, 2)
    ]
    assert sentences[0] and sentences[0] == sentences[1] == sentences[2]
    assert "v7" in sentences[0][0] and "more times" in sentences[0][-1]


def test_device_continues_after_a_fault() -> None:
    device = EngineDevice(level="fast", threads=2)
    out = np.zeros(64, np.uint32)
    va = device.place(out, "out")
    with pytest.raises(Fault) as caught:
        device.run(STORE_IDS, groups=(4000, 1, 1), user_data=split_va(va + 0x80_0000))
    assert caught.value.access is AccessKind.WRITE and caught.value.va >= va + 0x80_0000
    assert not device.run(STORE_IDS, groups=(2, 1, 1), user_data=split_va(va))
    assert out[63] == 32


def test_read_only_array_is_not_modified() -> None:
    device = EngineDevice(level="off")
    out = np.zeros(64, np.uint32)
    va = device.place(out, "constant", write=False)
    with pytest.raises(Fault) as caught:
        device.run(STORE_IDS, user_data=split_va(va))
    assert caught.value.why == "read only" and not out.any()


@pytest.mark.parametrize("wave", [32, 64])
def test_thread_ids_fill_waves_without_gaps(wave: int) -> None:
    [record] = make_group_shape((5, 7, 3), wave)
    waves = -(-105 // wave)
    assert record["waves"] == waves and record["threads"] == 105
    ids = [int(item) for item in record["v0"][: waves * wave]]
    present = [bool(int(record["exec"][n // wave]) >> n % wave & 1) for n in range(waves * wave)]
    assert present == [n < 105 for n in range(waves * wave)]
    result = [(item & 0x3FF, item >> 10 & 0x3FF, item >> 20) for item in ids[:105]]
    assert result == [(x, y, z) for z in range(3) for y in range(7) for x in range(5)]


def test_kernel_from_the_manual_runs() -> None:
    manual = Path(__file__).parents[3] / "docs/simulated-device.md"
    exec(manual.read_text().split("```python\n")[3].split("```")[0], {})
