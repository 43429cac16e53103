"""What a submission costs the host on tiers T1 and T2: Graph.replay over graphs of 64, 256 and 1,500 dispatches.

    pytest perf/bench_ring.py -n 0 --benchmark-enable

The queue is plain memory and nothing runs behind it: rptr and the fence are set to what a GPU would have left
there, between the timed calls, so the ring never fills and no replay is in flight. Uncached ring memory and
a real doorbell cost more than this.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.kmd_side import Incident
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.base import Device
from zinc_rt.exec import Graph, Stream
from zinc_rt.isa.target import DEFAULT_ARCH, default_target
from zinc_rt.kmd.driver import PROT_READ, PROT_WRITE, Mapping
from zinc_rt.kmd.resources import Ledger
from zinc_rt.kmd.transport import DeviceBuffer, Placement, Queue
from zinc_rt.pm4 import Generation, Sh
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import DispatchDirect, EventWrite, HdpFlush, ProtectedFenceSignal, SetShReg

LIMIT_US, AIM_US = 5.0, 3.0
ROUNDS = 5000


class NoFiles:
    """A driver for code that only looks for a core dump."""

    simulated = True

    def list_dir(self, path: str) -> list[str]:
        raise FileNotFoundError(path)

    def read_file(self, path: str) -> bytes:
        raise FileNotFoundError(path)


class StillTransport:
    """A transport and its kernel's side over plain memory, where nothing moves but by `finish`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.driver: Any = NoFiles()
        self.transport: Any = self
        self.generation = default_target().version
        self.fallbacks: list[str] = []
        self.incidents: list[Incident] = []
        self.ask_seconds = 0.02
        self.queues: list[Queue] = []
        self.ledger = Ledger("still")
        self._next_va = 1 << 32

    def alloc(
        self, size_bytes: int, placement: Placement, name: str, *, fallback: Placement | None = None
    ) -> DeviceBuffer:
        size_bytes += -size_bytes % 4096
        store = (ctypes.c_char * (size_bytes + 256))()
        address = ctypes.addressof(store) + -ctypes.addressof(store) % 256
        mapping = Mapping(address, size_bytes, PROT_READ | PROT_WRITE)
        held = self.ledger.hold("buffer", name, lambda store=store: mapping.release())  # type: ignore[misc]
        va, self._next_va = self._next_va, self._next_va + size_bytes
        return DeviceBuffer(name, va, size_bytes, placement, 0, mapping, [held])

    def create_queue(self, *, ring_bytes: int, priority: int = 0) -> Queue:
        ring, rptr, wptr, eop, doorbell = (
            self.alloc(size, Placement.GTT, name)
            for name, size in (("ring", ring_bytes), ("rptr", 8), ("wptr", 8), ("eop", 8), ("doorbell", 8))
        )
        userq = self.kind == "userq"
        bell = doorbell.host.address
        held = [*ring.held, *rptr.held, *wptr.held, *eop.held, *doorbell.held]
        queue = Queue(self.kind, 0, self.generation, ring, rptr, wptr, eop, bell, userq, userq, held=held)
        self.queues.append(queue)
        return queue

    def finish(self, backend: AmdBackend, stream: Stream) -> None:
        """The queue looks as if everything submitted were read and done."""
        ring = backend.ring(stream)
        rptr = ctypes.c_uint32.from_address(ring.queue.rptr.host.address)
        rptr.value = ring.wptr_dw % ring.ring_dw
        ctypes.c_uint64.from_address(ring.timeline.address).value = ring.timeline.submitted

    def settle(self) -> None: ...

    def flush_hdp(self) -> tuple[Packet, ...]:
        return (HdpFlush(),) if self.kind == "userq" else ()  # KFD's is one store

    def after_fence(self) -> tuple[Packet, ...]:
        return (ProtectedFenceSignal(),) if self.kind == "userq" else ()

    def look(self) -> None: ...

    def resources(self) -> dict[str, int]:
        return self.ledger.counts()

    def close(self) -> None: ...


def dispatches(count: int) -> tuple[Packet, ...]:
    """The packets of as many kernels, each with its registers and a barrier behind it."""
    one = (
        SetShReg(Sh.PGM_LO, (0x1000, 0)),
        SetShReg(Sh.USER_DATA_0, (0x2000, 0)),
        DispatchDirect(64, 1, 1, 0x8005),
        EventWrite.cs_partial_flush(),
    )
    return one * count


@pytest.mark.parametrize("writes", [False, True], ids=["replay", "BAR written before"])
@pytest.mark.parametrize("count", [64, 256, 1500])
@pytest.mark.parametrize(("kind", "tier"), [("kfd", "t1"), ("userq", "t2")])
def test_graph_replay(benchmark: Any, kind: str, tier: str, count: int, writes: bool) -> None:
    """A replay; with `writes` the host wrote to a buffer in the BAR since the last replay, so HDP is flushed."""
    still, stream = StillTransport(kind), Stream("main")
    device = Device("plain memory", DEFAULT_ARCH, simulated=True)
    with AmdBackend(still, registry.spec(tier), device, AmdOptions(hang_folder=None)) as backend:
        assert backend.generation is Generation.GFX12
        graph = Graph("decode", backend)
        graph.add((1,), backend.build(PacketList(dispatches(count), f"{count} dispatches"), {}))
        graph.bind("step", backend.alloc(4096, "host_visible", "step"))
        graph.bind("input", backend.alloc(4096, "bar", "input"))
        replay, key = graph.replay, (1,)
        replay(key, stream)  # makes the queue

        def setup() -> None:
            still.finish(backend, stream)
            if writes:
                graph.write("input", 0, b"zinc")

        ring = backend.ring(stream)
        before = ring.wptr_dw
        benchmark.extra_info.update(
            dispatches=count, limit_median_us=LIMIT_US, aim_median_us=AIM_US, not_real="plain memory, no GPU"
        )
        benchmark.pedantic(
            lambda: replay(key, stream),
            setup=setup,
            rounds=ROUNDS,
            warmup_rounds=200,
        )
        calls = ring.timeline.submitted - 1
        benchmark.extra_info["ring_dwords_a_replay"] = (ring.wptr_dw - before) / calls
        still.finish(backend, stream)
    if benchmark.stats is not None:  # None where benchmarks are switched off
        median_us = benchmark.stats.stats.median * 1e6
        assert median_us <= LIMIT_US, f"{median_us:.2f} us median for {count} dispatches, limit {LIMIT_US} us"
