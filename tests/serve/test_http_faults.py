"""Faults under a server, and clients that leave or stall, over HTTP: who is told what, and what is left."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from asking import ReceivedAnswer, generate_alone, random_requests, wait_until_idle
from embedded_server import MODEL, RunningServer, make_config, run_server
from faulty_runner import plant_runner
from over_http import RequestFailed, make_client, post_bytes, request_body, send_and_drop, send_request
from planted_kernel import UNINITIALISED, FakeSanitizer
from support import Counts

from zinc_rt import Sampling
from zinc_rt.sched.request import Request
from zinc_rt.serve.config.settings import ServerSettings
from zinc_rt.serve.engine import answer_stream
from zinc_rt.serve.engine.answer_stream import AnswerStream
from zinc_rt.serve.engine.requests import EngineRequest

ASKS = random_requests(5, 9)
LONG = EngineRequest(MODEL, (5, 6, 7), Sampling(max_tokens=150, seed=1, ignore_eos=True))


@pytest.fixture(scope="module")
def expected_answers() -> list[list[ReceivedAnswer]]:
    return generate_alone(ASKS)


@pytest.fixture
def own_server() -> Iterator[RunningServer]:
    """A separate server for the test, in which something fails."""
    yield from run_server(make_config())


async def send_mix(url: str, asks: list[EngineRequest]) -> list[list[ReceivedAnswer] | BaseException]:
    """All at once, every other one streamed."""
    async with make_client(url) as client:
        tasks = [send_request(client, ask, stream=bool(index % 2)) for index, ask in enumerate(asks)]
        return list(await asyncio.gather(*tasks, return_exceptions=True))


def test_any_mix_of_answers_matches_generate(
    serving: RunningServer, slow_counts: Counts, expected_answers: list[list[ReceivedAnswer]]
) -> None:
    """Streamed or whole, beside others that come, go and are cancelled at any point."""
    pick = random.Random(3)

    async def leave_early(client: httpx.AsyncClient) -> None:
        for _ in range(slow_counts(2, 40)):
            await asyncio.sleep(pick.random() * 0.1)
            await send_request(client, LONG, stream=True, leave_after=pick.randrange(1, 12))

    async def main(asks: list[EngineRequest]) -> list[list[ReceivedAnswer]]:
        async with make_client(serving.url) as client:
            leaving = [asyncio.create_task(leave_early(client)) for _ in range(3)]
            tasks = []
            for ask in asks:
                tasks.append(asyncio.create_task(send_request(client, ask, stream=pick.random() < 0.5)))
                await asyncio.sleep(pick.random() * 0.05)
            got = await asyncio.gather(*tasks)
            await asyncio.gather(*leaving)
        await wait_until_idle(serving.server)
        return list(got)

    for _ in range(slow_counts(1, 10)):
        order = pick.sample(range(len(ASKS)), len(ASKS))
        got = asyncio.run(main([ASKS[at] for at in order]))
        assert got == [expected_answers[at] for at in order]


@pytest.mark.rest
def test_late_step_delays_but_keeps_the_answers(
    own_server: RunningServer, expected_answers: list[list[ReceivedAnswer]]
) -> None:
    async def main() -> None:
        faulty = await plant_runner(own_server.server, MODEL)
        faulty.fails = lambda step, records: step in (3, 9)
        assert await send_mix(own_server.url, ASKS) == expected_answers
        assert faulty.reopened == 2
        await wait_until_idle(own_server.server)

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["device_hang", "logits_not_finite"])
@pytest.mark.rest
def test_failed_request_gets_an_error_and_others_continue(
    own_server: RunningServer, expected_answers: list[list[ReceivedAnswer]], fault: str
) -> None:
    """As an error's status where nothing was sent, else as the stream's last event."""

    async def main() -> None:
        faulty = await plant_runner(own_server.server, MODEL)
        if fault == "device_hang":
            faulty.fails = lambda step, records: 150 in records["limit"]
        else:
            faulty.nan = lambda record: record["limit"] == 150 and record["generated"] == 2
        async with make_client(own_server.url) as client:
            for stream in (False, True):
                with pytest.raises(RequestFailed) as message:
                    await send_request(client, LONG, stream=stream)
                sent = stream and fault != "device_hang"
                assert (message.value.status, message.value.error["code"]) == (200 if sent else 500, fault)
                assert message.value.error["type"] == "server_error" and "Traceback" not in str(
                    message.value.error
                )
        bad, *got = await send_mix(own_server.url, [LONG, *ASKS])
        assert isinstance(bad, RequestFailed) and bad.error["code"] == fault
        assert got == expected_answers
        await wait_until_idle(own_server.server)

    asyncio.run(main())


def test_lost_device_returns_503_and_is_shown_in_health(own_server: RunningServer) -> None:
    async def main() -> None:
        faulty = await plant_runner(own_server.server, MODEL)
        faulty.fails, faulty.comes_back = lambda step, records: step == 4, False
        for _ in range(2):  # those who are there, and those who come
            for end in await send_mix(own_server.url, [LONG] * 6):
                assert isinstance(end, RequestFailed) and end.error["code"] == "device_lost"
                assert end.status in (200, 503)
        async with make_client(own_server.url) as client:
            refused = await client.post("/v1/completions", json=request_body(LONG, stream=False))
            assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1

    asyncio.run(main())


def test_simulator_findings_mark_answers_and_appear_in_health_and_metrics(own_server: RunningServer) -> None:
    body = request_body(LONG, stream=False) | {"max_tokens": 2}
    counted = 'zinc_rt_device_findings_total{model_name="qwen3-q"} 1.0'

    def stream_completion() -> list[dict[str, Any]]:
        text = httpx.post(f"{own_server.url}/v1/completions", json={**body, "stream": True}).text
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]

    assert httpx.get(f"{own_server.url}/health").json() == {"status": "ok"}
    own_server.server.model(MODEL).core.engine.backend.instrument = sanitizer = FakeSanitizer()  # type: ignore[misc, assignment]
    before = httpx.post(f"{own_server.url}/v1/completions", json=body)
    assert "x-zinc-rt-findings" not in before.headers and "findings" not in before.json()["zinc_rt"]
    assert not any("findings" in chunk.get("zinc_rt", {}) for chunk in stream_completion())
    sanitizer.found.append(UNINITIALISED)
    after = httpx.post(f"{own_server.url}/v1/completions", json=body)
    assert after.status_code == 200 and after.json()["choices"] == before.json()["choices"]
    assert after.headers["x-zinc-rt-findings"] == "1"
    message = {"count": 1, "first": UNINITIALISED.text}
    assert after.json()["zinc_rt"]["findings"] == message
    *_, last = stream_completion()
    assert last["zinc_rt"]["findings"] == message
    health = httpx.get(f"{own_server.url}/health")
    assert health.status_code == 200 and health.json()["status"] == "degraded"
    assert "reported 1 error, the first: uninitialised-memory: swiglu" in health.json()["reasons"][0]
    metrics = httpx.get(f"{own_server.url}/metrics").text
    assert counted in metrics and 'zinc_rt_answers_with_findings_total{model_name="qwen3-q"} 2.0' in metrics


# --- clients that go


@pytest.mark.rest
def test_dropped_connections_leave_nothing_allocated(
    serving: RunningServer, slow_counts: Counts, expected_answers: list[list[ReceivedAnswer]]
) -> None:
    """At every point of a request: silent, in its head, in its body, as it waits, in its stream, at its end."""
    pick = random.Random(1)
    short = EngineRequest(MODEL, (9, 8, 7), Sampling(max_tokens=3, seed=4, ignore_eos=True))
    whole, streamed = (post_bytes(request_body(LONG, stream=stream)) for stream in (False, True))
    ends = post_bytes(request_body(short, stream=True))

    async def send_broken_request() -> None:
        await pick.choice(
            [
                lambda: send_and_drop(serving.url, b""),
                lambda: send_and_drop(serving.url, whole[: pick.randrange(1, len(whole))]),
                lambda: send_and_drop(serving.url, whole),
                lambda: send_and_drop(serving.url, whole, wait_seconds=0.01 * pick.random()),
                lambda: send_and_drop(serving.url, streamed, read=1),
                lambda: send_and_drop(serving.url, ends, read=600),
                lambda: send_and_drop(serving.url, b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", read=10),
                lambda: send_and_drop(serving.url, b"\x16\x03\x01\x02\x00 no HTTP at all \r\n\r\n", read=10),
            ]
        )()

    async def send_broken_requests(count: int) -> None:
        for _ in range(0, count, 25):
            await asyncio.gather(*(send_broken_request() for _ in range(25)))
            while serving.handled:
                await asyncio.sleep(0.005)
        await wait_until_idle(serving.server)

    def open_handles() -> tuple[int, int]:
        """Handles and streams. The engine thread owns requests of the last step until its next step."""
        gc.collect()
        # by its type: isinstance would have lazy modules of others load themselves
        counts = Counter(type(item) for item in gc.get_objects())
        assert counts[Request] <= 2 * 25  # of one round of `some`, and the one before
        return len([*Path("/proc/self/fd").iterdir()]), counts[AnswerStream]

    async def main() -> None:
        await send_broken_requests(slow_counts(25, 1000))
        before, memory = open_handles(), psutil.Process().memory_info().rss
        await send_broken_requests(slow_counts(100, 10_000))
        assert open_handles() <= before
        assert psutil.Process().memory_info().rss < 1.05 * memory
        assert await send_mix(serving.url, ASKS) == expected_answers

    asyncio.run(send_mix(serving.url, [short, *ASKS, *[LONG] * 6]))  # every size of a step has been there
    asyncio.run(asyncio.wait_for(main(), slow_counts(120, 1200)))


# --- clients that stay


@pytest.mark.rest
def test_stalled_clients_are_preempted_and_disconnected(
    expected_answers: list[list[ReceivedAnswer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First their slots, then their pages and connections. Kernels buffer much: what they are sent is long."""
    monkeypatch.setattr(answer_stream, "HELD_TOKENS", 4)
    body = {**request_body(LONG, stream=True), "max_tokens": 240, "logprobs": 5}

    async def open_stalled_client(url: str) -> socket.socket:
        host, port = url.removeprefix("http://").split(":")
        result = socket.socket()
        result.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        result.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(result, (host, int(port)))
        await loop.sock_sendall(result, post_bytes(body))
        return result

    async def main(serving: RunningServer) -> None:
        scheduler = serving.server.model(MODEL).core.scheduler
        object.__setattr__(scheduler.limits, "hold_ns", 20_000_000)
        sockets = [await open_stalled_client(serving.url) for _ in range(4)]  # a slot each
        while scheduler.counts.parked < 4:
            await asyncio.sleep(0.01)
        assert await send_mix(serving.url, ASKS) == expected_answers
        while serving.handled:
            await asyncio.sleep(0.01)
        await wait_until_idle(serving.server)
        assert serving.server.model(MODEL).core.usage()["requests_cancelled.client_gone"] == 4
        for client_socket in sockets:
            client_socket.close()

    for serving in run_server(make_config(server=ServerSettings(client_timeout_s=2.0))):
        for pipe in serving.http.servers:
            for listening in pipe.sockets:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        asyncio.run(asyncio.wait_for(main(serving), 60))


