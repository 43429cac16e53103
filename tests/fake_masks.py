"""Token masks that are filled when a test says so, by a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Self

import numpy as np

from zinc_rt.sched.mask_fills import MaskFills

MS = 1_000_000


class FakeMask:
    """A mask that permits every token. `spend`: called by each fill. It checks that nothing overlaps a fill, and
    that a token is sampled only in a state that was filled for it or, along a draft, for one of its forks."""

    def __init__(self, spend: Callable[[], object] = lambda: None) -> None:
        self.complete, self.failure = False, ""
        self.tokens: list[int] = []
        self.spend = spend
        self.filled: set[tuple[int, ...]] = set()  # the states, as accepted tokens
        self.fills = 0

    def fill(self, words: np.ndarray) -> None:
        self.spend()
        words[:] = -1
        self.filled.add(tuple(self.tokens))
        self.fills += 1

    def accept(self, token: int) -> None:
        assert not self.fills or tuple(self.tokens) in self.filled, "drawn with a mask of another state"
        self.tokens.append(token)

    def fork(self) -> Self:
        forked = type(self)(self.spend)
        forked.tokens, forked.filled = list(self.tokens), self.filled
        return forked


class ManualPool(Executor):
    """Runs submitted work immediately or, while `held`, when it is released. `clock_ns`: clock that measures
    fills;
    None: the scheduler's clock.
    """

    def __init__(self, fills: MaskFills, clock_ns: Callable[[], int] | None = None) -> None:
        fills.clock_ns = clock_ns or fills.clock_ns
        self.held = False
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.waits: list[float] = []  # seconds that the scheduler was ready to wait
        fills.pool = lambda threads: self
        fills.wait = lambda pending, seconds: self.waits.append(seconds)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, fn))
        if not self.held:
            self.release()
        return future

    def release(self, count: int = 1 << 30) -> None:
        """Run the first `count` of what waits."""
        for _ in range(min(count, len(self.waiting))):
            future, fill = self.waiting.pop(0)
            future.set_result(fill())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass
