"""Measure a decoded token of a tiny model in three hosts of t_cpu_native: write inputs, replay, wait, read.

python3 ci/run.py bench perf/bench_exec_library.py

The engine's Python objects, Python through the C library, and examples/exec_host.c, which runs as a program of its
own. Rounds of each alternate, and the order rotates. The model computes in about 100 us, so the hosts' cost shows.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.image import LIBRARY, write_host_folder
from zinc_rt.engine.runner import take_block
from zinc_rt.exec.abi import make_key
from zinc_rt.golden.embedded import FOLDER as GOLDEN
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.native.build import find_compiler, make_environment
from zinc_rt.model.gguf import read_gguf

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ROUNDS, STEPS = 15, 200
ONE_TOKEN = make_key(1, 1, 1)
HOSTS = ("engine", "Python", "C")


class Hosts:
    """The three hosts of one model. Each method returns the median microseconds of a token."""

    def __init__(self, folder: Path) -> None:
        threads = 2
        backend = open_backend(choose_tier("t_cpu_native", "auto"), "canonical-1", threads=threads)
        self.engine = Engine(read_gguf(GOLDEN / "qwen3-q.gguf"), backend, ctx=64)
        write_host_folder(self.engine, folder)
        self.engine.extend(self.engine.open(), [1, 2, 3], rows="last")
        self.block = take_block(self.engine.variants.get("decode", (1, 1, 1)))
        self.block.counts[:3] = 1
        spec = importlib.util.spec_from_file_location("bench_exec_host", EXAMPLES / "exec_host.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        self.host = module.ImageHost(folder, threads=threads)
        self.folder, self.program = folder, folder / "exec_host"
        options = ("-O2", f"-I{folder}", str(EXAMPLES / "exec_host.c"), f"-L{folder}", f"-l{LIBRARY[3:-3]}")
        command = (*find_compiler().command, *options, f"-Wl,-rpath,{folder}", "-o", str(self.program))
        subprocess.run(command, check=True, env=make_environment())

    def time_engine(self) -> float:
        times = []
        for step in range(STEPS):
            start = time.perf_counter_ns()
            self.block.views["request[slot].position"][0] = 3 + step % 60
            output = self.engine.runner.collect(self.engine.runner.submit(self.block))
            assert output.tokens.size == 1
            times.append(time.perf_counter_ns() - start)
        return median(times) / 1e3

    def time_python(self) -> float:
        host, call = self.host, self.host.library.functions
        position = host.library.call("graph_port", host.graph, ONE_TOKEN, "request[slot].position")
        token = host.library.call("graph_port", host.graph, ONE_TOKEN, "request[slot].next_token")
        value, times = np.zeros(1, np.int32), []
        for step in range(STEPS):
            start = time.perf_counter_ns()
            value[0] = 3 + step % 60
            call["zrt_buffer_write"](position.buffer, position.offset_bytes, value.ctypes.data, 4)
            call["zrt_graph_replay"](host.graph, ONE_TOKEN, host.stream)
            assert call["zrt_stream_synchronize"](host.stream, 60 * 10**9) == 0
            call["zrt_buffer_read"](token.buffer, token.offset_bytes, value.ctypes.data, 4)
            times.append(time.perf_counter_ns() - start)
        return median(times) / 1e3

    def time_c(self) -> float:
        command: list[str | Path] = [self.program, self.folder, str(STEPS), "1", "2", "3", "--bench"]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0])


def test_host_in_c_costs_no_more_than_the_engine(
    benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        hosts = Hosts(tmp_path)
    except UnsupportedError as error:
        pytest.skip(str(error))
    measures = dict(zip(HOSTS, (hosts.time_engine, hosts.time_python, hosts.time_c), strict=True))
    times: dict[str, list[float]] = {name: [] for name in HOSTS}

    def run_round() -> None:
        order = HOSTS[len(times["C"]) % 3 :] + HOSTS[: len(times["C"]) % 3]
        for name in order:
            times[name].append(measures[name]())

    benchmark.pedantic(run_round, rounds=1 if benchmark.disabled else ROUNDS)
    hosts.host.close()
    hosts.engine.close()
    ratios = sorted(c / engine for c, engine in zip(times["C"], times["engine"], strict=True))
    with capsys.disabled():
        for name, values in times.items():
            print(f"\n{name:<7} {median(values):7.1f} us a token ({min(values):.1f} to {max(values):.1f})", end="")
        load = os.getloadavg()[0]
        print(f"\nC / engine {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), paired; load {load:.1f}")
    if not benchmark.disabled:
        assert median(ratios) <= 1.0
