"""What happened, told in the order it happened: the seam that tracing and statistics attach to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zinc_rt.exec.buffer import Buffer
from zinc_rt.exec.fence import Fence

if TYPE_CHECKING:
    from zinc_rt.exec.graph import Graph, ShapeKey
    from zinc_rt.exec.stream import Stream


class Observer:
    """Ignores everything: override what you need. Called on the host thread that drives the graph.

    An observer that raises stops the run: a log that lost a record must not look whole.
    """

    def created(self, graph: Graph, ir: Any) -> None:
        """`ir` is whatever the graph was lowered from, opaque here; None where it was not given."""

    def added(self, graph: Graph, key: ShapeKey) -> None:
        """A variant was adopted under this key."""

    def bound(self, graph: Graph, port: str, buffer: Buffer) -> None:
        """The port names this buffer from here on."""

    def wrote(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        """The host wrote `data` (read-only view, valid during the call)."""

    def replayed(self, graph: Graph, key: ShapeKey, stream: Stream, fence: Fence) -> None:
        """Submitted, not finished."""

    def retired(self, fence: Fence, seconds: float) -> None:
        """Finished well. `seconds`: from submission until the host saw the end, an upper bound."""

    def fault(self, report: BaseException) -> None:
        """A replay failed or missed its deadline: the very error its waiter gets."""


class Observers(Observer):
    """Tells several observers, in the given order."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.observers = tuple(observers)

    def created(self, graph: Graph, ir: Any) -> None:
        for observer in self.observers:
            observer.created(graph, ir)

    def added(self, graph: Graph, key: ShapeKey) -> None:
        for observer in self.observers:
            observer.added(graph, key)

    def bound(self, graph: Graph, port: str, buffer: Buffer) -> None:
        for observer in self.observers:
            observer.bound(graph, port, buffer)

    def wrote(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        for observer in self.observers:
            observer.wrote(buffer, offset_bytes, data)

    def replayed(self, graph: Graph, key: ShapeKey, stream: Stream, fence: Fence) -> None:
        for observer in self.observers:
            observer.replayed(graph, key, stream, fence)

    def retired(self, fence: Fence, seconds: float) -> None:
        for observer in self.observers:
            observer.retired(fence, seconds)

    def fault(self, report: BaseException) -> None:
        for observer in self.observers:
            observer.fault(report)


def observers_in(observer: Observer | None) -> tuple[Observer, ...]:
    """All that learn of what `observer` is told."""
    if isinstance(observer, Observers):
        return tuple(each for one in observer.observers for each in observers_in(one))
    return () if observer is None else (observer,)
