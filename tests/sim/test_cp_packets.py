"""Each packet's effect, against what pm4.md says it is."""

from __future__ import annotations

import struct

import pytest
from cp_support import CODE, DATA, FENCE, IB, MEMORY_VA, POISON, Bench, dwords, fence

from zinc_rt.pm4.gcr import acquire, release
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import (
    AcquireMem,
    AtomicMem,
    CondExec,
    CondIndirectBuffer,
    CondWrite,
    CopyData,
    DispatchDirect,
    DispatchIndirect,
    DmaData,
    DmaDataFillMulti,
    EventWrite,
    FenceWaitMulti,
    HdpFlush,
    IndirectBuffer,
    LoadShRegIndex,
    Nop,
    PredExec,
    ProtectedFenceSignal,
    ReleaseMem,
    Rewind,
    SetShReg,
    SetShRegIndex,
    SetShRegPairs,
    SetShRegPairsPacked,
    SetUconfigReg,
    Timestamp,
    WaitRegMem,
    WaitRegMem64,
    WriteData,
)
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.interfaces import AccessKind, QueueKind, QueueState
from zinc_rt.sim.shader_engine import NOTHING, Accesses, Dispatch

SH_BASE = 0x2C00
USERQ = QueueKind.USERQ_COMPUTE


class Collector:
    """A shader engine that keeps dispatches and touches what it is told to."""

    def __init__(self, accesses: Accesses = NOTHING, turns: int = 1) -> None:
        self.dispatches: list[Dispatch] = []
        self.abandoned: list[Dispatch] = []
        self.accesses, self.turns = accesses, turns
        self.left: dict[int, int] = {}

    def run(self, dispatch: Dispatch) -> Accesses | None:
        left = self.left.setdefault(id(dispatch), self.turns) - 1
        self.left[id(dispatch)] = left
        if left > 0:
            return None
        self.dispatches.append(dispatch)
        return self.accesses

    def abandon(self, dispatch: Dispatch) -> None:
        self.abandoned.append(dispatch)


def finished(bench: Bench) -> bool:
    return all(each.state is QueueState.ACTIVE and each.rptr == each.wptr % each.ring_dw for each in bench.queues)


def test_sixteen_one_dword_nops_move_the_read_pointer_by_sixteen():
    bench = Bench()
    queue = bench.queue()
    queue.send([0xFFFF1000] * 16)
    assert queue.rptr == 16 and finished(bench) and bench.kmd.findings == []


@pytest.mark.parametrize("size", [2, 3, 17])
def test_the_body_of_a_nop_is_never_looked_at(size):
    bench = Bench()
    queue = bench.queue()
    queue.submit(Nop((0xC000F200,) * (size - 1)), Nop(), fence(5))
    assert bench.space.u32(FENCE) == 5 and queue.rptr == size + 1 + 8


def test_a_packet_that_is_not_all_there_waits_for_its_rest():
    bench = Bench()
    queue = bench.queue()
    words = dwords([fence(7)])
    queue.send(words[:3])
    assert queue.rptr == 0 and queue.state is QueueState.ACTIVE and bench.space.u32(FENCE) == 0
    queue.send(words[3:])
    assert bench.space.u32(FENCE) == 7 and queue.rptr == 8


# --- fences ---------------------------------------------------------------------------------------------------


def test_a_32_bit_fence_leaves_its_neighbours_alone():
    bench = Bench()
    bench.space.put(FENCE - 4, POISON, POISON, POISON)
    bench.queue().submit(fence(0x1_2345_6789, data_sel=1))
    assert [bench.space.u32(FENCE + at) for at in (-4, 0, 4)] == [POISON, 0x23456789, POISON]


def test_a_64_bit_fence_and_two_clocks_that_rise():
    bench = Bench()
    bench.queue().submit(
        fence(0x1234_5678_9ABC_DEF0, FENCE, data_sel=2),
        fence(0, FENCE + 8, data_sel=3),
        fence(0, FENCE + 16, data_sel=4),
    )
    assert bench.space.u64(FENCE) == 0x1234_5678_9ABC_DEF0
    first, second = bench.space.u64(FENCE + 8), bench.space.u64(FENCE + 16)
    assert 0x1_0000_0000 < first < second


