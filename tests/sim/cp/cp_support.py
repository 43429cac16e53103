"""A flat memory with page permissions, a driver side that takes notes, and a queue to submit to."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import ReleaseMem, SetShReg
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.cp.command_processor import CommandProcessor
from zinc_rt.sim.interfaces import (
    AccessKind,
    DeviceFinding,
    Fault,
    HardwareQueue,
    QueueKind,
    QueueState,
)
from zinc_rt.sim.shader_engine import NOTHING, Accesses, ShaderDispatch, ShaderEngine

PAGE = 4096
MEMORY_VA = 0x10000
DATA = MEMORY_VA + 0x80000  # free for tests
IB = MEMORY_VA + 0xC0000
CODE = MEMORY_VA + 0xE0000
FENCE = MEMORY_VA + 0x7F000
POISON = 0xDEADBEEF


class FlatSpace:
    """One allocation from MEMORY_VA on; page permissions can be taken away. Counts cache operations."""

    def __init__(self, size_bytes: int = 0x100000) -> None:
        self.memory = bytearray(size_bytes)
        self.allowed = {page: set(AccessKind) for page in range(size_bytes // PAGE)}
        self.calls: list[str] = []
        self.through_bar: set[int] = set()  # VAs that the host reads a copy of
        self.stale: set[int] = set()  # those of them stored to and not written back
        self.split = 0  # a VA: views across it raise ValueError, as across two allocations

    def check(self, va: int, size_bytes: int, access: AccessKind) -> int:
        start = va - MEMORY_VA
        for page in range(start // PAGE, (start + max(size_bytes, 1) - 1) // PAGE + 1):
            allowed = self.allowed.get(page)
            if not allowed:
                raise Fault(max(va, MEMORY_VA + page * PAGE), access, "not present")
            if access not in allowed:
                raise Fault(max(va, MEMORY_VA + page * PAGE), access, "read only")
        return start

    def read(self, va: int, size_bytes: int) -> bytes:
        start = self.check(va, size_bytes, AccessKind.READ)
        return bytes(self.memory[start : start + size_bytes])

    def write(self, va: int, data: bytes) -> None:
        start = self.check(va, len(data), AccessKind.WRITE)
        self.memory[start : start + len(data)] = data
        self.stale.update(self.through_bar & {va})

    def view(self, va: int, size_bytes: int, access: AccessKind) -> memoryview:
        if self.split and va < self.split < va + size_bytes:
            raise ValueError("two allocations")
        start = self.check(va, size_bytes, access)
        return memoryview(self.memory)[start : start + size_bytes]

    def fetch(self, va: int, size_bytes: int) -> bytes:
        start = self.check(va, size_bytes, AccessKind.EXECUTE)
        return bytes(self.memory[start : start + size_bytes])

    def nearby(self, va: int) -> str:
        return self.describe(va)

    def describe(self, va: int) -> str:
        return f"memory+{va - MEMORY_VA:#x}" if 0 <= va - MEMORY_VA < len(self.memory) else "unmapped"

    def flush_hdp(self, inside: tuple[int, int] | None = None) -> None:
        self.calls.append("flush_hdp")

    def find_unflushed(self, ranges: Iterable[tuple[int, int]]) -> int | None:
        return None

    def write_back(self) -> None:
        self.calls.append("write_back")
        self.stale.clear()

    def host_sees(self, va: int) -> bool:
        return va not in self.stale

    def before_waves(self) -> None:
        return None

    def stop_caching_coherent(self) -> None:
        return None

    def after_waves(self, touched: Iterable[tuple[int, int]]) -> None:
        return None

    def invalidate_wave_caches(
        self, *, vector: bool, scalar: bool, array: bool, inside: tuple[int, int] | None = None
    ) -> None:
        return None

    def invalidate_gl2(self, inside: tuple[int, int] | None = None) -> None:
        return None

    def invalidate_icache(self) -> None:
        self.calls.append("invalidate_icache")

    def u32(self, va: int) -> int:
        return int(struct.unpack("<I", self.read(va, 4))[0])

    def u64(self, va: int) -> int:
        return int(struct.unpack("<Q", self.read(va, 8))[0])

    def put(self, va: int, *dwords: int) -> None:
        self.write(va, struct.pack(f"<{len(dwords)}I", *dwords))


@dataclass
class EventRecorder:
    """The driver side. `heard` lists all events in order."""

    heard: list[tuple[str, object]] = field(default_factory=list)
    findings: list[DeviceFinding] = field(default_factory=list)
    injections: set[str] = field(default_factory=set)
    counter: int = 0

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        self.heard.append(("interrupt", context_id))

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        self.heard.append(("vm_fault", (fault.va, fault.access, fault.why)))

    def hung(self, queue: HardwareQueue) -> None:
        self.heard.append(("hung", queue.queue_id))

    def finding(self, finding: DeviceFinding) -> None:
        self.findings.append(finding)

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        self.heard.append(("queue_exception", code))

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        self.heard.append(("fence_signal", position_dw))

    def injected(self, point: str) -> bool:
        return point in self.injections

    def gpu_counter(self) -> int:
        self.counter += 1
        return 0x1_0000_0000 + self.counter

    def rules(self) -> list[str]:
        return [finding.rule for finding in self.findings]


class CpBench:
    """One device with one address space and queues, stepped manually unless `threaded`."""

    def __init__(
        self,
        *,
        generation: Generation = Generation.GFX12,
        engine: ShaderEngine | None = None,
        reorder_seed: int | None = None,
        hardware_queues: int = 8,
        memory_bytes: int = 0x100000,
    ) -> None:
        self.space = FlatSpace(memory_bytes)
        self.kmd = EventRecorder()
        self.generation = generation
        self.cp = CommandProcessor(
            self.kmd,
            generation=generation,
            engine=engine,
            reorder_seed=reorder_seed,
            hardware_queues=hardware_queues,
        )
        self.queues: list[TestQueue] = []

    def queue(
        self,
        kind: QueueKind = QueueKind.KFD_COMPUTE,
        *,
        ring_bytes: int = 4096,
        eop: bool = True,
        priority: int = 7,
        attach: bool = True,
    ) -> TestQueue:
        number = len(self.queues)
        queue = TestQueue(
            self, kind, MEMORY_VA + number * 0x3000, ring_bytes, number + 1, eop=eop, priority=priority
        )
        self.queues.append(queue)
        if attach:
            self.cp.attach(queue.hardware)
        return queue

    def run(self, budget: int = 100_000) -> None:
        self.cp.step(budget)


class TestQueue:
    """Write like a client: dwords at wptr modulo the ring size, wptr memory, doorbell."""

    __test__ = False

    def __init__(
        self, bench: CpBench, kind: QueueKind, va: int, ring_bytes: int, number: int, *, eop: bool, priority: int
    ) -> None:
        self.bench = bench
        self.ring_va, self.ring_dw = va, ring_bytes // 4
        pointers = va + max(0x1000, ring_bytes)
        self.rptr_va, self.wptr_va = pointers, pointers + 64
        self.wptr = 0
        self.unit = 4 if kind is QueueKind.KFD_SDMA else 1
        self.hardware = HardwareQueue(
            queue_id=number,
            process_id=1,
            kind=kind,
            space=bench.space,
            ring_va=va,
            ring_size_bytes=ring_bytes,
            rptr_va=self.rptr_va,
            wptr_va=self.wptr_va,
            eop_va=pointers + 0x1000 if eop else 0,
            priority=priority,
        )

    def write(self, words: Sequence[int]) -> None:
        for word in words:
            self.bench.space.put(self.ring_va + 4 * (self.wptr % self.ring_dw), word)
            self.wptr += 1

    def ring(self) -> None:
        self.bench.space.write(self.wptr_va, struct.pack("<Q", self.wptr * self.unit))
        self.bench.cp.ring(self.hardware, self.wptr * self.unit)

    def submit(self, *packets: Packet, run: bool = True) -> None:
        self.send(encode_packets(packets, self.bench.generation), run=run)

    def send(self, words: Sequence[int], *, run: bool = True) -> None:
        self.write(words)
        self.ring()
        if run:
            self.bench.run()

    @property
    def rptr(self) -> int:
        return self.bench.space.u32(self.rptr_va)

    @property
    def state(self) -> QueueState:
        return self.hardware.state

    @property
    def report(self) -> str:
        return self.hardware.report


def encode_packets(packets: Iterable[Packet], generation: Generation = Generation.GFX12) -> list[int]:
    return [word for packet in packets for word in packet.words(generation)]


def make_fence(value: int, va: int = FENCE, **fields: int) -> ReleaseMem:
    return ReleaseMem(va, value, **fields)


def mutate_words(words: Sequence[int], random_: random.Random) -> list[int]:
    """Return the stream with a few dwords changed, removed, duplicated or replaced."""
    out = list(words)
    for _ in range(random_.randrange(1, 6)):
        index = random_.randrange(len(out))
        what = random_.randrange(5)
        if what == 0:
            out[index] ^= 1 << random_.randrange(32)
        elif what == 1:
            out[index] = random_.getrandbits(32)
        elif what == 2 and len(out) > 1:
            del out[index]
        elif what == 3:
            out.insert(index, out[random_.randrange(len(out))])
        else:
            out[index] = random_.choice((0, 1, 0xFFFFFFFF, 0x80000000, 0xFFFF1000))
    return out


def wait_until(condition: object, seconds: float = 10.0) -> bool:
    """Return whether the callable returns true in time."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0002)
    return True


