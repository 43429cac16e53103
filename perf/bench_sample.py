"""What drawing costs a step on t_cpu_native: the sample graph over a real vocabulary, by what its rows want.

python3 ci/run.py bench perf/bench_sample.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends.base import Backend
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.resident import Resident
from zinc_rt.engine.runner import StepBlock
from zinc_rt.errors import UnsupportedError
from zinc_rt.exec import Stream
from zinc_rt.ir.slot_record import SlotFlag, dwords, free_records
from zinc_rt.model.sample_graph import LOGITS, SampleForm, sample_graph

VOCAB, SLOTS = 151_936, 16
WANTS: dict[str, dict[str, float]] = {
    "greedy": {},
    "top_k 40, top_p 0.9": {"temperature": 0.8, "top_k": 40, "top_p": 0.9},
    "temperature alone": {"temperature": 1.0},
    "greedy with penalties": {"repetition": 1.1, "frequency": 0.2, "presence": 0.1},
    "greedy with 5 logprobs": {"logprobs": 5},
}


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    try:
        one = open_backend(choose_tier("t_cpu_native"), "canonical-1")
    except UnsupportedError as error:
        pytest.skip(str(error))
    yield one
    one.close()


@pytest.mark.parametrize("rows", [1, SLOTS])
@pytest.mark.parametrize("wants", WANTS)
def test_sample(benchmark: Any, backend: Backend, wants: str, rows: int) -> None:
    records = free_records(SLOTS)
    for name, value in WANTS[wants].items():
        records[name] = value
    if "penalties" in wants:
        records["flags"], records["penalty_row"] = SlotFlag.PENALTIES, np.arange(SLOTS)
    form = SampleForm(VOCAB, SLOTS, penalty_rows=SLOTS, top=5 if "logprobs" in wants else None)
    resident, graph = Resident(backend, {}, {}), sample_graph(form)
    variant = resident.build(graph, (1, SLOTS, SLOTS), resident.graph(graph.name, graph))
    variant.write(LOGITS, np.random.default_rng(1).normal(size=(SLOTS, VOCAB)).astype(np.float32) * 3)
    block, stream = StepBlock(variant), Stream("bench")
    block.counts[1], block.counts[2] = SLOTS, rows
    block.views["sample.bound_slot"][:] = block.views["sample.row_slot"][:] = np.arange(SLOTS)
    block.views["sample.bound_record"][:] = dwords(records)

    def step() -> None:
        variant.write_step(block.raw)
        variant.submit(stream).wait(60)

    step()
    assert (variant.read("sample.token", (0, SLOTS, rows, 0)) >= 0).all()
    benchmark.extra_info["note"] = f"{rows} rows of {VOCAB}"
    benchmark.pedantic(step, rounds=9, warmup_rounds=2)
    resident.unload()
