"""Measure serving: streams over HTTP, a server's start, attacks of one tenant on another, grammars.

python3 ci/run.py bench perf/bench_serve.py -s [-k TestServe|TestBudget|TestLateness|TestAttacks|TestGrammar]

serve    a step with and without 64 concurrent streams over HTTP, the first token by class, and the seconds until
         a server and its --help answer. An embedded model on the native tier, on this machine's cores, which
         the engine, the event loop and the clients share. Both kinds of load alternate in one run, so that a
         busy machine makes both slower. Another process reads the streams.
budget   the time from token to token of four interactive answers beside eight batch prompts of 512 tokens, with a
         latency budget of four times the decode step that was measured just before, and without one. A model of
         0.6 B with random weights on the native tier, a tiny one on the simulated T1.
lateness the largest lateness of a timer of 1 ms on the event loop, while one request is refused or answered. Five
         turns of each; for an idle machine.
attacks  the time from token to token of a tenant's stream, with and without another tenant's attack: each request
         of `lateness` in a loop, and others. The server runs in its own process, streams are read here one after
         the other, the attacker is a third process. Calm and attack alternate; the noise is the distance between
         the calm halves. Then the time of an answer with a new schema, alone and beside large grammars.
grammar  compiling a grammar over a real vocabulary, one mask, one accepted token; the host's time alone. Needs
         ZINC_RT_TEST_DATA=DIR with DIR/vocab/ggml-vocab-qwen2.gguf.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import httpx
import numpy as np
import pytest

from zinc_rt import LLM
from zinc_rt.cli.serve import SWITCH_SECONDS
from zinc_rt.engine.devices import choose_tier
from zinc_rt.host.errors import ZincError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.perf.stream_clients import read_streams
from zinc_rt.perf.synthetic import SHAPES, open_cached
from zinc_rt.sched.plan import Batch, StepPlan
from zinc_rt.sched.request import Request
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.state import StepTimes
from zinc_rt.sched.tenant import Priority, Tenant
from zinc_rt.serve.app import make_app
from zinc_rt.serve.config.settings import Config, DeviceSettings, ModelSettings, TenantSettings
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.grammars.grammar import GrammarCompiler, GrammarVocabulary
from zinc_rt.serve.grammars.grammar_spec import GrammarSpec
from zinc_rt.serve.http.listening import bind, format_url, make_http_server
from zinc_rt.serve.tenants.keys import new_key

MODEL, STREAMS, CTX = "qwen3-q", 64, 256
PROMPT, TOKENS = 16, 200
LOAD_TURNS = 4  # of each kind of load
STEP_LIMIT_MS = 1.0  # that streams may add to a step's 99th percentile
DESK, NIGHT = Tenant("desk", Priority.INTERACTIVE), Tenant("night", Priority.BATCH)
BUDGET_TOKENS, BUDGET_SECONDS = 40, 120.0  # gaps to measure, and the longest time for them
BUDGET_LIMIT = 1.5  # the median gap over the budget
READY_LIMIT_S, HELP_LIMIT_S = 3.0, 0.5
SERVE = str(Path(sys.executable).parent / "zinc-rt-serve")


class StepPeriods:
    """Measures the time from the end of a step to the end of the next, the interval that a client observes.
    `counts`: which steps to measure.
    """

    def __init__(self, counts: Callable[[StepPlan], bool]) -> None:
        self.counts = counts
        self.periods_ms: list[float] = []
        self._last_ns = 0

    def event(self, what: str, request: Request, amount: int) -> None: ...

    def stepped(self, plan: StepPlan, batch: Batch, times: StepTimes) -> None:
        counts = self.counts(plan)
        if counts and self._last_ns:
            self.periods_ms.append((times.ended_ns - self._last_ns) / 1e6)
        self._last_ns = times.ended_ns if counts else 0

    def take(self) -> list[float]:
        taken, self.periods_ms = self.periods_ms, []
        return taken


def has_only_decodes(plan: StepPlan) -> bool:
    return plan.decodes == STREAMS and not plan.prompts


def has_interactive_decode(plan: StepPlan) -> bool:
    return plan.decode_set is not None and plan.decode_set.classes[Priority.INTERACTIVE] > 0


@contextmanager
def start_server(slots: int, *, threads: int = 0) -> Iterator[tuple[InferenceServer, str]]:
    """Start an HTTP server in a thread of this process. `threads` are those of the engine; 0 means one per
    core.
    """
    try:
        choose_tier("t_cpu_native", "auto")
    except ZincError as error:
        pytest.skip(f"no native tier: {error.message}")
    model = ModelSettings(MODEL, MODEL, ctx=CTX, slots=slots)
    everybody = TenantSettings(id="default", priority=Priority.INTERACTIVE)  # the highest allowed value
    config = Config((model,), device=DeviceSettings("t_cpu_native", threads=threads), tenants=(everybody,))
    server = InferenceServer(config)
    server.start()
    bound = bind("127.0.0.1", 0)
    http = make_http_server(make_app(server), server.config.server)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)  # as the command has it
    thread = threading.Thread(target=lambda: asyncio.run(http.serve(sockets=[bound])), daemon=True)
    thread.start()
    while not http.started:
        time.sleep(0.01)
    try:
        yield server, format_url(bound)
    finally:
        sys.setswitchinterval(before)
        http.should_exit = True
        thread.join()
        server.stop()
        bound.close()


async def measure_without_http(server: InferenceServer, asks: list[EngineRequest]) -> list[float]:
    """Run the same requests without HTTP, text or JSON. Return the seconds to the first token of each request."""

    async def measure_one(ask: EngineRequest) -> float:
        start, first = time.perf_counter(), 0.0
        async with await server.submit(ask) as stream:
            async for _ in stream:
                first = first or time.perf_counter() - start
        return first

    return list(await asyncio.gather(*(measure_one(ask) for ask in asks)))


def compute_percentiles(values: list[float]) -> tuple[float, float]:
    """Return the 50th and 99th percentile."""
    return float(np.percentile(values, 50)), float(np.percentile(values, 99))


class TestServe:
    @pytest.mark.parametrize("left", [0, 1], ids=["engine on every core", "one core left to the streams"])
    def test_step_with_and_without_streams(
        self, benchmark: Any, capsys: pytest.CaptureFixture[str], left: int
    ) -> None:
        """Measure a step with and without streams. If the engine uses every core, the streams' work slows the step
        on any server; with one core left for the streams, the difference is the cost to the engine's own thread.
        """
        body = {
            "model": MODEL, "prompt": list(range(3, 3 + PROMPT)), "max_tokens": TOKENS, "temperature": 0.8,
            "ignore_eos": True, "stream": True,
        }  # fmt: skip
        sampling = Sampling(max_tokens=TOKENS, temperature=0.8, ignore_eos=True)
        asks = [EngineRequest(MODEL, tuple(range(3, 3 + PROMPT)), sampling) for _ in range(STREAMS)]
        alone: list[float] = []
        beside: list[float] = []
        firsts: list[float] = []
        with start_server(STREAMS, threads=max(1, len(os.sched_getaffinity(0)) - left) if left else 0) as (
            server,
            url,
        ):
            periods = StepPeriods(has_only_decodes)
            server.models[MODEL].core.scheduler.observers.append(periods)
            asyncio.run(measure_without_http(server, asks))  # graphs are built, weights are there
            periods.take()

            def measure_both() -> None:
                asyncio.run(measure_without_http(server, asks))
                alone.extend(periods.take())
                streams = read_streams(url, [body] * STREAMS)
                assert sum(len(one.times_ms) for one in streams) >= STREAMS * 10
                beside.extend(periods.take())
                firsts.extend(one.first_seconds for one in streams)

            benchmark.pedantic(measure_both, rounds=LOAD_TURNS if benchmark.enabled else 1, warmup_rounds=0)
        (half, maximum), (half_beside, most_beside) = compute_percentiles(alone), compute_percentiles(beside)
        added = most_beside - maximum
        benchmark.extra_info.update(
            steps=len(alone),
            steps_streamed=len(beside),
            p50_ms=round(half, 3),
            p99_ms=round(maximum, 3),
            p50_streamed_ms=round(half_beside, 3),
            p99_streamed_ms=round(most_beside, 3),
            p99_added_ms=round(added, 3),
            first_token_p50_ms=round(1000 * compute_percentiles(firsts)[0], 1),
            first_token_p99_ms=round(1000 * compute_percentiles(firsts)[1], 1),
            limit_ratio=round((maximum + STEP_LIMIT_MS) / maximum, 3),
            ratio=round(most_beside / maximum, 3),
            peer="the 99th percentile of the step without streams; the limit is 1 ms more",
            load_average=os.getloadavg()[
                0
            ],  # above the core count other processes use the machine, so the value means little
        )
        where = "one core left to the streams" if left else "engine on every core"
        if benchmark.enabled:
            with capsys.disabled():
                print(
                    f"\n{where}: {STREAMS} requests: a step {half:.2f} ms, 99 % below {maximum:.2f}; with "
                    f"{STREAMS} streams {half_beside:.2f} ms, 99 % below {most_beside:.2f}: {added:+.2f} ms "
                    f"(limit +{STEP_LIMIT_MS:.0f})"
                )

    def test_first_token_by_class(self, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
        """Measure 48 concurrent requests for 16 slots, a third of each class."""
        sampling = Sampling(max_tokens=40, temperature=0.8, ignore_eos=True)
        asks = [
            EngineRequest(MODEL, tuple(range(3 + number, 35 + number)), sampling, priority=priority)
            for number in range(16)
            for priority in (Priority.BATCH, Priority.STANDARD, Priority.INTERACTIVE)
        ]
        seconds_by_class: dict[str, list[float]] = {priority.name.lower(): [] for priority in Priority}
        with start_server(16) as (server, _):
            asyncio.run(measure_without_http(server, asks))

            def load() -> None:
                for ask, first in zip(asks, asyncio.run(measure_without_http(server, asks)), strict=True):
                    assert ask.priority is not None
                    seconds_by_class[ask.priority.name.lower()].append(1000 * first)

            benchmark.pedantic(load, rounds=5 if benchmark.enabled else 1, warmup_rounds=0)
        quantiles = {name: compute_percentiles(values) for name, values in seconds_by_class.items()}
        benchmark.extra_info.update(
            {
                f"{name}_p{part}_ms": round(value, 1)
                for name, both in quantiles.items()
                for part, value in zip((50, 99), both, strict=True)
            }
        )
        if benchmark.enabled:
            with capsys.disabled():
                words = "; ".join(
                    f"{name} {half:.0f} ms, 99 % below {maximum:.0f}"
                    for name, (half, maximum) in quantiles.items()
                )
                print(f"\n{len(asks)} requests at once for 16 slots, first token: {words}")

    def test_time_to_ready(self, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
        """Measure the time from the command's start until /ready succeeds, for the embedded model with a context
        of 4,096.
        """
        running: list[subprocess.Popen[str]] = []

        def start() -> None:
            argv = [SERVE, "--model", MODEL, "--port", "0", "--ctx", "4096", "--tier", "t_cpu"]
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            running.append(process)
            assert process.stdout is not None
            match = re.match(r"ready +(\S+)", process.stdout.readline())
            assert match and urlopen(f"{match[1]}/ready", timeout=10).status == 200

        benchmark.extra_info["limit_seconds"] = READY_LIMIT_S
        try:
            benchmark.pedantic(start, rounds=5 if benchmark.enabled else 1, warmup_rounds=0)
        finally:
            for item in running:
                item.kill()
                item.communicate()
        if benchmark.enabled:
            with capsys.disabled():
                print(f"\nready after {benchmark.stats.stats.median:.2f} s (limit {READY_LIMIT_S} s)")

    def test_help(self, benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
        """Measure `zinc-rt serve --help`, which imports no server code."""
        benchmark.extra_info["limit_seconds"] = HELP_LIMIT_S
        benchmark.pedantic(
            lambda: subprocess.run([SERVE, "--help"], check=True, capture_output=True),
            rounds=10 if benchmark.enabled else 1,
            warmup_rounds=1 if benchmark.enabled else 0,
        )
        if benchmark.enabled:
            with capsys.disabled():
                print(f"\n--help after {benchmark.stats.stats.median:.2f} s (limit {HELP_LIMIT_S} s)")


ATTACK_TURNS, ATTACK_SECONDS = 3, 2.0  # of calm and of each attack
BOMB_TURNS = 5
WORDS = {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 250, "ignore_eos": True, "stream": True}


@contextmanager
def start_two_tenant_server(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Start a server with two tenants. Return its URL and the tenants' keys."""
    keys = {name: new_key(name) for name in ("alice", "mallory")}
    tenants = [
        f"  - {{id: {name}, slots_max: 4, keys: [{{id: {name}, sha256: {kept.sha256}}}]}}"
        for name, (_, kept) in keys.items()
    ]
    lines = [f"models: [{{id: {MODEL}, path: {MODEL}, slots: 8}}]", "log: {level: error}", "tenants:", *tenants]
    (folder / "serve.yaml").write_text("\n".join(lines))
    line = [SERVE, "--config", str(folder / "serve.yaml"), "--port", "0"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1], {name: key for name, (key, _) in keys.items()}
    finally:
        process.terminate()
        process.wait()


