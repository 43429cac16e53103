"""The backend of T1 and T2 on a fake GPU: memory, programs, replay, streams, end."""

from __future__ import annotations

import numpy as np
import pytest
from fake_gpu import FakeGpu, FakeSide

from zinc_rt.backends import registry
from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.hang import Hang
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.base import Device
from zinc_rt.exec import Event, Graph, HostFence, Stream, copy, wrap
from zinc_rt.host.errors import UnsupportedError, ZincError
from zinc_rt.ir.graph import Builder
from zinc_rt.ir.op import Op
from zinc_rt.kernels.weight import Weight
from zinc_rt.kmd.transport import Placement
from zinc_rt.lower import LoweredGraph, find_refusal, lower
from zinc_rt.mem.plan import plan_memory
from zinc_rt.pm4.packet import EncodeError
from zinc_rt.pm4.packets import (
    AcquireMem,
    DmaData,
    EventWrite,
    HdpFlush,
    IndirectBuffer,
    Nop,
    ProtectedFenceSignal,
    ReleaseMem,
    WaitRegMem64,
    WriteData,
)

KINDS = {"kfd": "t1", "userq": "t2"}


class Bench:
    def __init__(self, kind: str = "kfd", *, packets: int = 1 << 30, works: bool = True) -> None:
        self.gpu = FakeGpu(kind=kind)
        self.side = FakeSide(self.gpu, packets=packets, works=works)
        self.backend = AmdBackend(
            self.side,
            registry.spec(KINDS[kind]),
            Device("fake", "gfx1201", simulated=True),
            AmdOptions(hang_folder=None, ring_bytes=4096, timeout_seconds=2.0, debug=True),
        )

    def alloc_counter(self, name: str = "counter"):
        return self.backend.alloc(4096, "host_visible", name)

    def build_write(self, buffer, value: int, name: str = "write"):
        return self.backend.build(PacketList((WriteData(buffer.gpu_va, (value,)),), name), {})


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest):
    bench = Bench(request.param)
    yield bench
    bench.backend.close()
    assert bench.gpu.resources() == {}
    assert bench.side.closed


def read_word(bench: Bench, buffer) -> int:
    return bench.backend.read(buffer, 0, 4).cast("I")[0]


# Memory


@pytest.mark.parametrize("heap", ["device_local", "bar", "host_visible"])
def test_memory_is_zeroed_on_allocation(bench: Bench, heap: str) -> None:
    buffer = bench.backend.alloc(10_000, heap, "buffer")
    assert bench.gpu.read(buffer.gpu_va, 10_000) == bytes(10_000)
    assert buffer.size_bytes == 10_000


def test_memory_inaccessible_to_the_cpu_is_not_mapped(bench: Bench) -> None:
    with pytest.raises(ValueError, match="which the CPU cannot access"):
        bench.backend.read(bench.backend.alloc(16, "device_local", "weights"), 0, 16)


def test_host_partial_read_does_not_modify_memory(bench: Bench) -> None:
    buffer = bench.alloc_counter()
    bench.backend.write(buffer, 8, memoryview(b"zinc"))
    view = bench.backend.read(buffer, 6, 4)
    assert bytes(view) == b"\0\0zi" and view.readonly
    view.release()


def test_freed_buffer_is_returned_exactly_once(bench: Bench) -> None:
    buffer = bench.alloc_counter()
    bench.backend.ring(Stream("first"))
    before = bench.gpu.resources()["buffer"]
    bench.backend.free(buffer)
    assert bench.gpu.resources()["buffer"] == before - 1
    with pytest.raises(ValueError, match="already freed"):
        bench.backend.free(buffer)


def test_unknown_heap_is_rejected(bench: Bench) -> None:
    with pytest.raises(ValueError, match="unknown heap 'disk'"):
        bench.backend.alloc(16, "disk", "buffer")


