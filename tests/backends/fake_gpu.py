"""A GPU of plain memory: a transport, and a command processor that runs when a waiting host pauses.

It knows the packets that move data and fences, and stops for good at anything it does not know. GPU addresses are
not host addresses. Nothing runs on a thread of its own, so every test is repeatable.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.backends.amd.kmd_side import Incident, format_fault
from zinc_rt.kmd.driver import PROT_READ, PROT_WRITE, Mapping
from zinc_rt.kmd.resources import Ledger
from zinc_rt.kmd.transport import HOST_VISIBLE, DeviceBuffer, MemoryFault, Placement, Queue, check_ring
from zinc_rt.pm4 import BadPacket, Generation, decode
from zinc_rt.pm4 import packets as pm4
from zinc_rt.pm4.packet import Packet

FIRST_VA = 0x7_0000_0000
GENERATION = Generation.GFX12
COMPARE = {
    1: int.__lt__,
    2: int.__le__,
    3: int.__eq__,
    4: int.__ne__,
    5: int.__ge__,
    6: int.__gt__,
}


class PageFault(Exception):
    def __init__(self, va: int) -> None:
        super().__init__(f"{va:#x}")
        self.va = va


@dataclass(eq=False)
class FakeQueue:
    queue: Queue
    position: int = 0  # dwords read, never wrapped
    stopped: str = ""
    ran: list[Packet] = field(default_factory=list)


class NoDriver:
    """A machine without a kernel log or core dumps."""

    simulated = True

    def list_dir(self, path: str) -> list[str]:
        raise FileNotFoundError(path)

    def read_file(self, path: str) -> bytes:
        raise FileNotFoundError(path)


class FakeGpu:
    """kmd.transport.Transport."""

    def __init__(self, *, kind: str = "kfd", wrap_rptr: bool = True) -> None:
        self.kind = kind
        self.driver: Any = NoDriver()
        self.generation = (12, 0, 1)
        self.fallbacks: list[str] = []
        self.ledger = Ledger("fake GPU")
        self.queues: list[FakeQueue] = []
        self.faults: list[MemoryFault] = []
        self.hdp_flushes = 0
        self.lost_doorbells = False
        self.reports_rptr = True
        self.refuse: dict[str, Exception] = {}  # the name of an allocation: what asking for it raises
        self.keeps: dict[str, Exception] = {}  # and what giving it back raises
        self._wrap_rptr = wrap_rptr
        self._memory: dict[int, tuple[int, Any]] = {}  # VA: size, bytes
        self._next_va = FIRST_VA

    # Transport

    def alloc(
        self, size_bytes: int, placement: Placement, name: str, *, fallback: Placement | None = None
    ) -> DeviceBuffer:
        if name in self.refuse:
            raise self.refuse[name]
        size_bytes += -size_bytes % 4096
        store = (ctypes.c_char * (size_bytes + 256))()
        address = ctypes.addressof(store) + -ctypes.addressof(store) % 256
        if placement in (Placement.VRAM, Placement.VRAM_BAR):
            ctypes.memset(store, 0xA5, len(store))  # as somebody left it
        mapping = Mapping(address, size_bytes, PROT_READ | PROT_WRITE) if placement in HOST_VISIBLE else None
        va = self._next_va
        self._next_va += size_bytes + 4096
        self._memory[va] = (size_bytes, (ctypes.c_char * size_bytes).from_address(address))

        def give_back(keep_alive: Any = store) -> None:
            if name in self.keeps:
                raise self.keeps[name]
            if mapping is not None:
                mapping.release()
            del self._memory[va]

        held = self.ledger.hold("buffer", name, give_back)
        return DeviceBuffer(name, va, size_bytes, placement, 0, mapping, [held])

    def create_queue(self, *, ring_bytes: int) -> Queue:
        check_ring(ring_bytes)
        parts = [
            self.alloc(size, Placement.GTT, n) for n, size in (("ring", ring_bytes), ("rptr", 8), ("wptr", 8))
        ]
        parts += [self.alloc(4096, Placement.VRAM, "eop"), self.alloc(4096, Placement.GTT, "doorbell")]
        ring, rptr, wptr, eop, doorbell = parts
        userq = self.kind == "userq"
        queue = Queue(
            self.kind,
            len(self.queues),
            self.generation,
            ring,
            rptr,
            wptr,
            eop,
            doorbell.host.address,
            inherits_vmid=userq,
            kmd_fence=userq,
            held=[held for part in parts for held in part.held],
        )
        fake = FakeQueue(queue)
        self.queues.append(fake)
        queue.held.append(self.ledger.hold("queue", "queue", lambda: self.queues.remove(fake)))
        return queue

    def flush_hdp(self) -> None:
        self.hdp_flushes += 1

    def resources(self) -> dict[str, int]:
        return self.ledger.counts()

    def close(self) -> None:
        self.ledger.close()

    # What the GPU does

    def run(self, packets: int = 1 << 30) -> int:
        """Run at most that many packets of each queue; return the number that ran."""
        return sum(self._run_queue(queue, packets) for queue in self.queues)

    def _run_queue(self, fake: FakeQueue, packets: int) -> int:
        doorbell = ctypes.c_uint64.from_address(fake.queue.doorbell_address).value
        end = 0 if self.lost_doorbells else doorbell
        ran = 0
        while fake.position < end and not fake.stopped and ran < packets:
            ring, ring_dw = fake.queue.ring.host.view.cast("I"), fake.queue.ring_dw
            header = ring[fake.position % ring_dw]
            left = min(end - fake.position, (header >> 16 & 0x3FFF) + 2)
            words = [ring[(fake.position + index) % ring_dw] for index in range(left)]
            packet, length = decode(words, 0, GENERATION)
            if not self._step(fake, packet):
                break
            fake.position += length
            ran += 1
        if self.reports_rptr:
            rptr = fake.position % fake.queue.ring_dw if self._wrap_rptr else fake.position & 0xFFFFFFFF
            ctypes.c_uint32.from_address(fake.queue.rptr.host.address).value = rptr
        return ran

    def _step(self, fake: FakeQueue, packet: Packet | BadPacket) -> bool:
        """Return whether the queue continues after this packet."""
        if isinstance(packet, BadPacket):
            fake.stopped = packet.text
            return False
        try:
            result = self._execute(fake, packet)
        except PageFault as fault:
            fake.stopped = f"fault at {fault}"
            self.faults.append(MemoryFault(fault.va & ~0xFFF, not_present=True, gpu_id=1))
            return False
        if result:
            fake.ran.append(packet)
        return result

    def _execute(self, fake: FakeQueue, packet: Packet) -> bool:
        match packet:
            case pm4.IndirectBuffer():
                assert packet.inherit_vmid == int(fake.queue.inherits_vmid), "bit 30 belongs to user queues"
                words = memoryview(self.read(packet.address, 4 * packet.size_dw)).cast("I")
                return self._call(fake, words)
            case pm4.ReleaseMem():
                self.write(packet.address, packet.data.to_bytes(8, "little")[: 8 if packet.data_sel == 2 else 4])
            case pm4.WaitRegMem64():
                value = int.from_bytes(self.read(packet.address, 8), "little") & packet.mask
                return bool(COMPARE[packet.function](value, packet.reference))
            case pm4.WaitRegMem():
                value = int.from_bytes(self.read(packet.address, 4), "little") & packet.mask
                return bool(COMPARE[packet.function](value, packet.reference))
            case pm4.WriteData():
                self.write(packet.address, b"".join(word.to_bytes(4, "little") for word in packet.data))
            case pm4.DmaData():
                fill = (packet.src & 0xFFFFFFFF).to_bytes(4, "little") * (packet.byte_count // 4 + 1)
                source = fill if packet.src_sel == 2 else self.read(packet.src, packet.byte_count)
                self.write(packet.dst, source[: packet.byte_count])
            case pm4.Nop() | pm4.AcquireMem() | pm4.EventWrite() | pm4.HdpFlush() | pm4.ProtectedFenceSignal():
                pass
            case _:
                fake.stopped = f"no {packet.NAME} here"
                return False
        return True

    def _call(self, fake: FakeQueue, words: Sequence[int]) -> bool:
        offset = 0
        while offset < len(words):
            packet, length = decode(words, offset, GENERATION)
            if not self._step(fake, packet):
                return False
            offset += length
        return True

    def read(self, va: int, size_bytes: int) -> bytes:
        start, store = self._find(va, size_bytes)
        return ctypes.string_at(ctypes.addressof(store) + start, size_bytes)

    def write(self, va: int, content: bytes) -> None:
        start, store = self._find(va, len(content))
        ctypes.memmove(ctypes.addressof(store) + start, content, len(content))

    def _find(self, va: int, size_bytes: int) -> tuple[int, Any]:
        for start, (size, store) in self._memory.items():
            if start <= va and va + size_bytes <= start + size:
                return va - start, store
        raise PageFault(va)


class FakeSide:
    """A KmdSide that lets the GPU work during its pauses. `packets`: number of packets per pause."""

    def __init__(self, gpu: FakeGpu, *, packets: int = 1 << 30, works: bool = True) -> None:
        self.transport = gpu
        self.gpu = gpu
        self.incidents: list[Incident] = []
        self.packets = packets
        self.works = works
        self.ask_seconds = 0.0  # the GPU runs while it is asked
        self.looks = 0
        self.settled = 0
        self.closed = False

    def create_queue(self, *, ring_bytes: int, priority: int) -> Queue:
        return self.gpu.create_queue(ring_bytes=ring_bytes)

    def settle(self) -> None:
        self.settled += 1

    def flush_hdp(self) -> tuple[Packet, ...]:
        if self.gpu.kind == "userq":
            return (pm4.HdpFlush(),)
        self.gpu.flush_hdp()
        return ()

    def after_fence(self) -> tuple[Packet, ...]:
        return (pm4.ProtectedFenceSignal(),) if self.gpu.kind == "userq" else ()

    def look(self) -> None:
        self.looks += 1
        if self.works:
            self.gpu.run(self.packets)
        while self.gpu.faults:
            fault = self.gpu.faults.pop(0)
            self.incidents.append(Incident("fault", format_fault(fault), fault))

    def close(self) -> None:
        self.closed = True