@pytest.mark.parametrize(
    ("int_sel", "interrupts"), [(0, []), (1, [9]), (2, [9]), (3, []), (4, [9]), (5, [9]), (6, [9])]
)
def test_interrupts_come_with_their_context_after_the_data(int_sel, interrupts):
    bench = Bench()
    bench.queue().submit(fence(44, data_sel=2, int_sel=int_sel, int_ctxid=9))
    assert [value for name, value in bench.kmd.heard if name == "interrupt"] == interrupts
    assert bench.space.u64(FENCE) == 44


def test_data_sel_0_writes_nothing_and_still_interrupts():
    bench = Bench()
    bench.space.put(FENCE, POISON)
    bench.queue().submit(fence(44, data_sel=0, int_sel=1, int_ctxid=3))
    assert bench.space.u32(FENCE) == POISON and bench.kmd.heard == [("interrupt", 3)]


def test_an_unaligned_fence_lands_at_the_rounded_down_address_and_is_a_finding():
    bench = Bench()
    bench.queue().submit(fence(0x55, FENCE + 7, data_sel=2))
    assert bench.space.u64(FENCE) == 0x55 and bench.kmd.rules() == ["alignment"]


def test_a_fence_without_an_end_of_pipe_buffer_faults():
    bench = Bench()
    queue = bench.queue(eop=False)
    queue.submit(Nop(), fence(1))
    assert queue.state is QueueState.HUNG and queue.rptr == 1
    assert bench.kmd.heard == [("vm_fault", (0, AccessKind.WRITE, "not present"))]


def test_gl2_write_back_makes_data_visible_before_the_fence_is():
    bench = Bench()
    bench.queue().submit(fence(1, gcr_cntl=release(Generation.GFX12, GL2_WB=1, SEQ=1)))
    assert bench.space.calls[0] == "write_back" and bench.space.u32(FENCE) == 1


def test_an_injected_fault_leaves_the_fence_unwritten():
    bench = Bench()
    bench.kmd.injections.add("fence-never-written")
    queue = bench.queue()
    queue.submit(fence(1))
    assert bench.space.u32(FENCE) == 0 and finished(bench)


@pytest.mark.parametrize(("data_sel", "generation"), [(5, 12), (7, 12), (6, 11)])
def test_a_data_select_that_does_not_exist_stops_the_queue(data_sel, generation):
    bench = Bench(generation=Generation(generation))
    queue = bench.queue()
    queue.submit(fence(1, data_sel=data_sel))
    assert queue.state is QueueState.HUNG and f"data_sel {data_sel}" in queue.report


# --- data -----------------------------------------------------------------------------------------------------


def test_write_data_of_eight_dwords_and_of_one_address():
    bench = Bench()
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
    bench = Bench()
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


M32, M64 = (1 << 32) - 1, (1 << 64) - 1
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
def test_atomics_do_what_their_names_say(op, old, source, compare, expected, wide, returning):
    def widened(value: int) -> int:
        return M64 if wide and value == M32 else value

    bench = Bench()
    bench.space.write(DATA, struct.pack("<QQ", widened(old), 0x5A5A5A5A_5A5A5A5A))
    bench.queue().submit(
        AtomicMem(DATA, widened(source), op + wide + returning, compare),
        CopyData(0, DATA + 16, src_sel=6, count_sel=1),
    )
    got = bench.space.u64(DATA) if wide else bench.space.u32(DATA)
    assert got == widened(expected) and bench.space.u64(DATA + 8) == 0x5A5A5A5A_5A5A5A5A
    assert bench.space.u64(DATA + 16) == widened(old) & (M64 if wide else M32)


