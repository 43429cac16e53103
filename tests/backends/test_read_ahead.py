"""Which pages are asked for before they are needed: by layer, in order, within a budget, and nothing in vain."""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.backends.cpu.read_ahead import (
    FITS,
    FollowedGraph,
    PageRange,
    ReadAhead,
    WeightGroup,
    advise,
    choose_next_groups,
    group_weights,
    read_available_memory,
)
from zinc_rt.engine.engine import Engine
from zinc_rt.exec import Buffer
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.machine import read_process_memory
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph
from zinc_rt.model.gguf import GGUFFile, read_gguf

PAGE = mmap.PAGESIZE


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> GGUFFile:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    write_tiny(path, "qwen3moe", quant="q", hidden=256, head_dim=64)
    return read_gguf(path)


@pytest.fixture(scope="module")
def built_program(gguf: GGUFFile) -> Iterator[tuple[LoweredGraph, dict[str, Buffer]]]:
    backend = CpuBackend("canonical-1")
    with Engine(gguf, backend, ctx=16) as engine:
        program = engine.variants.find_fitting("decode", 1, 1, 1).program
        model = engine.variants.model("decode")
        yield program, backend.upload(model.weights, model.constants)


def make_group(mib: float, layer: int = 0) -> WeightGroup:
    return WeightGroup(layer, (PageRange(0, int(mib * (1 << 20))),) if mib else ())


def test_layers_are_listed_in_order_in_whole_file_pages(
    gguf: GGUFFile, built_program: tuple[LoweredGraph, dict[str, Buffer]]
) -> None:
    groups, where = group_weights(*built_program)
    assert [group.layer for group in groups if group.layer is not None] == [0, 1]
    assert set(where) == {id(call.node) for call in built_program[0].calls}
    start = min(tensor.data.ctypes.data for tensor in gguf.tensors.values()) // PAGE * PAGE
    for item in (item for group in groups for item in group.ranges):
        assert item.address % PAGE == item.size_bytes % PAGE == 0
        assert start <= item.address and item.address + item.size_bytes <= start + gguf.file_bytes + PAGE


def test_partially_read_tensors_are_not_prefetched(
    gguf: GGUFFile, built_program: tuple[LoweredGraph, dict[str, Buffer]]
) -> None:
    groups, _ = group_weights(*built_program)
    items = [item for group in groups for item in group.ranges]

    def is_covered(name: str) -> bool:
        data = gguf.tensors[name].data
        low, high = data.ctypes.data, data.ctypes.data + data.nbytes
        return any(item.address <= low and high <= item.address + item.size_bytes for item in items)

    assert (
        is_covered("blk.0.attn_q.weight")
        and is_covered("blk.1.attn_output.weight")
        and is_covered("output.weight")
    )
    assert not is_covered("token_embd.weight")
    assert not any(is_covered(name) for name in gguf.tensors if "_exps" in name)


def test_slice_of_a_merged_tensor_is_prefetched_separately() -> None:
    from zinc_rt.backends.cpu.read_ahead import _list_page_ranges

    merged = np.zeros((4, 2, 8 * PAGE), np.uint8)
    half = Weight("i8", (4, 1, 8 * PAGE), merged[:, 1:])
    ranges = list(_list_page_ranges(half))
    assert len(ranges) == 4 and all(item.size_bytes <= 9 * PAGE for item in ranges)


def test_next_layers_are_prefetched_within_budget_and_at_least_one() -> None:
    groups = [make_group(0), *[make_group(100)] * 5]
    assert choose_next_groups(groups, 1, 250 << 20) == [2, 3]
    assert choose_next_groups(groups, 1, 1) == [2]
    assert choose_next_groups(groups, 1, 1 << 40) == [2, 3, 4, 5, 0]
    assert choose_next_groups([make_group(100)], 0, 1 << 40) == []


def test_first_layer_follows_the_last_for_the_next_token() -> None:
    assert choose_next_groups([make_group(0), *[make_group(100)] * 5], 5, 150 << 20) == [0, 1]


class RecordedAdvice:
    """Ranges in the order they are asked for."""

    def __init__(self) -> None:
        self.ranges: list[PageRange] = []

    def __call__(self, pages: PageRange) -> None:
        self.ranges.append(pages)


def test_model_that_fits_is_prefetched_once_as_a_whole(
    built_program: tuple[LoweredGraph, dict[str, Buffer]],
) -> None:
    asked = RecordedAdvice()
    ahead = ReadAhead(memory=lambda: 1 << 40, advise=asked, least_bytes=1)
    nodes = [call.node for call in built_program[0].calls]
    for _ in range(3):
        assert ahead.add(*built_program, nodes) is None
        assert ahead._whole is not None
        ahead._whole.join()
    assert asked.ranges == [item for result in group_weights(*built_program)[0] for item in result.ranges]


def test_small_model_is_not_prefetched(built_program: tuple[LoweredGraph, dict[str, Buffer]]) -> None:
    asked = RecordedAdvice()
    assert ReadAhead(memory=lambda: 1, advise=asked).add(*built_program, []) is None
    assert not asked.ranges


def test_model_that_does_not_fit_is_prefetched_by_layer(
    built_program: tuple[LoweredGraph, dict[str, Buffer]],
) -> None:
    groups, where = group_weights(*built_program)
    size = sum(group.size_bytes for group in groups)
    nodes = [None, *(call.node for call in built_program[0].calls)]
    ahead = ReadAhead(memory=lambda: int(size / FITS) - 1, advise=RecordedAdvice(), least_bytes=1)
    followed = ahead.add(*built_program, nodes)
    assert followed is not None and followed.size_bytes == size
    assert list(followed.task_group) == [-1, *(where[id(call.node)] for call in built_program[0].calls)]


def test_next_layer_is_prefetched_while_one_runs() -> None:
    layers = tuple(WeightGroup(n, (PageRange(n * PAGE, PAGE),)) for n in range(4))
    followed = FollowedGraph(layers, np.array([0, 0, 1, 1, 2, 3], np.int32))
    task, asked, heard = [0], RecordedAdvice(), threading.Event()

    def record_advice(pages: PageRange) -> None:
        asked(pages)
        heard.set()

    ahead = ReadAhead(advise=record_advice, budget_bytes=PAGE, look_seconds=0.0005)
    with ahead.follow(followed, lambda: task[0]):
        for number in range(6):
            task[0] = number
            if number in (0, 2, 4, 5):  # another layer begins
                assert heard.wait(10)
                heard.clear()
            else:
                time.sleep(0.002)
    assert [item.address // PAGE for item in asked.ranges] == [1, 2, 3, 0]


def test_failed_replay_stops_the_read_ahead() -> None:
    before = threading.active_count()
    followed = FollowedGraph((make_group(1), make_group(1)), np.zeros(1, np.int32))
    with pytest.raises(RuntimeError), ReadAhead(advise=RecordedAdvice()).follow(followed, lambda: 0):
        raise RuntimeError
    assert threading.active_count() == before


def test_advice_for_unmapped_memory_is_not_an_error(tmp_path: Path) -> None:
    advise(PageRange(PAGE, PAGE))
    assert 0 < read_available_memory() < 1 << 60


def test_process_memory_is_reported() -> None:
    result = read_process_memory()
    assert result.resident_bytes > 1 << 20
    assert result.peak_resident_bytes is None or result.peak_resident_bytes >= result.resident_bytes // 2
