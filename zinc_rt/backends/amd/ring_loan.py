"""Lend a stream's ring of T1 or T2 to the execution contract's C library (docs/exec-c.md).

While it is lent, the library publishes programs and waits for their fences; no Python runs then, and the backend
must not submit to the stream. `close` gives the ring back.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import Any

from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.packet_list import AmdExecutable
from zinc_rt.backends.amd.ring import AmdRing, ReadyDwords
from zinc_rt.exec import Stream
from zinc_rt.exec.abi import ExecLibrary, list_constants
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import WaitRegMem64

FULL_NS = 10 * 10**9  # how long a replay waits for room


class RingLoan:
    """A ring that the library drives. `stream` is its handle there. Use it as a context manager."""

    def __init__(self, library: ExecLibrary, context: int, backend: AmdBackend, stream: Stream) -> None:
        """Wait until the stream is idle and lend its ring."""
        self._library, self._backend, self._of = library, backend, stream
        self._ring = ring = backend.ring(stream)
        ring.wait_until_idle(FULL_NS / 1e9)
        self._adopted: list[ReadyDwords] = []
        self._wait = _WaitPacket(ring.generation)
        self.stream: int = library.call("stream_open_ring", context, stream.name, describe_ring(ring, self._wait))

    def __enter__(self) -> RingLoan:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def adopt(self, graph: int, key: int, executable: AmdExecutable) -> None:
        """Add a built program to a graph of the library. The executable must stay loaded as long as the graph has
        it. Writes of the host through the BAR that came before are visible to every replay.
        """
        _, ready = self._backend.prepare_submission(executable, self._of)
        self._adopted.append(ready)
        self._library.call("graph_adopt", graph, key, describe_program(ready, self.stream))

    def close(self, timeout_seconds: float = FULL_NS / 1e9) -> None:
        """Take the ring back and wait until it is idle. Raise Hang with the tier's report if it does not end; the
        library's stream then stays until its context is destroyed."""
        if self.stream:
            stream, self.stream = self.stream, 0
            wptr_dw, fence_value = self._library.call("ring_position", stream)
            self._ring.take_back(wptr_dw, fence_value, self._adopted)
            self._ring.wait_until_idle(timeout_seconds)
            self._library.call("stream_destroy", stream)


class _WaitPacket:
    """A packet that waits for a fence of another ring, with the places of its address and value."""

    def __init__(self, generation: Generation) -> None:
        address, value = 0x1234_5678_9ABC, 0xFEDC_BA98_7654
        words = WaitRegMem64(address, value).words(generation)
        self.words = (ctypes.c_uint32 * len(words))(*words)
        self.address_at, self.value_at = _find_pair(words, address), _find_pair(words, value)


def _find_pair(words: list[int], value: int) -> int:
    """Return the position of a 64-bit value, which occurs once."""
    pairs = [low | high << 32 for low, high in pairwise(words)]
    if pairs.count(value) != 1:
        raise ValueError(f"{value:#x} is not in the packet exactly once")
    return pairs.index(value)


def describe_ring(ring: AmdRing, wait: _WaitPacket) -> dict[str, Any]:
    """Return the fields of zrt_ring for an idle ring."""
    queue, timeline = ring.queue, ring.timeline
    return {
        "ring_dw": ring.ring_dw,
        "ring": queue.ring.host.address,
        "wptr": queue.wptr.host.address,
        "doorbell": queue.doorbell_address,
        "rptr": queue.rptr.host.address,
        "fence": timeline.address,
        "wptr_dw": ring.wptr_dw,
        "fence_value": timeline.submitted,
        "full_timeout_ns": FULL_NS,
        "wait_dwords": ctypes.addressof(wait.words),
        "wait_dw": len(wait.words),
        "wait_address_at": wait.address_at,
        "wait_value_at": wait.value_at,
        "fence_va": timeline.gpu_va,
    }


def describe_program(ready: ReadyDwords, stream: int) -> dict[str, Any]:
    """Return the fields of zrt_program for dwords that were encoded for a lent ring."""
    assert ready.fence_value is not None, f"{ready.name} has no fence"
    return {
        "kind": list_constants()["ZRT_PROGRAM_DWORDS"],
        "ring": stream,
        "dwords": ready.address,
        "dword_count": ready.count_dw,
        "fence_at": (ctypes.addressof(ready.fence_value) - ready.address) // 4,
        "fence_end": ready.fence_end_dw,
    }
