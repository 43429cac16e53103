"""NOPs and fences: read pointers, interrupts, write-backs."""

from __future__ import annotations

import pytest
from sim.cp.cp_support import FENCE, POISON, CpBench, encode_packets, is_finished, make_fence

from zinc_rt.pm4.gcr import release
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import (
    Nop,
    ReleaseMem,
)
from zinc_rt.sim.interfaces import AccessKind, QueueState


def test_sixteen_one_dword_nops_advance_read_pointer_by_sixteen():
    bench = CpBench()
    queue = bench.queue()
    queue.send([0xFFFF1000] * 16)
    assert queue.rptr == 16 and is_finished(bench) and bench.kmd.findings == []


@pytest.mark.parametrize("size", [2, 3, 17])
def test_nop_body_is_not_decoded(size):
    bench = CpBench()
    queue = bench.queue()
    queue.submit(Nop((0xC000F200,) * (size - 1)), Nop(), make_fence(5))
    assert bench.space.u32(FENCE) == 5 and queue.rptr == size + 1 + 8


def test_incomplete_packet_waits_for_its_remaining_dwords():
    bench = CpBench()
    queue = bench.queue()
    words = encode_packets([make_fence(7)])
    queue.send(words[:3])
    assert queue.rptr == 0 and queue.state is QueueState.ACTIVE and bench.space.u32(FENCE) == 0
    queue.send(words[3:])
    assert bench.space.u32(FENCE) == 7 and queue.rptr == 8


def test_32_bit_fence_does_not_touch_adjacent_dwords():
    bench = CpBench()
    bench.space.put(FENCE - 4, POISON, POISON, POISON)
    bench.queue().submit(make_fence(0x1_2345_6789, data_sel=1))
    assert [bench.space.u32(FENCE + at) for at in (-4, 0, 4)] == [POISON, 0x23456789, POISON]


def test_64_bit_fence_and_two_increasing_clocks():
    bench = CpBench()
    bench.queue().submit(
        make_fence(0x1234_5678_9ABC_DEF0, FENCE, data_sel=2),
        make_fence(0, FENCE + 8, data_sel=3),
        make_fence(0, FENCE + 16, data_sel=4),
    )
    assert bench.space.u64(FENCE) == 0x1234_5678_9ABC_DEF0
    first, second = bench.space.u64(FENCE + 8), bench.space.u64(FENCE + 16)
    assert 0x1_0000_0000 < first < second


@pytest.mark.parametrize(
    ("int_sel", "interrupts"), [(0, []), (1, [9]), (2, [9]), (3, []), (4, [9]), (5, [9]), (6, [9])]
)
def test_interrupts_arrive_with_context_after_the_data(int_sel, interrupts):
    bench = CpBench()
    bench.queue().submit(make_fence(44, data_sel=2, int_sel=int_sel, int_ctxid=9))
    assert [value for name, value in bench.kmd.heard if name == "interrupt"] == interrupts
    assert bench.space.u64(FENCE) == 44


def test_data_sel_0_writes_nothing_and_still_interrupts():
    bench = CpBench()
    bench.space.put(FENCE, POISON)
    bench.queue().submit(make_fence(44, data_sel=0, int_sel=1, int_ctxid=3))
    assert bench.space.u32(FENCE) == POISON and bench.kmd.heard == [("interrupt", 3)]


def test_unaligned_fence_is_rounded_down_and_reported():
    bench = CpBench()
    bench.queue().submit(make_fence(0x55, FENCE + 7, data_sel=2))
    assert bench.space.u64(FENCE) == 0x55 and bench.kmd.rules() == ["alignment"]


def test_fence_without_eop_buffer_faults():
    bench = CpBench()
    queue = bench.queue(eop=False)
    queue.submit(Nop(), make_fence(1))
    assert queue.state is QueueState.HUNG and queue.rptr == 1
    assert bench.kmd.heard == [("vm_fault", (0, AccessKind.WRITE, "not present"))]


def test_gl2_write_back_makes_data_visible_before_fence():
    bench = CpBench()
    bench.queue().submit(make_fence(1, gcr_cntl=release(Generation.GFX12, GL2_WB=1, SEQ=1)))
    assert bench.space.calls[0] == "write_back" and bench.space.u32(FENCE) == 1


def test_injected_fault_suppresses_the_fence():
    bench = CpBench()
    bench.kmd.injections.add("fence-never-written")
    queue = bench.queue()
    queue.submit(make_fence(1))
    assert bench.space.u32(FENCE) == 0 and is_finished(bench)


@pytest.mark.parametrize(("data_sel", "generation"), [(5, 12), (7, 12), (6, 11)])
def test_undefined_data_select_stops_the_queue(data_sel, generation):
    bench = CpBench(generation=Generation(generation))
    queue = bench.queue()
    queue.submit(make_fence(1, data_sel=data_sel))
    assert queue.state is QueueState.HUNG and f"data_sel {data_sel}" in queue.report


def test_release_mem_words_match_packet_class():
    assert ReleaseMem(FENCE, 1).words(Generation.GFX12)[0] == 0xC0064900
