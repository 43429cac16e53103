"""An answer's stream from the engine thread to a client in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from zinc_rt.backends.base import Finding
from zinc_rt.sched.request import Request, State
from zinc_rt.serve.engine.endings import DEADLINE, find_finish_reason, make_failure
from zinc_rt.serve.engine.requests import Delivered, EngineRequest

HELD_TOKENS = 256  # so many that nobody took: the request makes no more until somebody does
PREEMPTED = frozenset({State.PARKED, State.EVICTED})


class AnswerStream:
    """An async iterator over the output of a request. Use it inside `async with`, which cancels unfinished
    choices.

    It belongs to the event loop that created it; the engine thread calls it through call_soon_threadsafe
    only. `cancel(number, reason, index)` and `hold(number, held)` are callbacks to the engine: hold pauses a
    request whose reader is too slow. `expired`: the deadline passed, and the partial answer has the finish
    reason "length". `findings`: what the simulated device had reported when the last of its steps ended; not
    empty: the answer may be wrong.
    """

    def __init__(
        self,
        number: int,
        ask: EngineRequest,
        tenant: int,
        *,
        cancel: Callable[[int, str, int | None], None],
        hold: Callable[[int, bool], None],
    ) -> None:
        self.number, self.ask, self.tenant = number, ask, tenant
        self.loop = asyncio.get_running_loop()
        self.prompt_tokens = len(ask.tokens)
        self.request: Request | None = None  # the scheduler's, of its first choice
        assert ask.sampling.seed is not None
        self.seed = ask.sampling.seed
        self.expired = False
        self.findings: Sequence[Finding] = ()  # set by the engine's thread, before it delivers the step
        self.detail = ""  # behind what its client is told of a failure
        self._cancel, self._hold = cancel, hold
        self._open = set(range(ask.sampling.n))
        self._waiting: list[Delivered] = []
        self._waiting_tokens = 0
        self._held = self._told = False  # whether it is held; whether anything of it was taken
        self._failure: BaseException | None = None
        self._news = asyncio.Event()

    @property
    def cached_tokens(self) -> int:
        """Return how many prompt tokens came from the prefix cache."""
        return 0 if self.request is None else self.request.cached

    @property
    def computed_tokens(self) -> int:
        """Return how many prompt tokens are computed, including cached tokens."""
        return 0 if self.request is None else min(self.request.computed, self.prompt_tokens)

    @property
    def preempted(self) -> bool:
        """Return whether the request was preempted and waits. The state of its first choice decides."""
        return self.request is not None and self.request.state in PREEMPTED

    @property
    def done(self) -> bool:
        """Return whether every choice has ended, even if its output has not been read."""
        return not self._open

    def put(self, delivered: Delivered) -> None:
        """Add a step's output and the scheduler's finish reason. Runs in the event loop."""
        if delivered.index not in self._open:
            return
        reason = delivered.finish_reason
        if reason is not None and find_finish_reason(reason) is None:
            if reason != DEADLINE or not (self._told or self._waiting):
                self._refuse(reason)
                return
            self.expired = True
            delivered = replace(delivered, finish_reason="length")
        if reason is not None:
            self._open.discard(delivered.index)
        self._waiting.append(delivered)
        self._waiting_tokens += len(delivered.token_ids)
        if self._waiting_tokens > HELD_TOKENS and not self._held and self._open:
            self._held = True
            self._hold(self.number, True)
        self._news.set()

    def _refuse(self, reason: str) -> None:
        """Fail the request because one of its choices failed."""
        if len(self._open) > 1:
            self.cancel(reason)
        self.fail(make_failure(reason, self.detail))

    def fail(self, error: BaseException) -> None:
        """End the stream with an error. Runs in the event loop."""
        self._failure = error
        self._open.clear()
        self._news.set()

    def cancel(self, reason: str = "cancelled", *, index: int | None = None) -> None:
        """Cancel the request, or one choice."""
        self._cancel(self.number, reason, index)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Delivered]:
        """Return all output since the last call, or raise the request's error."""
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            if not self._open:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        taken, self._waiting = self._waiting, []
        self._waiting_tokens, self._told = 0, True
        if self._held:
            self._held = False
            self._hold(self.number, False)
        return taken

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.cancel("client_gone" if error is not None else "cancelled")
            self._open.clear()