def test_weights_are_packed_into_one_allocation(bench: Bench) -> None:
    random = np.random.default_rng(1)
    blocks = random.integers(0, 256, (7, 34 * 4), dtype=np.uint8)
    merged = random.normal(size=(6, 64)).astype(np.float32)
    large = random.integers(0, 256, (9 << 20,), dtype=np.uint8)  # more than the staging buffer
    weights = {
        "q": Weight("q8_0", (7, 128), blocks),
        "half": Weight("f32", (6, 32), merged[:, :32]),  # rows with gaps between them
        "large": Weight("f32", (9 << 18,), large.view(np.float32)),
    }
    constant = random.normal(size=5).astype(np.float32)
    buffers = bench.backend.upload(weights, {"rope": constant})
    for name, array in (("q", blocks), ("half", merged[:, :32]), ("large", large), ("rope", constant)):
        buffer = buffers[name]
        assert buffer.gpu_va % 256 == 0
        assert bench.gpu.read(buffer.gpu_va, buffer.size_bytes) == np.ascontiguousarray(array).tobytes()
        assert bench.backend.memory.addresses.name(buffer.gpu_va + 4) == f"{name}+0x4"
    assert len({id(buffer.storage.block) for buffer in buffers.values()}) == 1
    for buffer in buffers.values():
        bench.backend.free(buffer)
    assert "weights 0" not in [held.name for held in bench.gpu.ledger.items]


# Programs


def test_program_is_an_ib_that_waits_for_earlier_waves_and_acquires(bench: Bench) -> None:
    counter = bench.alloc_counter()
    variant = bench.build_write(counter, 5)
    assert len(variant.ib.words) % 8 == 0
    assert variant.ib.gpu_va % 32 == 0
    bench.backend.submit(variant, Stream("main")).wait(1.0)
    assert read_word(bench, counter) == 5
    ran = bench.gpu.queues[-1].ran
    assert [type(packet) for packet in ran if type(packet) not in (Nop, HdpFlush)][:5] == [
        EventWrite,
        AcquireMem,
        WriteData,
        IndirectBuffer,
        ReleaseMem,
    ]


def test_models_are_rejected_for_missing_kernels(bench: Bench) -> None:
    assert bench.backend.kernels.entries == ()
    builder = Builder("tiny", "decode")
    for name in "abc":
        builder.buffer(name, (4,), "f32", "activation")
    builder.node(Op.ADD, ("a", "b"), ("c",))
    graph = builder.build()
    plan = plan_memory(graph, capacity={})
    with pytest.raises(UnsupportedError, match="no kernel for this opcode"):
        lower(graph, bench.backend.kernels.entries, plan, ordering="canonical-1", tier=bench.backend.spec.tier)
    assert (
        find_refusal(graph.nodes[0], graph, bench.backend.kernels.entries, "canonical-1")
        == "no kernel for this opcode"
    )
    with pytest.raises(UnsupportedError, match="no kernels for gfx1201"):
        bench.backend.build(LoweredGraph(graph, plan, "canonical-1", ()), {})


def test_debug_mode_rejects_packet_outside_every_allocation(bench: Bench) -> None:
    counter = bench.alloc_counter()
    program = PacketList((WriteData(counter.gpu_va + (1 << 36), (1,)),), "stray")
    with pytest.raises(EncodeError, match=r"stray.*in no allocation"):
        bench.backend.build(program, {})


def test_freed_variant_releases_its_memory(bench: Bench) -> None:
    variant = bench.build_write(bench.alloc_counter(), 1)
    stream = Stream("main")
    bench.backend.submit(variant, stream).wait(1.0)
    before = bench.gpu.resources()["buffer"]
    bench.backend.unload(variant)
    assert bench.gpu.resources()["buffer"] == before - 1


# Copy


def test_every_queue_flushes_independently(bench: Bench) -> None:
    """A flush that is a packet orders the queue it is in, and no other."""
    step, target = bench.backend.alloc(64, "bar", "step"), bench.alloc_counter()
    streams = Stream("first"), Stream("second")
    built = bench.build_write(target, 1)
    for stream in streams:
        bench.backend.submit(built, stream).wait(1.0)
    queues = bench.gpu.queues[-2:]
    for queue in queues:
        queue.ran.clear()
    flushes = bench.gpu.hdp_flushes
    bench.backend.write(step, 0, memoryview(b"1234"))
    for stream in (*streams, *streams):
        bench.backend.submit(built, stream).wait(1.0)
    seen = [sum(isinstance(packet, HdpFlush) for packet in queue.ran) for queue in queues]
    assert (seen, bench.gpu.hdp_flushes - flushes) in (([1, 1], 0), ([0, 0], 2))


