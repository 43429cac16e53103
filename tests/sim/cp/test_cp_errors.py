"""What stops a queue, and whether the report says at which dword and why."""

from __future__ import annotations

import struct

import pytest
from sim.cp.cp_support import CODE, DATA, FENCE, IB, MEMORY_VA, CpBench, encode_packets, make_fence, wait_until

from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.opcodes import OTHER_ENGINES
from zinc_rt.pm4.packets import (
    AtomicMem,
    CopyData,
    DispatchDirect,
    DmaData,
    IndirectBuffer,
    InvalidateTlbs,
    Nop,
    ReleaseMem,
    SetConfigReg,
    SetShReg,
    WaitRegMem,
    WriteData,
)
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.interfaces import AccessKind, QueueKind, QueueState


def type3_packet(opcode: int, *body: int) -> list[int]:
    return [0xC0000000 | len(body) - 1 << 16 | opcode << 8, *body]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (type3_packet(0xF2, 0), "opcode"),
        (type3_packet(0xCC, 0, 0), "opcode"),
        (type3_packet(0x69, 0, 0), "SET_CONTEXT_REG is not a compute packet"),  # errata 8
        ([0x80000000], "type-2"),
        ([0x00000000], "type 0"),
        ([0x40000000], "type 1"),
        (type3_packet(0x58, *[0] * 6), "ACQUIRE_MEM"),  # errata 7: gfx9's length
        (type3_packet(0x15, 1, 1, 1), "DISPATCH_DIRECT"),  # errata 1, 3: no initiator, the count says so
        (type3_packet(0x49, *[0] * 8), "RELEASE_MEM"),  # kfdtest's way to hang a pipe: count + 1
        (type3_packet(0x1D, *[0] * 10), "gfx12"),  # ATOMIC_GDS is gfx11's
    ],
)
def test_illegal_dwords_freeze_read_pointer_at_the_packet(words, reason):
    bench = CpBench()
    queue = bench.queue()
    queue.send(encode_packets([Nop((1, 2)), WriteData(DATA, (1,))]) + words + encode_packets([make_fence(1)] * 2))
    assert queue.state is QueueState.HUNG
    assert queue.rptr == 8 and queue.hardware.rptr == 8
    assert "ring dword 0x8 " in queue.report and reason in queue.report
    assert f"0x0008  {words[0]:08x}" in queue.report  # the disassembly starts there
    assert "WRITE_DATA at ring dword 0x3" in queue.report  # and what ran before is named
    assert bench.kmd.heard == [("hung", 1)]
    assert bench.space.u32(DATA) == 1 and bench.space.u32(FENCE) == 0


def test_errata_1_short_dispatch_consumes_next_header():
    """Count 3 with three dims, as the design's helper writes it: the fence's header becomes the initiator."""
    bench = CpBench()
    queue = bench.queue()
    queue.send([0xC0031500, 1, 1, 1, *encode_packets([make_fence(1)])])
    assert queue.state is QueueState.HUNG and bench.space.u32(FENCE) == 0
    assert "ring dword 0x5 " in queue.report  # the fence's second dword is taken for a header


def test_errata_2_count_2_for_one_register_consumes_next_header():
    bench = CpBench()
    queue = bench.queue()
    queue.send([0xC0027600, Sh.USER_DATA_0, 7, *encode_packets([make_fence(1)])])
    assert queue.state is QueueState.HUNG and "ring dword 0x4 " in queue.report


def test_errata_5_release_mem_with_four_body_dwords_writes_no_fence():
    bench = CpBench()
    queue = bench.queue()
    queue.send([0xC0064900, FENCE & 0xFFFFFFFF, FENCE >> 32, 1, 0, *[0xFFFF1000] * 8])
    assert bench.space.u32(FENCE) == 0


def test_errata_11_nop_with_count_0_is_two_dwords():
    bench = CpBench()
    queue = bench.queue()
    queue.send([0xC0001000, 0xC000F200, *encode_packets([make_fence(1)])])
    assert bench.space.u32(FENCE) == 1 and queue.rptr == 10


@pytest.mark.parametrize("opcode", sorted(OTHER_ENGINES))
def test_graphics_packets_stop_a_compute_queue(opcode):
    bench = CpBench()
    queue = bench.queue()
    queue.send(type3_packet(opcode, 0, 0))
    assert queue.state is QueueState.HUNG and OTHER_ENGINES[opcode] in queue.report


@pytest.mark.parametrize("packet", [SetConfigReg(1, (1,)), InvalidateTlbs()])
def test_kernel_only_packets_stop_a_user_queue(packet):
    bench = CpBench()
    queue = bench.queue()
    queue.submit(packet)
    assert queue.state is QueueState.HUNG and "privileged" in queue.report


def test_report_in_indirect_buffer_names_dword_and_caller():
    bench = CpBench()
    bench.space.put(IB, *encode_packets([Nop((1,))]), *type3_packet(0xF2, 0), *[0xFFFF1000] * 4)
    queue = bench.queue()
    queue.submit(Nop(), Nop(), IndirectBuffer(IB, 8))
    assert f"IB 0x{IB:x} dword 0x2" in queue.report and "called at ring dword 0x2 " in queue.report
    assert queue.rptr == 2


