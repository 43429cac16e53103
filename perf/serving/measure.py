"""Measure servers beside each other: the same requests to each, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.perf.stream_clients import StreamTimes, read_streams
from zinc_rt.validate.judge.engine_client import EngineClient
from zinc_rt.validate.judge.engines import EngineProgram, start_engine

SLOTS, CTX = 16, 1024
PROMPT, ANSWER = 64, 64  # tokens
LONG_PROMPT = 512
FIRST_TOKENS = 5  # prompts of a round
CLIENTS = (1, 4, 16)
LONG_PROMPTS = 4  # sent beside a stream


@dataclass(frozen=True, slots=True)
class ComparedServer:
    """A server to measure: how it is started, and with which options."""

    name: str
    program: EngineProgram
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerFigure:
    """A row of the table. `better`: which of two values is better, "less" or "more"."""

    id: str
    title: str
    unit: str
    better: str


FIGURES = (
    ServerFigure("ready", "start to first answer", "s", "less"),
    ServerFigure("first", f"first token, prompt of {PROMPT}", "ms", "less"),
    ServerFigure("first-long", f"first token, prompt of {LONG_PROMPT}", "ms", "less"),
    ServerFigure("first-again", f"first token, prompt of {LONG_PROMPT} a second time", "ms", "less"),
    *(ServerFigure(f"speed-{n}", f"{n} client{'s' if n > 1 else ''}", "tok/s", "more") for n in CLIENTS),
    *(
        ServerFigure(f"gap-{n}", f"{n} client{'s' if n > 1 else ''}, token to token, p99", "ms", "less")
        for n in CLIENTS
    ),
    ServerFigure("gap-beside", f"a stream beside {LONG_PROMPTS} prompts of {LONG_PROMPT}, p99", "ms", "less"),
)


@dataclass(slots=True)
class Measured:
    """The values of one server by figure, one for each round."""

    server: ComparedServer
    command: str = ""
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, id: str, value: float) -> None:
        self.values.setdefault(id, []).append(value)

    def median(self, id: str) -> float:
        return statistics.median(self.values[id])


def measure_servers(
    servers: Sequence[ComparedServer], model: str, vocab: int, rounds: int, show: Callable[[str], None]
) -> list[Measured]:
    """Measure each server once a round, in an order that alternates. `vocab`: prompts have random ids below it.

    Raise InputError or UsageError if a server does not start, RuntimeError if it rejects a request.
    """
    result = [Measured(server) for server in servers]
    for number in range(rounds):
        for item in result if number % 2 == 0 else result[::-1]:
            show(f"round {number + 1} of {rounds}: {item.server.name} ...")
            start = time.monotonic()
            with start_engine(item.server.program, model, item.server.options, slots=SLOTS, ctx=CTX) as (
                url,
                item.command,
            ):
                item.add("ready", time.monotonic() - start)
                for id, value in _measure_round(url, np.random.default_rng(number), vocab):
                    item.add(id, value)
    return result


def _measure_round(url: str, random: np.random.Generator, vocab: int) -> Iterator[tuple[str, float]]:
    listed = EngineClient(url).get("/v1/models")["data"]
    name = listed[0]["id"]

    def make_body(tokens: int, answer: int) -> dict[str, object]:
        prompt = random.integers(vocab // 8, vocab - vocab // 8, tokens).tolist()
        sampling = {"max_tokens": answer, "temperature": 0, "ignore_eos": True}
        return {"model": name, "prompt": prompt, "stream": True, **sampling}

    def find_first_ms(body: dict[str, object]) -> float:
        (stream,) = read_streams(url, [body])
        return stream.times_ms[0]

    read_streams(url, [make_body(PROMPT, 4)])
    yield "first", statistics.median(find_first_ms(make_body(PROMPT, 2)) for _ in range(FIRST_TOKENS))
    bodies = [make_body(LONG_PROMPT, 2) for _ in range(FIRST_TOKENS)]
    yield "first-long", statistics.median(map(find_first_ms, bodies))
    yield "first-again", find_first_ms(bodies[-1])
    for clients in CLIENTS:
        streams = read_streams(url, [make_body(PROMPT, ANSWER) for _ in range(clients)])
        yield f"speed-{clients}", clients * ANSWER / (max(one.times_ms[-1] for one in streams) / 1000)
        yield f"gap-{clients}", _find_largest_gap(streams)
    bodies = [make_body(PROMPT, ANSWER), *(make_body(LONG_PROMPT, 2) for _ in range(LONG_PROMPTS))]
    yield "gap-beside", _find_largest_gap(read_streams(url, bodies)[:1])


def _find_largest_gap(streams: Sequence[StreamTimes]) -> float:
    """Return the 99th percentile of the gaps, without the first: a server may send an empty event first."""
    return float(np.percentile([gap for one in streams for gap in one.gaps_ms[1:]], 99))
