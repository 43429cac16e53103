"""What the device has of slots and pages is read back, and what is not as the host has it is named."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.sample_graph import RECORD_TABLE
from zinc_rt.sched.mixes.mix import MixedRequest
from zinc_rt.sched.sampling import Sampling
from zinc_rt.validate.isolation.server import MixServer


@pytest.fixture
def busy_server() -> Iterator[MixServer]:
    """Three sampling requests in the middle of their answers."""
    limits = SequenceLimits(128, 4, step_tokens=40)
    with Engine(read_gguf(FOLDER / "gemma4-q.gguf"), CpuBackend("canonical-1"), limits=limits) as engine:
        server = MixServer(engine, {}, name="gemma4-q")
        for number in range(1, 4):
            prompt = tuple(range(number, number + 17))
            sampling = Sampling(max_tokens=20, temperature=1.0, seed=number, ignore_eos=True)
            server.submit(MixedRequest(number, number - 1, prompt, sampling, 0))
        for _ in range(4):
            server.step()
        assert server.audit() == []
        yield server


def test_audit_reports_wrong_record(busy_server: MixServer) -> None:
    request = next(busy_server.scheduler.running())
    busy_server.scheduler.records[request.slot]["epoch"] += 1
    (result,) = busy_server.audit()
    assert result.startswith(f"slot {request.slot}, request {request.number}: the device's record has epoch ")


@pytest.mark.rest
def test_audit_reports_bit_flip_on_the_device(busy_server: MixServer) -> None:
    variants = busy_server.model.runner.variants.ran()
    variant = next(variant for variant in variants if RECORD_TABLE in variant.graph.buffers)
    slot = next(busy_server.scheduler.running()).slot
    variant.write(RECORD_TABLE, np.array([1 << 20], np.int32), offset_bytes=256 * slot + 84)
    assert busy_server.audit()[0].startswith(f"slot {slot}: the checksum of the device's record is wrong")


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.rest
def test_audit_reports_stale_page_table(busy_server: MixServer, group: int) -> None:
    request = next(busy_server.scheduler.running())
    assert request.holding is not None
    table = request.holding.tables[group]
    table[-1] += 1
    (result,) = busy_server.audit()
    name = busy_server.scheduler.cache.groups[group].name
    text = f"the device has page {table[-1] - 1} at index {len(table) - 1}, the host expects page {table[-1]}"
    assert result == f"slot {request.slot}, request {request.number}, group {name}: {text}"
