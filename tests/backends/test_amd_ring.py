"""The ring: order of stores, room, wrap, back-pressure, and that nothing is lost."""

from __future__ import annotations

import random

import pytest
from fake_gpu import GENERATION, FakeGpu, FakeSide
from recording import RecordingPublish
from support import Counts

from zinc_rt.backends.amd.hang import Hang
from zinc_rt.backends.amd.publish import Publish, load_publisher
from zinc_rt.backends.amd.ring import AmdRing, ReadyDwords
from zinc_rt.host.errors import InputError
from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4.packet import EncodeError
from zinc_rt.pm4.packets import IndirectBuffer, Nop, WaitRegMem, WriteData

RING_BYTES = 4096
RING_DW = RING_BYTES // 4


class StuckGpu(Exception):
    """The exception that these rings raise for a hang, with only the text."""


class Bench:
    """One ring on a fake GPU."""

    def __init__(
        self,
        *,
        kind: str = "kfd",
        publish: Publish | None = None,
        works: bool = True,
        packets: int = 1 << 30,
        wrap_rptr: bool = True,
        debug: bool = False,
        full_seconds: float = 5.0,
    ) -> None:
        self.gpu = FakeGpu(kind=kind, wrap_rptr=wrap_rptr)
        self.side = FakeSide(self.gpu, works=works, packets=packets)
        page = self.gpu.alloc(4096, Placement.GTT, "fences")
        self.log = self.gpu.alloc(4096, Placement.GTT, "log")
        self.ring = AmdRing(
            self.side.create_queue(ring_bytes=RING_BYTES, priority=0),
            self.side,
            name="ring",
            generation=GENERATION,
            slot=(page.host.address, page.gpu_va),
            publish=publish or load_publisher(),
            make_hang=lambda ring, what: StuckGpu(what),
            full_seconds=full_seconds,
            debug=debug,
        )

    def write(self, value: int, padding_dw: int = 0) -> ReadyDwords:
        padding = (Nop((0,) * (padding_dw - 1)),) if padding_dw else ()
        return self.ring.encode((WriteData(self.log.gpu_va, (value,)), *padding), f"write {value}")

    @property
    def written_values(self) -> list[int]:
        ran = self.gpu.queues[0].ran
        return [packet.data[0] for packet in ran if isinstance(packet, WriteData)]


def test_dwords_are_stored_before_wptr_and_wptr_before_the_doorbell() -> None:
    publish = RecordingPublish()
    bench = Bench(publish=publish)
    ready = bench.write(1)
    bench.ring.submit(ready)
    assert publish.stores == [
        *(("ring", index) for index in range(ready.count_dw)),
        ("fence", 0),
        ("wptr", ready.count_dw),
        ("fence", 0),
        ("doorbell", ready.count_dw),
    ]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("kind", ["kfd", "userq"])
def test_submission_wraps_at_every_ring_offset(kind: str) -> None:
    bench = Bench(kind=kind)
    for index in range(RING_DW):
        ready = bench.write(index)
        lead = (index - bench.ring.wptr_dw) % RING_DW
        if lead:
            bench.ring.run((Nop((0,) * (lead - 1)),), "to the place")
        assert bench.ring.wptr_dw % RING_DW == index
        bench.ring.submit(ready).wait(1.0)
    assert bench.written_values == list(range(RING_DW))


@pytest.mark.parametrize(
    ("kind", "wrap_rptr"), [("kfd", True), ("userq", False)], ids=["rptr wrapped", "rptr counting on"]
)
@pytest.mark.rest
def test_thousands_of_submissions_of_random_size_run_in_order(
    kind: str, wrap_rptr: bool, slow_counts: Counts
) -> None:
    random.seed(1)
    count = slow_counts(10_000, 100_000)
    bench = Bench(kind=kind, packets=7, wrap_rptr=wrap_rptr)
    fences = []
    for number in range(count):
        fences.append(bench.ring.submit(bench.write(number, random.choice((0, 1, 2, 3, 30, 300, 900)))))
        assert 0 <= bench.ring.free_dw < RING_DW
        if random.random() < 0.01:
            random.choice(fences).wait(5.0)
    fences[-1].wait(5.0)
    assert bench.written_values == list(range(count))
    assert [fence.value for fence in fences] == list(range(1, count + 1))
    assert all(fence.done() for fence in fences)


@pytest.mark.rest
def test_prebuilt_batches_run_in_order_with_increasing_fences(slow_counts: Counts) -> None:
    bench = Bench(packets=50)
    ready = [bench.write(number) for number in range(5)]
    count = slow_counts(10_000, 100_000)
    for number in range(count):
        fence = bench.ring.submit(ready[number % 5])
        assert fence.value == number + 1
    fence.wait(5.0)
    assert bench.written_values == [number % 5 for number in range(count)]


def test_ring_keeps_one_dword_free() -> None:
    bench = Bench(works=False, full_seconds=0.01)
    bench.ring.run((Nop((0,) * (RING_DW - 2)),), "all but one")
    assert bench.ring.free_dw == 0
    with pytest.raises(StuckGpu, match=r"no room for 1 dwords, 0 of 1024 are free within 0.01 s"):
        bench.ring.run((Nop(),), "one more")
    bench.gpu.run()
    bench.ring.run((Nop(),), "one more")
    assert bench.ring.free_dw == RING_DW - 2


