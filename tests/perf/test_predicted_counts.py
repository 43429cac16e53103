"""Predicted counts are those that the simulated device's counters show."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.ir.passes.matrix_cores import use_matrix_cores
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.predict.token_work import compute_work
from zinc_rt.sim.in_process import SimDriver

CTX = 256
NOT_DRAWN = ("store_rows", "stream_out")  # a step that returns logits to the host selects no token on the device


def executed_counts(driver: SimDriver) -> Counter[str]:
    counted: Counter[str] = Counter()
    for item in driver.machine.gpus[0].profile():
        values = item.dispatches, item.waves, item.instructions, item.bytes
        counted.update(dict(zip(("dispatches", "waves", "instructions", "bytes"), values, strict=True)))
    return counted


@pytest.mark.rest
@pytest.mark.parametrize(
    ("model", "tokens", "prefill"),
    [
        ("qwen35moe-q", 1, ""),
        ("qwen3-q", 16, ""),
        ("gemma4-q", 24, ""),
        pytest.param("qwen3-q", 96, "wmma-f16", marks=pytest.mark.slow),
        pytest.param("qwen35moe-q", 70, "wmma-f16", marks=pytest.mark.slow),
    ],
)
def test_counts_match_the_simulated_device(model: str, tokens: int, prefill: str) -> None:
    gguf = read_gguf(FOLDER / f"{model}.gguf")
    driver = SimDriver(sanitizer="off", profile=True)
    backend = open_t1(driver, AmdOptions("canonical-1", find_kernel_set("gfx1201")), after=driver.close_all)
    with Engine(gguf, backend, ctx=CTX, options=EngineOptions(prefill_ordering=prefill)) as engine:
        sequence = engine.open()
        engine.extend(sequence, [1 + index for index in range(60)], rows="last")
        engine.extend(sequence, [3 + index for index in range(tokens)], rows="last", role="prompt")
        before = executed_counts(driver)
        engine.extend(sequence, [5 + index for index in range(tokens)], rows="last", role="prompt")
        counted = executed_counts(driver) - before
    transform = partial(use_matrix_cores, ordering=prefill) if prefill else None
    work = compute_work(gguf, ctx=CTX, position=60 + 2 * tokens - 1, tokens=tokens, transform=transform)
    item = [one for one in work.each if one.kernel not in NOT_DRAWN]
    predicted = {
        "dispatches": len(item),
        "waves": sum(one.waves.waves for one in item),
        "instructions": sum(one.waves.instructions for one in item),
        "bytes": sum(one.waves.load_bytes + one.waves.store_bytes for one in item),
    }
    for name, value in predicted.items():
        assert value == pytest.approx(counted[name], rel=0.05), name
