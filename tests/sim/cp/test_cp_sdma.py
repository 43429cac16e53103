"""SDMA queues: each packet's effect, byte pointers, what stops them. Dwords are written out by hand."""

from __future__ import annotations

import struct

import pytest
from sim.cp.cp_support import DATA, FENCE, IB, CpBench, wait_until

from zinc_rt.pm4.packets import WaitRegMem, WriteData
from zinc_rt.sim.interfaces import QueueKind, QueueState

MEMORY_POLL = 1 << 31


def sdma_fence(value: int, va: int = FENCE) -> list[int]:
    return [0x5 | 3 << 16, va & 0xFFFFFFFF, va >> 32, value]


def copy_packet(source: int, destination: int, size: int) -> list[int]:
    return [0x1, size - 1, 0, source, source >> 32, destination, destination >> 32]


@pytest.fixture
def bench() -> CpBench:
    return CpBench()


def sdma_queue(bench: CpBench, **more: int):
    return bench.queue(QueueKind.KFD_SDMA, eop=False, **more)


def test_copy_of_any_size_then_a_fence_with_byte_pointers(bench):
    bench.space.write(DATA, bytes(range(256)) * 4)
    queue = sdma_queue(bench)
    queue.send(copy_packet(DATA + 1, DATA + 0x1000, 777) + sdma_fence(5))
    assert bench.space.read(DATA + 0x1000, 778) == (bytes(range(256)) * 4)[1:778] + b"\0"
    assert bench.space.u32(FENCE) == 5 and queue.rptr == 44
    assert queue.hardware.rptr == 44 and bench.kmd.findings == []


def test_version_7_copy_has_an_eighth_dword_if_cpv_is_set(bench):
    bench.space.put(DATA, 0x12345678)
    words = copy_packet(DATA, DATA + 0x10, 4)
    words[0] |= 1 << 19
    sdma_queue(bench).send([*words, 0, *sdma_fence(1)])
    assert bench.space.u32(DATA + 0x10) == 0x12345678 and bench.space.u32(FENCE) == 1


@pytest.mark.parametrize(
    ("size_code", "expected"), [(0, b"\x44" * 10), (1, b"\x44\x33" * 5), (2, b"D3\x22\x11D3\x22\x11D3")]
)
def test_fills_with_bytes_words_and_dwords(bench, size_code, expected):
    sdma_queue(bench).send([0xB | size_code << 30, DATA, 0, 0x11223344, 9, *sdma_fence(1)])
    assert bench.space.read(DATA, 11) == expected + b"\0" and bench.space.u32(FENCE) == 1


def test_write_linear_padding_and_long_nops(bench):
    queue = sdma_queue(bench)
    queue.send([0x2, DATA, 0, 2, 7, 8, 9, 0x0 | 3 << 16, 0xF2F2F2F2, 1, 2, 0, 0, *sdma_fence(3)])
    assert struct.unpack("<3I", bench.space.read(DATA, 12)) == (7, 8, 9) and bench.space.u32(FENCE) == 3


def test_poll_memory_blocks_the_queue_until_condition_holds(bench):
    queue = sdma_queue(bench)
    queue.send([0x8 | 3 << 28 | MEMORY_POLL, DATA, 0, 5, 0xFF, 0xFFF << 16 | 10, *sdma_fence(1)])
    assert bench.space.u32(FENCE) == 0 and queue.rptr == 0
    bench.space.put(DATA, 0xAB05)
    bench.run()
    assert bench.space.u32(FENCE) == 1


def test_poll_with_hdp_bit_flushes_the_hdp(bench):
    sdma_queue(bench).send([0x8 | 3 << 28 | 1 << 26, 0x100, 0x104, 1, 1, 0, *sdma_fence(1)])
    assert "flush_hdp" in bench.space.calls and bench.space.u32(FENCE) == 1


def test_rocr_sequence_around_a_copy_is_executed(bench):
    gcr = [0x11 | 1 << 8, 0, (1 | 1 << 15) << 16, 0, 0]
    bench.space.put(DATA, 0x12345678)
    copy = [0x1, 3, 0, DATA, 0, DATA + 0x100, 0]
    sdma_queue(bench).send([0x8, 0, 0x80000000, 0, 0, 0, *gcr, *copy, *gcr, *sdma_fence(1)])
    assert bench.space.calls[:3] == ["flush_hdp", "invalidate_icache", "write_back"]
    assert bench.space.u32(DATA + 0x100) == 0x12345678 and bench.space.u32(FENCE) == 1
    assert not bench.kmd.heard


