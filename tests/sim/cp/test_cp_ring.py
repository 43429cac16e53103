"""Rings, order, many queues: wrap at every size, straddling packets, priorities, more queues than slots."""

from __future__ import annotations

import random
import struct
import threading

import pytest
from sim.cp.cp_support import DATA, FENCE, IB, CpBench, encode_packets, make_fence, wait_until

from zinc_rt.pm4.packets import IndirectBuffer, Nop, WaitRegMem, WriteData
from zinc_rt.sim.interfaces import QueueKind, QueueState


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("ring_bytes", [1 << bits for bits in range(8, 17)])
def test_packets_straddle_the_end_of_rings_of_every_size(ring_bytes):
    bench = CpBench(memory_bytes=0x200000)
    queue = bench.queue(ring_bytes=ring_bytes)
    random_ = random.Random(ring_bytes)
    value = 0
    while queue.wptr < 9 * queue.ring_dw:
        body = random_.randrange(1, min(queue.ring_dw - 10, 1000))
        value += 1
        queue.submit(Nop((0xC000F200,) * body), make_fence(value))
        assert bench.space.u32(FENCE) == value and queue.rptr == queue.wptr % queue.ring_dw
    assert queue.hardware.rptr == queue.wptr and bench.kmd.findings == []


def test_new_queue_may_start_rings_ahead_and_cross_32_bits():
    bench = CpBench()
    queue = bench.queue(ring_bytes=4096)
    queue.wptr = (1 << 33) - queue.ring_dw
    while queue.wptr <= 1 << 33:
        token = queue.wptr & 0xFFFF
        queue.submit(Nop((0,) * 100), make_fence(token))
        assert bench.space.u32(FENCE) == token
    assert queue.rptr == queue.wptr % queue.ring_dw and bench.kmd.findings == []


def test_padding_to_end_of_ring_works():
    bench = CpBench()
    queue = bench.queue(ring_bytes=1024)
    for value in range(1, 200):
        left = queue.ring_dw - queue.wptr % queue.ring_dw
        queue.submit(*[Nop()] * (left if left < 8 else 0), make_fence(value))
        assert bench.space.u32(FENCE) == value


@pytest.mark.rest
def test_fences_through_a_4_kib_ring_arrive_in_order_without_loss(slow_counts):
    count = slow_counts(10_000, 100_000)
    bench = CpBench()
    queue = bench.queue()
    random_ = random.Random(4096)
    sent = seen = 0
    bursts = 0
    while seen < count:
        words: list[int] = []
        room = (queue.rptr - 1 - queue.wptr) % queue.ring_dw
        while sent < count:
            padding = [0xFFFF1000] * random_.choice((0, 0, 0, 1, 2, 7, 40))
            extra = len(padding) + 8
            if len(words) + extra > room or random_.random() < 0.02:
                break
            sent += 1
            words += padding + encode_packets([make_fence(sent, FENCE + 8 * (sent % 16))])
        queue.send(words, run=False)
        bench.cp.step(random_.randrange(1, 200))
        held = [bench.space.u32(FENCE + 8 * slot) for slot in range(16)]
        newest = max(held)
        assert newest >= seen
        for back in range(16):  # the last sixteen fences stand in their slots: none was left out, none overtaken
            if newest - back > 0:
                assert held[(newest - back) % 16] == newest - back
        seen = newest
        bursts += 1
    assert seen == count and bursts > 100 and queue.wptr > 8 * queue.ring_dw
    assert bench.kmd.findings == []


def test_4_kib_ring_runs_in_a_thread_while_the_host_writes(slow_counts):
    count = slow_counts(1_000, 20_000)
    bench = CpBench()
    queue = bench.queue()
    bench.cp.start()
    try:
        for value in range(1, count + 1):
            words = encode_packets([make_fence(value)])
            assert wait_until(lambda: (queue.rptr - 1 - queue.wptr) % queue.ring_dw >= 8)
            queue.send(words, run=False)
        assert wait_until(lambda: bench.space.u32(FENCE) == count)
        assert wait_until(lambda: queue.rptr == queue.wptr % queue.ring_dw)
    finally:
        bench.cp.close()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("slots", [1, 3, 8, 32])
def test_thirty_two_queues_progress_concurrently(slots):
    bench = CpBench(hardware_queues=slots, memory_bytes=0x200000)
    queues = [bench.queue(ring_bytes=4096, priority=index % 16) for index in range(32)]
    for value in range(1, 41):
        for index, queue in enumerate(queues):
            queue.submit(Nop((0,) * 10), make_fence(value, DATA + 0x80000 + 8 * index), run=False)
    bench.run(1_000_000)
    assert [bench.space.u32(DATA + 0x80000 + 8 * index) for index in range(32)] == [40] * 32


@pytest.mark.rest
def test_endless_queue_does_not_starve_others_on_a_single_slot():
    bench = CpBench(hardware_queues=1)
    bench.space.put(IB, *encode_packets([IndirectBuffer(IB, 8, chain=1)]), *[0xFFFF1000] * 4)
    endless, waiting, other = bench.queue(priority=15), bench.queue(priority=15), bench.queue(priority=0)
    endless.submit(IndirectBuffer(IB, 8), run=False)
    waiting.submit(WaitRegMem(DATA, 1), make_fence(1), run=False)
    other.submit(WriteData(DATA, (1,)), make_fence(2, FENCE + 8), run=False)
    for _ in range(100):
        bench.cp.step(1000)
    assert (bench.space.u32(FENCE), bench.space.u32(FENCE + 8)) == (1, 2)


