"""AQL queues: what the packet processor does with each packet, and how it ends with a bad one."""

from __future__ import annotations

import struct

import pytest

from tests.sim.cp.cp_support import CODE, DATA, IB, AccessCollector, CpBench, encode_packets
from zinc_rt.pm4.packets import IndirectBuffer, WriteData
from zinc_rt.sim.interfaces import QueueKind, QueueState
from zinc_rt.sim.tables import registers as register

INVALID, DISPATCH, AND, AGENT, OR = 1, 2, 3, 4, 5
BARRIER, SYSTEM = 1 << 8, 2 << 9 | 2 << 11
KERNEL, SIGNAL, KERNARG = DATA, DATA + 0x1000, DATA + 0x2000
PACKETS = 64
SGPR_DISPATCH_PTR, SGPR_KERNARG, SGPR_PRIVATE_SIZE, WAVE32 = 2, 8, 64, 1 << 10


class AqlBench(CpBench):
    """A device with one AQL queue whose ring is all INVALID, and a kernel at KERNEL."""

    def __init__(self, *, reorder_seed: int | None = None) -> None:
        self.engine = AccessCollector()
        super().__init__(engine=self.engine, reorder_seed=reorder_seed)
        self.made = self.queue(QueueKind.KFD_AQL, attach=False)
        self.about = self.made.rptr_va  # amd_queue_t
        self.made.rptr_va = self.made.hardware.rptr_va = self.about + 0x80
        self.made.wptr_va = self.made.hardware.wptr_va = self.about + 0x38
        self.index = 0
        for packet in range(PACKETS):
            self.space.write(self.made.ring_va + 64 * packet, struct.pack("<H", INVALID))
        self.write_kernel()
        self.cp.attach(self.made.hardware)

    def write_kernel(self, *, rsrc2: int = 0, properties: int = SGPR_KERNARG | WAVE32, entry: int = CODE) -> None:
        descriptor = struct.pack("<III4xq20xIIIHH4x", 0, 0, 16, entry - KERNEL, 0, 0xF0003, rsrc2, properties, 0)
        self.space.write(KERNEL, descriptor)

    def write_signal(self, number: int, value: int, *, mailbox: int = 0, event_id: int = 0) -> int:
        va = SIGNAL + 64 * number
        self.space.write(va, struct.pack("<qqQI36x", 1, value, mailbox, event_id))
        return va

    def read_signal(self, va: int) -> int:
        return int(struct.unpack("<q", self.space.read(va + 8, 8))[0])

    def put_packet(self, packet: bytes) -> None:
        """Without a doorbell."""
        assert len(packet) == 64
        self.space.write(self.made.ring_va + 64 * (self.index % PACKETS), packet)
        self.index += 1
        self.space.write(self.made.wptr_va, struct.pack("<Q", self.index))

    def ring(self) -> None:
        self.cp.ring(self.made.hardware, self.index - 1)
        self.run()

    def send(self, *packets: bytes) -> None:
        for packet in packets:
            self.put_packet(packet)
        self.ring()

    def read_index(self) -> int:
        return self.space.u64(self.made.rptr_va)


def dispatch_packet(
    *,
    header: int = DISPATCH | SYSTEM,
    dims: int = 1,
    group: tuple[int, int, int] = (64, 1, 1),
    grid: tuple[int, int, int] = (200, 1, 1),
    private: int = 0,
    lds: int = 0,
    kernel: int = KERNEL,
    signal: int = 0,
) -> bytes:
    return struct.pack("<HH3HH3IIIQQQQ", header, dims, *group, 0, *grid, private, lds, kernel, KERNARG, 0, signal)


def barrier_packet(packet_type: int, *signals: int, completion_signal: int = 0, header: int = 0) -> bytes:
    return struct.pack(
        "<HHI5QQQ", packet_type | header, 0, 0, *signals, *[0] * (5 - len(signals)), 0, completion_signal
    )


def test_dispatch_packet_launches_kernel_and_completes_signal() -> None:
    bench = AqlBench()
    bench.write_kernel(rsrc2=4 << 1, properties=SGPR_DISPATCH_PTR | SGPR_KERNARG | WAVE32)
    signal = bench.write_signal(0, 1)
    bench.send(dispatch_packet(group=(32, 2, 1), grid=(70, 5, 1), dims=2, lds=700, signal=signal))
    (launched,) = bench.engine.dispatches
    assert launched.program_va == CODE
    assert launched.groups == (3, 3, 1)
    assert launched.group_threads == (32, 2, 1)
    assert launched.last_threads == (6, 1, 1)
    assert launched.wave32
    assert launched.user_data[:4] == (bench.made.ring_va, 0, KERNARG, 0)
    assert launched.register(register.PGM_RSRC2) >> 15 & 0x1FF == 2, "700 bytes are two granules of LDS"
    assert bench.read_signal(signal) == 0
    assert bench.read_index() == 1
    assert bench.space.read(bench.made.ring_va, 2) == struct.pack("<H", INVALID), (
        "the slot is the producer's again"
    )
    assert "write_back" in bench.space.calls, "a release at system scope"


