"""Streams on host threads, used by tiers that run on the CPU."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.exec.fence import DeadlineMissed, Fence
from zinc_rt.exec.stream import Stream
from zinc_rt.host.errors import ZincError

FOREIGN_POLL_SECONDS = 1e-3  # another executor's fence cannot wake this one


class HostFence:
    """The end of one call on a host thread. Waiting re-raises the call's exception."""

    def __init__(self, value: int, what: str) -> None:
        self.value = value
        self._what = what
        self._finished = threading.Event()
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._finished.is_set()

    @property
    def error(self) -> BaseException | None:
        """Return the exception of the call; None while it runs and after success."""
        return self._error

    def wait(self, timeout_seconds: float) -> None:
        if not self._finished.wait(timeout_seconds):
            raise DeadlineMissed(f"{self._what}: fence {self.value} not reached within {timeout_seconds:g} s")
        if self._error is not None:
            raise self._error

    def finish(self, error: BaseException | None = None) -> None:
        self._error = error
        self._finished.set()


@dataclass(slots=True)
class _Job:
    call: Callable[[], None]
    waits: tuple[Fence, ...]
    fence: HostFence
    number: int  # order of submission over all streams


class HostExecutor:
    """Executor of calls on host threads, in order within a stream. Among ready streams, the highest priority runs
    first.

    A call that raises fails its fence, all calls already queued after it on its stream, and all that wait for it
    through an event, because they would read data that was not written. Later submissions run again.
    """

    def __init__(self, name: str = "host", *, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError(f"executor {name}: expected at least one worker, not {workers}")
        self.name = name
        self._workers = workers
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._queues: dict[Stream, deque[_Job]] = {}  # streams with queued work
        self._running: set[Stream] = set()
        self._values: dict[Stream, itertools.count[int]] = {}
        self._numbers = itertools.count()
        self._own: set[HostFence] = set()  # fences of unfinished jobs
        self._closed = False

    def submit(self, call: Callable[[], None], stream: Stream) -> HostFence:
        """Queue `call` after the stream's earlier calls and `stream.waits`. Raise ValueError after `close`."""
        with self._changed:
            if self._closed:
                raise ValueError(f"executor {self.name} is closed")
            if len(self._threads) < self._workers:
                self._start_worker()
            value = next(self._values.setdefault(stream, itertools.count(1)))
            fence = HostFence(value, f"{self.name}, stream {stream.name}")
            job = _Job(call, stream.waits, fence, next(self._numbers))
            self._queues.setdefault(stream, deque()).append(job)
            self._own.add(fence)
            self._changed.notify()
            return fence

    def close(self) -> None:
        """Let running calls finish, fail queued ones, stop the threads. May be called twice."""
        with self._changed:
            self._closed = True
            closed = ZincError(f"executor {self.name} was closed before this call ran")
            for queue in self._queues.values():
                self._fail(queue, closed)
            self._queues.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> HostExecutor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start_worker(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self.name}-{len(self._threads)}", daemon=True)
        thread.start()  # Ctrl-C may arrive in here: close() joins only what has started, and nothing is queued yet
        self._threads.append(thread)

    def _work(self) -> None:
        while True:
            with self._changed:
                while (taken := self._take()) is None:
                    if self._closed:
                        return
                    self._changed.wait(FOREIGN_POLL_SECONDS if self._has_foreign_wait() else None)
                stream, job = taken
                self._running.add(stream)
            error = _run_job(job)
            with self._changed:
                self._running.discard(stream)
                self._own.discard(job.fence)
                job.fence.finish(error)
                if error is not None and stream in self._queues:
                    self._fail(self._queues.pop(stream), error)
                self._changed.notify_all()

    def _take(self) -> tuple[Stream, _Job] | None:
        ready = [
            (-stream.priority, queue[0].number, stream)
            for stream, queue in self._queues.items()
            if stream not in self._running and all(fence.done() for fence in queue[0].waits)
        ]
        if not ready:
            return None
        stream = min(ready, key=lambda entry: entry[:2])[2]
        queue = self._queues[stream]
        job = queue.popleft()
        if not queue:
            del self._queues[stream]
        return stream, job

    def _has_foreign_wait(self) -> bool:
        return any(
            not fence.done() and fence not in self._own
            for queue in self._queues.values()
            for fence in queue[0].waits
        )

    def _fail(self, jobs: deque[_Job], error: BaseException) -> None:
        for job in jobs:
            self._own.discard(job.fence)
            job.fence.finish(error)


def _run_job(job: _Job) -> BaseException | None:
    """Run a job unless one of its dependencies failed. Every exception is passed to the waiter, including
    KeyboardInterrupt.
    """
    try:
        for fence in job.waits:
            fence.wait(0.0)
        job.call()
    except BaseException as error:
        return error
    return None