def test_higher_priority_queue_gets_more_turns_first():
    bench = CpBench()
    low, high = bench.queue(priority=0), bench.queue(priority=15)
    for queue, va in ((low, DATA), (high, DATA + 0x1000)):
        queue.submit(*(WriteData(va, (value,)) for value in range(1, 150)), run=False)
    bench.cp.step(130)
    assert bench.space.u32(DATA + 0x1000) > bench.space.u32(DATA)
    bench.run()
    assert bench.space.u32(DATA) == bench.space.u32(DATA + 0x1000) == 149


def test_eight_queues_wait_for_each_other_in_a_cycle():
    bench = CpBench(hardware_queues=2)
    queues = [bench.queue() for _ in range(8)]
    for turn in range(1, 6):
        for index, queue in enumerate(queues):
            queue.submit(
                WaitRegMem(DATA + 8 * index, turn, function=5),
                WriteData(DATA + 8 * ((index + 1) % 8), (turn + (index == 7),)),
                make_fence(turn, FENCE + 8 * index),
                run=False,
            )
    bench.space.put(DATA, 1)
    for _ in range(200):
        bench.cp.step(1000)
    assert [bench.space.u32(FENCE + 8 * index) for index in range(8)] == [5] * 8


def test_remapped_queue_reads_its_write_pointer_from_memory():
    bench = CpBench(hardware_queues=1)
    one, two = bench.queue(), bench.queue()
    one.submit(WaitRegMem(DATA, 1), run=False)
    two.submit(WaitRegMem(DATA, 1), run=False)
    one.write(encode_packets([make_fence(5)]))
    bench.space.write(one.wptr_va, struct.pack("<Q", one.wptr))  # no doorbell
    for _ in range(50):
        bench.cp.step(10)  # they take turns in the only slot
    bench.space.put(DATA, 1)
    bench.run()
    assert bench.space.u32(FENCE) == 5


def test_read_pointer_is_64_bits_on_user_queue_and_32_on_kfd_queue():
    for kind, upper in ((QueueKind.KFD_COMPUTE, 0xFFFFFFFF), (QueueKind.USERQ_COMPUTE, 0)):
        bench = CpBench()
        queue = bench.queue(kind)
        bench.space.put(queue.rptr_va, 0xFFFFFFFF, 0xFFFFFFFF)
        queue.send([0xFFFF1000] * 3)
        assert (bench.space.u32(queue.rptr_va), bench.space.u32(queue.rptr_va + 4)) == (3, upper)


def test_thread_restarts_and_interrupt_may_call_back_into_cp():
    bench = CpBench()
    queue, other = bench.queue(), bench.queue(attach=False)
    calls = []

    def interrupt_and_attach(hardware: object, context: int) -> None:
        calls.append(context)
        bench.cp.attach(other.hardware)
        bench.cp.detach(queue.hardware, 1.0)

    bench.kmd.interrupt = interrupt_and_attach  # type: ignore[method-assign]
    bench.cp.start()
    bench.cp.start()
    queue.submit(make_fence(1, int_sel=2, int_ctxid=8), run=False)
    assert wait_until(lambda: calls == [8])
    other.submit(make_fence(2), run=False)
    assert wait_until(lambda: bench.space.u32(FENCE) == 2)
    bench.cp.close()
    bench.cp.close()
    other.submit(make_fence(3), run=False)
    assert bench.space.u32(FENCE) == 2
    bench.cp.start()
    assert wait_until(lambda: bench.space.u32(FENCE) == 3)
    bench.cp.close()
    assert queue.hardware.state is QueueState.ACTIVE


def test_close_ends_a_thread_that_is_about_to_clear_its_doorbell():
    bench, about_to_clear, go_on = CpBench(), threading.Event(), threading.Event()

    class SynchronisedEvent(threading.Event):
        def clear(self) -> None:
            about_to_clear.set()
            go_on.wait(30)
            super().clear()

    bench.cp._rung = SynchronisedEvent()
    bench.cp.start()
    assert about_to_clear.wait(30)
    closer = threading.Thread(target=bench.cp.close, daemon=True)
    closer.start()
    assert wait_until(bench.cp._rung.is_set)
    go_on.set()
    closer.join(30)
    assert not closer.is_alive()


def test_settle_wakes_a_thread_that_sleeps_until_a_doorbell():
    bench, asleep = CpBench(), threading.Event()

    class SynchronisedEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            asleep.set()
            return super().wait(timeout)

    bench.cp._rung = SynchronisedEvent()
    bench.cp.start()
    try:
        assert asleep.wait(30)
        messages = bench.cp.device.messages
        messages.fence_signal(bench.queue(attach=False).hardware, 7)
        bench.cp.settle()
        assert messages.delivered == messages.posted and not len(messages)
    finally:
        bench.cp.close()


def test_thirty_two_queues_in_a_thread_pass_a_token_in_turn():
    bench = CpBench(memory_bytes=0x200000)
    queues = [bench.queue(ring_bytes=1024) for _ in range(32)]
    tokens = DATA + 0x80000
    bench.cp.start()
    try:
        for index, queue in enumerate(queues):
            queue.submit(
                WaitRegMem(tokens + 8 * index, 1),
                WriteData(tokens + 8 * (index + 1), (1,)),
                make_fence(1, tokens + 0x1000 + 8 * index),
                run=False,
            )
        assert bench.space.u32(tokens + 8 * 32) == 0
        bench.space.put(tokens, 1)
        assert wait_until(lambda: all(bench.space.u32(tokens + 0x1000 + 8 * index) for index in range(32)))
    finally:
        bench.cp.close()
