"""The Vulkan backend on a driver: replays, streams, deadlines, processes, memory of every kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kernels.spirv.harness import SpirvBench
from support import Counts

from zinc_rt.backends import registry
from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
from zinc_rt.backends.vulkan.device import PhysicalDevice, open_device
from zinc_rt.backends.vulkan.executable import VulkanExecutable
from zinc_rt.backends.vulkan.fence import SemaphoreFence
from zinc_rt.backends.vulkan.hang import VulkanHang
from zinc_rt.backends.vulkan.memory import IMPORT_BYTES
from zinc_rt.exec import Event, Stream
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import parse
from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import lower
from zinc_rt.lower.one_node import TOGETHER, build_one_node
from zinc_rt.mem.heaps import BufferHeap

SECONDS = 60.0
CASES = (
    "ADD T=3 N=1000 seed=5 tokens=9",
    "MATMUL T=2 N=18 K=1280 one=1 dtype=q4_k vector=bf16 values=outliers seed=11 tokens=64 -bias",
)


def open_vulkan_backend(device: PhysicalDevice, options: VulkanOptions = VulkanOptions()) -> VulkanBackend:  # noqa: B008 - frozen
    result = open_device(device)
    return VulkanBackend(registry.spec("vulkan"), "canonical-1", result, KERNELS, options, after=result.close)


@pytest.fixture
def backend(vulkan_driver: PhysicalDevice) -> Iterator[VulkanBackend]:
    with open_vulkan_backend(vulkan_driver) as result:
        yield result


class SumGraph:
    """x = x + 1 over many elements: an ADD with its result in the place of an operand. x counts the replays."""

    def __init__(self, backend: VulkanBackend, size: int = 1000, *, timed: bool = False) -> None:
        self.backend, self.size = backend, size
        zero, one = np.zeros((1, size), np.float32), np.ones((1, size), np.float32)
        self.node = build_one_node(Op.ADD, (zero, one), (zero.copy(),))
        plan = self.node.make_shared_plan(BufferHeap.HOST_VISIBLE, 256)
        plan = replace(plan, placements={**plan.placements, "y": plan.placements["a"]})
        lowered = lower(self.node.graph, KERNELS.entries, plan, ordering="canonical-1", tier="vulkan")
        self.lowered = replace(lowered, timed=timed)
        self.places = plan.placements
        self.arena = backend.alloc(plan.allocations[TOGETHER].size_bytes, BufferHeap.HOST_VISIBLE, "arena")
        for name in ("a", "b"):
            backend.write(
                self.arena, self.places[name].offset_bytes, memoryview(self.node.operands[name]).cast("B")
            )
        self.executable = self.build()

    def build(self) -> VulkanExecutable:
        return self.backend.build(self.lowered, {TOGETHER: self.arena})

    def replay(self, stream: Stream, executable: VulkanExecutable | None = None) -> SemaphoreFence:
        fence = self.backend.submit(executable or self.executable, stream)
        stream.record_submission(fence)
        return fence

    def read_count(self) -> float:
        """Check that all elements agree, and return their number."""
        location = self.places["a"]
        values = np.frombuffer(self.backend.read(self.arena, location.offset_bytes, 4 * self.size), np.float32)
        assert (values == values[0]).all()
        return float(values[0])

    def close(self) -> None:
        self.backend.unload(self.executable)
        self.backend.free(self.arena)


# --- replays and streams


def test_consecutive_replays_run_in_order(backend: VulkanBackend, slow_counts: Counts) -> None:
    sums, stream, count = SumGraph(backend), Stream("one"), slow_counts(200, 10_000)
    for _ in range(count):
        fence = sums.replay(stream)
    backend.wait(fence, SECONDS)
    assert sums.read_count() == count == fence.value
    assert backend.submissions.fast == count - 1
    sums.close()


def test_three_streams_run_concurrently_and_wait_for_events(backend: VulkanBackend) -> None:
    streams = [Stream(name) for name in ("first", "second", "third")]
    own = [SumGraph(backend) for _ in streams]
    shared = SumGraph(backend)
    for _ in range(20):
        for stream, sums in zip(streams, own, strict=True):
            sums.replay(stream)
        for before, stream in zip(streams, [*streams[1:], streams[0]], strict=True):
            event = Event()
            event.record(before)
            stream.wait(event)
            shared.replay(stream)
    for stream in streams:
        assert stream.last is not None
        backend.wait(stream.last, SECONDS)
    assert [sums.read_count() for sums in own] == [20, 20, 20] and shared.read_count() == 60


def test_executables_are_created_and_freed_while_others_run(backend: VulkanBackend) -> None:
    sums, stream = SumGraph(backend), Stream("one")
    for _ in range(10):
        other = sums.build()
        sums.replay(stream)
        backend.wait(sums.replay(stream, other), SECONDS)
        sums.replay(stream)
        backend.unload(other)
    assert stream.last is not None
    backend.wait(stream.last, SECONDS)
    assert sums.read_count() == 30


def test_timed_graph_has_timestamps_for_each_dispatch(backend: VulkanBackend) -> None:
    sums = SumGraph(backend, timed=True)
    assert sums.executable.times().dispatches == ()
    for _ in range(2):
        backend.wait(sums.replay(Stream("one")), SECONDS)
        times = sums.executable.times()
        assert [dispatch.kernel for dispatch in times.dispatches] == ["add"]
        assert not list(times.wrong()) and times.dispatches[0].nanoseconds > 0
    assert sums.read_count() == 2


# --- what does not end in time


def test_wait_can_be_repeated_after_a_missed_deadline(backend: VulkanBackend) -> None:
    sums, stream = SumGraph(backend, size=200_000), Stream("slow")
    for _ in range(50):
        fence = sums.replay(stream)
    with pytest.raises(VulkanHang, match="stream slow: value 50 not reached after 0 s"):
        backend.wait(fence, 0.0)
    backend.wait(fence, SECONDS)
    assert sums.read_count() == 50


def test_forked_child_does_not_use_the_device(backend: VulkanBackend) -> None:
    sums = SumGraph(backend)
    backend.wait(sums.replay(Stream("one")), SECONDS)
    child = os.fork()
    if not child:
        try:
            sums.replay(Stream("two"))
        except UnsupportedError as error:
            backend.close()  # the parent's: nothing happens
            os._exit(0 if "fork" in error.message else 3)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    backend.wait(sums.replay(Stream("three")), SECONDS)
    assert sums.read_count() == 2


def test_two_backends_work_in_one_process(vulkan_driver: PhysicalDevice) -> None:
    with open_vulkan_backend(vulkan_driver) as first, open_vulkan_backend(vulkan_driver) as second:
        pairs = [(SumGraph(item), Stream("one")) for item in (first, second)]
        for _ in range(5):
            for sums, stream in pairs:
                sums.replay(stream)
        waiting = pairs[0][1]
        event = Event()
        event.record(pairs[1][1])
        waiting.wait(event)  # another device's: the host waits
        fence = pairs[0][0].replay(waiting)
        first.wait(fence, SECONDS)
        assert pairs[1][0].read_count() == 5 and pairs[0][0].read_count() == 6


# --- memory


@pytest.mark.rest
@pytest.mark.parametrize(
    "options", [VulkanOptions(staged=True), VulkanOptions(debug=True)], ids=["staged", "debug"]
)
def test_results_do_not_depend_on_backend_options(options: VulkanOptions, vulkan_driver: PhysicalDevice) -> None:
    with SpirvBench(vulkan_driver, options) as bench:
        for line in CASES:
            bench.check(parse(line))


def test_file_pages_are_used_in_place_where_host_memory_is_importable(
    backend: VulkanBackend, tmp_path: Path
) -> None:
    if not (backend.vulkan.external_memory_host and backend.vulkan.physical.kind in ("cpu", "integrated")):
        pytest.skip("the device does not import host memory, or has its own")
    count = IMPORT_BYTES // 4 + 1000
    np.arange(count + 8, dtype=np.float32).tofile(tmp_path / "weights")
    array = np.memmap(tmp_path / "weights", np.float32, "r")[8:]
    weights = {
        "table": Weight("f32", (1, count), array.reshape(1, count)),
        "small": Weight("f32", (4,), array[:4]),
    }
    buffers = backend.upload(weights, {})
    assert buffers["table"].storage.block.keeps is not None and buffers["small"].storage.block.keeps is None
    for name, want in (("table", array), ("small", array[:4])):
        back = backend.alloc(want.nbytes, BufferHeap.HOST_VISIBLE, "back")
        backend.wait(backend.copy(buffers[name], 0, back, 0, want.nbytes, Stream("one")), SECONDS)
        assert bytes(backend.read(back, 0, want.nbytes)) == want.tobytes()
    for buffer in buffers.values():
        backend.free(buffer)


def test_weights_are_copied_where_host_memory_cannot_be_imported(
    vulkan_driver: PhysicalDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.arange(IMPORT_BYTES // 4, dtype=np.float32).reshape(1, -1)
    with open_vulkan_backend(vulkan_driver) as backend:
        monkeypatch.setattr(backend.memory, "_imports", False)
        (buffer,) = backend.upload({"table": Weight("f32", array.shape, array)}, {}).values()
        assert buffer.storage.block.keeps is None
        assert bytes(backend.read(buffer, 0, buffer.size_bytes)) == array.tobytes()


def test_heap_that_is_too_small_is_reported_with_sizes(backend: VulkanBackend) -> None:
    with pytest.raises(UnsupportedError, match=r"cache needs an allocation of .* MiB, .* allows .* MiB") as caught:
        backend.alloc(1 << 45, BufferHeap.DEVICE_LOCAL, "cache")
    assert "smaller context" in caught.value.next