def test_a_looping_atomic_takes_a_lock_once_it_is_free():
    bench = Bench()
    bench.space.put(DATA, 1)
    queue = bench.queue()
    queue.submit(AtomicMem(DATA, 1, 8, 0, command=1), fence(3))
    assert bench.space.u32(FENCE) == 0 and queue.rptr == 0
    bench.space.put(DATA, 0)
    bench.run()
    assert (bench.space.u32(DATA), bench.space.u32(FENCE)) == (1, 3)


def test_dma_copies_fills_and_crosses_allocations():
    bench = Bench()
    pattern = bytes(range(256)) * 16
    bench.space.write(DATA, pattern)
    bench.space.split = DATA + 0x2000 + 0x800
    bench.queue().submit(
        DmaData(DATA, DATA + 0x2000, 4096 - 3),
        DmaData(0xCAFEF00D, DATA + 0x4000, 4096 + 2, src_sel=2),
        fence(1),
    )
    assert bench.space.read(DATA + 0x2000, 4096) == pattern[:-3] + bytes(3)
    assert bench.space.read(DATA + 0x4000, 4100) == struct.pack("<I", 0xCAFEF00D) * 1024 + b"\x0d\xf0" + bytes(2)


def test_dma_fill_multi_steps_by_its_stride():
    bench = Bench()
    bench.space.write(DATA, b"\xff" * 64)
    bench.queue().submit(DmaDataFillMulti(DATA, 4, 16, 3), fence(1))
    assert bench.space.read(DATA, 64) == (bytes(4) + b"\xff" * 12) * 3 + b"\xff" * 16


def test_cond_write_writes_only_where_the_comparison_holds():
    bench = Bench()
    bench.space.put(DATA, 0xF5)
    bench.queue().submit(
        CondWrite(DATA, 5, 0xF, DATA + 8, 1, function=3),
        CondWrite(DATA, 5, 0xF, DATA + 12, 1, function=4),
    )
    assert (bench.space.u32(DATA + 8), bench.space.u32(DATA + 12)) == (1, 0)


def test_timestamps_at_the_top_and_at_the_bottom():
    bench = Bench()
    bench.queue().submit(Timestamp(DATA, DATA + 8, enable_bottom=1, enable_top=1))
    assert 0 < bench.space.u64(DATA + 8) < bench.space.u64(DATA)


# --- waits ----------------------------------------------------------------------------------------------------

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
def test_waits_compare_unsigned_and_behind_the_mask(number):
    passing, failing = COMPARISONS[number]
    for value in passing + failing:
        bench = Bench()
        bench.space.put(DATA, value, 0xFFFFFFFF)
        bench.queue().submit(WaitRegMem(DATA, 10, function=number), fence(1))
        assert bench.space.u32(FENCE) == (value in passing), (number, value)
    bench = Bench()
    bench.space.put(DATA, 0xAB00000A)
    bench.queue().submit(WaitRegMem(DATA, 10, 0xFF, function=3), fence(1))
    assert bench.space.u32(FENCE) == 1


def test_a_wait_holds_its_queue_and_no_other():
    bench = Bench()
    one, two = bench.queue(), bench.queue()
    one.submit(WaitRegMem(DATA, 1), fence(1))
    two.submit(fence(2, FENCE + 8))
    assert (bench.space.u32(FENCE), bench.space.u32(FENCE + 8)) == (0, 2)
    assert one.rptr == 0
    two.submit(WriteData(DATA, (1,)))
    assert bench.space.u32(FENCE) == 1 and finished(bench)


def test_a_64_bit_wait_sees_the_upper_half():
    bench = Bench()
    bench.space.write(DATA, struct.pack("<Q", 5))
    bench.queue().submit(WaitRegMem64(DATA, 0x1_0000_0005), fence(1))
    assert bench.space.u32(FENCE) == 0
    bench.space.write(DATA, struct.pack("<Q", 0x1_0000_0005))
    bench.run()
    assert bench.space.u32(FENCE) == 1


