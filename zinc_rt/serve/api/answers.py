"""The answer streams of one HTTP request: n choices for each of its prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from zinc_rt.backends.base import Finding
from zinc_rt.serve.api.replies import UsageReply
from zinc_rt.serve.api.text import ChoicePiece, ChoiceText, TokenReader
from zinc_rt.serve.engine.answer_stream import AnswerStream
from zinc_rt.serve.engine.endings import DEADLINE, make_failure
from zinc_rt.serve.engine.requests import Delivered, EngineRequest
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.engine.server import InferenceServer


class Answers:
    """An async iterator over lists of pieces. Use it inside `async with`.

    It yields an empty list when nothing arrived for `quiet_seconds`. Choices are numbered consecutively:
    choice c of prompt p has index p * n + c. Leaving the block cancels unfinished choices.
    """

    def __init__(
        self,
        model: ServedModel,
        asks: Sequence[EngineRequest],
        reader: Callable[[], TokenReader],
        *,
        shown: bool = True,
    ) -> None:
        """Create the streams of `asks`. `reader` creates the reader of a choice. If `shown` is false, generated
        text is omitted and only the prompts are counted.
        """
        self.model, self.asks = model, asks
        self.quiet_seconds: float | None = None
        self.choices = [ChoiceText(index, reader(), shown) for index in range(sum(ask.sampling.n for ask in asks))]
        self.streams: list[AnswerStream] = []
        self._begun = AsyncExitStack()
        self._pumps: list[asyncio.Task[None]] = []
        self._queue: asyncio.Queue[tuple[int, list[Delivered] | BaseException | None]] = asyncio.Queue(1)
        self._open = len(asks)

    async def begin(self, server: InferenceServer) -> Self:
        """Submit all requests. Raises ServeError and submits none if one is rejected."""
        async with AsyncExitStack() as stack:
            for ask in self.asks:
                self.streams.append(await stack.enter_async_context(await server.submit(ask)))
            self._begun = stack.pop_all()
        return self

    async def __aenter__(self) -> Self:
        if len(self.streams) > 1:
            self._pumps = [
                asyncio.create_task(self._forward_deliveries(index)) for index in range(len(self.streams))
            ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pump in self._pumps:
            pump.cancel()
        await self._begun.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[ChoicePiece]:
        try:
            async with asyncio.timeout(self.quiet_seconds):
                index, deliveries = await self._take_next()
        except TimeoutError:
            return []
        return self._collect_pieces(index, deliveries)

    async def _take_next(self) -> tuple[int, list[Delivered]]:
        if not self._pumps:
            return 0, await anext(self.streams[0])
        while self._open:
            index, came = await self._queue.get()
            if isinstance(came, BaseException):
                raise came
            if came is not None:
                return index, came
            self._open -= 1
        raise StopAsyncIteration

    async def _forward_deliveries(self, index: int) -> None:
        """Forward the deliveries of one prompt into the shared queue, at the pace of the consumer."""
        try:
            async for deliveries in self.streams[index]:
                await self._queue.put((index, deliveries))
            await self._queue.put((index, None))
        except Exception as error:
            await self._queue.put((index, error))

    def _collect_pieces(self, index: int, deliveries: Sequence[Delivered]) -> list[ChoicePiece]:
        pieces, stream = [], self.streams[index]
        if stream.expired and self.quiet_seconds is None:  # nobody has seen anything of it
            raise make_failure(DEADLINE)
        for delivered in deliveries:
            choice = self.choices[index * stream.ask.sampling.n + delivered.index]
            piece = choice.feed(delivered)
            if piece is not None:
                pieces.append(piece)
                if choice.ended and delivered.finish_reason is None:
                    stream.cancel("stop", index=delivered.index)
        return pieces

    async def finish(self) -> Self:
        """Wait until every choice has finished."""
        async with self:
            async for _ in self:
                pass
        return self

    @property
    def computed_tokens(self) -> int:
        """Return the number of computed prompt tokens, including cached tokens."""
        return sum(stream.computed_tokens for stream in self.streams)

    @property
    def preempted(self) -> bool:
        """Return whether a request was preempted and is waiting to resume."""
        return any(stream.preempted for stream in self.streams)

    @property
    def seed(self) -> int:
        return self.streams[0].seed

    @property
    def expired(self) -> bool:
        return any(stream.expired for stream in self.streams)

    @property
    def findings(self) -> Sequence[Finding]:
        """Return the findings of the simulated device at the time when the answers were complete."""
        return max((stream.findings for stream in self.streams), key=len)

    def usage(self) -> UsageReply:
        """Return the token usage so far."""
        prompt = sum(stream.prompt_tokens for stream in self.streams)
        completion_tokens = sum(len(choice.token_ids) for choice in self.choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": sum(stream.cached_tokens for stream in self.streams)},
        }