def measure_gaps_ms(url: str, key: str, seconds: float) -> list[float]:
    """Return the gaps between the pieces of an answer, stream after stream."""
    gaps: list[float] = []
    until = time.monotonic() + seconds
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(headers=headers, timeout=60) as client:
        while time.monotonic() < until:
            with client.stream("POST", f"{url}/v1/completions", json=WORDS) as answer:
                last = 0.0
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        now = time.monotonic()
                        if last:
                            gaps.append(1000 * (now - last))
                        last = now
    return gaps


def send_slow_bodies(url: str, key: str) -> None:
    where = httpx.URL(url)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-length: 1000\r\n\r\n"
    )
    held: list[socket.socket] = []
    while True:
        while len(held) < 300:
            held.append(socket.create_connection((where.host, where.port)))
            held[-1].sendall(head.encode())
        for item in held:
            with suppress(OSError):
                item.send(b" ")
        time.sleep(0.1)


def send_malformed_requests(url: str, key: str) -> None:
    where = httpx.URL(url)
    lines = (
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01" + bytes(500),
        b"POST /v1/completions HTTP/1.1\r\n: \r\n\r\n",
    )
    while True:
        for line in lines:
            with suppress(OSError), socket.create_connection((where.host, where.port), timeout=10) as connection:
                connection.sendall(line)
                connection.recv(1000)


