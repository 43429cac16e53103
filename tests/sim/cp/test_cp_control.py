"""Indirect buffers, conditional execution, REWIND."""

from __future__ import annotations

import struct

import pytest
from sim.cp.cp_support import DATA, FENCE, IB, POISON, CpBench, encode_packets, is_finished, make_fence

from zinc_rt.pm4.packets import (
    CondExec,
    CondIndirectBuffer,
    CopyData,
    IndirectBuffer,
    Nop,
    PredExec,
    Rewind,
    WriteData,
)
from zinc_rt.sim.interfaces import AccessKind, QueueKind, QueueState

M64 = (1 << 64) - 1
USERQ = QueueKind.USERQ_COMPUTE


def call_indirect(
    bench: CpBench, *packets: object, index: int = IB, size: int | None = None, **fields: int
) -> IndirectBuffer:
    words = encode_packets(packets)  # type: ignore[arg-type]
    words += [0xFFFF1000] * (-len(words) % 8)
    bench.space.put(index, *words)
    return IndirectBuffer(index, len(words) if size is None else size, **fields)


def test_indirect_buffer_runs_and_returns_to_the_ring():
    bench = CpBench()
    queue = bench.queue()
    queue.submit(
        WriteData(DATA, (1,)),
        call_indirect(bench, CopyData(DATA, DATA + 4), WriteData(DATA, (2,))),
        CopyData(DATA, DATA + 8),
        make_fence(9),
    )
    assert [bench.space.u32(DATA + at) for at in (0, 4, 8)] == [2, 1, 2]
    assert is_finished(bench) and bench.kmd.findings == []


def test_chained_buffer_replaces_current_buffer():
    bench = CpBench()
    second = call_indirect(bench, WriteData(DATA, (2,)), index=IB + 0x400, chain=1)
    queue = bench.queue()
    queue.submit(call_indirect(bench, second, WriteData(DATA, (3,))), make_fence(1))
    assert (bench.space.u32(DATA), bench.space.u32(FENCE)) == (2, 1)


def test_second_level_nesting_is_reported_and_third_fails():
    bench = CpBench()
    inner = call_indirect(bench, WriteData(DATA, (2,)), index=IB + 0x400)
    queue = bench.queue()
    queue.submit(call_indirect(bench, inner, WriteData(DATA + 4, (3,))), make_fence(1))
    assert (bench.space.u32(DATA), bench.space.u32(DATA + 4)) == (2, 3)
    assert bench.kmd.rules() == ["ib-nesting"]
    middle = call_indirect(bench, inner, Nop(), index=IB + 0x800)
    queue.submit(call_indirect(bench, middle, Nop()))
    assert queue.state is QueueState.HUNG and "nested 3 deep" in queue.report


def test_indirect_buffer_without_valid_bit_stops_the_queue():
    bench = CpBench()
    queue = bench.queue()
    queue.submit(Nop(), call_indirect(bench, Nop(), valid=0))
    assert queue.state is QueueState.HUNG and "bit 23" in queue.report and queue.rptr == 1


def test_user_queue_needs_bit_30_on_indirect_buffers():
    bench = CpBench()
    queue = bench.queue(USERQ)
    queue.submit(call_indirect(bench, WriteData(DATA, (2,)), inherit_vmid=1))
    assert bench.space.u32(DATA) == 2 and bench.kmd.findings == []
    queue.submit(call_indirect(bench, WriteData(DATA, (3,))))
    assert bench.space.u32(DATA) == 2 and queue.state is QueueState.HUNG
    assert bench.kmd.heard == [("vm_fault", (IB, AccessKind.READ, "not present"))]
    assert bench.kmd.rules() == ["ib-inherit-vmid", "page-fault"]


def test_bit_30_on_kfd_queue_is_reported():
    bench = CpBench()
    bench.queue().submit(call_indirect(bench, WriteData(DATA, (2,)), inherit_vmid=1))
    assert bench.space.u32(DATA) == 2 and bench.kmd.rules() == ["ib-inherit-vmid"]


def test_injected_fault_clears_bit_30():
    bench = CpBench()
    bench.kmd.injections.add("vmid-not-inherited")
    queue = bench.queue(USERQ)
    queue.submit(call_indirect(bench, Nop(), inherit_vmid=1))
    assert queue.state is QueueState.HUNG and bench.kmd.heard[0][0] == "vm_fault"


def test_conditional_call_selects_branch_by_memory():
    bench = CpBench()
    one = call_indirect(bench, WriteData(DATA + 8, (1,)))
    two = call_indirect(bench, WriteData(DATA + 8, (2,)), index=IB + 0x400)
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
def test_cond_exec_skips_exactly_its_dword_count(flag, expected, in_ib):
    bench = CpBench()
    bench.space.put(DATA, flag)
    writes = [WriteData(DATA + 4 * index, (index,)) for index in (1, 2, 3)]
    packets = [CondExec(DATA, 10), *writes]
    bench.queue().submit(*([call_indirect(bench, *packets)] if in_ib else packets))
    assert [bench.space.u32(DATA + 4 * index) for index in (1, 2, 3)] == expected


def test_cond_exec_can_skip_dwords_submitted_later():
    bench = CpBench()
    queue = bench.queue()
    queue.submit(CondExec(DATA, 5))
    queue.submit(WriteData(DATA, (1,)), make_fence(2))
    assert (bench.space.u32(DATA), bench.space.u32(FENCE)) == (0, 2)


def test_cond_exec_past_end_of_buffer_is_reported():
    bench = CpBench()
    queue = bench.queue()
    queue.submit(call_indirect(bench, CondExec(DATA, 100)), make_fence(1))
    assert bench.kmd.rules() == ["skip-past-end"] and bench.space.u32(FENCE) == 1


def test_pred_exec_runs_on_die_0_only():
    bench = CpBench()
    bench.queue().submit(
        PredExec(5, xcc_select=1), WriteData(DATA, (1,)), PredExec(5, xcc_select=2), WriteData(DATA + 4, (1,))
    )
    assert (bench.space.u32(DATA), bench.space.u32(DATA + 4)) == (1, 0)


def test_rewind_waits_for_valid_bit_and_refetches_the_rest():
    bench = CpBench()
    queue = bench.queue()
    queue.submit(call_indirect(bench, Rewind(), WriteData(DATA, (1,))), make_fence(1))
    assert bench.space.u32(FENCE) == 0
    call_indirect(bench, Rewind(1), WriteData(DATA, (2,)))
    bench.run()
    assert (bench.space.u32(DATA), bench.space.u32(FENCE)) == (2, 1)
