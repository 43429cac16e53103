"""Calls that hang, allocate or crash are killed alone; a tenant waits for its own calls."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Iterator

import pytest

from zinc_rt.serve.sandbox import TENANT_BURST_MS, CallKilled, Sandbox, TenantTurns


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox()
    yield sandbox
    sandbox.close()


def test_call_returns_or_raises_what_the_function_does(sandbox: Sandbox) -> None:
    assert asyncio.run(sandbox.call("a", 1, math.sqrt, 9.0)) == 3.0
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(sandbox.call("a", 1, int, "x"))
    text = b"a" * (8 << 20)
    assert asyncio.run(sandbox.call("a", 5, bytes.upper, text)) == text.upper()


def test_call_past_its_cpu_limit_is_killed_inside_a_library(sandbox: Sandbox) -> None:
    with pytest.raises(CallKilled, match=r"more than 0\.05 s of CPU time"):
        asyncio.run(sandbox.call("hang", 0.05, pow, 7, 10**9))
    assert asyncio.run(sandbox.call("a", 1, os.getpid)) != os.getpid()


def test_call_cannot_take_the_machines_memory(sandbox: Sandbox) -> None:
    with pytest.raises(MemoryError):
        asyncio.run(sandbox.call("a", 1, bytes, 3 << 30))


def test_helper_that_died_is_started_again(sandbox: Sandbox) -> None:
    helper = asyncio.run(sandbox.call("a", 1, os.getppid))
    os.kill(helper, signal.SIGKILL)
    assert sandbox._process is not None
    sandbox._process.wait()
    assert asyncio.run(sandbox.call("a", 1, os.getppid)) != helper


def test_closed_sandbox_starts_nothing() -> None:
    sandbox = Sandbox()
    sandbox.close()
    with pytest.raises(CallKilled):
        asyncio.run(sandbox.call("a", 1, math.sqrt, 9.0))


async def take_turns(turns: TenantTurns, order: list[str], names: str) -> list[str]:
    """Let each name wait for a turn while one runs, and return the order in which they get it."""
    hold = asyncio.Event()

    async def take(name: str) -> None:
        async with turns.take(name):
            order.append(name)
            await hold.wait()

    tasks = [asyncio.ensure_future(take(name)) for name in names]
    for _ in range(5):
        await asyncio.sleep(0)
    running = list(order)
    hold.set()
    await asyncio.gather(*tasks)
    return running


def test_one_tenants_calls_leave_a_turn_to_the_others() -> None:
    order: list[str] = []
    assert asyncio.run(take_turns(TenantTurns(running=3), order, "mmmmab")) == ["m", "m", "a"]
    assert sorted(order) == sorted("mmmmab")


def test_tenant_that_used_less_comes_first() -> None:
    turns, order = TenantTurns(running=1), list[str]()
    turns.charge("b", 0.5)
    turns.charge("c", 1.5)
    asyncio.run(take_turns(turns, order, "acbd"))
    assert order == ["a", "d", "b", "c"]


def test_tenant_past_its_share_waits_and_its_cancelled_calls_cost_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    turns, order = TenantTurns(running=2), list[str]()
    turns.charge("m", TENANT_BURST_MS / 1000 + 0.25)

    async def cancel_one() -> None:
        async def take(name: str) -> None:
            async with turns.take(name):
                order.append(name)

        waiting = asyncio.ensure_future(take("m"))
        await take("a")
        assert order == ["a"] and not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await take("b")

    asyncio.run(cancel_one())
    assert order == ["a", "b"] and not turns._waiting and not turns._active