@pytest.mark.rest
def test_idle_connections_do_not_affect_requests(
    slow_counts: Counts, expected_answers: list[list[ReceivedAnswer]]
) -> None:
    count = slow_counts(200, 1000)
    handles = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(handles[1], max(handles[0], 4096)), handles[1]))

    async def main(serving: RunningServer) -> None:
        assert await send_mix(serving.url, ASKS) == expected_answers
        scheduler, memory = serving.server.model(MODEL).core.scheduler, psutil.Process().memory_info().rss
        steps = scheduler.counts.steps
        host, port = serving.url.removeprefix("http://").split(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
        while serving.handled < count:
            await asyncio.sleep(0.01)
        assert scheduler.counts.steps == steps, "nothing is computed for them"
        assert psutil.Process().memory_info().rss < 1.05 * memory + 64_000 * count  # both ends of each are here
        assert await send_mix(serving.url, ASKS) == expected_answers
        for _, writer in idle:
            writer.close()
        while serving.handled:
            await asyncio.sleep(0.01)
        await wait_until_idle(serving.server)

    try:
        for serving in run_server(make_config(server=ServerSettings(max_connections=2000))):
            before = len([*Path("/proc/self/fd").iterdir()])
            asyncio.run(asyncio.wait_for(main(serving), 120))
            assert len([*Path("/proc/self/fd").iterdir()]) <= before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, handles)


def test_oversized_body_gets_413(serving: RunningServer) -> None:
    """Not cut off while he still sends."""

    async def main() -> None:
        async with make_client(serving.url) as client:
            for _ in range(3):
                answer = await client.post("/v1/completions", json={"prompt": "a" * (12 << 20)})
                assert answer.status_code == 413 and answer.json()["error"]["code"] == "body_too_large"

    asyncio.run(main())