def test_a_register_pair_and_the_hdp_packet_flush_the_hdp():
    bench = Bench()
    bench.queue().submit(WaitRegMem.register_pair(write=0x106, poll=0x107, value=1, mask=1), HdpFlush(), fence(1))
    assert bench.space.calls.count("flush_hdp") == 2 and bench.space.u32(FENCE) == 1


def test_acquire_mem_invalidates_instructions_and_writes_back_as_its_bits_say():
    bench = Bench()
    gcr = acquire(Generation.GFX12, GLI_INV=1, GL2_WB=1)
    bench.queue().submit(AcquireMem(acquire(Generation.GFX12, GLV_INV=1)), AcquireMem(gcr))
    assert bench.space.calls == ["invalidate_icache", "write_back"] and bench.kmd.findings == []


def test_gl1_bits_are_tolerated_on_gfx12_as_a_finding():
    bits = acquire(Generation.GFX11, GL1_INV=1, GLM_INV=1)
    for generation, rules in ((Generation.GFX11, []), (Generation.GFX12, ["reserved-bits"])):
        bench = Bench(generation=generation)
        queue = bench.queue()
        queue.submit(AcquireMem(bits), fence(1))
        assert bench.space.u32(FENCE) == 1 and bench.kmd.rules() == rules


# --- control --------------------------------------------------------------------------------------------------


def call(bench: Bench, *packets: object, at: int = IB, size: int | None = None, **fields: int) -> IndirectBuffer:
    words = dwords(packets)  # type: ignore[arg-type]
    words += [0xFFFF1000] * (-len(words) % 8)
    bench.space.put(at, *words)
    return IndirectBuffer(at, len(words) if size is None else size, **fields)


def test_an_indirect_buffer_runs_and_returns_to_the_ring():
    bench = Bench()
    queue = bench.queue()
    queue.submit(
        WriteData(DATA, (1,)),
        call(bench, CopyData(DATA, DATA + 4), WriteData(DATA, (2,))),
        CopyData(DATA, DATA + 8),
        fence(9),
    )
    assert [bench.space.u32(DATA + at) for at in (0, 4, 8)] == [2, 1, 2]
    assert finished(bench) and bench.kmd.findings == []


def test_a_chained_buffer_replaces_the_one_it_is_in():
    bench = Bench()
    second = call(bench, WriteData(DATA, (2,)), at=IB + 0x400, chain=1)
    queue = bench.queue()
    queue.submit(call(bench, second, WriteData(DATA, (3,))), fence(1))
    assert (bench.space.u32(DATA), bench.space.u32(FENCE)) == (2, 1)


def test_nesting_works_two_deep_as_a_finding_and_no_deeper():
    bench = Bench()
    inner = call(bench, WriteData(DATA, (2,)), at=IB + 0x400)
    queue = bench.queue()
    queue.submit(call(bench, inner, WriteData(DATA + 4, (3,))), fence(1))
    assert (bench.space.u32(DATA), bench.space.u32(DATA + 4)) == (2, 3)
    assert bench.kmd.rules() == ["ib-nesting"]
    middle = call(bench, inner, Nop(), at=IB + 0x800)
    queue.submit(call(bench, middle, Nop()))
    assert queue.state is QueueState.HUNG and "nested 3 deep" in queue.report


def test_an_indirect_buffer_without_its_valid_bit_stops_the_queue():
    bench = Bench()
    queue = bench.queue()
    queue.submit(Nop(), call(bench, Nop(), valid=0))
    assert queue.state is QueueState.HUNG and "bit 23" in queue.report and queue.rptr == 1


def test_a_user_queue_needs_bit_30_on_its_indirect_buffers():
    bench = Bench()
    queue = bench.queue(USERQ)
    queue.submit(call(bench, WriteData(DATA, (2,)), inherit_vmid=1))
    assert bench.space.u32(DATA) == 2 and bench.kmd.findings == []
    queue.submit(call(bench, WriteData(DATA, (3,))))
    assert bench.space.u32(DATA) == 2 and queue.state is QueueState.HUNG
    assert bench.kmd.heard == [("vm_fault", (IB, AccessKind.READ, "not present"))]
    assert bench.kmd.rules() == ["ib-inherit-vmid", "page-fault"]


