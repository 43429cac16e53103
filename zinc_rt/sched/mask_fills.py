"""Fill token masks in helper threads, between the token that determines a mask and the step that needs it.

A step waits at most WAIT_SECONDS for its masks. A row whose mask is not filled by then is late: its logits are
kept, and it is drawn when the mask is there (sched/late.py). A fill that takes longer than SLOW_NS fails only the
request that it is for. Time in which the machine gave its thread, or the scheduler's, no CPU does not count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from concurrent import futures
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from zinc_rt.sched.token_mask import TokenMask

WAIT_SECONDS = 0.002
SLOW_NS = 50_000_000
TOO_SLOW, FAILED = "grammar_too_slow", "grammar_failed"  # reasons for which a request ends

Wait = Callable[[Collection["futures.Future[None]"], float], object]


@dataclass(slots=True, eq=False)
class _Fill:
    """The fill of one mask in one state. `words`: i32 [ceil(V / 32)], valid once `ended_ns` is set."""

    mask: TokenMask
    words: np.ndarray
    clock_ns: Callable[[], int]
    starved_ns: Callable[[int], int]
    threads: tuple[int, ...] = field(default_factory=lambda: (threading.get_native_id(),))  # the scheduler's first
    starved_before_ns: int = 0
    began_ns: int | None = None
    ended_ns: int | None = None
    error: Exception | None = None
    slow: bool = False
    done: futures.Future[None] = field(init=False)

    def run(self) -> None:
        self.threads += (threading.get_native_id(),)
        self.starved_before_ns = self._sum_starved()
        self.began_ns = self.clock_ns()
        try:
            self.mask.fill(self.words)
        except Exception as error:
            self.error = error
        self.slow = self._is_slow()
        self.ended_ns = self.clock_ns()

    def failure(self) -> str:
        if self.error is not None:
            return FAILED
        if self.began_ns is None:
            return ""
        return TOO_SLOW if self.slow or (self.ended_ns is None and self._is_slow()) else ""

    def _is_slow(self) -> bool:
        assert self.began_ns is not None
        took_ns = self.clock_ns() - self.began_ns
        return took_ns > SLOW_NS and took_ns - (self._sum_starved() - self.starved_before_ns) > SLOW_NS

    def _sum_starved(self) -> int:
        return sum(self.starved_ns(thread) for thread in self.threads)


class MaskFills:
    """The masks being filled, at most one fill per mask. `wait` waits for futures for a number of seconds; `pool`
    creates the threads; `starved_ns` returns how long a thread had no CPU, by the clock. All may be replaced.
    """

    def __init__(self, vocab: int, threads: int, clock_ns: Callable[[], int]) -> None:
        self.wait: Wait = lambda pending, seconds: futures.wait(pending, seconds)
        self.pool: Callable[[int], futures.Executor] = partial(
            futures.ThreadPoolExecutor, thread_name_prefix="masks"
        )
        self.starved_ns: Callable[[int], int] = lambda thread: 0
        self._words = -(-vocab // 32)
        self._threads = threads
        self.clock_ns = clock_ns
        self._fills: dict[int, _Fill] = {}  # by the mask's id; a fill keeps its mask alive
        self._pool: futures.Executor | None = None

    def begin(self, mask: TokenMask) -> None:
        """Fill the mask in its current state, unless that has already begun."""
        if id(mask) not in self._fills:
            self._begin(mask, np.zeros(self._words, np.int32))

    def refill(self, mask: TokenMask) -> None:
        """Fill the mask again after it accepted a token."""
        self._begin(mask, self._fills.pop(id(mask)).words)

    def drop(self, mask: TokenMask) -> None:
        """Forget a mask whose request ended. A fill that hangs keeps its thread; later fills use other threads."""
        fill = self._fills.pop(id(mask), None)
        if fill is not None and fill.ended_ns is None and self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    def words(self, mask: TokenMask) -> np.ndarray | None:
        """Return the permitted tokens as bits, i32 [ceil(V / 32)], valid until `refill`; None during the fill,
        and for a fill that failed."""
        fill = self._fills[id(mask)]
        return fill.words if fill.ended_ns is not None and not fill.failure() else None

    def take(self, mask: TokenMask) -> np.ndarray | None:
        """Return the words of a mask and forget it; None if it is not filled."""
        words = self.words(mask)
        self.drop(mask)
        return words

    def failure(self, mask: TokenMask) -> str:
        """Return the reason for which the mask's request has to fail, or ""."""
        return self._fills[id(mask)].failure()

    def settle(self, masks: Iterable[TokenMask]) -> None:
        """Wait for masks being filled, at most WAIT_SECONDS."""
        pending = [fill.done for mask in masks if not (fill := self._fills[id(mask)]).done.done()]
        if pending:
            self.wait(pending, WAIT_SECONDS)

    def _begin(self, mask: TokenMask, words: np.ndarray) -> None:
        if self._pool is None:
            self._pool = self.pool(self._threads)
        fill = self._fills[id(mask)] = _Fill(mask, words, self.clock_ns, self.starved_ns)
        fill.done = self._pool.submit(fill.run)