def test_sub_window_copies_a_box_between_layouts(bench):
    queue = sdma_queue(bench)
    bench.space.write(DATA, bytes(index % 251 for index in range(4096)))
    element, source_pitch, target_pitch = 2, 40, 17  # elements of 4 bytes
    source = [DATA, 0, 3 | 2 << 16, 1 | (source_pitch - 1) << 16, source_pitch * 6 - 1]
    target = [DATA + 0x2000, 0, 1 | 1 << 16, (target_pitch - 1) << 16, target_pitch * 5 - 1]
    box = [(7 - 1) | (3 - 1) << 16, 2 - 1]
    queue.send([0x1 | 4 << 8 | element << 29, *source, *target, *box, *sdma_fence(1)])
    expected = bytearray(target_pitch * 5 * 4 * 2)
    for z in range(2):
        for y in range(3):
            at = 4 * (3 + (2 + y) * source_pitch + (1 + z) * source_pitch * 6)
            to = 4 * (1 + (1 + y) * target_pitch + z * target_pitch * 5)
            expected[to : to + 28] = bytes(index % 251 for index in range(at, at + 28))
    assert bench.space.read(DATA + 0x2000, len(expected)) == bytes(expected)
    assert bench.space.u32(FENCE) == 1 and not bench.kmd.heard


def test_timestamps_increase_and_traps_interrupt_after_the_fence(bench):
    sdma_queue(bench).send([0xD | 2 << 8, DATA, 0, 0xD | 2 << 8, DATA + 8, 0, *sdma_fence(1), 0x6, 77])
    assert 0x1_0000_0000 < bench.space.u64(DATA) < bench.space.u64(DATA + 8)
    assert bench.kmd.heard == [("interrupt", 77)]


def test_indirect_buffer_cond_exec_and_atomic(bench):
    bench.space.put(IB, 0x9, DATA, 0, 1, 4, *sdma_fence(9, DATA + 0x100), 0xA | 15 << 25, DATA, 0, 3, 0, 0, 0, 0)
    queue = sdma_queue(bench)
    queue.send([0x4, IB, 0, 17, 0, 0, *sdma_fence(1)])
    assert bench.space.u32(DATA + 0x100) == 0  # memory is 0, the reference 1: skipped
    assert bench.space.u32(DATA) == 3 and bench.space.u32(FENCE) == 1


def test_cache_requests_reach_the_address_space(bench):
    sdma_queue(bench).send([0x11, 0, (1 | 1 << 15) << 16, 0, 0, *sdma_fence(1)])
    assert bench.space.calls[:2] == ["invalidate_icache", "write_back"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([0xC, 0, 0], "PTEPDE is privileged"),
        ([0xE, 0, 0], "SRBM_WRITE is privileged"),
        ([0x1F], "opcode 0x1f"),
        ([0x1 | 9 << 8], "sub-opcode 0x09"),
        ([0xC0001000], "sub-opcode 0x10"),  # a PM4 NOP
        ([0x8 | 3 << 28, 0, 0, 0, 0, 0], "poll registers"),
        ([0x8, 4, 0x80000000, 0, 0, 0], "poll registers"),
        ([0xB | 3 << 30, DATA, 0, 0, 3], "fill size 3"),
    ],
)
def test_invalid_packet_stops_sdma_queue_at_its_dword(bench, words, reason):
    queue = sdma_queue(bench)
    queue.send([0, *words, *sdma_fence(1)])
    assert queue.state is QueueState.HUNG and reason in queue.report and "dword 0x1 " in queue.report
    assert queue.rptr == 4 and bench.space.u32(FENCE) == 0


def test_copy_from_unmapped_address_faults(bench):
    queue = sdma_queue(bench)
    queue.send(copy_packet(0x40, DATA, 16))
    assert bench.kmd.heard[0][0] == "vm_fault" and "COPY_LINEAR" in queue.report
    [result] = bench.kmd.findings
    assert result.rule == "page-fault" and result.fault is not None and result.place is None
    assert (result.fault.va, result.fault.access) == (0x40, "read") and result.position == 0
    assert "COPY_LINEAR at ring dword 0x0" in result.fault.by


def test_packets_straddle_and_fences_stay_in_order_over_many_wraps(bench):
    queue = sdma_queue(bench)
    for value in range(1, 1500):
        queue.send([0] * (value % 5) + sdma_fence(value))
        assert bench.space.u32(FENCE) == value
    assert bench.space.u64(queue.rptr_va) == 4 * queue.wptr > 8 * 4096


def test_doorbell_not_a_multiple_of_four_is_reported(bench):
    queue = sdma_queue(bench)
    queue.write([0, 0])
    bench.space.write(queue.wptr_va, struct.pack("<Q", 7))
    bench.cp.ring(queue.hardware, 7)
    bench.run()
    assert "doorbell-alignment" in bench.kmd.rules() and queue.rptr == 4


def test_compute_waits_for_sdma_in_a_thread(bench):
    dma, compute = sdma_queue(bench), bench.queue()
    bench.cp.start()
    try:
        compute.submit(WaitRegMem(FENCE, 4), WriteData(DATA, (6,)), run=False)
        dma.send(sdma_fence(4), run=False)
        assert wait_until(lambda: bench.space.u32(DATA) == 6)
    finally:
        bench.cp.close()
