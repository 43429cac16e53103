"""A server whose ledger cannot be written, is somebody else's, or is killed with it: it serves, says so, and the
books balance."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from asking import read_answers, run_in_server
from embedded_server import MODEL, make_config, run_server
from over_http import make_client, send_request
from support import Counts

from zinc_rt import Sampling
from zinc_rt.host.errors import OutputError
from zinc_rt.sched.usage.balance import find_unbalanced
from zinc_rt.sched.usage.database import open_to_read
from zinc_rt.sched.usage.query import UsageResult, find_usage
from zinc_rt.serve.config.settings import LedgerSettings
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError

SHORT = EngineRequest(MODEL, (5, 6, 7), Sampling(max_tokens=4, seed=1, ignore_eos=True))
LONG = EngineRequest(MODEL, (5, 6, 7), Sampling(max_tokens=200, seed=1, ignore_eos=True))
LINE = [sys.executable, "-m", "zinc_rt.cli", "serve", "--tier", "t_cpu", "--threads", "1", "--port", "0"]


def read_usage(path: Path) -> UsageResult:
    with closing(open_to_read(path)) as connection:
        return find_usage(connection)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("on_failure", ["continue", "refuse"])
def test_full_disk_is_reported_and_stops_only_configured_requests(tmp_path: Path, on_failure: str) -> None:
    path = tmp_path / "usage.sqlite"
    ledger = LedgerSettings(str(path), on_failure=on_failure, max_lag_s=0.001)  # type: ignore[arg-type]

    def get_health(url: str) -> dict[str, object]:
        answer = httpx.get(f"{url}/health")
        assert answer.status_code == 200, "it is alive"
        return dict(answer.json())

    async def send_completion(url: str) -> int:
        async with make_client(url) as client:
            answer = await client.post("/v1/completions", json={"model": MODEL, "prompt": "a", "max_tokens": 2})
        if answer.status_code == 503:
            assert answer.json()["error"]["code"] == "ledger" and "full" in answer.json()["error"]["message"]
        return answer.status_code

    for serving in run_server(make_config(ledger=ledger)):
        store, core = serving.server.store, serving.server.model(MODEL).core
        assert store is not None
        assert asyncio.run(send_completion(serving.url)) == 200
        assert store.settle() and get_health(serving.url) == {"status": "ok"}
        store._connection.execute("PRAGMA max_page_count = 1")  # of fewer pages than it has: no page more
        for number in range(400):
            core.ledger.count(f"counter {number:0100}", 0)
        assert not store.settle()
        output = get_health(serving.url)
        assert output["status"] == "degraded" and "full" in str(output["reasons"])
        assert asyncio.run(send_completion(serving.url)) == (200 if on_failure == "continue" else 503)
        store._connection.execute("PRAGMA max_page_count = 100000")
        assert store.settle() and get_health(serving.url) == {"status": "ok"}
        assert asyncio.run(send_completion(serving.url)) == 200
    whole = read_usage(path)
    assert whole.usage["requests_accepted"] == (3 if on_failure == "continue" else 2)
    assert not find_unbalanced(whole.usage, whole.device)


def test_second_server_on_a_ledger_is_rejected_with_the_owner(tmp_path: Path) -> None:
    settings = make_config(ledger=LedgerSettings(str(tmp_path / "usage.sqlite")))

    async def main(first: InferenceServer) -> None:
        second = InferenceServer(settings)
        with pytest.raises(OutputError, match=rf"pid {os.getpid()} .*is writing to this file"):
            await second.open_in_background()
        assert not second.models
        with pytest.raises(ServeError, match="no model "):
            await second.submit(SHORT)
        assert len((await read_answers(first, SHORT))[0].tokens) == 4, "the first does not notice"

    run_in_server(main, ledger=settings.ledger)
    run_in_server(
        lambda server: read_answers(server, SHORT), ledger=settings.ledger
    )  # once it is gone another may


@contextmanager
def start_server(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server as a process, and its URL."""
    line = [*LINE, *words]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            output = process.stdout.readline()
            assert output.startswith("ready"), output
            yield process, output.split()[1]
        finally:
            process.kill()


@pytest.mark.rest
def test_ledger_opens_and_balances_after_kill_during_an_answer(tmp_path: Path, slow_counts: Counts) -> None:
    path, pick = tmp_path / "usage.sqlite", random.Random(5)

    async def send_until(process: subprocess.Popen[str], url: str) -> None:
        async with make_client(url) as client:
            streams = [asyncio.create_task(send_request(client, LONG, stream=True)) for _ in range(6)]
            await send_request(client, SHORT, stream=False)
            await asyncio.sleep(1.2 + pick.random())  # a batch of it at least is in the file
            process.kill()
            ends = await asyncio.gather(*streams, return_exceptions=True)
        assert all(isinstance(end, list | httpx.HTTPError) for end in ends), ends

    for _ in range(slow_counts(1, 20)):
        before = read_usage(path).device["steps"] if path.exists() else 0
        with start_server("--ledger", str(path)) as (process, url):
            asyncio.run(send_until(process, url))
            process.wait()
        usage = read_usage(path)
        assert not find_unbalanced(usage.usage, usage.device)
        assert usage.device["steps"] > before