def test_bit_30_on_a_kfd_queue_is_a_finding():
    bench = Bench()
    bench.queue().submit(call(bench, WriteData(DATA, (2,)), inherit_vmid=1))
    assert bench.space.u32(DATA) == 2 and bench.kmd.rules() == ["ib-inherit-vmid"]


def test_an_injected_fault_takes_bit_30_away():
    bench = Bench()
    bench.kmd.injections.add("vmid-not-inherited")
    queue = bench.queue(USERQ)
    queue.submit(call(bench, Nop(), inherit_vmid=1))
    assert queue.state is QueueState.HUNG and bench.kmd.heard[0][0] == "vm_fault"


def test_a_conditional_call_takes_the_branch_memory_says():
    bench = Bench()
    one = call(bench, WriteData(DATA + 8, (1,)))
    two = call(bench, WriteData(DATA + 8, (2,)), at=IB + 0x400)
    bench.space.write(DATA, struct.pack("<Q", 7))
    queue = bench.queue()
    for reference, mode, expected in ((7, 2, 1), (8, 2, 2), (8, 1, 0)):
        bench.space.put(DATA + 8, 0)
        queue.submit(
            CondIndirectBuffer(DATA, M64, reference, one.address, one.size_dw, two.address, two.size_dw, mode=mode)
        )
        assert bench.space.u32(DATA + 8) == expected


@pytest.mark.parametrize(("flag", "expected"), [(0, [0, 0, 3]), (1, [1, 2, 3]), (POISON, [1, 2, 3])])
@pytest.mark.parametrize("in_ib", [False, True])
def test_cond_exec_skips_exactly_the_dwords_it_names(flag, expected, in_ib):
    bench = Bench()
    bench.space.put(DATA, flag)
    writes = [WriteData(DATA + 4 * index, (index,)) for index in (1, 2, 3)]
    packets = [CondExec(DATA, 10), *writes]
    bench.queue().submit(*([call(bench, *packets)] if in_ib else packets))
    assert [bench.space.u32(DATA + 4 * index) for index in (1, 2, 3)] == expected


def test_cond_exec_may_skip_what_is_rung_later_only():
    bench = Bench()
    queue = bench.queue()
    queue.submit(CondExec(DATA, 5))
    queue.submit(WriteData(DATA, (1,)), fence(2))
    assert (bench.space.u32(DATA), bench.space.u32(FENCE)) == (0, 2)


def test_cond_exec_past_the_end_of_its_buffer_is_a_finding():
    bench = Bench()
    queue = bench.queue()
    queue.submit(call(bench, CondExec(DATA, 100)), fence(1))
    assert bench.kmd.rules() == ["skip-past-end"] and bench.space.u32(FENCE) == 1


def test_pred_exec_runs_on_die_0_only():
    bench = Bench()
    bench.queue().submit(
        PredExec(5, xcc_select=1), WriteData(DATA, (1,)), PredExec(5, xcc_select=2), WriteData(DATA + 4, (1,))
    )
    assert (bench.space.u32(DATA), bench.space.u32(DATA + 4)) == (1, 0)


def test_rewind_waits_for_its_bit_and_fetches_the_rest_anew():
    bench = Bench()
    queue = bench.queue()
    queue.submit(call(bench, Rewind(), WriteData(DATA, (1,))), fence(1))
    assert bench.space.u32(FENCE) == 0
    call(bench, Rewind(1), WriteData(DATA, (2,)))
    bench.run()
    assert (bench.space.u32(DATA), bench.space.u32(FENCE)) == (2, 1)


# --- registers ------------------------------------------------------------------------------------------------


def test_sh_registers_read_back_in_every_form_of_setting_them():
    bench = Bench()
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


def test_registers_belong_to_their_queue():
    bench = Bench()
    one, two = bench.queue(), bench.queue()
    one.submit(SetShReg(Sh.USER_DATA_0, (1,)))
    two.submit(CopyData(SH_BASE + Sh.USER_DATA_0, DATA, src_sel=0))
    assert bench.space.u32(DATA) == 0


