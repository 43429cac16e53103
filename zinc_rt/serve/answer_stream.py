"""An answer on its way from the engine's thread to one client of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from zinc_rt.sched.request import Request
from zinc_rt.serve.requests import Ask, Delivered

HELD_TOKENS = 256  # so many that nobody took: the request makes no more until somebody does


class AnswerStream:
    """What a request makes, step by step: iterate it, inside `async with`, which cancels what is left.

    Lives in the event loop; the engine's thread only ever reaches it through call_soon_threadsafe. `hold` is
    called when its reader falls behind (True) and has caught up (False).
    """

    def __init__(
        self,
        number: int,
        ask: Ask,
        tenant: int,
        *,
        cancel: Callable[[int, str, int | None], None],
        hold: Callable[[int, bool], None],
    ) -> None:
        self.number, self.ask, self.tenant = number, ask, tenant
        self.prompt_tokens = len(ask.tokens)
        self.request: Request | None = None  # the scheduler's, of its first choice
        assert ask.sampling.seed is not None
        self.seed = ask.sampling.seed
        self._cancel, self._hold = cancel, hold
        self._open = set(range(ask.sampling.n))
        self._waiting: list[Delivered] = []
        self._waiting_tokens = 0
        self._held = False
        self._failure: BaseException | None = None
        self._news = asyncio.Event()

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that the prefix cache had."""
        return 0 if self.request is None else self.request.cached

    @property
    def computed_tokens(self) -> int:
        """Tokens of the prompt that are computed, cached ones included."""
        return 0 if self.request is None else min(self.request.computed, self.prompt_tokens)

    @property
    def done(self) -> bool:
        """Whether every choice has ended, taken or not."""
        return not self._open

    def put(self, delivered: Delivered) -> None:
        """In the event loop: what a step made."""
        if delivered.index not in self._open:
            return
        if delivered.finish_reason is not None:
            self._open.discard(delivered.index)
        self._waiting.append(delivered)
        self._waiting_tokens += len(delivered.token_ids)
        if self._waiting_tokens > HELD_TOKENS and not self._held and self._open:
            self._held = True
            self._hold(self.number, True)
        self._news.set()

    def fail(self, error: BaseException) -> None:
        """In the event loop: nothing more comes, and this is why."""
        self._failure = error
        self._open.clear()
        self._news.set()

    def cancel(self, reason: str = "cancelled", *, index: int | None = None) -> None:
        """Make no more of it, or of one choice."""
        self._cancel(self.number, reason, index)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Delivered]:
        """Everything that came since the last time; raises what the request failed with."""
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            if not self._open:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        taken, self._waiting = self._waiting, []
        self._waiting_tokens = 0
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