def cut_streams(url: str, key: str) -> None:
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(headers=headers, timeout=60) as client:
        while True:
            with client.stream("POST", f"{url}/v1/completions", json=WORDS) as answer:
                next(answer.iter_lines(), None)


def repeat_request(url: str, key: str, name: str) -> None:
    path, content, more = REQUESTS[name]
    headers = {"authorization": f"Bearer {key}", **JSON, **more}
    with httpx.Client(headers=headers, timeout=60) as client:
        while True:
            with suppress(httpx.TransportError):
                client.request("POST" if content else "GET", f"{url}{path}", content=content)


def _make_body(**more: object) -> bytes:
    return json.dumps({"model": MODEL, "prompt": [5, 6], "max_tokens": 2, **more}).encode()


LATENESS_TURNS = 5
JSON = {"content-type": "application/json"}
SLOW_SCHEMA = {"type": "integer", "multipleOf": 999983}  # takes llguidance 10 s of CPU time
WIDE_SCHEMA = {
    "type": "object",
    "properties": {f"p{n}": {"type": "string", "pattern": "a{9}"} for n in range(2000)},
}
MANY_MESSAGES = json.dumps({"messages": [{"role": "user", "content": "x"}] * 150_000}).encode()
_TOOL = {"properties": {f"p{n}": {"type": "string", "description": "x" * 50} for n in range(60)}}
MANY_TOOLS = json.dumps({
    "messages": [{"role": "user", "content": "x"}],
    "tools": [{"type": "function", "function": {"name": f"f{n}", "parameters": _TOOL}} for n in range(128)],
}).encode()  # fmt: skip