def test_a_cu_mask_is_cut_to_what_the_kernel_allows():
    bench = Bench()
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
def test_what_is_the_kernels_stops_the_queue(packet, words):
    bench = Bench()
    queue = bench.queue()
    queue.submit(packet)
    assert queue.state is QueueState.HUNG and words in queue.report and bench.kmd.heard == [("hung", 1)]


def test_a_register_without_a_name_is_a_finding():
    bench = Bench()
    bench.queue().submit(SetShReg(0x250, (1,)), SetShReg(0x250, (2,)), fence(1))
    assert bench.kmd.rules() == ["register-unknown"] and bench.space.u32(FENCE) == 1


# --- dispatches -----------------------------------------------------------------------------------------------


def launch_state(threads: tuple[int, int, int] = (8, 4, 2), user: tuple[int, ...] = ()) -> list[SetShReg]:
    packets = [SetShReg(Sh.PGM_LO, (CODE >> 8, 0)), SetShReg(Sh.NUM_THREAD_X, threads)]
    return packets + ([SetShReg(Sh.USER_DATA_0, user)] if user else [])


def test_a_dispatch_carries_its_registers_grid_and_wave_size():
    engine = Collector()
    bench = Bench(engine=engine)
    bench.queue().submit(
        *launch_state(user=tuple(range(16))),
        SetShReg(Sh.START_X, (7, 8, 9)),
        DispatchDirect(5, 3, 2, 0x8005),
        SetShReg(Sh.USER_DATA_0, (99,)),
        DispatchDirect(1, 1, 1, 0x0001),
    )
    first, second = engine.dispatches
    assert first.program_va == CODE and first.groups == (5, 3, 2) and first.wave32
    assert first.group_threads == (8, 4, 2) == first.last_threads
    assert first.user_data == tuple(range(16)) and first.start == (0, 0, 0)
    assert second.user_data[0] == 99 and not second.wave32 and second.start == (7, 8, 9)


def test_thread_dimensions_round_up_and_say_how_large_the_last_group_is():
    engine = Collector()
    bench = Bench(engine=engine)
    bench.queue().submit(*launch_state((64, 1, 1)), DispatchDirect(130, 1, 1, 0x8021))
    assert engine.dispatches[0].groups == (3, 1, 1) and engine.dispatches[0].last_threads == (2, 1, 1)


def test_an_indirect_dispatch_reads_its_grid_when_the_cp_comes_to_it():
    engine = Collector()
    bench = Bench(engine=engine)
    bench.queue().submit(
        *launch_state(), WriteData(DATA, (4, 5, 6)), DispatchIndirect(DATA, 0x8005), WriteData(DATA, (1, 1, 1))
    )
    assert engine.dispatches[0].groups == (4, 5, 6)


@pytest.mark.parametrize(
    ("packet", "rules"),
    [
        (DispatchDirect(0, 1, 1, 0x8005), []),
        (DispatchDirect(1, 1, 1, 0x8004), ["dispatch-disabled"]),  # errata 3
        (DispatchDirect(1, 1, 1, 0x8005 | 1 << 25), ["reserved-bits"]),
    ],
)
def test_what_launches_nothing(packet, rules):
    engine = Collector()
    bench = Bench(engine=engine)
    bench.queue().submit(*launch_state(), packet, fence(1))
    assert bench.kmd.rules() == rules and bench.space.u32(FENCE) == 1
    assert len(engine.dispatches) == (rules == ["reserved-bits"])


