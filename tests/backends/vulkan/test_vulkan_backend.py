"""The Vulkan backend over a Vulkan that checks handles, lifetimes, timelines and barriers. Needs no driver."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backends.vulkan.fake_backend import FakeBackend
from backends.vulkan.fake_hazards import FakeVulkanError
from backends.vulkan.fake_vulkan import DISCRETE, MAPPED, FakeVulkan
from lower.chains import ONE
from support import Counts

from zinc_rt.backends.vulkan import api, executable, pipelines, streams
from zinc_rt.backends.vulkan.backend import VulkanOptions
from zinc_rt.backends.vulkan.commands import END, CmdPipelineBarrier, VulkanCommand
from zinc_rt.backends.vulkan.hang import VulkanHang
from zinc_rt.backends.vulkan.physical_device import QueueFamily
from zinc_rt.engine.engine import Engine
from zinc_rt.exec import Event, Stream
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.ir.op import Op
from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.lower import LoweredGraph, lower
from zinc_rt.lower.one_node import TOGETHER, build_one_node
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.model.gguf import read_gguf
from zinc_rt.spirv.modes import add_modes

MODELS = ("qwen3-q", "gemma4-q", "qwen35moe-q")
HEAPS = {"mapped": MAPPED, "discrete": DISCRETE}
DEBUG = VulkanOptions(debug=True)


def make_add_graph(tokens: int = 3) -> tuple[LoweredGraph, int]:
    """ADD as a graph, and the bytes of its operands: one allocation, TOGETHER."""
    x = np.ones((tokens, 40), np.float32)
    node = build_one_node(Op.ADD, (x, x.copy()), (x.copy(),), capacity=ONE)
    plan = node.make_shared_plan(BufferHeap.DEVICE_LOCAL, 256)
    lowered = lower(node.graph, KERNELS.entries, plan, ordering="canonical-1", tier="vulkan")
    return lowered, plan.allocations[TOGETHER].size_bytes


@pytest.fixture
def fake_vulkan() -> FakeVulkan:
    return FakeVulkan()


@pytest.fixture
def backend(fake_vulkan: FakeVulkan) -> Iterator[FakeBackend]:
    """Closed by the test where it can be."""
    backend = FakeBackend(fake_vulkan, DEBUG)
    yield backend
    gc.collect()


def build_ready_graph(backend: FakeBackend) -> executable.VulkanExecutable:
    """A built graph with its operands."""
    lowered, size_bytes = make_add_graph()
    arena = backend.alloc(size_bytes, BufferHeap.DEVICE_LOCAL, TOGETHER)
    return backend.build(lowered, {TOGETHER: arena})


def run_model(backend: FakeBackend, name: str, *steps: list[int]) -> None:
    engine = Engine(read_gguf(str(FOLDER / f"{name}.gguf")), backend, ctx=64)
    session = engine.open()
    for tokens in steps:
        engine.extend(session, tokens)
    engine.release(session)


# --- whole models


@pytest.mark.parametrize(
    ("model", "heap"),
    [*((model, "mapped") for model in MODELS), (MODELS[0], "discrete")],
)
@pytest.mark.rest(keep=1)
def test_model_replays_run_in_order_without_leaks(model: str, heap: str) -> None:
    """Of any two dispatches that touch the same bytes, one of which stores to them, a barrier stands between; at
    the end nothing is left."""
    fake = FakeVulkan(HEAPS[heap], kind="cpu" if heap == "mapped" else "discrete")
    with FakeBackend(fake) as backend:
        run_model(backend, model, [1, 2, 3, 4, 5], [6], [7])
    assert not fake.live()


def drop_barrier(number: int) -> Callable[..., Iterator[VulkanCommand]]:
    """`executable.replayed` without that barrier; they count from 0, BEGIN."""
    real = executable.record_plan

    def replay_without_barrier(*arguments: Any) -> Iterator[VulkanCommand]:
        barriers = itertools.count()
        for command in real(*arguments):
            if not isinstance(command, CmdPipelineBarrier) or next(barriers) != number:
                yield command

    return replay_without_barrier


def test_every_dropped_barrier_is_detected(monkeypatch: pytest.MonkeyPatch, slow_counts: Counts) -> None:
    """All but the one in front, which orders submissions."""
    with FakeBackend(FakeVulkan()) as backend:
        run_model(backend, MODELS[0], [5])
        count = backend.fake.most_barriers
    assert count > 40
    for number in range(1, count, slow_counts(15, 1)):
        with monkeypatch.context() as patch, pytest.raises(FakeVulkanError, match=r"no barrier between|without a"):
            patch.setattr(executable, "record_plan", drop_barrier(number))
            run_model(FakeBackend(FakeVulkan()), MODELS[0], [5])


def test_submissions_are_ordered_by_the_leading_barrier(
    fake_vulkan: FakeVulkan, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = FakeBackend(fake_vulkan)
    lowered, size_bytes = make_add_graph()
    arena = backend.alloc(size_bytes, BufferHeap.DEVICE_LOCAL, TOGETHER)
    back = backend.alloc(size_bytes, BufferHeap.HOST_VISIBLE, "back")
    stream = Stream("one")
    backend.submit(backend.build(lowered, {TOGETHER: arena}), stream)
    monkeypatch.setattr(streams, "BEGIN", END)
    fence = backend.copy(arena, 0, back, 0, size_bytes, stream)
    with pytest.raises(FakeVulkanError, match=r"no barrier between y of a dispatch .* and a load of a transfer"):
        backend.wait(fence, 1.0)


# --- kernels


def test_missing_float_mode_is_detected(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "add_modes", lambda data, modes: add_modes(data, modes[1:]))
    with pytest.raises(
        FakeVulkanError, match="the kernel does not declare RoundingModeRTE, which this device requires"
    ):
        build_ready_graph(backend)


# --- lifetimes


def test_free_in_flight_is_detected(fake_vulkan: FakeVulkan, backend: FakeBackend) -> None:
    result = build_ready_graph(backend)
    fake_vulkan.stalled = True
    backend.submit(result, Stream("one"))
    with pytest.raises(FakeVulkanError, match="is freed while a submission uses it"):
        backend.unload(result)


def test_operands_freed_in_flight_are_detected_through_kernel_arguments(
    fake_vulkan: FakeVulkan, backend: FakeBackend
) -> None:
    lowered, size_bytes = make_add_graph()
    arena = backend.alloc(size_bytes, BufferHeap.DEVICE_LOCAL, TOGETHER)
    result = backend.build(lowered, {TOGETHER: arena})
    fake_vulkan.stalled = True
    backend.submit(result, Stream("one"))
    with pytest.raises(FakeVulkanError, match="is freed while a submission uses it"):
        backend.free(arena)


def test_submitting_freed_operands_is_detected(backend: FakeBackend) -> None:
    lowered, size_bytes = make_add_graph()
    arena = backend.alloc(size_bytes, BufferHeap.DEVICE_LOCAL, TOGETHER)
    result = backend.build(lowered, {TOGETHER: arena})
    backend.free(arena)
    with pytest.raises(FakeVulkanError, match=r"argument is at .* which was freed"):
        backend.submit(result, Stream("one"))


def test_buffer_is_freed_once(backend: FakeBackend) -> None:
    buffer = backend.alloc(100, BufferHeap.HOST_VISIBLE, "once")
    backend.free(buffer)
    with pytest.raises(ValueError, match="once is not allocated on this device or was freed"):
        backend.free(buffer)


def test_leaks_at_exit_are_detected(fake_vulkan: FakeVulkan, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend(fake_vulkan)
    build_ready_graph(backend)
    monkeypatch.setattr(backend.memory, "close", lambda: None)
    with pytest.raises(FakeVulkanError, match="not destroyed at the end: VkBuffer"):
        backend.close()


def test_timeline_value_is_signalled_once(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    result, stream = build_ready_graph(backend), Stream("one")
    fence = backend.submit(result, stream)
    fence.timeline.next_value.value = 1
    with pytest.raises(FakeVulkanError, match="value 1 is signalled after the larger value 1"):
        backend.submit(result, stream)


# --- streams


def test_streams_share_queues_and_synchronise_on_the_device() -> None:
    fake = FakeVulkan(queues=2)
    with FakeBackend(fake) as backend:
        result = build_ready_graph(backend)
        first, second = Stream("first"), Stream("second")
        fake.stalled = True
        for stream in (first, second):
            stream.record_submission(backend.submit(result, stream))
        event = Event()
        event.record(first)
        second.wait(event)
        fence = backend.submit(result, second)
        one, other, waiting = fake.pending
        assert one.queue != other.queue == waiting.queue
        assert [len(item.waits) for item in fake.pending] == [0, 0, 1] and waiting.waits == one.signals
        assert not fence.done()
        fake.stalled = False
        backend.wait(fence, 1.0)
        assert backend.submissions.fast == 0 and backend.submissions.careful == 3
        backend.wait(backend.submit(result, first), 1.0)
        assert backend.submissions.fast == 1


def test_copies_and_fills_follow_stream_order(fake_vulkan: FakeVulkan) -> None:
    with FakeBackend(fake_vulkan) as backend:
        stream = Stream("one")
        source = backend.alloc(4096, BufferHeap.DEVICE_LOCAL, "source")
        target = backend.alloc(4096, BufferHeap.HOST_VISIBLE, "target")
        backend.write(source, 0, memoryview(bytes(range(256)) * 16))
        backend.copy(source, 256, target, 0, 1000, stream)
        backend.fill(target, 100, 200, stream)
        backend.wait(backend.copy(target, 400, target, 0, 4, stream), 1.0)
        got = bytes(backend.read(target, 0, 1000))
        want = bytearray((bytes(range(256)) * 4)[:1000])
        want[100:300] = bytes(200)
        want[:4] = want[400:404]
        assert got == bytes(want)
        with pytest.raises(ValueError, match="whole dwords"):
            backend.fill(target, 1, 4, stream)


# --- memory


@pytest.mark.parametrize("heap", HEAPS)
def test_uploads_reach_memory_that_is_not_host_mapped(heap: str) -> None:
    fake = FakeVulkan(HEAPS[heap], kind="discrete", heap_bytes=1 << 28)
    with FakeBackend(fake) as backend:
        content = np.random.default_rng(1).integers(0, 256, 100_000, np.uint8)
        buffers = backend.upload({}, {"constant": content})
        back = backend.alloc(content.nbytes, BufferHeap.HOST_VISIBLE, "back")
        assert not any(backend.read(back, 0, content.nbytes))
        backend.wait(backend.copy(buffers["constant"], 0, back, 0, content.nbytes, Stream("one")), 1.0)
        assert bytes(backend.read(back, 0, content.nbytes)) == content.tobytes()
        if heap == "discrete":
            with pytest.raises(ValueError, match="the host cannot map this memory"):
                backend.read(buffers["constant"], 0, 4)


def test_oversized_allocation_is_rejected_with_the_available_size() -> None:
    with FakeBackend(FakeVulkan(heap_bytes=10 << 20)) as backend:
        backend.alloc(7 << 20, BufferHeap.DEVICE_LOCAL, "cache", zeroed=False)
        with pytest.raises(
            UnsupportedError, match=r"arena takes 5.0 MiB, fake has 3.0 MiB left; .* cache 7.0 MiB"
        ):
            backend.alloc(5 << 20, BufferHeap.DEVICE_LOCAL, "arena")
        with pytest.raises(
            UnsupportedError, match=r"all needs an allocation of 20.0 MiB, but fake allows 10.0 MiB"
        ):
            backend.alloc(20 << 20, BufferHeap.DEVICE_LOCAL, "all")


def test_guards_name_the_overrun_buffer(fake_vulkan: FakeVulkan) -> None:
    with FakeBackend(fake_vulkan, VulkanOptions(guarded=True)) as backend:
        buffer = backend.alloc(100, BufferHeap.HOST_VISIBLE, "scores")
        assert not backend.memory.spoilt()
        block = buffer.storage.block
        block.host[block.guard_bytes + 112 + 3] = 1  # 100 bytes take 112
        assert backend.memory.spoilt() == ["1 bytes after scores were overwritten, the nearest 3 away"]
        assert not backend.memory.spoilt()


# --- what does not end


def test_timeout_names_the_stalled_replay_and_node(fake_vulkan: FakeVulkan, backend: FakeBackend) -> None:
    result, stream = build_ready_graph(backend), Stream("decode")
    backend.wait(backend.submit(result, stream), 1.0)
    fake_vulkan.stops_behind = 1  # step_grids has ended, the addition has not
    fence = backend.submit(result, stream)
    with pytest.raises(VulkanHang) as caught:
        backend.wait(fence, 0.5)
    assert caught.value.node is result.nodes[0] and caught.value.executable == result.name
    assert caught.value.message == (
        "fake, stream decode: value 2 not reached after 0.5 s; the semaphore is at 1 of 2 submitted; "
        f"{result.name} runs; not past add of ADD y"
    )
    assert "a software driver cannot cancel a dispatch: end the process" in caught.value.next
    with pytest.raises(VulkanHang):
        backend.close(drain_seconds=0.0)
    backend.close()  # harmless; the device stays
    assert fake_vulkan.live("VkPipeline")


def test_lost_device_fails_every_fence_and_closes(fake_vulkan: FakeVulkan, backend: FakeBackend) -> None:
    result, stream = build_ready_graph(backend), Stream("decode")
    before = backend.submit(result, stream)
    backend.wait(before, 1.0)
    fake_vulkan.stalled = True
    fence, later = backend.submit(result, stream), backend.submit(result, Stream("other"))
    fake_vulkan.lose_device()
    with pytest.raises(VulkanHang, match="value 2 was lost with the device") as caught:
        backend.wait(fence, 1.0)
    assert caught.value.lost and before.done() and later.done()
    before.wait(0.0)
    for call in (lambda: later.wait(0.0), lambda: backend.submit(result, stream)):
        with pytest.raises(VulkanHang, match="lost with the device"):
            call()
    backend.close()
    assert not fake_vulkan.live()


def test_lost_device_is_queried_for_the_reason(fake_vulkan: FakeVulkan) -> None:
    fake_vulkan.extensions = frozenset({"VK_EXT_device_fault"})
    backend = FakeBackend(fake_vulkan)
    fence = backend.submit(build_ready_graph(backend), Stream("decode"))
    fake_vulkan.lose_device()
    with pytest.raises(VulkanHang, match=r"page fault; an invalid write at 0x7000 \(to 4096 bytes\)"):
        backend.wait(fence, 1.0)
    backend.close()


# --- pipelines, processes


def test_driver_code_is_cached_and_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    def open_backend_on_fake() -> tuple[FakeVulkan, FakeBackend]:
        fake = FakeVulkan()
        return fake, FakeBackend(fake, VulkanOptions(cache=ObjectCache(tmp_path)))

    def cached_content_size(fake: FakeVulkan) -> int:
        return len(fake.live("VkPipelineCache")[0].data["content"])

    fake, backend = open_backend_on_fake()
    assert cached_content_size(fake) == 0
    build_ready_graph(backend)
    backend.close()
    (file,) = tmp_path.iterdir()
    fake, backend = open_backend_on_fake()
    assert cached_content_size(fake) > 0
    backend.close()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    fake, backend = open_backend_on_fake()
    assert cached_content_size(fake) == 0
    backend.close()


def test_fork_is_rejected(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    result = build_ready_graph(backend)
    monkeypatch.setattr("os.getpid", lambda: -1)
    calls: list[Callable[[], object]] = [
        lambda: backend.submit(result, Stream("one")),
        lambda: backend.alloc(4, BufferHeap.HOST_VISIBLE, "more"),
    ]
    for call in calls:
        with pytest.raises(
            UnsupportedError, match="it cannot be used in a forked process, which lacks the driver's threads"
        ):
            call()
    backend.close()  # the parent's business
    assert result.block in backend.memory.blocks


def test_grid_beyond_the_device_limit_is_rejected(fake_vulkan: FakeVulkan) -> None:
    with FakeBackend(fake_vulkan) as backend:
        lowered, size_bytes = make_add_graph(tokens=1)
        arena = backend.alloc(size_bytes, BufferHeap.DEVICE_LOCAL, TOGETHER)
        object.__setattr__(backend.vulkan.physical.limits, "grid", (0, 0, 0))
        with pytest.raises(UnsupportedError, match="add needs 1 x 1 x 1 workgroups, but fake has"):
            backend.build(lowered, {TOGETHER: arena})


def test_timed_graph_needs_timestamps(fake_vulkan: FakeVulkan) -> None:
    with FakeBackend(fake_vulkan) as backend:
        lowered, size_bytes = make_add_graph()
        arena = backend.alloc(size_bytes, BufferHeap.DEVICE_LOCAL, TOGETHER)
        timed = replace(lowered, timed=True)
        result = backend.build(timed, {TOGETHER: arena})
        assert result.times().dispatches == ()
        backend.wait(backend.submit(result, Stream("one")), 1.0)
        assert [dispatch.kernel for dispatch in result.times().dispatches] == ["step_grids", "add"]
        backend.unload(result)
        families = (QueueFamily(api.VK_QUEUE_COMPUTE_BIT, 1, 0),)
        backend.vulkan.physical = replace(backend.vulkan.physical, queue_families=families)
        with pytest.raises(UnsupportedError, match="fake: its queue does not support timestamps"):
            backend.build(timed, {TOGETHER: arena})


def test_executables_list_nodes_and_spirv(backend: FakeBackend) -> None:
    result = build_ready_graph(backend)
    assert [node.op for node in result.nodes] == [Op.ADD]
    assert result.kernels() == {name: KERNELS.module(name) for name in ("add", "step_grids")}
    assert result.times().dispatches == ()
    backend.unload(result)
    backend.close()