REQUESTS: dict[str, tuple[str, bytes, dict[str, str]]] = {  # path, body and headers
    "GET /openapi.json": ("/openapi.json", b"", {}),
    "GET /docs": ("/docs", b"", {}),
    "a method that no path takes": ("/v1/models/load", b"", {}),
    "10,000 headers": ("/health", b"", {f"x-{number}": "y" for number in range(10_000)}),
    "a long URL": ("/" + "x" * 60_000, b"", {}),
    "a million ids": ("/v1/completions", _make_body(prompt=[5] * 1_000_000), {}),
    "200,000 ids": ("/v1/completions", _make_body(prompt=[5] * 200_000), {}),
    "100,000 prompts": ("/v1/completions", _make_body(prompt=[[5]] * 100_000), {}),
    "150,000 messages": ("/v1/chat/completions", MANY_MESSAGES, {}),
    "8 MiB of text": ("/v1/completions", _make_body(prompt="a" * 8_000_000), {}),
    "1 MiB of text": ("/v1/completions", _make_body(prompt="a" * 1_000_000), {}),
    "250 KiB of text": ("/v1/completions", _make_body(prompt="a" * 250_000), {}),
    "200 KiB of escapes": ("/v1/completions", b'{"prompt": "' + b"\\u00e9" * 35_000 + b'"}', {}),
    "8 MiB of brackets": ("/v1/completions", b"[" * 8_000_000, {}),
    "deep objects": ("/v1/completions", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, {}),
    "100,000 names": ("/v1/completions", json.dumps(dict.fromkeys(map(str, range(100_000)), 1)).encode(), {}),
    "128 large tools": ("/v1/chat/completions", MANY_TOOLS, {}),
    "wide regex": ("/v1/completions", _make_body(guided_regex="(a|b|c|d){1,5000}(x{1,3000}){1,3000}"), {}),
    "slow schema": ("/v1/completions", _make_body(guided_json=SLOW_SCHEMA), {}),
    "wide schema": ("/v1/completions", _make_body(guided_json=WIDE_SCHEMA), {}),
    "1 MiB to tokenize": ("/tokenize", json.dumps({"content": "a b" * 350_000}).encode(), {}),
    "a wrong key": ("/v1/models", b"", {"authorization": "Bearer zrt_alice_" + "a" * 52}),
    "60 prompts": ("/v1/completions", _make_body(prompt=[[5, 6]] * 60), {}),
}
ATTACKS: dict[str, Callable[[str, str], None]] = {
    "300 slow bodies": send_slow_bodies,
    "malformed requests": send_malformed_requests,
    "streams that are cut": cut_streams,
    **{name: partial(repeat_request, name=name) for name in REQUESTS},
}


