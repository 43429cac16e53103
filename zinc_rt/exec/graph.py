"""A table of ready-built variants by exact shape key, and the buffers the host reaches through named ports."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from zinc_rt.errors import ZincError
from zinc_rt.exec.buffer import Buffer
from zinc_rt.exec.fence import Fence
from zinc_rt.exec.observer import Observer
from zinc_rt.exec.stream import Stream

ShapeKey = tuple[int, ...]


class Launcher(Protocol):
    """What a graph needs of a backend. A variant is whatever that backend built, opaque here."""

    def submit(self, variant: Any, stream: Stream) -> Fence:
        """Start after the stream's earlier submissions and every fence in `stream.waits`."""

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """A read-only view of what is there now."""

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        """Copy bytes in, also where the host does not map the buffer."""


class MissingVariant(ZincError):
    """Replay of a shape key nothing was built for."""


class InFlight(ZincError):
    """The host wanted bytes, or a variant's place, that a replay still uses."""


@dataclass(slots=True)
class _Replay:
    fence: Fence
    started: float  # time.monotonic()


class Graph:
    """Variants are built elsewhere and adopted here; `replay` picks one by its exact key.

    At most `max_variants` are kept: adding one more drops the least recently used that is not in flight, and
    `evicted(key, variant)` lets its owner free it.
    """

    def __init__(
        self,
        name: str,
        launcher: Launcher,
        *,
        max_variants: int = 64,
        ir: Any = None,
        observer: Observer | None = None,
        evicted: Callable[[ShapeKey, Any], None] | None = None,
    ) -> None:
        if max_variants < 1:
            raise ValueError(f"graph {name}: max_variants is at least 1, not {max_variants}")
        self.name = name
        self.max_variants = max_variants
        self._launcher = launcher
        self._observer = observer or Observer()
        self._evicted = evicted
        self._variants: OrderedDict[ShapeKey, Any] = OrderedDict()  # least recently used first
        self._last: dict[ShapeKey, Fence] = {}
        self._ports: dict[str, Buffer] = {}
        self._replays: list[_Replay] = []
        self._ir = ir
        self._observer.created(self, ir)

    def observe(self, observer: Observer) -> None:
        """Tell `observer` instead from here on, first of what there is already."""
        self._observer = observer
        observer.created(self, self._ir)
        for key in self._variants:
            observer.added(self, key)
        for port, buffer in self._ports.items():
            observer.bound(self, port, buffer)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self._variants)} variants)"

    # Variants

    @property
    def keys(self) -> tuple[ShapeKey, ...]:
        """Least recently used first."""
        return tuple(self._variants)

    def has(self, key: ShapeKey) -> bool:
        return key in self._variants

    def add(self, key: ShapeKey, variant: Any) -> None:
        """Adopt a built variant. Raises ValueError for a malformed or taken key, InFlight if there is no room."""
        if not isinstance(key, tuple) or not all(type(part) is int for part in key):
            raise ValueError(f"graph {self.name}: a shape key is a tuple of int, not {key!r}")
        if key in self._variants:
            raise ValueError(f"graph {self.name}: {key} already has a variant")
        if len(self._variants) >= self.max_variants:
            self._evict_one()
        self._variants[key] = variant
        self._observer.added(self, key)

    def _evict_one(self) -> None:
        for key in self._variants:
            last = self._last.get(key)
            if last is None or last.done():
                variant = self._variants.pop(key)
                self._last.pop(key, None)
                if self._evicted is not None:
                    self._evicted(key, variant)
                return
        raise InFlight(
            f"graph {self.name}: no room for another variant, all {self.max_variants} are in flight",
            next="wait for a replay, or raise max_variants",
        )

    def replay(self, key: ShapeKey, stream: Stream) -> Fence:
        """Submit the variant for exactly this key. Raises MissingVariant: there is never a nearest match."""
        if key not in self._variants:
            raise MissingVariant(
                f"graph {self.name}: no variant for key {key}; it has {', '.join(map(str, self.keys)) or 'none'}",
                next="build the variant and add it under this key",
            )
        self.retire()
        started = time.monotonic()
        fence = self._launcher.submit(self._variants[key], stream)
        stream.advanced(fence)
        self._variants.move_to_end(key)
        self._last[key] = fence
        self._replays.append(_Replay(fence, started))
        for buffer in set(self._ports.values()):
            buffer.used_until(fence)
        self._observer.replayed(self, key, stream, fence)
        return fence

    # Ports

    @property
    def ports(self) -> MappingProxyType[str, Buffer]:
        return MappingProxyType(self._ports)

    def bind(self, port: str, buffer: Buffer) -> None:
        """Name a buffer the variants were built over, for the host to write and read. Binding again replaces."""
        self._ports[port] = buffer
        self._observer.bound(self, port, buffer)

    def write(self, port: str, offset_bytes: int, data: Any) -> None:
        """Copy `data` (bytes-like, C-contiguous) into a bound buffer.

        Raises InFlight while any replay that binds this buffer, of this graph or another, has not retired: a
        replay reads its step block at an unknown moment before its fence. Raises ValueError out of bounds.
        """
        buffer = self._settled(port, "write")
        source = memoryview(data).cast("B").toreadonly()
        if offset_bytes < 0 or offset_bytes + source.nbytes > buffer.size_bytes:
            raise ValueError(
                f"graph {self.name}: {source.nbytes} bytes at offset {offset_bytes} of {port} pass the end of "
                f"{buffer.name}, {buffer.size_bytes} bytes"
            )
        self._launcher.write(buffer, offset_bytes, source)
        self._observer.wrote(buffer, offset_bytes, source)

    def view(self, port: str) -> memoryview:
        """A bound buffer's bytes, read-only, valid until the next replay. Raises InFlight as `write` does."""
        buffer = self._settled(port, "read")
        return self._launcher.read(buffer, 0, buffer.size_bytes)

    def _settled(self, port: str, verb: str) -> Buffer:
        if port not in self._ports:
            raise ValueError(f"graph {self.name}: no port {port}; it has {', '.join(self._ports) or 'none'}")
        self.retire()
        buffer = self._ports[port]
        if buffer.busy():
            raise InFlight(
                f"graph {self.name}: cannot {verb} {port} ({buffer.name}): a replay that uses it is in flight, "
                f"up to fence {max(fence.value for fence in buffer.in_flight)}",
                next="wait for that fence first",
            )
        return buffer

    # Retirement

    def wait(self, timeout_seconds: float) -> None:
        """Wait for every replay of this graph, oldest first, within one timeout.

        Raises what the first bad fence raises. After a missed deadline the replay still counts as in flight.
        """
        deadline = time.monotonic() + timeout_seconds
        while self._replays:
            replay = self._replays[0]
            try:
                replay.fence.wait(max(0.0, deadline - time.monotonic()))
            except Exception as error:
                if replay.fence.done():
                    self._replays.pop(0)
                self._observer.fault(error)
                raise
            self._replays.pop(0)
            self._observer.retired(replay.fence, time.monotonic() - replay.started)

    def retire(self) -> None:
        """Tell the observer about replays that have finished. Never blocks, never raises a replay's own error:
        that is for whoever waits on its fence."""
        running: list[_Replay] = []
        finished: list[_Replay] = []
        for replay in self._replays:
            (finished if replay.fence.done() else running).append(replay)
        self._replays = running
        for replay in finished:
            error = _error_of(replay.fence)
            if error is None:
                self._observer.retired(replay.fence, time.monotonic() - replay.started)
            else:
                self._observer.fault(error)


def _error_of(fence: Fence) -> BaseException | None:
    try:
        fence.wait(0.0)
    except Exception as error:
        return error
    return None