class AccessCollector:
    """A shader engine that records dispatches and accesses the specified memory."""

    def __init__(self, accesses: Accesses = NOTHING, turns: int = 1) -> None:
        self.dispatches: list[ShaderDispatch] = []
        self.abandoned: list[ShaderDispatch] = []
        self.accesses, self.turns = accesses, turns
        self.left: dict[int, int] = {}

    def run(self, dispatch: ShaderDispatch) -> Accesses | None:
        left = self.left.setdefault(id(dispatch), self.turns) - 1
        self.left[id(dispatch)] = left
        if left > 0:
            return None
        self.dispatches.append(dispatch)
        return self.accesses

    def abandon(self, dispatch: ShaderDispatch) -> None:
        self.abandoned.append(dispatch)


def is_finished(bench: CpBench) -> bool:
    return all(
        queue.state is QueueState.ACTIVE and queue.rptr == queue.wptr % queue.ring_dw for queue in bench.queues
    )


def launch_state(threads: tuple[int, int, int] = (8, 4, 2), user: tuple[int, ...] = ()) -> list[SetShReg]:
    packets = [SetShReg(Sh.PGM_LO, (CODE >> 8, 0)), SetShReg(Sh.NUM_THREAD_X, threads)]
    return packets + ([SetShReg(Sh.USER_DATA_0, user)] if user else [])
