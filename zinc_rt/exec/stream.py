"""Streams and events: the order of submissions."""

from __future__ import annotations

from zinc_rt.exec.fence import Fence


class Stream:
    """An ordered sequence of submissions. Two streams are independent except for events."""

    def __init__(self, name: str, priority: int = 0) -> None:
        self.name = name
        self.priority = priority
        self.last: Fence | None = None
        self.waits: tuple[Fence, ...] = ()

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, priority={self.priority})"

    def wait(self, event: Event) -> None:
        """Make later submissions start after `event`. Never blocks the host.

        Raise ValueError for an event that was never recorded: waiting for it would order nothing.
        """
        if not event.recorded:
            raise ValueError(f"stream {self.name} waits on an event that no stream recorded; record it first")
        fence = event.fence
        if fence is not None and fence is not self.last and fence not in self.waits:
            self.waits = (*self.waits, fence)

    def record_submission(self, fence: Fence) -> None:
        """Record a successful submission that ends at `fence` and has consumed the waits."""
        self.last = fence
        self.waits = ()


class Event:
    """A position on a stream that other streams or the host can wait for. Recording again moves it."""

    def __init__(self) -> None:
        self.recorded = False
        self.fence: Fence | None = None  # None once recorded: nothing was submitted before it

    def record(self, stream: Stream) -> None:
        """Record the end of all earlier submissions to `stream`. Waits for the next submission are not
        included.
        """
        self.recorded = True
        self.fence = stream.last

    def done(self) -> bool:
        return self.recorded and (self.fence is None or self.fence.done())

    def wait(self, timeout_seconds: float) -> None:
        if not self.recorded:
            raise ValueError("waiting on an event that no stream recorded; record it first")
        if self.fence is not None:
            self.fence.wait(timeout_seconds)