class TestLateness:
    """The largest lateness of a timer of 1 ms on the event loop, while one request is refused or answered."""

    @pytest.fixture(scope="class")
    @classmethod
    def measured(cls) -> Iterator[tuple[str, Any]]:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=run_measured_server, args=(theirs,), daemon=True
        )
        process.start()
        yield ours.recv(), ours
        process.kill()
        process.join()

    @pytest.mark.parametrize("name", ["nothing", *REQUESTS])
    def test_one_request(self, name: str, measured: tuple[str, Any]) -> None:
        url, pipe = measured
        latest, status = [], 0
        for _ in range(LATENESS_TURNS):
            pipe.send(None)
            pipe.recv()
            if name == "nothing":
                time.sleep(0.5)
            else:
                path, content, headers = REQUESTS[name]
                method = "POST" if content else "GET"
                status = httpx.request(
                    method, f"{url}{path}", content=content, headers=JSON | headers, timeout=60
                ).status_code
            pipe.send(None)
            latest.append(pipe.recv())
        median, least, most = np.median(latest), min(latest), max(latest)
        print(f"\n{name:30} {status or '':4} late {median:6.1f} ms ({least:.1f} to {most:.1f})")


def run_measured_server(pipe: Any) -> None:
    """Serve, and answer each message with the largest lateness of the event loop in ms since the last one."""
    model = ModelSettings(MODEL, MODEL, ctx=CTX, slots=8)
    server = InferenceServer(Config((model,), device=DeviceSettings("t_cpu", threads=1)))
    server.start()
    sys.setswitchinterval(SWITCH_SECONDS)
    bound = bind("127.0.0.1", 0)
    http = make_http_server(make_app(server), server.config.server)

    async def measure() -> None:
        serving = asyncio.ensure_future(http.serve(sockets=[bound]))
        loop, latest = asyncio.get_running_loop(), 0.0

        def report() -> None:
            nonlocal latest
            pipe.recv()
            pipe.send(1000 * latest)
            latest = 0.0

        loop.add_reader(pipe.fileno(), report)
        pipe.send(format_url(bound))
        while not serving.done():
            due = loop.time() + 0.001
            await asyncio.sleep(0.001)
            latest = max(latest, loop.time() - due)

    asyncio.run(measure())


