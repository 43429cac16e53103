"""A graph: prebuilt variants by exact shape key, and the buffers that the host accesses through named ports."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from zinc_rt.exec.buffer import Buffer, Usage
from zinc_rt.exec.fence import Fence
from zinc_rt.exec.stream import Stream
from zinc_rt.host.errors import ZincError

ShapeKey = tuple[int, ...]


class Launcher(Protocol):
    """The backend interface that a graph needs. A variant is the backend's object, opaque here."""

    def submit(self, variant: Any, stream: Stream) -> Fence:
        """Submit a variant: it starts after the stream's earlier submissions and every fence in `stream.waits`."""

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """Read the bytes as they are now. Never counts as a write."""

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        """Copy bytes to a buffer, even if the host cannot map it."""

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> Fence:
        """Submit a fill with zeros, after the stream's earlier submissions."""


class Observer:
    """A receiver of the events of a graph in order, for tracing and statistics."""

    def created(self, graph: Graph, ir: Any) -> None:
        """Called when a graph is created, or this observer is attached. `ir`: the source of the lowered graph,
        opaque here, or None."""

    def added(self, graph: Graph, key: ShapeKey) -> None:
        """Called when a variant is added under this key."""

    def bound(self, graph: Graph, port: str, buffer: Buffer) -> None:
        """Called when the port is bound to this buffer."""

    def wrote(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        """Called when the host has written `data` (read-only view, valid during the call)."""

    def replayed(self, graph: Graph, key: ShapeKey, stream: Stream, fence: Fence) -> None:
        """Called when a variant is submitted; it has not finished."""

    def retired(self, fence: Fence, seconds: float) -> None:
        """Called when a replay has finished successfully. `seconds`: from submission until the host detected the
        end, an upper bound."""

    def fault(self, report: BaseException) -> None:
        """Called when a replay failed or missed its deadline, with the error that its waiter receives."""


class MissingVariant(ZincError):
    """Raised if a replay was requested for a shape key without a variant."""


class InFlight(ZincError):
    """Raised if the host requested bytes, or a variant's memory, that a replay still uses."""


@dataclass(eq=False, slots=True)
class _Entry:
    variant: Any
    last: Fence | None = None  # the end of its last replay

    def is_in_flight(self) -> bool:
        return self.last is not None and not self.last.done()


class Graph:
    """A table of variants, which are built elsewhere; `replay` selects one by its exact key."""

    def __init__(
        self,
        name: str,
        launcher: Launcher,
        *,
        max_variants: int = 64,
        ir: Any = None,
        observers: Sequence[Observer] = (),
        evicted: Callable[[ShapeKey, Any], None] | None = None,
    ) -> None:
        if max_variants < 1:
            raise ValueError(f"graph {name}: max_variants must be at least 1, not {max_variants}")
        self.name = name
        self.max_variants = max_variants
        self._launcher = launcher
        self._observers: tuple[Observer, ...] = ()
        self._evicted = evicted
        self._variants: OrderedDict[ShapeKey, _Entry] = OrderedDict()  # least recently used first
        self._ports: dict[str, Buffer] = {}
        self._usages: tuple[Usage, ...] | None = ()  # of the ports, each once; None: to be gathered
        self._replays: deque[tuple[Fence, float]] = deque()  # with time.monotonic() at submission
        self._ir = ir
        self.observe(observers)

    def observe(self, observers: Sequence[Observer]) -> None:
        """Set the observers, which are called in this order. New ones first receive the events of the current
        state."""
        new = [observer for observer in observers if observer not in self._observers]
        self._observers = tuple(observers)
        for observer in new:
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
        """Return the keys that have a variant, least recently used first."""
        return tuple(self._variants)

    def has(self, key: ShapeKey) -> bool:
        return key in self._variants

    def add(self, key: ShapeKey, variant: Any) -> None:
        """Add a built variant. Raise ValueError for a malformed or existing key, InFlight if there is no room."""
        if not isinstance(key, tuple) or not all(type(part) is int for part in key):
            raise ValueError(f"graph {self.name}: a shape key must be a tuple of int, not {key!r}")
        if key in self._variants:
            raise ValueError(f"graph {self.name}: already has a variant for {key}")
        if len(self._variants) >= self.max_variants:
            self._evict_one()
        self._variants[key] = _Entry(variant)
        for observer in self._observers:
            observer.added(self, key)

    def remove(self, key: ShapeKey) -> Any:
        """Return the variant to the caller, who frees it: `evicted` is not called.

        Raise MissingVariant, or InFlight while its last replay runs.
        """
        entry = self._find_entry(key)
        if entry.is_in_flight():
            raise InFlight(
                f"graph {self.name}: cannot remove {key}: its last replay is in flight",
                next="wait for that replay first",
            )
        del self._variants[key]
        return entry.variant

    def _evict_one(self) -> None:
        for key, entry in self._variants.items():
            if not entry.is_in_flight():
                del self._variants[key]
                if self._evicted is not None:
                    self._evicted(key, entry.variant)
                return
        raise InFlight(
            f"graph {self.name}: cannot add a variant: all {self.max_variants} are in flight",
            next="wait for a replay, or raise max_variants",
        )

    def replay(self, key: ShapeKey, stream: Stream) -> Fence:
        """Submit the variant for exactly this key. Raise MissingVariant if there is none; the nearest match is
        never used."""
        entry = self._find_entry(key)
        if self._replays:
            self.retire()
        started = time.monotonic()
        fence = self._launcher.submit(entry.variant, stream)
        stream.record_submission(fence)
        entry.last = fence
        self._variants.move_to_end(key)
        self._replays.append((fence, started))
        usages = self._usages
        if usages is None:
            usages = self._usages = tuple(dict.fromkeys(buffer.usage for buffer in self._ports.values()))
        for usage in usages:
            usage.add_fence(fence)
        for observer in self._observers:
            observer.replayed(self, key, stream, fence)
        return fence

    def _find_entry(self, key: ShapeKey) -> _Entry:
        entry = self._variants.get(key)
        if entry is None:
            raise MissingVariant(
                f"graph {self.name}: no variant for key {key}; it has {', '.join(map(str, self.keys)) or 'none'}",
                next="build the variant and add it under this key",
            )
        return entry

    # Ports

    @property
    def ports(self) -> MappingProxyType[str, Buffer]:
        return MappingProxyType(self._ports)

    def bind(self, port: str, buffer: Buffer) -> None:
        """Bind a port to a buffer that the variants were built over, for the host to write and read. A second call
        replaces the first."""
        self._ports[port] = buffer
        self._usages = None
        for observer in self._observers:
            observer.bound(self, port, buffer)

    def unbind(self, port: str) -> Buffer:
        """Unbind a port and return the buffer, which others may bind too. Replays of this graph still count for
        it."""
        buffer = self._find_buffer(port)
        del self._ports[port]
        self._usages = None
        return buffer

    def write(self, port: str, offset_bytes: int, data: Any) -> None:
        """Copy `data` (bytes-like, C-contiguous) into a bound buffer.

        Raise InFlight while any replay that binds this buffer, of this graph or another, has not retired: a replay
        reads its step block at an unknown moment before its fence. Raise ValueError if it is out of bounds.
        """
        buffer = self._wait_for_buffer(port, "write")
        source = memoryview(data).cast("B").toreadonly()
        if not 0 <= offset_bytes <= buffer.size_bytes - source.nbytes:
            buffer.check_inside(offset_bytes, source.nbytes, f"graph {self.name}, write to {port}")
        self._launcher.write(buffer, offset_bytes, source)
        for observer in self._observers:
            observer.wrote(buffer, offset_bytes, source)

    def fill(self, port: str, offset_bytes: int, size_bytes: int, stream: Stream) -> Fence:
        """Submit a fill with zeros of a part of a bound buffer, in the stream's order. Observers receive a write.
        Raise ValueError if it is out of bounds."""
        buffer = self._find_buffer(port)
        buffer.check_inside(offset_bytes, size_bytes, f"graph {self.name}, fill of {port}")
        fence = self._launcher.fill(buffer, offset_bytes, size_bytes, stream)
        stream.record_submission(fence)
        buffer.usage.add_fence(fence)
        for observer in self._observers:
            observer.wrote(buffer, offset_bytes, memoryview(bytes(size_bytes)))
        return fence

    def view(self, port: str, offset_bytes: int = 0, size_bytes: int | None = None) -> memoryview:
        """Return a read-only view of a bound buffer's bytes from `offset_bytes` on (all, or `size_bytes`), valid
        until the next replay. Raise InFlight and ValueError as `write` does.
        """
        buffer = self._wait_for_buffer(port, "read")
        if size_bytes is None:
            size_bytes = buffer.size_bytes - offset_bytes
        if not (0 <= offset_bytes <= buffer.size_bytes - size_bytes and size_bytes >= 0):
            buffer.check_inside(offset_bytes, size_bytes, f"graph {self.name}, view of {port}")
        return self._launcher.read(buffer, offset_bytes, size_bytes)

    def _wait_for_buffer(self, port: str, verb: str) -> Buffer:
        buffer = self._find_buffer(port)
        if self._replays:
            self.retire()
        if buffer.usage.busy():
            raise InFlight(
                f"graph {self.name}: cannot {verb} {port} ({buffer.name}): a replay that uses it is in flight, "
                f"up to fence {max((fence.value for fence in buffer.usage.in_flight), default=0)}",
                next="wait for that fence first",
            )
        return buffer

    def _find_buffer(self, port: str) -> Buffer:
        buffer = self._ports.get(port)
        if buffer is None:
            raise ValueError(f"graph {self.name}: no port {port}; it has {', '.join(self._ports) or 'none'}")
        return buffer

    # Retirement

    def busy(self) -> bool:
        """Return whether one of its replays has not finished."""
        return any(not fence.done() for fence, _ in self._replays)

    def wait(self, timeout_seconds: float) -> None:
        """Wait for every replay of this graph, oldest first, within one timeout.

        Raise the error of the first failed fence. After a missed deadline the replay still counts as in flight.
        """
        replays = self._replays
        left = timeout_seconds
        deadline = time.monotonic() + timeout_seconds
        while replays:
            fence, started = replays[0]
            try:
                fence.wait(left)
            except Exception as error:
                if fence.done():
                    replays.popleft()
                for observer in self._observers:
                    observer.fault(error)
                raise
            replays.popleft()
            now = time.monotonic()
            for observer in self._observers:
                observer.retired(fence, now - started)
            left = max(0.0, deadline - now)

    def retire(self) -> None:
        """Report finished replays to the observers. It never blocks and never raises a replay's own error, which
        is raised by waiting on its fence."""
        replays = self._replays
        while replays and replays[0][0].done():
            self._retire_one(*replays.popleft())
        if len(replays) > 1:  # another stream may have finished later ones
            for replay in [item for item in replays if item[0].done()]:
                replays.remove(replay)
                self._retire_one(*replay)

    def _retire_one(self, fence: Fence, started: float) -> None:
        try:
            fence.wait(0.0)
        except Exception as error:
            for observer in self._observers:
                observer.fault(error)
        else:
            for observer in self._observers:
                observer.retired(fence, time.monotonic() - started)