@pytest.mark.parametrize(
    ("scope", "flushed"), [(0, [(KERNARG, 16)]), (1, [(KERNARG, 16)]), (2, [None, (KERNARG, 16)])]
)
def test_acquire_fence_of_system_scope_and_arguments_flush_hdp(
    scope: int, flushed: list[tuple[int, int] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, ranges = AqlBench(), list[tuple[int, int] | None]()
    monkeypatch.setattr(bench.space, "flush_hdp", lambda inside=None: ranges.append(inside))
    bench.send(dispatch_packet(header=DISPATCH | scope << 9))
    assert ranges == flushed


def test_signals_of_a_profiled_queue_have_time_stamps() -> None:
    bench = AqlBench()
    bench.space.put(bench.about + 0xB4, 1 << 3)  # AMD_QUEUE_PROPERTIES_ENABLE_PROFILING
    bench.space.put(bench.about + 0x88, 0x80)
    dispatched, joined = bench.write_signal(0, 1), bench.write_signal(1, 1)
    bench.send(dispatch_packet(signal=dispatched), barrier_packet(AND, dispatched, completion_signal=joined))
    times = [bench.space.u64(va + offset) for va in (dispatched, joined) for offset in (32, 40)]
    assert times == sorted(times) and times[0] > 0


def test_first_wave64_packet_has_64_lanes() -> None:
    bench = AqlBench()
    bench.write_kernel(properties=SGPR_KERNARG)
    bench.send(dispatch_packet())
    assert not bench.engine.dispatches[0].wave32


def test_packet_is_not_run_until_its_header_is_written() -> None:
    bench = AqlBench()
    first, second = bench.write_signal(0, 1), bench.write_signal(1, 1)
    late = dispatch_packet(signal=first)
    bench.put_packet(struct.pack("<H", INVALID) + late[2:])
    bench.put_packet(dispatch_packet(signal=second))
    bench.ring()
    assert bench.engine.dispatches == []
    assert bench.read_index() == 0
    bench.space.write(bench.made.ring_va, late[:2])
    bench.run()
    assert len(bench.engine.dispatches) == 2
    assert (bench.read_signal(first), bench.read_signal(second)) == (0, 0)


def test_packet_indices_do_not_wrap_at_ring_size() -> None:
    bench = AqlBench()
    signal = bench.write_signal(0, 3 * PACKETS)
    for _ in range(3 * PACKETS):
        bench.send(dispatch_packet(signal=signal))
    assert bench.read_signal(signal) == 0
    assert bench.read_index() == 3 * PACKETS


def test_out_of_order_doorbells_run_all_valid_packets() -> None:
    bench = AqlBench()
    signal = bench.write_signal(0, 3)
    for _ in range(3):
        bench.put_packet(dispatch_packet(signal=signal))
    bench.cp.ring(bench.made.hardware, 0)
    bench.run()
    assert bench.read_signal(signal) == 0


def test_doorbell_rung_while_detached_is_served_after_attach() -> None:
    bench = AqlBench()
    signal = bench.write_signal(0, 1)
    assert bench.cp.detach(bench.made.hardware, 1)
    bench.put_packet(dispatch_packet(signal=signal))
    bench.run()
    assert bench.read_signal(signal) == 1
    bench.cp.attach(bench.made.hardware)
    bench.run()
    assert bench.read_signal(signal) == 0


def test_doorbell_beyond_the_ring_stops_the_queue() -> None:
    bench = AqlBench()
    for _ in range(PACKETS + 1):
        bench.put_packet(dispatch_packet())
    bench.ring()
    assert bench.made.state is QueueState.HUNG
    assert "some were overwritten" in bench.made.report


@pytest.mark.parametrize(("packet_type", "first_value", "required_value"), [(AND, (1, 1), 2), (OR, (1, 1), 1)])
def test_barrier_bit_blocks_later_packets(
    packet_type: int, first_value: tuple[int, int], required_value: int
) -> None:
    bench = AqlBench()
    waits = [bench.write_signal(number, value) for number, value in enumerate(first_value)]
    signal = bench.write_signal(2, 1)
    bench.send(barrier_packet(packet_type, *waits, completion_signal=signal), dispatch_packet())
    for number in range(required_value):
        assert not bench.engine.dispatches
        assert bench.read_signal(signal) == 1
        bench.write_signal(number, 0)
        bench.run()
    assert len(bench.engine.dispatches) == 1
    assert bench.read_signal(signal) == 0


@pytest.mark.parametrize("packet_type", [AND, OR])
def test_barrier_without_signals_completes(packet_type: int) -> None:
    bench = AqlBench()
    signal = bench.write_signal(0, 1)
    bench.send(barrier_packet(packet_type, completion_signal=signal))
    assert bench.read_signal(signal) == 0


@pytest.mark.parametrize(
    ("condition", "reference", "value"),
    [(0, 5, 5), (1, 5, 6), (2, 5, -1), (3, 5, 5)],
    ids=["eq", "ne", "lt", "gte"],
)
def test_barrier_value_packet_waits_for_its_condition(condition: int, reference: int, value: int) -> None:
    bench = AqlBench()
    wrong = {0: 4, 1: 5, 2: 5, 3: 4}[condition]
    watched, result = bench.write_signal(0, wrong), bench.write_signal(1, 1)
    packet = struct.pack("<HBBIQqqI20xQ", 0, 2, 0, 0, watched, reference, -1, condition, result)
    bench.send(packet)
    assert bench.read_signal(result) == 1
    bench.write_signal(0, value)
    bench.run()
    assert bench.read_signal(result) == 0


def test_vendor_packet_runs_pm4_before_completing() -> None:
    bench = AqlBench()
    body = encode_packets([WriteData(DATA + 0x3000, (7, 8))])
    body += [0xFFFF1000] * (-len(body) % 8)
    bench.space.put(IB, *body)
    jump = encode_packets([IndirectBuffer(IB, len(body))])
    signal = bench.write_signal(0, 1)
    bench.send(struct.pack("<HH4II8IQ", 0, 1, *jump, 10, *[0] * 8, signal), dispatch_packet())
    assert bench.space.u32(DATA + 0x3004) == 8
    assert bench.read_signal(signal) == 0
    assert len(bench.engine.dispatches) == 1


def test_signal_with_mailbox_interrupts_with_its_event() -> None:
    bench = AqlBench()
    mailbox = DATA + 0x3000
    bench.send(dispatch_packet(signal=bench.write_signal(0, 1, mailbox=mailbox, event_id=37)))
    assert bench.space.u64(mailbox) == 37
    assert bench.kmd.heard == [("interrupt", 37)]


def test_only_barrier_bit_orders_dispatches() -> None:
    """With a seed, work that nothing orders is held back."""
    bench = AqlBench(reorder_seed=3)
    signal = bench.write_signal(0, 1)
    bench.send(dispatch_packet(), dispatch_packet(header=DISPATCH | SYSTEM | BARRIER, signal=signal))
    bench.run()
    assert bench.read_signal(signal) == 0
    first, second = bench.engine.dispatches
    assert "position 0" in first.label
    assert "position 16" in second.label


def test_insufficient_scratch_is_requested_through_inactive_signal() -> None:
    bench = AqlBench()
    bench.write_kernel(rsrc2=1 | 2 << 1, properties=SGPR_KERNARG | WAVE32)
    inactive = bench.write_signal(5, 0)
    bench.space.write(bench.about + 0x88, struct.pack("<II", 0x80, 0))
    bench.space.write(bench.about + 0xC0, struct.pack("<Q", inactive))
    bench.send(dispatch_packet(private=64))
    assert bench.engine.dispatches == []
    assert bench.read_signal(inactive) == 1, "insufficient scratch"
    bench.space.write(bench.about + 0x8C, struct.pack("<I", 8 << 12 | 32))
    bench.space.write(bench.about + 0xA0, struct.pack("<Q", IB))
    bench.write_signal(5, 0)
    bench.run()
    (launched,) = bench.engine.dispatches
    assert launched.scratch_va == IB
    assert launched.register(register.TMPRING_SIZE) == 8 << 12 | 32


FAULTY = [
    (struct.pack("<H62x", 9), 19, "packet of type 9"),
    (struct.pack("<H62x", AGENT), 20, "AGENT_DISPATCH"),
    (struct.pack("<HH60x", 0, 7), 23, "vendor packet 7"),
    (dispatch_packet(grid=(0, 1, 1)), 16, "grid"),
    (dispatch_packet(dims=0), 16, "0 dimensions"),
    (dispatch_packet(group=(1025, 1, 1)), 21, "1 to 1024"),
    (dispatch_packet(group=(0, 1, 1)), 21, "1 to 1024"),
    (dispatch_packet(lds=65537), 17, "65537 bytes of LDS"),
    (dispatch_packet(kernel=0), 18, "kernel object 0x0"),
    (dispatch_packet(kernel=KERNEL + 8), 18, "aligned to 64"),
]


@pytest.mark.parametrize(("packet", "code", "text"), FAULTY, ids=[f"{row[1]}-{row[2]}" for row in FAULTY])
def test_bad_packet_stops_queue_with_its_exception(packet: bytes, code: int, text: str) -> None:
    bench = AqlBench()
    bench.send(packet, dispatch_packet())
    assert bench.made.state is QueueState.HUNG
    assert text in bench.made.report
    assert ("queue_exception", code) in bench.kmd.heard
    assert bench.engine.dispatches == []
    assert bench.read_index() == 0


def test_unmapped_kernel_object_faults() -> None:
    bench = AqlBench()
    bench.send(dispatch_packet(kernel=0x7000_0000_0000))
    assert bench.made.state is QueueState.HUNG
    assert bench.kmd.heard[0][0] == "vm_fault"
