"""What goes wrong under a server, each with its outcome: who goes on with the tokens of an undisturbed run, who is
told what, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from asking import ReceivedAnswer, generate_alone, random_requests, read_answers, run_in_server, wait_until_idle
from embedded_server import MODEL
from faulty_runner import plant_runner

from zinc_rt import Sampling
from zinc_rt.engine.opening import find_model_file
from zinc_rt.sched.request import NewRequest, Request
from zinc_rt.serve.config.settings import ModelSettings, TenantSettings
from zinc_rt.serve.engine import answer_stream
from zinc_rt.serve.engine import server as server_module
from zinc_rt.serve.engine.model_loader import ModelLoader
from zinc_rt.serve.engine.requests import Delivered, EngineRequest
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError

ASKS = random_requests(5, 5)
LONG = EngineRequest(MODEL, (5, 6, 7), Sampling(max_tokens=60, ignore_eos=True))


@pytest.fixture(scope="module")
def expected_answers() -> list[list[ReceivedAnswer]]:
    return generate_alone(ASKS)


async def read_all(server: InferenceServer, asks: list[EngineRequest]) -> list[list[ReceivedAnswer]]:
    return list(await asyncio.gather(*(read_answers(server, ask) for ask in asks)))


@pytest.mark.parametrize("failing_step", [1, 6])
@pytest.mark.rest
def test_late_step_loses_no_tokens(expected_answers: list[list[ReceivedAnswer]], failing_step: int) -> None:
    async def main(server: InferenceServer) -> list[list[ReceivedAnswer]]:
        faulty = await plant_runner(server, MODEL)
        faulty.fails = lambda step, records: step == failing_step
        got = await read_all(server, ASKS)
        assert faulty.reopened == 1 and server.model(MODEL).core.scheduler.counts.failed_steps == 1
        await wait_until_idle(server)
        return got

    assert run_in_server(main) == expected_answers


@pytest.mark.rest
def test_request_that_hangs_the_device_fails_and_others_continue(
    expected_answers: list[list[ReceivedAnswer]],
) -> None:
    async def main(server: InferenceServer) -> None:
        faulty = await plant_runner(server, MODEL)
        faulty.fails = lambda step, records: 3 in records["request"]
        got = await read_all(server, ASKS)
        assert [item.finish_reason for item in got[2]] == ["device_hang"] * len(got[2])
        assert not any(item.tokens for item in got[2])
        assert got[:2] + got[3:] == expected_answers[:2] + expected_answers[3:]
        assert faulty.seen[-1] != {3} and {3} in faulty.seen, "it fails on its own, not beside others"
        await wait_until_idle(server)

    run_in_server(main)


def test_lost_device_is_reported_to_every_client() -> None:
    async def main(server: InferenceServer) -> None:
        faulty = await plant_runner(server, MODEL)
        faulty.fails, faulty.comes_back = lambda step, records: step == 3, False
        ends = await asyncio.gather(*(read_answers(server, LONG) for _ in range(7)), return_exceptions=True)
        for end in [*ends, *await asyncio.gather(read_answers(server, LONG), return_exceptions=True)]:
            assert isinstance(end, ServeError)
            assert (end.status, end.code) == (503, "device_lost") and "did not finish" in end.message
            assert end.retry_after_seconds
        assert not server.model(MODEL).streams

    run_in_server(main)


def test_nan_logits_fail_one_request(expected_answers: list[list[ReceivedAnswer]]) -> None:
    async def main(server: InferenceServer) -> list[list[ReceivedAnswer]]:
        faulty = await plant_runner(server, MODEL)
        faulty.nan = lambda record: record["limit"] == 60 and record["generated"] == 3
        *got, bad = await read_all(server, [*ASKS, LONG])
        assert bad[0].finish_reason == "logits_not_finite" and len(bad[0].tokens) == 3
        await wait_until_idle(server)
        return got

    assert run_in_server(main) == expected_answers


@pytest.mark.rest
def test_slow_arriving_request_loses_nothing(expected_answers: list[list[ReceivedAnswer]]) -> None:
    """Steps of others run while its prompt is still being looked at."""

    async def main(server: InferenceServer) -> None:
        scheduler = server.model(MODEL).core.scheduler
        real = scheduler.submit

        def read_slowly(new: NewRequest) -> Request:
            time.sleep(0.02)
            try:
                return real(new)
            finally:
                time.sleep(0.02)

        async with await server.submit(LONG) as other:
            await anext(other)
            scheduler.submit = read_slowly  # type: ignore[method-assign]
            assert [await read_answers(server, ask) for ask in ASKS] == expected_answers
        await wait_until_idle(server)

    run_in_server(main)


# --- clients that go


def test_cancelled_queued_request_is_removed_within_a_step() -> None:
    async def main(server: InferenceServer) -> None:
        faulty = await plant_runner(server, MODEL)
        faulty.seconds = 0.005
        streams = [await server.submit(LONG) for _ in range(12)]
        await anext(streams[0])
        for stream in streams[4:]:
            async with stream:
                pass
        step = faulty.steps
        for stream in streams[:4]:
            async with stream:
                await anext(stream)
        await wait_until_idle(server)
        assert max(set().union(*faulty.seen)) <= 4, "who never had a slot was never computed"
        assert faulty.steps <= step + 4

    run_in_server(main)


@pytest.mark.parametrize("after", [0, 3, 20], ids=["prefill", "stream", "the last token"])
@pytest.mark.rest
def test_disconnect_does_not_affect_other_requests(
    expected_answers: list[list[ReceivedAnswer]], after: int
) -> None:
    """In its prompt, in its answer, behind its last token."""
    leaver = EngineRequest(MODEL, tuple(range(3, 103)), Sampling(max_tokens=20, ignore_eos=True))

    async def leave_after(server: InferenceServer) -> None:
        for _ in range(3):
            async with await server.submit(leaver) as stream:
                came = 0
                while came < after:
                    came += sum(len(item.token_ids) for item in await anext(stream))
                if not after:
                    await asyncio.sleep(0.01)

    async def main(server: InferenceServer) -> list[list[ReceivedAnswer]]:
        *got, _ = await asyncio.gather(*(read_answers(server, ask) for ask in ASKS), leave_after(server))
        await wait_until_idle(server)
        usage = server.model(MODEL).core.usage()
        accepted = usage["requests_accepted"]
        assert accepted == sum(
            count for name, count in usage.items() if name.startswith(("requests_fin", "requests_can"))
        )
        assert usage["tokens_delivered"] <= usage["tokens_generated"]
        return list(got)

    assert run_in_server(main) == expected_answers


@pytest.mark.rest
def test_stalled_reader_is_paused_then_preempted_then_dropped(
    expected_answers: list[list[ReceivedAnswer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_stream, "HELD_TOKENS", 8)

    async def main(server: InferenceServer) -> list[list[ReceivedAnswer]]:
        scheduler = server.model(MODEL).core.scheduler
        object.__setattr__(scheduler.limits, "hold_ns", 20_000_000)
        object.__setattr__(scheduler.limits, "client_timeout_ns", 400_000_000)
        late = await server.submit(LONG)
        while not scheduler.counts.parked:
            await asyncio.sleep(0.001)
        slow = [item async for delivered in late for item in delivered]
        assert sum(len(item.token_ids) for item in slow) == 60 and slow[-1].finish_reason == "length"
        stalled = [await server.submit(LONG) for _ in range(4)]  # each slot has one
        got = await read_all(server, ASKS)
        assert scheduler.counts.parked > 1, "they lost their slots to those who read"
        while server.model(MODEL).streams:  # until the last of them is given up
            await asyncio.sleep(0.001)
        for stream in stalled:
            result = 0
            with pytest.raises(ServeError, match="the client did not read the answer"):
                async for delivered in stream:
                    result += len(delivered)
            assert 8 < result < 20
        await wait_until_idle(server)
        return got

    assert run_in_server(main) == expected_answers


# --- the house


@pytest.mark.rest
def test_demand_above_all_pages_waits(expected_answers: list[list[ReceivedAnswer]]) -> None:
    big = [
        EngineRequest(MODEL, tuple(range(3 + n, 63 + n)), Sampling(max_tokens=12, seed=n, ignore_eos=True))
        for n in range(4)
    ]

    async def main(server: InferenceServer) -> list[list[ReceivedAnswer]]:
        faulty = await plant_runner(server, MODEL)
        got = await read_all(server, [*big, *ASKS])
        assert max(map(len, faulty.seen)) > 1 and not any({1, 2, 3, 4} <= item for item in faulty.seen)
        await wait_until_idle(server)
        return got

    keeper = TenantSettings(id="keeper", kv_reserved=54)  # of 64, which nobody else gets
    assert run_in_server(main, tenants=(TenantSettings(id="default"), keeper)) == [
        *generate_alone(big),
        *expected_answers,
    ]


@pytest.mark.rest
def test_wall_clock_jumps_are_ignored(
    expected_answers: list[list[ReceivedAnswer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = time.time, [0]

    def jumping_clock() -> float:
        calls[0] += 1
        return real() + (calls[0] % 3 - 1) * 1e7

    async def main(server: InferenceServer) -> list[list[ReceivedAnswer]]:
        monkeypatch.setattr(time, "time", jumping_clock)
        got = await read_all(
            server, [*ASKS, EngineRequest(MODEL, (3,), Sampling(max_tokens=2), deadline_seconds=60)]
        )
        assert got.pop()[0].finish_reason == "length"
        return got

    assert run_in_server(main) == expected_answers


@pytest.mark.rest
def test_changed_file_ends_its_model_but_a_touched_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"{MODEL}.gguf"
    shutil.copy(find_model_file(MODEL), path)
    monkeypatch.setattr(server_module, "LOOK_SECONDS", 0.01)

    async def main(server: InferenceServer) -> None:
        async with await server.submit(LONG) as stream:
            os.utime(path)
            assert sum([len(item.token_ids) async for some in stream for item in some]) == 60
        running = await server.submit(LONG)
        await anext(running)
        whole = bytearray(path.read_bytes())
        whole[-1000] ^= 1  # a weight
        other = path.with_name("other")
        other.write_bytes(whole)
        other.rename(path)
        with pytest.raises(ServeError, match="changed on disk while the model was served") as message:
            await collect_items(running)
        assert (message.value.status, message.value.code) == (503, "model_changed")
        with pytest.raises(ServeError, match="changed on disk"):
            await server.submit(LONG)
        before = server.model(MODEL).fingerprint
        assert (await ModelLoader(server).load(MODEL)).fingerprint != before
        assert len((await read_answers(server, LONG))[0].tokens) == 60

    model = ModelSettings(MODEL, str(path), ctx=256, slots=4)
    run_in_server(main, models=(model,))


async def collect_items(stream: answer_stream.AnswerStream) -> list[Delivered]:
    return [item async for delivered in stream for item in delivered]


def test_crashed_thread_leaves_no_client_waiting() -> None:
    async def main(server: InferenceServer) -> None:
        running = [await server.submit(LONG) for _ in range(6)]
        await anext(running[0])
        server.model(MODEL).core.scheduler.find_next_event = lambda: 1 / 0  # type: ignore[method-assign, assignment]
        for stream in running:
            with pytest.raises(ServeError, match="division by zero"):
                await collect_items(stream)
        assert "division" in await server.wait_for_lost_models()
        with pytest.raises(ServeError):
            await server.submit(LONG)

    run_in_server(main)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("seconds", [1e12, 1e300])
def test_huge_deadline_means_no_deadline(seconds: float) -> None:
    async def main(server: InferenceServer) -> None:
        streams = [
            await server.submit(replace(LONG, sampling=Sampling(max_tokens=9), deadline_seconds=seconds))
            for _ in range(2)
        ]
        await asyncio.sleep(0.05)  # it has waited for its timers
        for stream in streams:
            assert (await collect_items(stream))[-1].finish_reason == "length"

    run_in_server(main)
