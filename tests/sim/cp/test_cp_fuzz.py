"""Random and mutated streams: nothing but the kernel's outlets is heard of them, and every step ends."""

from __future__ import annotations

import random
import time

import pytest
from sim.cp.cp_support import (
    CODE,
    DATA,
    FENCE,
    IB,
    MEMORY_VA,
    CpBench,
    TestQueue,
    encode_packets,
    make_fence,
    mutate_words,
)

from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import (
    BY_OPCODE,
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
    PerfCounterWindow,
    PredExec,
    ProtectedFenceSignal,
    Rewind,
    SetBase,
    SetShReg,
    SetShRegPairs,
    SetShRegPairsPacked,
    SetUconfigReg,
    Timestamp,
    WaitRegMem,
    WaitRegMem64,
    WriteData,
)
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.interfaces import QueueKind, QueueState

STEP_CPU_SECONDS = 5.0  # far above what a step takes here, far below "for ever"
PACKETS = [
    SetShReg(Sh.PGM_LO, (CODE >> 8, 0)),
    SetShReg(Sh.NUM_THREAD_X, (64, 1, 1)),
    SetShReg(Sh.USER_DATA_0, tuple(range(16))),
    AcquireMem(0x1C1),
    DispatchDirect(4, 1, 1, 0x8005),
    EventWrite.cs_partial_flush(),
    WriteData(DATA, (1, 2, 3, 4)),
    CopyData(DATA, DATA + 32, count_sel=1),
    AtomicMem(DATA, 1, 15),
    AtomicMem(DATA, 1, 8, 2, command=1),
    DmaData(DATA, DATA + 0x1000, 256),
    DmaDataFillMulti(DATA + 0x2000, 64, 128, 4),
    CondExec(DATA, 5),
    WriteData(DATA + 8, (9,)),
    Timestamp(DATA + 64, DATA + 72, enable_top=1),
    WaitRegMem(DATA + 4, 2),
    IndirectBuffer(IB, 16, inherit_vmid=1),
    make_fence(1, int_sel=2, int_ctxid=4),
    Nop((1, 2, 3)),
    ProtectedFenceSignal(),
]
GOOD = encode_packets(PACKETS)
MORE = [  # not in a good stream, but whole packets
    Rewind(1),
    Rewind(),
    HdpFlush(),
    PredExec(3),
    LoadShRegIndex(DATA >> 2, 0, Sh.USER_DATA_0, 4),
    SetShRegPairs(((0x240, 1), (0x241, 2))),
    SetShRegPairsPacked.of(((0x240, 1), (0x241, 2))),
    SetUconfigReg(0x40, (1,)),
    CondWrite(DATA, 1, 1, DATA + 4, 1),
    CondIndirectBuffer(DATA, 1, 1, IB, 16, IB, 8, mode=2),
    IndirectBuffer(IB, 16, inherit_vmid=1, chain=1),
    DispatchIndirect(DATA, 0x8005),
    WaitRegMem64(DATA, 1),
    FenceWaitMulti(0, ((DATA, 1),)),
    DmaData(0x55AA, DATA + 0x3000, 512, src_sel=2, raw_wait=1),
    PerfCounterWindow(7),
    SetBase(DATA),
]
KINDS = list(QueueKind)


def feed_queue(bench: CpBench, queue: TestQueue, words: list[int]) -> None:
    """Write as much as fits in the ring, then run a few steps."""
    room = (queue.rptr - 1 - queue.wptr) % queue.ring_dw
    queue.write(words[:room])
    queue.ring()
    started = time.thread_time()
    bench.cp.step(2_000)
    assert time.thread_time() - started < STEP_CPU_SECONDS
    if queue.state is QueueState.HUNG:
        assert "stopped at" in queue.report
        bench.cp.detach(queue.hardware, 0)
        bench.cp.forget(queue.hardware)


def shuffled_packets(random_: random.Random) -> list[int]:
    """Whole packets in random order, sometimes with a bit flipped after the header."""
    words: list[int] = []
    for packet in random_.choices(PACKETS + MORE, k=40):
        one = packet.words(Generation.GFX12)
        if random_.random() < 0.05 and len(one) > 1:
            one[random_.randrange(1, len(one))] ^= 1 << random_.randrange(32)
        words += one
    return words


def likely_packet(random_: random.Random) -> list[int]:
    """A header of a real packet with a random body that often points into memory."""
    op = random_.choice(sorted(BY_OPCODE))
    count = random_.choice([cls.DWORDS[0] - 2 for cls in BY_OPCODE[op]] + [random_.randrange(0, 20)])
    body = [
        random_.choice((0, 1, MEMORY_VA + 4 * random_.randrange(1 << 18), random_.getrandbits(32)))
        for _ in range(max(count, 0) + 1)
    ]
    for index in range(1, len(body), 2):
        if random_.random() < 0.7:
            body[index] = 0  # the upper half of an address
    return [0xC0000000 | max(count, 0) << 16 | op << 8, *body]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.rest
def test_random_streams_cannot_escape_the_device(kind, seed, slow_counts):
    total = slow_counts(40_000, 1_000_000)
    random_ = random.Random(total * 7 + KINDS.index(kind) + (seed or 0))
    result = 0
    while result < total:
        bench = CpBench(generation=random_.choice(list(Generation)), reorder_seed=seed, hardware_queues=2)
        for _ in range(200):
            bench.queues.clear()
            queue = bench.queue(kind, eop=random_.random() < 0.9)
            mode = random_.random()
            if mode < 0.1:
                words = [random_.getrandbits(32) for _ in range(60)]
            elif mode < 0.3:
                words = [word for _ in range(8) for word in likely_packet(random_)]
            elif mode < 0.4:
                words = [random_.getrandbits(8) | random_.choice((0, 2 << 8)) for _ in range(60)]  # SDMA-like
            elif mode < 0.5:
                words = mutate_words(GOOD, random_)
            else:
                words = shuffled_packets(random_)
            bench.space.put(IB, *random_.choice((mutate_words(GOOD, random_), shuffled_packets(random_)))[:16])
            if random_.random() < 0.3:
                bench.space.put(IB, *encode_packets([IndirectBuffer(IB, 16, chain=1)]), *[0xFFFF1000] * 12)
            feed_queue(bench, queue, words)
            result += len(words)
            if queue.state is not QueueState.HUNG:
                bench.cp.detach(queue.hardware, 0)
                bench.cp.forget(queue.hardware)
            if result >= total:
                break
        other = bench.queue()
        other.submit(make_fence(0x600D))
        assert bench.space.u32(FENCE) == 0x600D


def test_unmutated_stream_runs_to_completion():
    bench = CpBench()
    bench.space.put(IB, *[0xFFFF1000] * 16)
    queue = bench.queue(QueueKind.USERQ_COMPUTE)
    queue.write(GOOD)
    queue.ring()
    bench.run()
    assert queue.rptr == queue.wptr and bench.space.u32(FENCE) == 1
    assert [name for name, _ in bench.kmd.heard] == ["interrupt", "fence_signal"]
