"""Speed of simulated T1 beside the oracle: a model of Qwen 3 0.6 B's shape, Q8_0, and the embedded models.

    python3 ci/run.py bench perf/bench_tiers.py

What the simulated device costs at each level of its sanitizer; no word about hardware. T-CPU decodes the same
model in the same run, so that the quotient of the two survives a change of machine. Limits are in `extra_info`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.engine.devices import SANITIZERS, choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.host.machine import available_cores
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.synthetic import SHAPES, write_synthetic

ORDERING = "canonical-1"
CTX = 512
PLACES = ("t_cpu", *(f"t1 {level}" for level in SANITIZERS))
LIMIT_SECONDS = {"t1 fast": 0.6}  # a token
VALIDATE = (sys.executable, "-m", "zinc_rt.cli", "validate", "--device", "sim", "--tiers", "t1,t2,t_cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic(tmp_path_factory.mktemp("model") / "model.gguf", SHAPES["qwen3-0.6b-q8_0"])


@pytest.fixture(params=PLACES)
def engine(request: pytest.FixtureRequest, model: Path) -> Iterator[Engine]:
    tier, _, level = request.param.partition(" ")
    choice = choose_tier(tier, "sim", sanitizer=level) if level else choose_tier(tier)
    with Engine(read_gguf(model), open_backend(choice, ORDERING), ctx=CTX) as opened:
        yield opened


def test_decode_one_token(benchmark: Any, engine: Engine, request: pytest.FixtureRequest) -> None:
    place = request.node.callspec.params["engine"]
    sequence = engine.open()
    engine.extend(sequence, [1, 2, 3, 4], rows="last")
    benchmark.pedantic(engine.extend, (sequence, [5]), {"rows": "last"}, rounds=9, warmup_rounds=2)
    note(benchmark, limit_seconds=LIMIT_SECONDS.get(place))
    if benchmark.stats:
        benchmark.extra_info["tokens_per_second"] = round(1 / benchmark.stats.stats.median, 2)


@pytest.mark.parametrize(("kernels", "rounds"), [("cold", 1), ("warm", 3)])
def test_validate_the_embedded_models(benchmark: Any, tmp_path: Path, kernels: str, rounds: int) -> None:
    """Cold: nothing on disk yet, every kernel is translated and compiled, every oracle result computed."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    how = {"check": True, "stdout": subprocess.DEVNULL, "env": environment}
    benchmark.pedantic(subprocess.run, (VALIDATE,), how, rounds=rounds, warmup_rounds=int(kernels == "warm"))
    note(benchmark, limit_seconds={"cold": 60.0, "warm": 20.0}[kernels])


def note(benchmark: Any, *, limit_seconds: float | None) -> None:
    benchmark.extra_info.update(cores=available_cores(), ordering=ORDERING, limit_seconds=limit_seconds)
