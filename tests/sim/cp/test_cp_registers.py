"""Setting registers, and those that a queue may not set."""

from __future__ import annotations

import pytest
from sim.cp.cp_support import DATA, FENCE, CpBench, make_fence

from zinc_rt.pm4.packets import (
    CopyData,
    LoadShRegIndex,
    SetShReg,
    SetShRegIndex,
    SetShRegPairs,
    SetShRegPairsPacked,
    SetUconfigReg,
)
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.interfaces import QueueState

M32 = (1 << 32) - 1
SH_BASE = 0x2C00


def test_sh_registers_read_back_after_every_set_packet():
    bench = CpBench()
    bench.space.put(DATA, 21, 22)
    queue = bench.queue()
    queue.submit(
        SetShReg(Sh.USER_DATA_0, (1, 2, 3)),
        SetShRegPairs(((Sh.USER_DATA_0 + 4, 5), (Sh.USER_DATA_0 + 3, 4))),
        SetShRegPairsPacked.of(((Sh.USER_DATA_0 + 5, 6), (Sh.USER_DATA_0 + 6, 7), (Sh.USER_DATA_0 + 7, 8))),
        LoadShRegIndex(DATA >> 2, 0, Sh.USER_DATA_0 + 8, 2),
        SetUconfigReg(0x40, (99,)),
        *(CopyData(SH_BASE + Sh.USER_DATA_0 + index, DATA + 0x100 + 4 * index, src_sel=0) for index in range(10)),
        CopyData(0xC040, DATA + 0x200, src_sel=0),
        CopyData(SH_BASE + Sh.STATIC_THREAD_MGMT_SE0, DATA + 0x204, src_sel=0),
    )
    assert [bench.space.u32(DATA + 0x100 + 4 * index) for index in range(10)] == [1, 2, 3, 4, 5, 6, 7, 8, 21, 22]
    assert bench.space.u32(DATA + 0x200) == 99 and bench.space.u32(DATA + 0x204) == M32
    assert bench.kmd.findings == []


def test_registers_are_private_to_their_queue():
    bench = CpBench()
    one, two = bench.queue(), bench.queue()
    one.submit(SetShReg(Sh.USER_DATA_0, (1,)))
    two.submit(CopyData(SH_BASE + Sh.USER_DATA_0, DATA, src_sel=0))
    assert bench.space.u32(DATA) == 0


def test_cu_mask_is_limited_to_the_mask_set_by_the_kernel():
    bench = CpBench()
    queue = bench.queue()
    queue.hardware.extra["cu_mask_0x216"] = 0x00FF00FF
    queue.submit(SetShRegIndex(0x216, (0xFFF0FFF0,)), CopyData(SH_BASE + 0x216, DATA, src_sel=0))
    assert bench.space.u32(DATA) == 0x00F000F0


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        (SetShReg(0x214, (1,)), "COMPUTE_VMID is privileged"),
        (SetShReg(0x3FF, (1, 2)), "outside SH"),
        (SetShReg(0x2C00 + 0x240, (1,)), "outside SH"),  # errata 4: absolute instead of relative
        (SetShReg(0x240, (1,), index=1), "insert VMID"),
        (CopyData(0x100, DATA, src_sel=0), "privileged"),
        (CopyData(1, 0x2000, src_sel=5, dst_sel=0), "privileged"),
    ],
)
def test_privileged_register_write_stops_the_queue(packet, words):
    bench = CpBench()
    queue = bench.queue()
    queue.submit(packet)
    assert queue.state is QueueState.HUNG and words in queue.report and bench.kmd.heard == [("hung", 1)]


def test_unnamed_register_is_reported():
    bench = CpBench()
    bench.queue().submit(SetShReg(0x250, (1,)), SetShReg(0x250, (2,)), make_fence(1))
    assert bench.kmd.rules() == ["register-unknown"] and bench.space.u32(FENCE) == 1
