"""A server on its socket until it ends: a device that is lost ends the process, and its clients know why."""

from __future__ import annotations

import asyncio

import pytest
from embedded_server import MODEL, config
from faulty_runner import plant

from zinc_rt import Sampling
from zinc_rt.serve.app import app
from zinc_rt.serve.engine.requests import Ask
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.http.listening import LOST, bind, listen


def test_lost_device_notifies_every_client_and_exits_1() -> None:
    server = InferenceServer(config())
    said: list[str] = []
    asked: list[asyncio.Future[None]] = []

    async def ask_and_lose() -> None:
        faulty = await plant(server, MODEL)
        faulty.fails, faulty.comes_back = lambda step, records: step == 2, False
        with pytest.raises(ServeError, match="did not come back") as caught:
            async with await server.submit(Ask(MODEL, (5, 6), Sampling(max_tokens=9))) as stream:
                async for _ in stream:
                    pass
        assert (caught.value.status, caught.value.code) == (503, "device_lost")

    with bind("127.0.0.1", 0) as bound:
        ready = lambda: asked.append(asyncio.ensure_future(ask_and_lose()))  # noqa: E731
        assert listen(server, app(server), bound, ready=ready, say=said.append) == LOST
    assert asked[0].done() and asked[0].exception() is None
    assert any("lost" in line and "did not come back" in line for line in said)


def test_stopped_server_rejects_calls() -> None:
    server = InferenceServer(config())
    server.start()
    server.stop()

    async def call() -> None:
        with pytest.raises(ServeError, match="shutting down"):
            await server.call(list)

    asyncio.run(call())
