"""Packets that move data: WRITE_DATA, COPY_DATA, atomics, DMA, timestamps."""

from __future__ import annotations

import struct

import pytest
from sim.cp.cp_support import DATA, FENCE, POISON, CpBench, make_fence

from zinc_rt.pm4.packets import (
    AtomicMem,
    CondWrite,
    CopyData,
    DmaData,
    DmaDataFillMulti,
    Timestamp,
    WriteData,
)
from zinc_rt.pm4.registers import Sh

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1
SH_BASE = 0x2C00


def test_write_data_supports_eight_dwords_and_same_address():
    bench = CpBench()
    bench.space.put(DATA + 0x100, POISON, POISON)
    bench.queue().submit(
        WriteData(DATA, tuple(range(100, 108)), wr_confirm=1),
        WriteData(DATA + 0x100, (1, 2, 3), same_address=1),
        WriteData(DATA + 0x202, (7,), dst_sel=2),
    )
    assert struct.unpack("<8I", bench.space.read(DATA, 32)) == tuple(range(100, 108))
    assert (bench.space.u32(DATA + 0x100), bench.space.u32(DATA + 0x104)) == (3, POISON)
    assert bench.space.u32(DATA + 0x200) == 7 and bench.kmd.rules() == ["alignment"]


def test_copy_data_between_memory_immediates_clocks_and_registers():
    bench = CpBench()
    bench.space.put(DATA, 0x11111111, 0x22222222)
    bench.queue().submit(
        CopyData(DATA, DATA + 0x10),
        CopyData(DATA, DATA + 0x20, count_sel=1),
        CopyData(0xAABBCCDD_EEFF0011, DATA + 0x30, src_sel=5, count_sel=1, wr_confirm=1),
        CopyData(0, DATA + 0x40, src_sel=9, count_sel=1),
        CopyData(0x77, SH_BASE + Sh.USER_DATA_0, src_sel=5, dst_sel=0),
        CopyData(SH_BASE + Sh.USER_DATA_0, DATA + 0x50, src_sel=0),
    )
    assert (bench.space.u32(DATA + 0x10), bench.space.u32(DATA + 0x14)) == (0x11111111, 0)
    assert bench.space.u64(DATA + 0x20) == 0x22222222_11111111
    assert bench.space.u64(DATA + 0x30) == 0xAABBCCDD_EEFF0011
    assert bench.space.u64(DATA + 0x40) > 0x1_0000_0000
    assert bench.space.u32(DATA + 0x50) == 0x77


ATOMICS = [  # (op, 32-bit old, source, compare, expected), written from the operations' definitions
    (7, 5, 9, 0, 9),
    (8, 5, 9, 5, 9),
    (8, 5, 9, 6, 5),
    (15, M32, 2, 0, 1),
    (16, 1, 2, 0, M32),
    (17, M32, 1, 0, M32),  # -1 is less than 1
    (18, M32, 1, 0, 1),
    (19, M32, 1, 0, 1),
    (20, M32, 1, 0, M32),
    (21, 0b1100, 0b1010, 0, 0b1000),
    (22, 0b1100, 0b1010, 0, 0b1110),
    (23, 0b1100, 0b1010, 0, 0b0110),
    (24, 4, 5, 0, 5),
    (24, 5, 5, 0, 0),
    (25, 4, 5, 0, 3),
    (25, 0, 5, 0, 5),
    (25, 6, 5, 0, 5),
]


@pytest.mark.parametrize("returning", [0, 64])
@pytest.mark.parametrize("wide", [0, 32])
@pytest.mark.parametrize(("op", "old", "source", "compare", "expected"), ATOMICS)
def test_atomics_match_their_names(op, old, source, compare, expected, wide, returning):
    def widen_mask(value: int) -> int:
        return M64 if wide and value == M32 else value

    bench = CpBench()
    bench.space.write(DATA, struct.pack("<QQ", widen_mask(old), 0x5A5A5A5A_5A5A5A5A))
    bench.queue().submit(
        AtomicMem(DATA, widen_mask(source), op + wide + returning, compare),
        CopyData(0, DATA + 16, src_sel=6, count_sel=1),
    )
    got = bench.space.u64(DATA) if wide else bench.space.u32(DATA)
    assert got == widen_mask(expected) and bench.space.u64(DATA + 8) == 0x5A5A5A5A_5A5A5A5A
    assert bench.space.u64(DATA + 16) == widen_mask(old) & (M64 if wide else M32)


def test_looping_atomic_takes_lock_once_free():
    bench = CpBench()
    bench.space.put(DATA, 1)
    queue = bench.queue()
    queue.submit(AtomicMem(DATA, 1, 8, 0, command=1), make_fence(3))
    assert bench.space.u32(FENCE) == 0 and queue.rptr == 0
    bench.space.put(DATA, 0)
    bench.run()
    assert (bench.space.u32(DATA), bench.space.u32(FENCE)) == (1, 3)


def test_dma_copies_fills_and_crosses_allocations():
    bench = CpBench()
    pattern = bytes(range(256)) * 16
    bench.space.write(DATA, pattern)
    bench.space.split = DATA + 0x2000 + 0x800
    bench.queue().submit(
        DmaData(DATA, DATA + 0x2000, 4096 - 3),
        DmaData(0xCAFEF00D, DATA + 0x4000, 4096 + 2, src_sel=2),
        make_fence(1),
    )
    assert bench.space.read(DATA + 0x2000, 4096) == pattern[:-3] + bytes(3)
    assert bench.space.read(DATA + 0x4000, 4100) == struct.pack("<I", 0xCAFEF00D) * 1024 + b"\x0d\xf0" + bytes(2)


def test_dma_fill_multi_steps_by_stride():
    bench = CpBench()
    bench.space.write(DATA, b"\xff" * 64)
    bench.queue().submit(DmaDataFillMulti(DATA, 4, 16, 3), make_fence(1))
    assert bench.space.read(DATA, 64) == (bytes(4) + b"\xff" * 12) * 3 + b"\xff" * 16


def test_cond_write_writes_only_if_comparison_holds():
    bench = CpBench()
    bench.space.put(DATA, 0xF5)
    bench.queue().submit(
        CondWrite(DATA, 5, 0xF, DATA + 8, 1, function=3),
        CondWrite(DATA, 5, 0xF, DATA + 12, 1, function=4),
    )
    assert (bench.space.u32(DATA + 8), bench.space.u32(DATA + 12)) == (1, 0)


def test_timestamps_at_top_and_bottom_of_pipe():
    bench = CpBench()
    bench.queue().submit(Timestamp(DATA, DATA + 8, enable_bottom=1, enable_top=1))
    assert 0 < bench.space.u64(DATA + 8) < bench.space.u64(DATA)
