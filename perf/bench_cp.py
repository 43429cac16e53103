"""What the simulated command processor costs: packets a second, and from doorbell to fence, in one process.

    python perf/bench_cp.py [--fences N]          all of it, as a table
    pytest perf/bench_cp.py -n 0 --benchmark-enable

The memory is a flat bytearray without page tables: the figures are the command processor's own. One thread steps
it for the packet rates; for the latency it runs in its own thread and the host spins on the fence, both under one
interpreter lock. No waves run.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import (
    AcquireMem,
    DispatchDirect,
    EventWrite,
    IndirectBuffer,
    Nop,
    ReleaseMem,
    SetShReg,
    WriteData,
)
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.cp.command_processor import CommandProcessor
from zinc_rt.sim.interfaces import AccessKind, DeviceFinding, Fault, HardwareQueue, QueueKind
from zinc_rt.sim.shader_engine import NOTHING, Accesses, NoShaderEngine, ShaderDispatch

BASE = 0x100000
RING, POINTERS, EOP, FENCE, IB, CODE = (BASE + at for at in (0, 0x10000, 0x11000, 0x12000, 0x20000, 0x60000))
RING_BYTES, MEMORY_BYTES, IB_DW = 0x10000, 0x80000, 0xF000


class FlatMemory:
    """Memory whose addresses are offsets into it."""

    def __init__(self) -> None:
        self.memory = bytearray(MEMORY_BYTES)

    def read(self, va: int, size_bytes: int) -> bytes:
        at = va - BASE
        if at < 0 or at + size_bytes > MEMORY_BYTES:
            raise Fault(va, AccessKind.READ, "not present")
        return bytes(self.memory[at : at + size_bytes])

    def write(self, va: int, data: bytes) -> None:
        at = va - BASE
        if at < 0 or at + len(data) > MEMORY_BYTES:
            raise Fault(va, AccessKind.WRITE, "not present")
        self.memory[at : at + len(data)] = data

    def view(self, va: int, size_bytes: int, access: AccessKind) -> memoryview:
        return memoryview(self.memory)[va - BASE :][:size_bytes]

    def fetch(self, va: int, size_bytes: int) -> bytes:
        return self.read(va, size_bytes)

    def describe(self, va: int) -> str:
        return "memory"

    def nearby(self, va: int) -> str:
        return self.describe(va)

    def flush_hdp(self) -> None:
        return None

    def write_back(self) -> None:
        return None

    def host_sees(self, va: int) -> bool:
        return True

    def before_waves(self) -> None:
        return None

    def after_waves(self, touched: Iterable[tuple[int, int]]) -> None:
        return None

    def invalidate_wave_caches(self, *, vector: bool, scalar: bool, inside: tuple[int, int] | None = None) -> None:
        return None

    def invalidate_gl2(self, inside: tuple[int, int] | None = None) -> None:
        return None

    def invalidate_icache(self) -> None:
        return None


class SilentKmd:
    """A kernel that counts findings and wants none."""

    findings = 0

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        return None

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        raise RuntimeError(queue.report)

    def hung(self, queue: HardwareQueue) -> None:
        raise RuntimeError(queue.report)

    def finding(self, finding: DeviceFinding) -> None:
        raise RuntimeError(finding.sentence)

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        return None

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        return None

    def injected(self, point: str) -> bool:
        return False

    def gpu_counter(self) -> int:
        return time.monotonic_ns() // 10


class InstantWaves(NoShaderEngine):
    """Waves that take no time and touch nothing."""

    def run(self, dispatch: ShaderDispatch) -> Accesses | None:
        return NOTHING


class CpHost:
    def __init__(self) -> None:
        self.space = FlatMemory()
        self.cp = CommandProcessor(SilentKmd(), generation=Generation.GFX12, engine=InstantWaves())
        self.queue = HardwareQueue(
            1, 1, QueueKind.KFD_COMPUTE, self.space, RING, RING_BYTES, POINTERS, POINTERS + 64, EOP
        )
        self.cp.attach(self.queue)
        self.wptr = 0

    def submit(self, data: bytes) -> None:
        at, memory = 4 * self.wptr % RING_BYTES, self.space.memory
        first = min(len(data), RING_BYTES - at)
        memory[at : at + first] = data[:first]
        memory[: len(data) - first] = data[first:]
        self.wptr += len(data) // 4
        struct.pack_into("<Q", memory, POINTERS + 64 - BASE, self.wptr)
        self.cp.ring(self.queue, self.wptr)

    def fenced(self) -> int:
        return int(struct.unpack_from("<I", self.space.memory, FENCE - BASE)[0])


def packed(packets: Sequence[Packet]) -> bytes:
    words = [word for packet in packets for word in packet.words(Generation.GFX12)]
    return struct.pack(f"<{len(words)}I", *words)


LAUNCH: list[Packet] = [  # the stream of pm4.md §6, as one kernel of a lowered graph costs
    AcquireMem(0x1C0),
    SetShReg(Sh.PGM_LO, (CODE >> 8, 0)),
    SetShReg(Sh.PGM_RSRC1, (0, 0)),
    SetShReg(Sh.USER_DATA_0, tuple(range(16))),
    SetShReg(Sh.START_X, (0, 0, 0, 32, 1, 1, 0, 0)),
    DispatchDirect(1, 1, 1, 0x8005),
    EventWrite.cs_partial_flush(),
]
STREAMS: dict[str, list[Packet]] = {
    "NOP, 1 dword": [Nop()] * 2000,
    "NOP, 17 dwords": [Nop((0,) * 16)] * 600,
    "WRITE_DATA, 1 dword": [WriteData(FENCE + 64, (1,))] * 1500,
    "RELEASE_MEM, 32 bits": [ReleaseMem(FENCE, value) for value in range(1000)],
    "SET_SH_REG, 16 values": [SetShReg(Sh.USER_DATA_0, tuple(range(16)))] * 600,
    "launch (7 packets)": LAUNCH * 120,
}


def in_ring(host: CpHost, data: bytes) -> Callable[[], None]:
    def run() -> None:
        host.submit(data)
        host.cp.step(1 << 20)

    return run


def packets_per_second(packets: Sequence[Packet], repeats: int = 15) -> float:
    run = in_ring(CpHost(), packed(packets))
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return len(packets) / statistics.median(times)


def replayed(packets: Sequence[Packet]) -> tuple[CpHost, bytes]:
    """The packets as an indirect buffer, and what a token then puts into the ring."""
    host = CpHost()
    body = packed(packets)
    body += packed([Nop()] * (-len(body) // 4 % 8))
    host.space.write(IB, body)
    return host, packed([IndirectBuffer(IB, len(body) // 4), ReleaseMem(FENCE, 1)])


def latencies(fences: int) -> list[float]:
    """Seconds from ringing the doorbell until the host sees the fence."""
    host = CpHost()
    host.cp.start()
    found = []
    try:
        for value in range(1, fences + 1):
            data = packed([ReleaseMem(FENCE, value)])
            start = time.perf_counter()
            host.submit(data)
            while host.fenced() != value:
                time.sleep(0)
            found.append(time.perf_counter() - start)
    finally:
        host.cp.close()
    return sorted(found[fences // 10 :])  # the first tenth warms up


@pytest.mark.parametrize("name", STREAMS)
def test_packets(name: str, benchmark: Any) -> None:
    benchmark(in_ring(CpHost(), packed(STREAMS[name])))


def test_replay_of_an_indirect_buffer(benchmark: Any) -> None:
    host, data = replayed(LAUNCH * 200)
    benchmark(in_ring(host, data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fences", type=int, default=5000)
    fences = parser.parse_args().fences
    print(f"{platform.machine()}, Python {platform.python_version()}; flat memory, no waves")
    for name, packets in STREAMS.items():
        rate = packets_per_second(packets)
        print(f"{name:28} {rate / 1e3:9.0f} k packets/s   {1e6 / rate:6.2f} µs each")
    host, data = replayed(LAUNCH * 200)
    run = in_ring(host, data)
    run()
    start = time.perf_counter()
    for _ in range(5):
        run()
    each = (time.perf_counter() - start) / 5
    print(
        f"{'IB of 200 launches, replayed':28} {each * 1e3:9.1f} ms            {each / 200 * 1e6:6.2f} µs a launch"
    )
    found = latencies(fences)
    p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
    print(
        f"{'doorbell to fence, threaded':28} {p50 * 1e6:9.0f} µs p50   {p99 * 1e6:9.0f} µs p99   of {len(found)}"
    )


if __name__ == "__main__":
    main()