def test_copy_is_ordered_after_earlier_waves_and_before_later_commands(bench: Bench) -> None:
    source = bench.backend.alloc(4096, "device_local", "source")
    target = bench.alloc_counter("target")
    bench.backend.write(source, 0, memoryview(bytes(range(256))))
    stream = Stream("main")
    ring = bench.backend.ring(stream)
    ran = bench.gpu.queues[-1].ran
    ran.clear()
    fence = copy(bench.backend, source, 3, target, 100, 200, stream)
    assert not fence.done() and source.busy() and target.busy()
    fence.wait(1.0)
    ring.wait_until_idle(1.0)
    bench.gpu.run()
    assert bytes(bench.backend.read(target, 100, 200)) == bytes(range(3, 203))
    assert bytes(bench.backend.read(target, 0, 100)) == bytes(100)
    kinds = [type(packet) for packet in ran if not isinstance(packet, ProtectedFenceSignal)]
    assert kinds == [EventWrite, DmaData, ReleaseMem, WaitRegMem64]
    release, hold = (packet for packet in ran if isinstance(packet, ReleaseMem | WaitRegMem64))
    assert isinstance(release, ReleaseMem) and release.wait_sync == 1
    assert isinstance(hold, WaitRegMem64) and (hold.address, hold.reference) == (release.address, fence.value)


def test_copy_sees_host_writes_through_the_bar(bench: Bench) -> None:
    source, target = (bench.backend.alloc(64, "bar", name) for name in ("source", "target"))
    stream = Stream("main")
    copy(bench.backend, source, 0, target, 0, 64, stream).wait(1.0)
    flushes, ran = bench.gpu.hdp_flushes, bench.gpu.queues[-1].ran
    bench.gpu.run()
    ran.clear()
    bench.backend.write(source, 0, memoryview(b"1234"))
    copy(bench.backend, source, 0, target, 0, 64, stream).wait(1.0)
    if bench.gpu.kind == "kfd":
        assert bench.gpu.hdp_flushes == flushes + 1
    else:
        assert isinstance(ran[0], HdpFlush)
    assert bytes(bench.backend.read(target, 0, 4)) == b"1234"


def test_copy_waits_for_event_of_another_stream(bench: Bench) -> None:
    first, second, event = Stream("first"), Stream("second"), Event()
    source, target = bench.alloc_counter("source"), bench.alloc_counter("target")
    graph = Graph("writer", bench.backend)
    graph.add((1,), bench.build_write(source, 77))
    bench.side.works = False
    graph.replay((1,), first)
    event.record(first)
    second.wait(event)
    fence = copy(bench.backend, source, 0, target, 0, 4, second)
    assert second.waits == ()
    bench.side.works = True
    fence.wait(1.0)
    assert read_word(bench, target) == 77


def test_many_copies_wrap_around_a_small_ring(bench: Bench) -> None:
    source, target, stream = bench.alloc_counter("source"), bench.alloc_counter("target"), Stream("main")
    for number in range(300):  # some 30 dwords each, the ring holds 1,024
        fence = copy(bench.backend, source, 0, target, 4 * (number % 8), 4, stream)
    fence.wait(1.0)
    assert fence.value == 300


def test_wrapped_buffer_is_not_freed_by_backend(bench: Bench) -> None:
    whole = bench.alloc_counter("whole")
    window = wrap("window", whole.storage, 16, whole.heap, whole.gpu_va, usage=whole.usage)
    with pytest.raises(ValueError, match="window wraps memory that belongs to another owner"):
        bench.backend.free(window)
    copy(bench.backend, window, 0, bench.alloc_counter("target"), 0, 16, Stream("main")).wait(1.0)
    bench.backend.free(whole)


# Replay


@pytest.mark.parametrize("dispatches", [1, 64, 1500])
def test_replay_ring_cost_is_independent_of_graph(bench: Bench, dispatches: int) -> None:
    counter = bench.alloc_counter()
    packets = tuple(WriteData(counter.gpu_va, (value,)) for value in range(dispatches))
    graph, stream = Graph("decode", bench.backend), Stream("main")
    graph.add((1,), bench.backend.build(PacketList(packets), {}))
    graph.bind("counter", counter)
    graph.replay((1,), stream).wait(1.0)
    ring = bench.backend.ring(stream)
    before = ring.wptr_dw
    fence = graph.replay((1,), stream)
    fence.wait(1.0)
    assert ring.wptr_dw - before == (12 if bench.gpu.kind == "kfd" else 14)
    assert read_word(bench, counter) == dispatches - 1


def test_host_writes_through_the_bar_are_flushed_before_replay(bench: Bench) -> None:
    step = bench.backend.alloc(64, "bar", "step")
    variant, stream = bench.build_write(bench.alloc_counter(), 1), Stream("main")
    bench.backend.submit(variant, stream).wait(1.0)
    flushes = bench.gpu.hdp_flushes
    ran = bench.gpu.queues[-1].ran
    ran.clear()
    bench.backend.read(step, 0, 4).release()  # reading is not writing
    bench.backend.submit(variant, stream).wait(1.0)
    assert not any(isinstance(packet, HdpFlush) for packet in ran) and bench.gpu.hdp_flushes == flushes
    bench.backend.write(step, 0, memoryview(b"1234"))
    ran.clear()
    bench.backend.submit(variant, stream).wait(1.0)
    if bench.gpu.kind == "kfd":
        assert bench.gpu.hdp_flushes == flushes + 1
    else:
        assert isinstance(ran[0], HdpFlush)


def test_stream_fences_increase_and_events_order_streams(bench: Bench) -> None:
    first, second = Stream("first"), Stream("second")
    a, b = bench.alloc_counter("a"), bench.alloc_counter("b")
    bench.side.works = False
    slow = bench.build_write(a, 1)
    result = bench.backend.submit(slow, first)
    first.record_submission(result)
    event = Event()
    event.record(first)
    second.wait(event)
    later = bench.backend.submit(bench.build_write(b, 2), second)
    second.record_submission(later)
    assert second.waits == ()
    queues = {queue.queue.ring.gpu_va: queue for queue in bench.gpu.queues}
    waiting = queues[bench.backend.ring(second).queue.ring.gpu_va]
    bench.gpu._run_queue(waiting, 100)
    assert not later.done() and read_word(bench, b) == 0
    bench.gpu.run()
    bench.gpu.run()
    assert result.done() and later.done()
    assert isinstance(waiting.ran[0], WaitRegMem64)
    assert (read_word(bench, a), read_word(bench, b)) == (1, 2)


def test_signalled_event_emits_no_packet(bench: Bench) -> None:
    first, second = Stream("first"), Stream("second")
    counter = bench.alloc_counter()
    variant = bench.build_write(counter, 1)
    result = bench.backend.submit(variant, first)
    result.wait(1.0)
    first.record_submission(result)
    event = Event()
    event.record(first)
    event2 = Event()
    event2.record(second)
    second.wait(event)
    bench.backend.submit(variant, second).wait(1.0)
    ran = [packet for queue in bench.gpu.queues for packet in queue.ran]
    assert not any(isinstance(packet, WaitRegMem64) for packet in ran)


def test_host_waits_for_fence_of_another_backend(bench: Bench) -> None:
    stream, foreign = Stream("main"), HostFence(1, "elsewhere")
    stream.waits = (foreign,)
    variant = bench.build_write(bench.alloc_counter(), 1)
    bench.backend._queues.timeout_seconds = 0.01
    with pytest.raises(ZincError, match="elsewhere"):
        bench.backend.submit(variant, stream)
    foreign.finish()
    bench.backend.submit(variant, stream).wait(1.0)


def test_many_replays_on_two_streams_stay_in_order(bench: Bench) -> None:
    bench.side.packets = 5
    a, b = bench.alloc_counter("a"), bench.alloc_counter("b")
    streams = [Stream("first"), Stream("second", priority=1)]
    variants = [[bench.build_write(buffer, value) for value in range(1, 4)] for buffer in (a, b)]
    graph = Graph("graph", bench.backend)
    for side in range(2):
        for value in range(3):
            graph.add((side, value), variants[side][value])
    event = Event()
    for step in range(300):
        graph.replay((0, step % 3), streams[0])
        event.record(streams[0])
        streams[1].wait(event)
        graph.replay((1, step % 3), streams[1])
    graph.wait(5.0)
    assert read_word(bench, a) == read_word(bench, b) == 3
    assert [stream.last.value for stream in streams if stream.last] == [300, 300]


# The end


@pytest.mark.parametrize("kind", KINDS)
def test_close_after_an_error_frees_everything_and_raises_the_error(kind: str) -> None:
    bench = Bench(kind, works=False)
    with pytest.raises(RuntimeError, match="mine"), bench.backend as backend:
        counter = bench.alloc_counter()
        bench.side.works = True
        variant = bench.build_write(counter, 1)
        bench.side.works = False
        backend.submit(variant, Stream("main"))
        raise RuntimeError("mine")
    assert bench.gpu.resources() == {}
    assert bench.side.closed


@pytest.mark.parametrize("kind", KINDS)
def test_closing_after_a_hang_releases_everything_and_raises_the_hang(kind: str) -> None:
    bench = Bench(kind)
    fence = bench.backend.submit(bench.build_write(bench.alloc_counter(), 1), Stream("main"))
    bench.side.works = False
    with pytest.raises(Hang, match="fence 1 not reached"):
        bench.backend.close(drain_seconds=0.01)
    bench.backend.close()
    assert bench.gpu.resources() == {}
    assert fence.done() and not fence.reached()
    with pytest.raises(ValueError, match="closed"):
        bench.backend.submit(bench, Stream("new"))


def test_ctrl_c_while_closing_still_releases_everything() -> None:
    bench = Bench()
    bench.backend.submit(bench.build_write(bench.alloc_counter(), 1), Stream("main"))

    def interrupt_poll() -> None:
        raise KeyboardInterrupt

    bench.side.look = interrupt_poll  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        bench.backend.close()
    assert bench.gpu.resources() == {}
    assert bench.side.closed


def test_close_frees_the_other_buffers_after_a_failed_free() -> None:
    bench = Bench()
    bench.alloc_counter("first"), bench.alloc_counter("stubborn"), bench.alloc_counter("last")
    bench.gpu.keeps["stubborn"] = OSError(16, "busy")
    with pytest.raises(OSError, match="busy"):
        bench.backend.close()
    assert [held.name for held in bench.gpu.ledger.items] == ["stubborn"]
    assert bench.side.closed


@pytest.mark.parametrize("name", ["fences 0", "ring", "eop"])
def test_failed_queue_creation_leaves_no_resources(name: str) -> None:
    bench = Bench()
    variant = bench.build_write(bench.alloc_counter(), 1)
    bench.gpu.refuse[name] = OSError(12, "no memory")
    with pytest.raises(OSError, match="no memory"):
        bench.backend.submit(variant, Stream("main"))
    bench.gpu.refuse.clear()
    bench.backend.submit(variant, Stream("main")).wait(1.0)
    bench.backend.close()


def test_small_bar_puts_outputs_and_commands_into_host_memory() -> None:
    bench = Bench()
    alloc = bench.gpu.alloc

    def alloc_in_small_bar(size_bytes, placement, name, *, fallback=None):
        if placement is Placement.VRAM_BAR and fallback is not None:
            placement = fallback
        return alloc(size_bytes, placement, name)

    bench.gpu.alloc = alloc_in_small_bar  # type: ignore[method-assign]
    variant = bench.build_write(bench.alloc_counter(), 1)
    assert variant.storage.device.placement is Placement.GTT
    bench.backend.submit(variant, Stream("main")).wait(1.0)
    bench.backend.close()
