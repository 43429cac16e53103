"""What the execution contract itself costs: replay and wait of a graph with many ports, over fences done at once.

    pytest perf/bench_exec.py -n 0 --benchmark-enable

The ports' buffers share two usages, as a model's state and a variant's arena do, so the number of ports must not
show. The launcher does nothing: everything that is timed here comes on top of a tier's submission.
"""

from __future__ import annotations

from typing import Any

import pytest

from zinc_rt.exec import Buffer, Fence, Graph, Stream, Usage

LIMIT_US = 5.0
KEY = (1, 1, 1)


class ReachedFence:
    value = 1

    def done(self) -> bool:
        return True

    def wait(self, timeout_seconds: float) -> None: ...


class IdleLauncher:
    """Accepts everything; it is over before it began."""

    def submit(self, variant: Any, stream: Stream) -> Fence:
        return ReachedFence()

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        return memoryview(buffer.storage)[offset_bytes : offset_bytes + size_bytes].toreadonly()

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        buffer.storage[offset_bytes : offset_bytes + data.nbytes] = data

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> Fence:
        return ReachedFence()


def graph_of(ports: int) -> Graph:
    graph = Graph("decode", IdleLauncher())
    usages = Usage(), Usage()
    for number in range(ports):
        buffer = Buffer(f"b{number}", 64, "host_visible", bytearray(64), usage=usages[number % 2])
        graph.bind(buffer.name, buffer)
    graph.add(KEY, "decode")
    return graph


def check(benchmark: Any) -> None:
    if benchmark.stats is not None:  # None where benchmarks are switched off
        median_us = benchmark.stats.stats.median * 1e6
        assert median_us <= LIMIT_US, f"{median_us:.2f} us median, limit {LIMIT_US} us"


@pytest.mark.parametrize("ports", [10, 120])
def test_replay_and_wait(benchmark: Any, ports: int) -> None:
    graph, stream = graph_of(ports), Stream("main")

    def step() -> None:
        graph.replay(KEY, stream)
        graph.wait(1.0)

    benchmark.extra_info.update(ports=ports, limit_median_us=LIMIT_US, not_real="a launcher that does nothing")
    benchmark(step)
    check(benchmark)


@pytest.mark.parametrize("ports", [10, 120])
def test_write_and_view(benchmark: Any, ports: int) -> None:
    graph, stream = graph_of(ports), Stream("main")
    graph.replay(KEY, stream)
    graph.wait(1.0)

    def step() -> None:
        graph.write("b0", 0, b"step")
        graph.view("b1")

    benchmark.extra_info.update(ports=ports, limit_median_us=LIMIT_US, not_real="a launcher that does nothing")
    benchmark(step)
    check(benchmark)