def test_packet_truncated_by_end_of_buffer_stops_the_queue():
    bench = CpBench()
    bench.space.put(IB, *[0xFFFF1000] * 7, 0xC0064900)
    queue = bench.queue()
    queue.submit(IndirectBuffer(IB, 8))
    assert queue.state is QueueState.HUNG and "the IB ends after 1" in queue.report


@pytest.mark.parametrize(
    "packet",
    [
        WriteData(0x40, (1,)),
        CopyData(0x40, DATA),
        AtomicMem(0x40, 1, 15),
        WaitRegMem(0x40, 1),
        IndirectBuffer(0x40000000, 8),
        DmaData(0x40, DATA, 16),
        DmaData(DATA, 0x40, 16),
        ReleaseMem(0x40, 1),
    ],
    ids=lambda packet: packet.NAME,
)
def test_unmapped_address_faults_and_stops_the_queue(packet):
    bench = CpBench()
    queue = bench.queue()
    queue.submit(Nop(), packet, make_fence(1))
    [(name, (va, _, reason))] = bench.kmd.heard
    assert name == "vm_fault" and reason == "not present" and va in (0x40, 0x40000000)
    assert queue.state is QueueState.HUNG and bench.space.u32(FENCE) == 0 and packet.NAME in queue.report


def test_write_to_read_only_page_changes_nothing():
    bench = CpBench()
    bench.space.allowed[(DATA - MEMORY_VA) // 4096].discard(AccessKind.WRITE)
    queue = bench.queue()
    queue.submit(WriteData(DATA - 4, (1, 2)))
    assert bench.kmd.heard == [("vm_fault", (DATA, AccessKind.WRITE, "read only"))]
    assert bench.space.u32(DATA - 4) == 0


def test_hung_queue_does_not_affect_others():
    bench = CpBench()
    one, two = bench.queue(), bench.queue()
    one.send(type3_packet(0xF2, 0))
    two.submit(make_fence(1))
    one.submit(make_fence(2))
    assert bench.space.u32(FENCE) == 1 and one.rptr == 0 and two.rptr == 8


def test_unmapped_ring_faults():
    bench = CpBench()
    queue = bench.queue()
    queue.write(encode_packets([make_fence(1)]))
    bench.space.allowed[(queue.ring_va - MEMORY_VA) // 4096].clear()
    queue.ring()
    bench.run()
    assert bench.kmd.heard[0][0] == "vm_fault" and queue.state is QueueState.HUNG


def test_unmapped_read_pointer_page_faults():
    bench = CpBench()
    queue = bench.queue()
    queue.write([0xFFFF1000])
    queue.ring()
    bench.space.allowed[(queue.rptr_va - MEMORY_VA) // 4096].clear()
    bench.run()
    assert bench.kmd.heard[0][0] == "vm_fault"


# --- doorbells ------------------------------------------------------------------------------------------------


def test_doorbell_before_write_pointer_is_reported():
    bench = CpBench()
    queue = bench.queue()
    queue.write([0xFFFF1000])
    bench.cp.ring(queue.hardware, 1)
    bench.run()
    assert bench.kmd.rules() == ["wptr-not-published"] and queue.rptr == 1


def test_errata_18_software_wrapped_write_pointer_runs_nothing():
    bench = CpBench()
    queue = bench.queue(ring_bytes=1024)
    queue.send([0xFFFF1000] * 200)
    queue.write([0xFFFF1000] * 100)
    bench.cp.ring(queue.hardware, 300 % 256)
    bench.run()
    assert "doorbell-backwards" in bench.kmd.rules() and queue.rptr == 200


@pytest.mark.parametrize("distance", [256, 257, 1 << 40])
def test_write_pointer_a_full_ring_ahead_is_an_overrun(distance):
    bench = CpBench()
    queue = bench.queue(ring_bytes=1024)
    queue.send([0xFFFF1000] * 5)
    bench.cp.ring(queue.hardware, 5 + distance)
    bench.run()
    assert queue.state is QueueState.HUNG and "overwritten" in queue.report
    assert queue.rptr == 5 and bench.kmd.heard == [("hung", 1)]


def test_self_calling_indirect_buffer_does_not_starve_other_queues():
    bench = CpBench()
    chain = IndirectBuffer(IB, 8, chain=1)
    bench.space.put(IB, *encode_packets([chain]), *[0xFFFF1000] * 4)
    one, two = bench.queue(), bench.queue()
    one.submit(IndirectBuffer(IB, 8), make_fence(1), run=False)
    for value in range(1, 20):
        two.submit(make_fence(value), run=False)
        bench.cp.step(500)
        assert bench.space.u32(FENCE) == value
    assert one.state is QueueState.ACTIVE and one.rptr == 0
    assert bench.cp.detach(one.hardware, 0.1)


def test_endless_nops_do_not_block_a_step():
    bench = CpBench()
    bench.space.put(IB, *encode_packets([IndirectBuffer(IB, 8, chain=1)]), *[0xFFFF1000] * 4)
    queue = bench.queue()
    queue.submit(IndirectBuffer(IB, 8), run=False)
    assert 1000 <= bench.cp.step(1000) < 1200


@pytest.mark.parametrize("generation", list(Generation))
def test_reserved_header_bits_and_undefined_values_are_reported(generation):
    bench = CpBench(generation=generation)
    queue = bench.queue()
    queue.send([0xC0001001, 0, *encode_packets([WriteData(DATA, (1,), cache_policy=0)], generation)])
    assert bench.kmd.rules() == ["predicate"] and bench.space.u32(DATA) == 1


# --- taking queues off ------------------------------------------------------------------------------------------


def test_waiting_kfd_queue_is_preempted_and_resumes():
    bench = CpBench()
    bench.space.put(IB, *encode_packets([SetShReg(Sh.USER_DATA_0, (5,)), WaitRegMem(DATA, 1)]))
    bench.space.put(IB + 40, *encode_packets([CopyData(0x2C00 + Sh.USER_DATA_0, DATA + 4, src_sel=0)]))
    queue = bench.queue()
    queue.submit(IndirectBuffer(IB, 16), make_fence(1))
    assert bench.cp.detach(queue.hardware, 0.0)
    queue.hardware.state = QueueState.EVICTED
    bench.space.put(DATA, 1)
    bench.run()
    assert bench.space.u32(FENCE) == 0
    bench.cp.attach(queue.hardware)
    bench.run()
    assert (bench.space.u32(FENCE), bench.space.u32(DATA + 4)) == (1, 5)


def test_user_queue_in_plain_wait_cannot_be_preempted():
    for operation, clean in ((0, False), (3, True)):
        bench = CpBench()
        queue = bench.queue(QueueKind.USERQ_COMPUTE)
        queue.submit(WaitRegMem(DATA, 1, operation=operation))
        assert bench.cp.detach(queue.hardware, 0.01) is clean


def test_hung_queue_is_detached_uncleanly_and_never_runs_again():
    bench = CpBench()
    queue = bench.queue()
    queue.send(type3_packet(0xF2, 0))
    assert not bench.cp.detach(queue.hardware, 5.0)
    bench.cp.forget(queue.hardware)
    bench.run()


def test_endless_dispatch_is_saved_on_kfd_queue_and_stuck_on_user_queue():
    class EndlessEngine:
        abandoned = 0

        def run(self, dispatch: object) -> None:
            return None

        def abandon(self, dispatch: object) -> None:
            self.abandoned += 1

    for kind, clean in ((QueueKind.KFD_COMPUTE, True), (QueueKind.USERQ_COMPUTE, False)):
        engine = EndlessEngine()
        bench = CpBench(engine=engine)
        queue = bench.queue(kind)
        launch = [SetShReg(Sh.PGM_LO, (CODE >> 8, 0)), SetShReg(Sh.NUM_THREAD_X, (1, 1, 1))]
        queue.submit(*launch, DispatchDirect(1, 1, 1, 5), make_fence(1), run=False)
        bench.cp.step(50)
        assert bench.cp.detach(queue.hardware, 0.01) is clean
        bench.cp.forget(queue.hardware)
        assert engine.abandoned == 1 and bench.space.u32(FENCE) == 0


def test_write_into_running_buffer_is_reported_and_may_be_too_late():
    bench = CpBench()
    bench.space.put(IB, *encode_packets([WriteData(IB + 4 * 9, (5,)), WriteData(DATA, (1,))]), *[0xFFFF1000] * 6)
    bench.queue().submit(IndirectBuffer(IB, 16))
    assert bench.kmd.rules() == ["written-after-fetch"]
    assert bench.space.u32(DATA) == 1  # as it was fetched


def test_undefined_register_bits_are_reported():
    bench = CpBench()
    bench.queue().submit(SetShReg(Sh.PGM_HI, (0x100,)), make_fence(1))
    assert bench.kmd.rules() == ["register-bits"] and bench.space.u32(FENCE) == 1


def test_simulator_bug_stops_the_queue_but_not_the_device(monkeypatch):
    bench = CpBench()
    one, two = bench.queue(), bench.queue()

    def raise_planted(va: int, size_bytes: int, access: AccessKind) -> memoryview:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(bench.space, "view", raise_planted)
    bench.cp.start()
    try:
        one.submit(DmaData(DATA, DATA + 64, 16), run=False)
        assert wait_until(lambda: one.state is QueueState.HUNG)
        two.submit(make_fence(1), run=False)
        assert wait_until(lambda: bench.space.u32(FENCE) == 1)
    finally:
        bench.cp.close()
    assert "ZeroDivisionError: planted" in one.report


def test_doorbell_lagging_write_pointer_is_not_an_error():
    bench = CpBench(hardware_queues=1)
    queue = bench.queue()
    queue.write([0xFFFF1000] * 4)
    bench.space.write(queue.wptr_va, struct.pack("<Q", 4))
    bench.cp.ring(queue.hardware, 2)  # the next doorbell, 4, is on its way
    bench.run()
    bench.cp.ring(queue.hardware, 4)
    bench.run()
    assert queue.rptr == 4 and bench.kmd.findings == []
