"""A server on its socket until it ends: a device that is lost ends the process, and its clients know why."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from embedded_server import MODEL, make_config
from faulty_runner import plant_runner
from planted_kernel import UNINITIALISED, FakeSanitizer, plant_store_out_of_bounds

from zinc_rt import Sampling
from zinc_rt.serve.app import make_app
from zinc_rt.serve.config.settings import Config, DeviceSettings, ModelSettings
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.http.listening import FAILED, bind, listen


def test_lost_device_notifies_every_client_and_exits_1() -> None:
    server = InferenceServer(make_config())
    output: list[str] = []
    asked: list[asyncio.Future[None]] = []

    async def ask_and_lose_device() -> None:
        faulty = await plant_runner(server, MODEL)
        faulty.fails, faulty.comes_back = lambda step, records: step == 2, False
        with pytest.raises(ServeError, match="did not finish") as caught:
            async with await server.submit(EngineRequest(MODEL, (5, 6), Sampling(max_tokens=9))) as stream:
                async for _ in stream:
                    pass
        assert (caught.value.status, caught.value.code) == (503, "device_lost")

    with bind("127.0.0.1", 0) as bound:
        ready = lambda: asked.append(asyncio.ensure_future(ask_and_lose_device()))  # noqa: E731
        assert listen(server, make_app(server), bound, ready=ready, report=output.append) == FAILED
    assert asked[0].done() and asked[0].exception() is None
    assert any("lost" in line and "did not finish" in line for line in output)


def serve_until_stopped(
    settings: Config, use: Callable[[InferenceServer], Coroutine[Any, Any, None]]
) -> list[str]:
    """Start a server, use it and stop it with SIGTERM; return its output. Its exit code must be 1."""
    server, result = InferenceServer(settings), list[str]()
    used: list[asyncio.Future[None]] = []

    async def use_and_stop() -> None:
        try:
            await use(server)
        finally:
            signal.raise_signal(signal.SIGTERM)

    with bind("127.0.0.1", 0) as bound:
        ready = lambda: used.append(asyncio.ensure_future(use_and_stop()))  # noqa: E731
        assert listen(server, make_app(server), bound, ready=ready, report=result.append) == FAILED
    used[0].result()
    return result


async def send_to(server: InferenceServer, is_marked: bool) -> None:
    async with await server.submit(
        EngineRequest(MODEL, (5, 6), Sampling(max_tokens=2, ignore_eos=True))
    ) as stream:
        assert [token async for step in stream for item in step for token in item.token_ids]
    assert bool(stream.findings) is is_marked


def test_finding_of_the_simulated_device_exits_1() -> None:
    async def plant_finding(server: InferenceServer) -> None:
        backend = server.model(MODEL).core.engine.backend
        backend.instrument = sanitizer = FakeSanitizer()  # type: ignore[misc, assignment]
        await send_to(server, False)
        sanitizer.found.append(UNINITIALISED)
        await send_to(server, True)

    (line,) = serve_until_stopped(make_config(), plant_finding)
    assert line.startswith(
        "FAIL      qwen3-q: the simulated device reported 1 error, the first: uninitialised-memory"
    )
    assert line.endswith("; 1 answer marked")


@pytest.mark.rest
def test_store_out_of_bounds_on_a_simulated_device_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_store_out_of_bounds(monkeypatch)
    settings = make_config(
        models=(ModelSettings(MODEL, MODEL, ctx=64, slots=1),), device=DeviceSettings("t1", device="sim")
    )
    (line,) = serve_until_stopped(settings, lambda server: send_to(server, True))
    assert "out-of-bounds" in line and "argmax.s:" in line and line.endswith("1 answer marked")


def test_stopped_server_rejects_calls() -> None:
    server = InferenceServer(make_config())
    server.start()
    server.stop()

    async def call_server() -> None:
        with pytest.raises(ServeError, match="shutting down"):
            await server.call(list)

    asyncio.run(call_server())