def test_full_ring_waits_until_the_gpu_has_read() -> None:
    bench = Bench(packets=1)
    for number in range(200):  # far more than the ring holds at once
        bench.ring.submit(bench.write(number, 100))
    assert bench.side.looks > 100
    bench.ring.wait_until_idle(1.0)
    assert bench.written_values == list(range(200))


def test_fence_frees_ring_space_when_rptr_lags() -> None:
    bench = Bench()
    bench.gpu.reports_rptr = False
    for number in range(1000):
        bench.ring.submit(bench.write(number, 100))
    bench.ring.wait_until_idle(1.0)
    assert bench.written_values == list(range(1000))


def test_rptr_one_lap_behind_never_frees_unread_dwords() -> None:
    bench = Bench()
    bench.gpu.reports_rptr = False
    while bench.ring.wptr_dw < RING_DW + 50:
        bench.ring.submit(bench.write(0, 60))
    bench.ring.wait_until_idle(1.0)
    read = bench.gpu.queues[0].position
    bench.side.works = False
    bench.ring.run((Nop((0,) * 20),), "unread")
    bench.ring.look()  # rptr still says 0, a lap ago
    assert bench.ring.consumed_dw == read < bench.ring.wptr_dw


def test_fence_does_not_free_dwords_after_it() -> None:
    """T2 ends with PROTECTED_FENCE_SIGNAL: the fence says nothing about those dwords."""
    bench = Bench(kind="userq")
    bench.gpu.reports_rptr = False
    ready = bench.write(1)
    bench.ring.submit(ready).wait(1.0)
    bench.ring.look()
    assert bench.ring.consumed_dw == ready.fence_end_dw == ready.count_dw - 2


def test_rptr_alone_does_not_signal_a_fence() -> None:
    bench = Bench(works=False)
    fence = bench.ring.submit(bench.ring.encode((WaitRegMem(bench.log.gpu_va, 1),), "wait for the log"))
    bench.ring.queue.rptr.host.view.cast("I")[0] = bench.ring.wptr_dw
    bench.ring.look()
    assert bench.ring.consumed_dw == bench.ring.wptr_dw
    assert not fence.done()


def test_batch_larger_than_the_ring_is_rejected_before_any_write() -> None:
    bench = Bench()
    with pytest.raises(EncodeError, match="has 1024 dwords, but the ring holds at most 1023"):
        bench.ring.encode((Nop((0,) * (RING_DW - 1)),), "too large", fence=False)
    with pytest.raises(InputError, match="no packets"):
        bench.ring.encode((), "nothing", fence=False)
    assert bench.ring.wptr_dw == 0


def test_debug_mode_lints_packets_that_would_stop_the_queue() -> None:
    bench = Bench(debug=True)
    bench.ring.submit(bench.write(1)).wait(1.0)
    with pytest.raises(EncodeError, match="invalid, dword 3: ib-valid"):
        bench.ring.encode((IndirectBuffer(bench.log.gpu_va, 8, valid=0),), "invalid")


def test_missed_deadline_leaves_the_fence_pending() -> None:
    bench = Bench(works=False)
    fence = bench.ring.submit(bench.write(1))
    with pytest.raises(StuckGpu, match=r"ring: fence 1 not reached within 0\.01 s"):
        fence.wait(0.01)
    assert not fence.done()
    bench.gpu.run()
    fence.wait(0.0)


def test_close_drains_and_releases_the_queue() -> None:
    bench = Bench()
    fence = bench.ring.submit(bench.write(1))
    bench.ring.close(drain_seconds=1.0)
    bench.ring.close()
    assert fence.reached()
    assert bench.gpu.resources() == {"buffer": 2}
    with pytest.raises(ValueError, match="closed"):
        bench.ring.submit(bench.write(2))


def test_close_after_a_hang_releases_the_queue_and_reports_it() -> None:
    bench = Bench(works=False)
    fence = bench.ring.submit(bench.write(1))
    with pytest.raises(StuckGpu, match="fence 1 not reached"):
        bench.ring.close(drain_seconds=0.01)
    assert bench.gpu.resources() == {"buffer": 2}
    assert fence.done() and not fence.reached()


@pytest.mark.parametrize("stored", [True, False], ids=["after the stores", "before the stores"])
def test_ctrl_c_during_a_submission_neither_loses_nor_repeats_it(stored: bool) -> None:
    interrupts = [False]

    def publish_or_interrupt(target: int, wptr_dw: int, source: int, count_dw: int) -> int:
        if interrupts[0] and not stored:
            raise KeyboardInterrupt
        end = load_publisher()(target, wptr_dw, source, count_dw)
        if interrupts[0]:
            raise KeyboardInterrupt
        return end

    bench = Bench(publish=publish_or_interrupt)
    bench.ring.submit(bench.write(0))
    interrupts[0] = True
    for value in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            bench.ring.submit(bench.write(value))
        with pytest.raises(KeyboardInterrupt):
            bench.ring.run((Nop(),), "nothing")
    interrupts[0] = False
    fence = bench.ring.submit(bench.write(3))
    fence.wait(1.0)
    assert bench.written_values == ([0, 1, 2, 3] if stored else [0, 3])
    assert fence.value == (4 if stored else 2)


def test_hang_is_the_deadline_error_of_exec() -> None:
    from zinc_rt.exec import DeadlineMissed

    assert issubclass(Hang, DeadlineMissed)
