"""Streams over the engine's thread: what LLM.generate gives, in any mix, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from embedded_server import MODEL, make_config

from zinc_rt import LLM, Sampling
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError

PROMPTS = [tuple(range(3, 3 + 7 * n)) for n in (1, 4, 9, 2, 6)]
SAMPLINGS = [Sampling(max_tokens=12 + n, temperature=0.8 * (n % 2), seed=n, n=1 + n % 2) for n in range(5)]


async def read_tokens(server: InferenceServer, ask: EngineRequest) -> list[tuple[int, ...]]:
    result: list[list[int]] = [[] for _ in range(ask.sampling.n)]
    async with await server.submit(ask) as stream:
        async for delivered in stream:
            for item in delivered:
                result[item.index] += item.token_ids
    return [tuple(item) for item in result]


def run_in_server(action: Any) -> Any:
    server = InferenceServer(make_config())
    server.start()

    async def run(main: Coroutine[Any, Any, Any]) -> Any:
        return await main

    try:
        return asyncio.run(run(action(server)))
    finally:
        server.stop()


@pytest.mark.rest
def test_any_mix_of_streams_matches_generate() -> None:
    with LLM(MODEL, tier="t_cpu", slots=4, ctx=256) as llm:
        token_ids = [
            [item.token_ids for item in llm.generate([list(prompt)], sampling)]
            for prompt, sampling in zip(PROMPTS, SAMPLINGS, strict=True)
        ]

    async def main(server: InferenceServer) -> list[list[tuple[int, ...]]]:
        asks = [
            EngineRequest(MODEL, prompt, sampling) for prompt, sampling in zip(PROMPTS, SAMPLINGS, strict=True)
        ]
        return list(await asyncio.gather(*(read_tokens(server, ask) for ask in asks)))

    assert run_in_server(main) == token_ids


def test_disconnected_reader_leaves_nothing_allocated() -> None:
    async def main(server: InferenceServer) -> int:
        async with await server.submit(
            EngineRequest(MODEL, (5, 6, 7), Sampling(max_tokens=200, ignore_eos=True))
        ) as stream:
            await anext(stream)
        core = server.model(MODEL).core
        while server.model(MODEL).streams:
            await asyncio.sleep(0.01)
        assert await server.call(core.scheduler.check) == []
        return core.usage()["tokens_generated"]

    assert 0 < run_in_server(main) < 200


def test_impossible_request_is_rejected() -> None:
    async def main(server: InferenceServer) -> None:
        with pytest.raises(ServeError, match="no model 'x'; resident: qwen3-q"):
            await server.submit(EngineRequest("x", (1,), Sampling()))
        with pytest.raises(ServeError, match="do not fit the context of 256"):
            await server.submit(EngineRequest(MODEL, (1,) * 300, Sampling()))
        server.draining = True
        with pytest.raises(ServeError, match="shutting down"):
            await server.submit(EngineRequest(MODEL, (1,), Sampling()))

    run_in_server(main)


def test_sampled_token_costs_one_submission_and_one_wait() -> None:
    sampling = Sampling(
        max_tokens=12, temperature=0.9, presence_penalty=0.4, frequency_penalty=0.3, logprobs=3, ignore_eos=True
    )

    async def main(server: InferenceServer) -> None:
        core = server.model(MODEL).core
        before = dict(core.engine.runner.submission)
        await asyncio.gather(*(read_tokens(server, EngineRequest(MODEL, prompt, sampling)) for prompt in PROMPTS))
        spent = {name: count - before[name] for name, count in core.engine.runner.submission.items()}
        steps = core.scheduler.counts.steps
        assert spent["steps"] == spent["waits"] == steps >= 12
        assert spent["host_writes"] == steps + len(PROMPTS), "and the token counts of each request"

    run_in_server(main)
