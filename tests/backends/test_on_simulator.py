"""The same ring code over the simulated device: KFD and user queues, real mappings, a thread for the GPU."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from support import Counts

from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.hang import Hang
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.backends.amd.t2 import open_t2
from zinc_rt.exec import Event, Graph, Stream
from zinc_rt.kernels.weight import Weight
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.pm4 import BAD_OPCODE
from zinc_rt.pm4.packets import DmaData, Nop, WaitRegMem, WriteData
from zinc_rt.sim.driver.files import DrmFile
from zinc_rt.sim.in_process import SimDriver

OPENERS = {
    "t1": open_t1,
    "t2": open_t2,
}
PATIENCE = 5.0


class Bench:
    def __init__(self, tier: str, folder: Path, *inject: str, debug: bool = True) -> None:
        self.driver = SimDriver(inject=inject, time_scale=0.01)
        self.backend: AmdBackend = OPENERS[tier](
            self.driver, AmdOptions(hang_folder=folder, ring_bytes=4096, timeout_seconds=PATIENCE, debug=debug)
        )
        self.resources = self.backend.side.transport.resources

    def write(self, buffer, value: int, *, name: str = "write", offset_bytes: int = 0):
        packet = WriteData(buffer.gpu_va + offset_bytes, (value,))
        return self.backend.build(PacketList((packet,), name), {})

    def assert_clean_end(self) -> None:
        """Check that no resource of the driver is left, and that there are no findings except those allowed for
        shipped software.
        """
        assert self.resources() == {}
        assert self.driver.open_fds == {}
        assert self.driver.live_mappings == set()
        self.driver.close_all()


@pytest.fixture(params=OPENERS)
def bench(request: pytest.FixtureRequest, tmp_path: Path):
    bench = Bench(request.param, tmp_path)
    yield bench
    bench.backend.close()
    assert list(bench.driver.findings()) == []
    bench.assert_clean_end()


def read_word(bench: Bench, buffer) -> int:
    return bench.backend.read(buffer, 0, 4).cast("I")[0]


def test_device_reports_that_it_is_simulated(bench: Bench) -> None:
    assert bench.backend.device.simulated
    assert bench.backend.device.arch == "gfx1201"


def test_replays_run_in_order_through_a_small_ring(bench: Bench) -> None:
    counter = bench.backend.alloc(4096, "host_visible", "counter")
    graph, stream = Graph("graph", bench.backend), Stream("main")
    for value in range(3):
        graph.add((value,), bench.write(counter, value + 1))
    for step in range(300):
        fence = graph.replay((step % 3,), stream)
    fence.wait(PATIENCE)
    assert fence.value == 300
    assert read_word(bench, counter) == 3


@pytest.mark.rest(keep=1)
def test_submissions_of_random_size_run_in_order_through_a_4_kib_ring(bench: Bench, slow_counts: Counts) -> None:
    """Each adds its number to what the one before left, by way of memory: one lost or swapped would show."""
    random.seed(1)
    log = bench.backend.alloc(4096, "host_visible", "log")
    assert log.gpu_va is not None
    ring = bench.backend.ring(Stream("main"))
    count = slow_counts(1000, 100_000)
    for number in range(count):
        packets = [WaitRegMem(log.gpu_va, number), WriteData(log.gpu_va, (number + 1,))]
        padding = random.choice((0, 1, 2, 30, 300, 900))
        packets += [Nop((0,) * (padding - 1))] if padding else []
        fence = ring.submit(ring.encode(packets, f"number {number}"))
        assert fence.value == number + 1
    fence.wait(PATIENCE)
    assert read_word(bench, log) == count


@pytest.mark.parametrize("heap", ["device_local", "bar", "host_visible"])
def test_memory_starts_zeroed_and_receives_gpu_writes(bench: Bench, heap: str) -> None:
    buffer = bench.backend.alloc(70_000, heap, "buffer")
    stream = Stream("main")
    bench.backend.submit(bench.write(buffer, 0xC0FFEE, offset_bytes=65_536), stream).wait(PATIENCE)
    if heap != "device_local":
        content = bytes(bench.backend.read(buffer, 0, buffer.size_bytes))
        assert content[65_536:65_540] == (0xC0FFEE).to_bytes(4, "little")
        assert not any(content[:65_536])


def test_uploads_reach_device_memory(bench: Bench) -> None:
    content = np.random.default_rng(1).integers(0, 256, (100, 34), dtype=np.uint8)
    weight = Weight("q8_0", (100, 32), content)
    buffers = bench.backend.upload({"q": weight}, {"rope": np.arange(5, dtype=np.float32)})
    back = bench.backend.alloc(4096, "host_visible", "back")
    q = buffers["q"]
    assert q.gpu_va is not None and back.gpu_va is not None
    ring = bench.backend.ring(Stream("main"))
    ring.submit(ring.encode((DmaData(q.gpu_va, back.gpu_va, q.size_bytes),), "read back", dma=True)).wait(PATIENCE)
    assert bytes(bench.backend.read(back, 0, q.size_bytes)) == content.tobytes()
    assert buffers["rope"].size_bytes == 20
    (render,) = (file for file in bench.driver.process.files.values() if isinstance(file, DrmFile))
    assert {item.name: (item.va, item.size_bytes) for item in render.vm.announced} == {
        name: (buffer.gpu_va, buffer.size_bytes) for name, buffer in buffers.items()
    }
    for buffer in buffers.values():
        bench.backend.free(buffer)
    assert render.vm.announced == ()


def test_two_streams_are_ordered_by_their_events(bench: Bench) -> None:
    a, b = (bench.backend.alloc(4096, "host_visible", name) for name in "ab")
    first, second = Stream("first"), Stream("second", priority=1)
    graph = Graph("graph", bench.backend)
    hold = bench.backend.build(PacketList((WaitRegMem(a.gpu_va, 7), WriteData(a.gpu_va + 4, (1,))), "hold"), {})
    graph.add((1,), hold)
    graph.add((2,), bench.backend.build(PacketList((WriteData(b.gpu_va, (2,)),), "after"), {}))
    event = Event()
    held = graph.replay((1,), first)
    event.record(first)
    second.wait(event)
    later = graph.replay((2,), second)
    with pytest.raises(Hang):
        later.wait(0.05)
    assert not held.done() and read_word(bench, b) == 0
    bench.backend.write(a, 0, memoryview((7).to_bytes(4, "little")))
    later.wait(PATIENCE)
    assert held.done() and read_word(bench, b) == 2


def test_kernel_sees_the_end_of_a_user_queue_submission(tmp_path: Path) -> None:
    """Every submission on T2 ends with PROTECTED_FENCE_SIGNAL, so a syncobj may be attached at any time."""
    bench = Bench("t2", tmp_path)
    with bench.backend as backend:
        gpu = backend.side.transport
        assert isinstance(gpu, UserqGpu)
        stream = Stream("main")
        counter = backend.alloc(4096, "host_visible", "counter")
        for value in range(3):
            backend.submit(bench.write(counter, value), stream)
        end = gpu.create_syncobj("end")
        gpu.signal(backend.ring(stream).queue, [end])
        assert end.wait(PATIENCE)
        assert read_word(bench, counter) == 2
        end.destroy()
    bench.assert_clean_end()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", OPENERS)
def test_illegal_packet_is_a_hang_that_names_it(tier: str, tmp_path: Path) -> None:
    bench = Bench(tier, tmp_path)
    variant = bench.backend.build(PacketList((Nop(),), "broken"), {})
    variant.storage.view().cast("I")[10] = 0xC0000000 | BAD_OPCODE << 8
    fence = bench.backend.submit(variant, Stream("main"))
    with pytest.raises(Hang) as caught:
        fence.wait(0.5)
    assert "indirect buffer 0x000a: opcode" in str(caught.value)
    assert caught.value.bundle is not None and "BAD: opcode" in (caught.value.bundle / "report.txt").read_text()
    with pytest.raises(Hang):
        bench.backend.close(drain_seconds=0.01)
    bench.assert_clean_end()


@pytest.mark.parametrize("tier", OPENERS)
def test_page_fault_names_allocation_and_submission_at_once(tier: str, tmp_path: Path) -> None:
    bench = Bench(tier, tmp_path, debug=False)
    target = bench.backend.alloc(4096, "host_visible", "target")
    fence = bench.backend.submit(bench.write(target, 1, name="culprit", offset_bytes=1 << 30), Stream("main"))
    with pytest.raises(Hang) as caught:
        fence.wait(20.0)
    report = caught.value.report
    assert report.faults and report.faults[0].va == target.gpu_va + (1 << 30) & ~0xFFF
    assert "culprit" in report.faults[0].submissions
    assert "in no allocation" in report.faults[0].allocation
    bench.backend.close()  # said once is enough
    bench.assert_clean_end()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", OPENERS)
@pytest.mark.parametrize("fault", ["lost-doorbell", "fence-never-written"])
def test_injected_submission_fault_is_reported_as_a_hang(tier: str, fault: str, tmp_path: Path) -> None:
    bench = Bench(tier, tmp_path)
    bench.driver.machine.injector.add(fault)
    counter = bench.backend.alloc(4096, "host_visible", "counter")
    fence = bench.backend.submit(bench.write(counter, 1), Stream("main"))
    with pytest.raises(Hang) as caught:
        fence.wait(0.5)
    expected = "the doorbell did not arrive" if fault == "lost-doorbell" else "does not reach the fence"
    assert expected in caught.value.report.why
    with pytest.raises(Hang):
        bench.backend.close(drain_seconds=0.01)
    bench.assert_clean_end()
