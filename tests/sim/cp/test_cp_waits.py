"""Waits and cache operations."""

from __future__ import annotations

import struct

import pytest
from sim.cp.cp_support import DATA, FENCE, CpBench, is_finished, make_fence

from zinc_rt.pm4.gcr import acquire
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import (
    AcquireMem,
    HdpFlush,
    WaitRegMem,
    WaitRegMem64,
    WriteData,
)

M32 = (1 << 32) - 1


COMPARISONS = {  # function -> (values that pass, values that do not) against reference 10
    0: ((0, 10, M32), ()),
    1: ((9, 0), (10, M32)),
    2: ((10, 0), (11, M32)),
    3: ((10,), (9, 11)),
    4: ((9, 11), (10,)),
    5: ((10, M32), (9, 0)),
    6: ((11, M32), (10, 0)),
}


@pytest.mark.parametrize("number", COMPARISONS)
def test_waits_compare_unsigned_after_masking(number):
    passing, failing = COMPARISONS[number]
    for value in passing + failing:
        bench = CpBench()
        bench.space.put(DATA, value, 0xFFFFFFFF)
        bench.queue().submit(WaitRegMem(DATA, 10, function=number), make_fence(1))
        assert bench.space.u32(FENCE) == (value in passing), (number, value)
    bench = CpBench()
    bench.space.put(DATA, 0xAB00000A)
    bench.queue().submit(WaitRegMem(DATA, 10, 0xFF, function=3), make_fence(1))
    assert bench.space.u32(FENCE) == 1


def test_wait_blocks_only_its_own_queue():
    bench = CpBench()
    one, two = bench.queue(), bench.queue()
    one.submit(WaitRegMem(DATA, 1), make_fence(1))
    two.submit(make_fence(2, FENCE + 8))
    assert (bench.space.u32(FENCE), bench.space.u32(FENCE + 8)) == (0, 2)
    assert one.rptr == 0
    two.submit(WriteData(DATA, (1,)))
    assert bench.space.u32(FENCE) == 1 and is_finished(bench)


def test_64_bit_wait_compares_the_upper_half():
    bench = CpBench()
    bench.space.write(DATA, struct.pack("<Q", 5))
    bench.queue().submit(WaitRegMem64(DATA, 0x1_0000_0005), make_fence(1))
    assert bench.space.u32(FENCE) == 0
    bench.space.write(DATA, struct.pack("<Q", 0x1_0000_0005))
    bench.run()
    assert bench.space.u32(FENCE) == 1


def test_register_pair_and_hdp_packet_flush_the_hdp():
    bench = CpBench()
    bench.queue().submit(
        WaitRegMem.register_pair(write=0x106, poll=0x107, value=1, mask=1), HdpFlush(), make_fence(1)
    )
    assert bench.space.calls.count("flush_hdp") == 2 and bench.space.u32(FENCE) == 1


def test_acquire_mem_invalidates_and_writes_back_as_its_bits_request():
    bench = CpBench()
    gcr = acquire(Generation.GFX12, GLI_INV=1, GL2_WB=1)
    bench.queue().submit(AcquireMem(acquire(Generation.GFX12, GLV_INV=1)), AcquireMem(gcr))
    assert bench.space.calls == ["invalidate_icache", "write_back"] and bench.kmd.findings == []


def test_gfx12_accepts_gl1_and_glm_bits_of_gfx11():
    bits = acquire(Generation.GFX11, GL1_INV=1, GLM_INV=1)
    for generation in (Generation.GFX11, Generation.GFX12):
        bench = CpBench(generation=generation)
        bench.queue().submit(AcquireMem(bits), make_fence(1))
        assert bench.space.u32(FENCE) == 1 and bench.kmd.rules() == []
