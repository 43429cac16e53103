"""Copies and wrapped memory, on exec's own fake and on T-CPU."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from fake_backend import DeadBackend, FakeBackend

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.exec import Buffer, Graph, InFlight, Stream, Usage, copy, wrap
from zinc_rt.kernels.weight import Weight


@pytest.fixture
def backend():
    backend = FakeBackend()
    yield backend
    backend.close()


@pytest.fixture
def oracle():
    backend = CpuBackend("canonical-1")
    yield backend
    backend.close()


def test_copy_moves_only_the_requested_range(backend):
    source, target = backend.buffer("source", 8), backend.buffer("target", 8)
    source.storage[:] = b"abcdefgh"
    fence = copy(backend, source, 2, target, 5, 3, Stream("main"))
    fence.wait(60)
    assert bytes(target.storage) == b"\0\0\0\0\0cde"


def test_copy_is_ordered_after_earlier_work_of_its_stream(backend):
    release = threading.Event()
    source, target = backend.buffer("source", 1), backend.buffer("target", 1)
    graph, main = Graph("decode", backend), Stream("main")

    def wait_for_release() -> None:
        assert release.wait(60)
        source.storage[:] = b"x"

    graph.add((1,), wait_for_release)
    graph.replay((1,), main)
    fence = copy(backend, source, 0, target, 0, 1, main)
    assert main.last is fence
    release.set()
    fence.wait(60)
    assert bytes(target.storage) == b"x"


def test_host_cannot_write_either_buffer_until_the_copy_ends():
    backend = DeadBackend()
    source, target, other = (backend.buffer(name, 8) for name in ("source", "target", "other"))
    graph = Graph("decode", backend)
    for buffer in (source, target, other):
        graph.bind(buffer.name, buffer)
    copy(backend, source, 0, target, 0, 8, Stream("main"))
    for port in ("source", "target"):
        with pytest.raises(InFlight, match=f"cannot write {port}"):
            graph.write(port, 0, b"x")
    graph.write("other", 0, b"x")


@pytest.mark.parametrize(("source_at", "target_at", "size"), [(-1, 0, 1), (0, 8, 1), (4, 0, 5), (0, 0, -1)])
def test_copy_stays_inside_both_buffers(backend, source_at, target_at, size):
    source, target, main = backend.buffer("source", 8), backend.buffer("target", 8), Stream("main")
    with pytest.raises(ValueError, match=r"copy source to target: .* exceed the"):
        copy(backend, source, source_at, target, target_at, size, main)
    assert main.last is None and not source.busy()


def test_overlapping_copy_is_rejected_and_adjacent_copy_is_not(backend):
    buffer = backend.buffer("state", 8)
    buffer.storage[:] = b"abcdefgh"
    with pytest.raises(ValueError, match="4 bytes from offset 0 to 3 overlap"):
        copy(backend, buffer, 0, buffer, 3, 4, Stream("main"))
    copy(backend, buffer, 0, buffer, 4, 4, Stream("main")).wait(60)
    assert bytes(buffer.storage) == b"abcdabcd"


def test_overlap_of_window_and_parent_is_checked_by_address(backend):
    whole, main = Buffer("whole", 64, "bar", bytearray(64), 0x1000), Stream("main")
    window = wrap("window", whole.storage, 32, "bar", 0x1020, usage=whole.usage)
    copy(backend, whole, 0, window, 0, 32, main).wait(60)
    with pytest.raises(ValueError, match="32 bytes from offset 1 to 0 overlap"):
        copy(backend, whole, 1, window, 0, 32, main)


def test_empty_copy_is_allowed(backend):
    buffer = backend.buffer("state", 8)
    copy(backend, buffer, 8, buffer, 8, 0, Stream("main")).wait(60)


def test_oracle_copies_through_its_streams(oracle):
    source, target = (oracle.alloc(16, "host_visible", name) for name in ("source", "target"))
    oracle.write(source, 0, memoryview(bytes(range(16))))
    copy(oracle, source, 4, target, 0, 12, Stream("main")).wait(60)
    assert bytes(oracle.read(target, 0, 16)) == bytes(range(4, 16)) + bytes(4)


def test_oracle_does_not_copy_weights(oracle):
    weight = oracle.upload({"w": Weight("f32", (1,), np.ones(1, np.float32))}, {})["w"]
    target = oracle.alloc(4, "host_visible", "target")
    with pytest.raises(ValueError, match="w is not CPU memory"):
        copy(oracle, weight, 0, target, 0, 4, Stream("main"))


def test_wrapped_memory_belongs_to_the_caller(oracle):
    array = np.zeros(8, np.uint8)
    buffer = wrap("frame", array, array.nbytes, "host_visible")
    graph = Graph("vision", oracle)
    graph.bind("frame", buffer)
    graph.write("frame", 3, b"abc")
    assert array.tobytes() == b"\0\0\0abc\0\0"
    array[0] = 7
    assert graph.view("frame")[0] == 7
    target = oracle.alloc(8, "host_visible", "target")
    copy(oracle, buffer, 0, target, 0, 8, Stream("main")).wait(60)
    assert bytes(oracle.read(target, 0, 8)) == array.tobytes()


def test_wrapped_buffer_is_freed_by_its_owner(oracle):
    array = np.zeros(8, np.uint8)
    buffer = wrap("frame", array, array.nbytes, "host_visible")
    assert not buffer.owned
    with pytest.raises(
        ValueError, match="frame wraps memory that belongs to another owner and must be freed there"
    ):
        oracle.free(buffer)
    assert buffer.storage is array


def test_window_is_busy_while_its_parent_is():
    backend = DeadBackend()
    buffer = backend.buffer("whole", 8)
    window = wrap("window", buffer.storage, 8, "host_visible", usage=buffer.usage)
    assert isinstance(window, Buffer) and isinstance(window.usage, Usage)
    copy(backend, buffer, 0, backend.buffer("other", 8), 0, 8, Stream("main"))
    assert window.busy()
