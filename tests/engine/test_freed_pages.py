"""Pages behind a window are given back while their sequence lives, and what becomes of them changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine, Sequence
from zinc_rt.engine.runner import StepBlock
from zinc_rt.exec import copy
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.sched.kv.kv_cache import UNSET

pytestmark = pytest.mark.rest

RUNS = [("gemma4", "t_cpu"), ("gemma4", "t_cpu_native"), ("gemma4", "t1"), ("gemma4", "t2"), ("gemma3", "t_cpu")]
TOKENS = [(7 * index + index * index) % 101 for index in range(80)]
PIECES = (25, 1, 1, 20, 1, 16, 7, 9)  # of TOKENS
Model = Callable[[str], GGUFFile]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """model(architecture): a tiny one, whose window is half a page."""

    def create_model(architecture: str) -> GGUFFile:
        path = tmp_path_factory.mktemp("windows") / f"{architecture}.gguf"
        write_tiny(path, architecture)
        return read_gguf(path)

    return create_model


def open_engine(gguf: GGUFFile, tier: str) -> Engine:
    simulated = {"device": "sim", "sanitizer": "full"} if tier in ("t1", "t2") else {}
    limits = SequenceLimits(ctx=96, slots=2, step_tokens=25)
    return Engine(gguf, open_backend(choose_tier(tier, **simulated), "canonical-1"), limits=limits)


def poison_free_pages(engine: Engine, block: StepBlock) -> int:
    """Write NaN to every row of every page that no sequence owns. Gives how many pages that were."""
    variant, backend, stream = block.variant, engine.backend, engine.runner.stream
    poisoned = 0
    for node in variant.graph.nodes:
        if not node.op.name.startswith("KV_WRITE"):
            continue
        pool = engine.cache.pools[int(node.inputs[4] != "state.page_table")].pool
        free = [page for page in range(pool.count) if not pool.users[page]]
        poisoned += len(free)
        for name in node.outputs:
            placement = variant.program.plan.placements[name]
            size_bytes = placement.size_bytes // pool.count
            nan = backend.alloc(size_bytes, BufferHeap.BAR, "nan")
            backend.write(nan, 0, memoryview(np.full(size_bytes // 4, np.nan, np.float32)).cast("B"))
            for page in free:
                target = variant.buffers[placement.allocation]
                copy(backend, nan, 0, target, placement.offset_bytes + page * size_bytes, size_bytes, stream)
            assert stream.last is not None
            stream.last.wait(60)
            backend.free(nan)
    return poisoned


@pytest.mark.parametrize(("architecture", "tier"), RUNS)
@pytest.mark.slow(keep=2)
def test_nan_in_freed_pages_has_no_effect(architecture: str, tier: str, tiny_model: Model) -> None:
    gguf = tiny_model(architecture)
    with Engine(gguf, CpuBackend("canonical-1", threads=1), ctx=96) as engine:
        want = engine.forward(TOKENS)
    with open_engine(gguf, tier) as engine:
        other, one = engine.open(), engine.open()
        engine.extend(other, TOKENS[:40])
        engine.release(other)
        got: list[np.ndarray] = []
        for count in PIECES:
            block = engine.runner.block("prefill", tokens=1, sequences=1, rows=1)
            assert poison_free_pages(engine, block)
            got.append(engine.extend(one, TOKENS[one.position : one.position + count]))
        assert np.concatenate(got).tobytes() == want.tobytes()
        if engine.backend.instrument is not None:
            assert engine.backend.instrument.findings() == []


def mapped_pages(engine: Engine, sequence: Sequence, group: int) -> list[int]:
    return [location for location, page in enumerate(engine.pages(sequence, group)) if page != UNSET]


def test_sliding_window_holds_only_visible_pages(tiny_model: Model) -> None:
    with open_engine(tiny_model("gemma4"), "t_cpu") as engine:
        assert [spec.window for spec in engine.page_groups] == [0, 8]
        assert [pages.pool.count for pages in engine.cache.pools] == [2 * 6, 2 * 4]
        sequence = engine.open()
        for token in TOKENS:
            engine.extend(sequence, [token])
            # the next token sees its own position and the seven before it
            first = max(0, sequence.position - 7) // 16
            assert mapped_pages(engine, sequence, 0) == list(range(-(-sequence.position // 16)))
            assert mapped_pages(engine, sequence, 1) == list(range(first, -(-sequence.position // 16)))
        engine.release(sequence)
        assert all(pages.pool.free == pages.pool.count for pages in engine.cache.pools)