class TestBudget:
    @pytest.mark.parametrize(
        ("name", "tier", "device"), [("qwen3-0.6b-q4_0", "t_cpu_native", "cpu"), ("qwen3-q", "t1", "sim")]
    )
    def test_gap_beside_long_prompts(self, name: str, tier: str, device: str) -> None:
        model = open_cached(name) if name in SHAPES else name
        with LLM(model, tier, device, slots=16, ctx=1024, tenants=(DESK, NIGHT), gap_ms=0) as llm:
            decode_ms, unlimited = self._measure_budget(llm, BUDGET_TOKENS)
        with LLM(model, tier, device, slots=16, ctx=1024, tenants=(DESK, NIGHT), gap_ms=4 * decode_ms) as llm:
            again_ms, limited = self._measure_budget(llm, BUDGET_TOKENS)
            counts = llm.scheduler.counts
        p50, p90 = np.percentile(limited, (50, 90))
        ratio = float(p50) / (4 * decode_ms)
        print(
            f"\n{name} on {tier}: decode {decode_ms:.1f} ms ({again_ms:.1f} in the second run), budget "
            f"{4 * decode_ms:.1f} ms; gap p50 {p50:.1f}, p90 {p90:.1f} ({len(limited)} gaps), {ratio:.2f} of the "
            f"budget; {np.median(unlimited):.0f} ms without one ({len(unlimited)} gaps); {counts.limited_steps} "
            f"steps limited, {counts.infeasible_steps} infeasible"
        )
        assert ratio <= BUDGET_LIMIT, f"p50 is {ratio:.2f} of the budget, limit {BUDGET_LIMIT}"

    @staticmethod
    def _measure_budget(llm: LLM, maximum: int) -> tuple[float, list[float]]:
        """Return the median decode step of four answers in ms, and the gaps during concurrent prompts."""
        llm.build_all()
        gaps, random = StepPeriods(has_interactive_decode), np.random.default_rng(1)
        llm.scheduler.observers.append(gaps)

        def ask(tenant: Tenant, tokens: int, answer: int) -> None:
            prompt = random.integers(5, llm.engine.model.vocab - 5, tokens).tolist()
            llm.submit(prompt, Sampling(max_tokens=answer, ignore_eos=True), tenant=tenant.name)

        for _ in range(4):
            ask(DESK, 16, 2 * maximum)
        while len(gaps.periods_ms) < maximum // 2:
            llm.step()
        alone = float(np.median(gaps.periods_ms[maximum // 4 :]))
        gaps.take()
        for _ in range(8):
            ask(NIGHT, 512, 1)
        start = time.monotonic()
        while (len(gaps.periods_ms) < maximum and llm.scheduler.prefilling) or not gaps.periods_ms:
            if time.monotonic() - start > BUDGET_SECONDS and gaps.periods_ms:
                break
            llm.step()
        return alone, gaps.periods_ms


class TestAttacks:
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
        with start_two_tenant_server(tmp_path_factory.mktemp("attacked")) as (url, keys):
            measure_gaps_ms(url, keys["alice"], 1.0)
            yield url, keys

    @pytest.mark.parametrize("attack", ATTACKS)
    def test_bench_a_stream_beside_an_attack(self, attack: str, server: tuple[str, dict[str, str]]) -> None:
        url, keys = server
        calm: list[list[float]] = []
        under: list[float] = []
        for _ in range(ATTACK_TURNS):
            calm.append(measure_gaps_ms(url, keys["alice"], ATTACK_SECONDS))
            with attacking(ATTACKS[attack], url, keys["mallory"]):
                under += measure_gaps_ms(url, keys["alice"], ATTACK_SECONDS)
        p99 = [float(np.percentile(item, 99)) for item in calm]
        every = np.concatenate(calm)
        ratio = float(np.percentile(under, 99) / np.percentile(every, 99))
        print(
            f"\n{attack:30} p99 {ratio:4.1f} x calm: {np.percentile(under, 99):.1f} ms, calm "
            f"{np.percentile(every, 99):.1f} ({min(p99):.1f} to {max(p99):.1f} from turn to turn); medians "
            f"{np.median(under):.1f}, {np.median(every):.1f}"
        )

    @pytest.mark.parametrize("bomb", ["wide regex", "slow schema", "wide schema"])
    def test_bench_a_schema_beside_bombs(self, bomb: str, server: tuple[str, dict[str, str]]) -> None:
        url, keys = server
        alone, beside = [], []
        for turn in range(BOMB_TURNS):
            alone.append(self._ask_with_schema(url, keys["alice"], 2 * turn))
            with attacking(ATTACKS[bomb], url, keys["mallory"]), attacking(ATTACKS[bomb], url, keys["mallory"]):
                beside.append(self._ask_with_schema(url, keys["alice"], 2 * turn + 1))
        print(
            f"\na schema beside two of {bomb}: {np.median(beside):.2f} s ({max(beside):.2f} at most), alone "
            f"{np.median(alone):.2f}; {np.median(beside) / np.median(alone):.1f} x"
        )

    @staticmethod
    def _ask_with_schema(url: str, key: str, number: int) -> float:
        """Return the seconds of an answer with a schema that the server has not seen."""
        schema = {"type": "object", "properties": {f"p{number}": {"type": "boolean"}}, "required": [f"p{number}"]}
        start = time.monotonic()
        answer = httpx.post(
            f"{url}/v1/completions",
            content=_make_body(guided_json=schema, max_tokens=20),
            headers={"authorization": f"Bearer {key}", **JSON},
            timeout=60,
        )
        answer.raise_for_status()
        return time.monotonic() - start


@contextmanager
def attacking(attack: Callable[[str, str], None], url: str, key: str) -> Iterator[None]:
    """Run an attack in another process."""
    attacker = multiprocessing.Process(target=attack, args=(url, key), daemon=True)
    attacker.start()
    time.sleep(0.3)
    try:
        yield
    finally:
        attacker.kill()
        attacker.join()


ORDER = {
    "type": "object",
    "properties": {
        "customer": {"type": "string"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
                    "count": {"type": "integer"},
                },
                "required": ["sku", "count"],
            },
        },
        "paid": {"type": "boolean"},
    },
    "required": ["customer", "lines", "paid"],
}  # fmt: skip
ANSWER = json.dumps(
    {"customer": "Ada Lovelace", "lines": [{"sku": "ABC-1234", "count": 3}] * 8, "paid": True}, indent=1
)
SPEC = GrammarSpec("json_schema", json.dumps(ORDER))


class TestGrammar:
    @pytest.fixture(scope="module")
    @classmethod
    def compiler(cls) -> GrammarCompiler:
        folder = os.environ.get("ZINC_RT_TEST_DATA")
        if not folder:
            pytest.skip("ZINC_RT_TEST_DATA is not set: it names the folder with the outside test data")
        tokenizer = Tokenizer.from_metadata(read_gguf(Path(folder) / "vocab" / "ggml-vocab-qwen2.gguf").metadata)
        grammar_compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size)
        grammar_compiler.load_vocabulary()
        return grammar_compiler

    def test_vocabulary(self, benchmark: Any, compiler: GrammarCompiler) -> None:
        """Convert the vocabulary for llguidance, once per model: 151,936 tokens."""
        benchmark.pedantic(GrammarVocabulary, (compiler.tokenizer, compiler.vocab), rounds=3)

    def test_compile(self, benchmark: Any, compiler: GrammarCompiler) -> None:
        """Compile a grammar and compute the first mask, which is the slowest."""
        benchmark(compiler.compile, SPEC)

    def test_masks_of_an_answer(self, benchmark: Any, compiler: GrammarCompiler) -> None:
        """Compute a mask and accept a token, for each of the `tokens` tokens of an answer."""
        tokens = compiler.tokenizer.encode(ANSWER, add_special=False)
        grammar, words = compiler.compile(SPEC), np.zeros(-(-compiler.vocab // 32), np.int32)

        def answer() -> None:
            own = grammar.fork()
            for token in tokens:
                own.fill(words)
                own.accept(token)
            assert own.failure == ""

        benchmark.extra_info["tokens"] = len(tokens)
        benchmark(answer)
