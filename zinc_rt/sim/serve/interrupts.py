"""Deferral of Ctrl-C during an exchange of messages, until the answer has arrived.

An interrupt between a request and its answer would lose the result (the id of a queue, a mapping), and the
cleanup would then fail. The resulting exit code and message would mask the interrupt.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class DeferredInterrupts:
    """Delivers an interrupt received during an exchange when the next one begins, so that the caller receives the
    result.

    A second interrupt is delivered immediately. Only the main thread receives interrupts.
    """

    def __init__(self) -> None:
        self._held: Handler | None = None

    @contextmanager
    def defer(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._deliver()
        before = signal.getsignal(signal.SIGINT)
        if not callable(before):  # ignored, or it ends the process: nothing is raised
            yield
            return
        handler: Handler = before

        def hold(number: int, frame: FrameType | None) -> None:
            if self._held is None:
                self._held = handler
                return
            self._held = None
            handler(number, frame)

        signal.signal(signal.SIGINT, hold)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)

    def _deliver(self) -> None:
        handler, self._held = self._held, None
        if handler is not None:
            handler(signal.SIGINT, None)
