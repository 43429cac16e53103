"""Asking a server's engine without HTTP, and what LLM.generate says to the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from embedded_server import MODEL, make_config

from zinc_rt import LLM, Sampling
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError

T = TypeVar("T")


@dataclass(eq=True)
class ReceivedAnswer:
    """One choice, whole."""

    tokens: list[int] = field(default_factory=list)
    finish_reason: str = ""


async def read_answers(server: InferenceServer, ask: EngineRequest) -> list[ReceivedAnswer]:
    """Read every choice of a request to its end; if it fails, open choices end with the error code as reason.
    Raises ServeError if the server caused the error.
    """
    answers = [ReceivedAnswer() for _ in range(ask.sampling.n)]
    async with await server.submit(ask) as stream:
        try:
            async for delivered in stream:
                for entry in delivered:
                    assert not answers[entry.index].finish_reason, "nothing comes behind the end"
                    answers[entry.index].tokens += entry.token_ids
                    answers[entry.index].finish_reason = entry.finish_reason or ""
        except ServeError as error:
            if error.status == 503:
                raise
            for item in answers:
                item.finish_reason = item.finish_reason or error.code or ""
    return answers


def generate_alone(asks: Sequence[EngineRequest], **opened: object) -> list[list[ReceivedAnswer]]:
    """Return the result of LLM.generate for each prompt separately."""
    with LLM(MODEL, tier="t_cpu", **{"slots": 4, "ctx": 256, **opened}) as llm:  # type: ignore[arg-type]
        return [
            [
                ReceivedAnswer(list(item.token_ids), item.finish_reason)
                for item in llm.generate([list(ask.tokens)], ask.sampling)
            ]
            for ask in asks
        ]


def random_requests(count: int, seed: int, **more: object) -> list[EngineRequest]:
    """Requests of all kinds: short and long prompts, some with a common prefix, greedy and sampled, several
    choices.
    """
    pick = random.Random(seed)
    common = tuple(pick.randrange(3, 300) for _ in range(40))
    asks = []
    for number in range(count):
        own = tuple(pick.randrange(3, 300) for _ in range(pick.choice([1, 2, 15, 16, 17, 33])))
        sampling = Sampling(
            max_tokens=pick.choice([1, 2, 7, 14]),
            temperature=pick.choice([0.0, 0.7, 1.3]),
            top_k=pick.choice([0, 8]),
            seed=seed * 1000 + number,
            n=pick.choice([1, 1, 1, 2]),
            ignore_eos=pick.random() < 0.8,
        )
        asks.append(EngineRequest(MODEL, common * pick.randrange(2) + own, sampling, **more))  # type: ignore[arg-type]
    return asks


def run_in_server(main: Callable[[InferenceServer], Awaitable[T]], **changes: object) -> T:
    """Run `main` with a server of its own."""
    server = InferenceServer(make_config(**changes))
    server.start()

    async def run() -> T:
        return await asyncio.wait_for(main(server), 60)

    try:
        return asyncio.run(run())
    finally:
        server.stop()


async def wait_until_idle(server: InferenceServer) -> None:
    """Wait until no request is left, and check that no resource is."""
    model = server.model(MODEL)
    scheduler = model.core.scheduler

    for _ in range(2000):
        if not model.streams and not await server.call(lambda: bool(scheduler.live)):
            break
        await asyncio.sleep(0.005)
    assert not scheduler.live and not model.streams, (scheduler.live, model.streams)
    broken = await server.call(scheduler.check)
    assert not broken, broken
    assert sorted(scheduler.slots.free) == list(range(scheduler.limits.slots))
    for pool in scheduler.cache.pools:
        assert pool.pool.used == 0, f"{pool.pool.used} pages are in use, by nobody"
    assert scheduler.cache.rows is None or scheduler.cache.rows.used == 0