def test_code_that_may_not_be_executed_faults_at_its_address():
    bench = Bench(engine=Collector())
    bench.space.allowed[(CODE - MEMORY_VA) // 4096].discard(AccessKind.EXECUTE)
    queue = bench.queue()
    queue.submit(*launch_state(), DispatchDirect(1, 1, 1, 0x8005))
    assert queue.state is QueueState.HUNG and bench.kmd.heard[0][0] == "vm_fault"
    assert bench.kmd.heard[0][1][:2] == (CODE, AccessKind.EXECUTE)  # type: ignore[index]


def test_without_a_shader_engine_a_dispatch_is_a_finding_and_ends():
    bench = Bench()
    bench.queue().submit(*launch_state(), DispatchDirect(1, 1, 1, 0x8005), EventWrite.cs_partial_flush(), fence(1))
    assert bench.kmd.rules() == ["no-shader-engine"] and bench.space.u32(FENCE) == 1


def test_a_long_dispatch_lets_the_stream_go_on_but_not_past_a_flush_or_fence():
    bench = Bench(engine=Collector(turns=5))
    queue = bench.queue()
    queue.submit(
        *launch_state(),
        DispatchDirect(1, 1, 1, 0x8005),
        WriteData(DATA, (1,)),
        fence(2),
        EventWrite.cs_partial_flush(),
        WriteData(DATA + 4, (3,)),
        run=False,
    )
    bench.cp.step(8)
    assert (bench.space.u32(DATA), bench.space.u32(FENCE), bench.space.u32(DATA + 4)) == (1, 0, 0)
    bench.run()
    assert (bench.space.u32(FENCE), bench.space.u32(DATA + 4)) == (2, 3) and finished(bench)


def test_a_fault_of_a_shader_is_the_queues_end_and_names_the_dispatch():
    class Faulting(Collector):
        def run(self, dispatch: Dispatch) -> Accesses | None:
            dispatch.space.read(0x40, 4)
            return NOTHING

    bench = Bench(engine=Faulting())
    queue = bench.queue()
    queue.submit(*launch_state(), DispatchDirect(1, 1, 1, 0x8005), fence(1))
    assert queue.state is QueueState.HUNG and "DISPATCH_DIRECT" in queue.report
    assert bench.kmd.heard == [("vm_fault", (0x40, AccessKind.READ, "not present"))]


# --- user queues ----------------------------------------------------------------------------------------------


def test_a_protected_fence_tells_the_kernel_how_far_the_ring_is():
    bench = Bench()
    queue = bench.queue(USERQ)
    queue.submit(fence(1), ProtectedFenceSignal())
    assert bench.kmd.heard == [("fence_signal", 10)] and bench.kmd.findings == []
    kfd = bench.queue()
    kfd.submit(ProtectedFenceSignal())
    assert kfd.state is QueueState.HUNG and queue.state is QueueState.ACTIVE


@pytest.mark.parametrize(
    ("between", "rules"),
    [((fence(1),), []), ((), ["fence-order"]), ((fence(1), DmaData(1, DATA, 4, src_sel=2)), ["fence-order"])],
)
@pytest.mark.parametrize("turns", [1, 5])
def test_a_protected_fence_needs_a_fence_behind_work_that_runs(between, rules, turns):
    """A dispatch too long for one turn still runs when the packet comes. RELEASE_MEM's event has to stand behind
    it, and behind all that waits its turn since."""
    bench = Bench(engine=Collector(turns=turns))
    queue = bench.queue(USERQ)
    queue.submit(*launch_state(), DispatchDirect(1, 1, 1, 0x8005), *between, ProtectedFenceSignal())
    while not bench.kmd.heard:
        bench.run(10)
    assert bench.kmd.rules() == (rules if turns > 1 else [])


def test_fence_wait_multi_waits_for_every_fence():
    bench = Bench()
    queue = bench.queue(USERQ)
    queue.submit(FenceWaitMulti(0, ((DATA, 5), (DATA + 8, 6))), fence(1))
    for va, value, expected in ((DATA, 5, 0), (DATA + 8, 5, 0), (DATA + 8, 7, 1)):
        bench.space.write(va, struct.pack("<Q", value))
        bench.run()
        assert bench.space.u32(FENCE) == expected


def test_release_mem_words_are_as_the_packet_class_says():
    assert ReleaseMem(FENCE, 1).words(Generation.GFX12)[0] == 0xC0064900
