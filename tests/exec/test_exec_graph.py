from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_backend import DeadBackend, FakeBackend

from zinc_rt.exec import (
    DeadlineMissed,
    Event,
    Graph,
    InFlight,
    MissingVariant,
    Observer,
    Stream,
    Usage,
)


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    backend = FakeBackend()
    yield backend
    backend.close()


def do_nothing() -> None:
    pass


class EventRecorder(Observer):
    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []

    def created(self, graph, ir):
        self.entries.append(("created", graph.name, ir))

    def wrote(self, buffer, offset_bytes, data):
        self.entries.append(("wrote", buffer.name, offset_bytes, bytes(data)))

    def replayed(self, graph, key, stream, fence):
        self.entries.append(("replayed", graph.name, key, stream.name, fence.value))

    def retired(self, fence, seconds):
        assert seconds >= 0
        self.entries.append(("retired", fence.value))

    def fault(self, report):
        self.entries.append(("fault", type(report)))


def test_replay_runs_the_variant_with_exactly_this_key(backend):
    ran = []
    graph = Graph("decode", backend)
    graph.add((1, 16), lambda: ran.append("small"))
    graph.add((1, 128), lambda: ran.append("large"))
    graph.replay((1, 128), Stream("main")).wait(60)
    assert ran == ["large"]


def test_missing_key_error_lists_existing_keys(backend):
    graph = Graph("decode", backend)
    graph.add((1, 16), do_nothing)
    with pytest.raises(MissingVariant, match=r"no variant for key \(1, 17\); it has \(1, 16\)"):
        graph.replay((1, 17), Stream("main"))


@pytest.mark.parametrize("key", [1, [1], ("a",), (True,), (1.0,)])
def test_shape_key_is_a_tuple_of_int(backend, key):
    with pytest.raises(ValueError, match="tuple of int"):
        Graph("decode", backend).add(key, do_nothing)


def test_duplicate_key_is_rejected(backend):
    graph = Graph("decode", backend)
    graph.add((1,), do_nothing)
    with pytest.raises(ValueError, match="already has a variant"):
        graph.add((1,), do_nothing)


def test_least_recently_used_variant_is_evicted_first(backend):
    dropped = []
    graph = Graph("decode", backend, max_variants=2, evicted=lambda key, variant: dropped.append(key))
    graph.add((1,), do_nothing)
    graph.add((2,), do_nothing)
    graph.replay((1,), Stream("main")).wait(60)
    graph.add((3,), do_nothing)
    assert dropped == [(2,)]
    assert graph.keys == ((1,), (3,))
    assert graph.has((1,)) and not graph.has((2,))


def test_evictions_call_back_once_and_never_for_variants_in_flight(backend):
    gate, dropped = threading.Event(), []
    graph = Graph("decode", backend, max_variants=4, evicted=lambda key, variant: dropped.append((key, variant)))
    graph.add((-1,), lambda: gate.wait(60) and None)
    slow = graph.replay((-1,), Stream("slow"))
    quick = Stream("quick")
    for number in range(1003):
        graph.add((number,), lambda: None)
        if number % 3 == 0:
            graph.replay((number,), quick).wait(60)
    assert not slow.done() and graph.has((-1,))
    assert len(dropped) == 1000 and len({key for key, _ in dropped}) == 1000
    assert len({id(variant) for _, variant in dropped}) == 1000
    assert {key for key, _ in dropped}.isdisjoint(graph.keys)
    gate.set()
    slow.wait(60)
    graph.add((2000,), do_nothing)  # the slow one is the least recently used by now
    assert dropped[-1][0] == (-1,)


def test_variant_in_flight_is_never_evicted():
    graph = Graph("decode", DeadBackend(), max_variants=2)
    graph.add((1,), do_nothing)
    graph.add((2,), do_nothing)
    graph.replay((1,), Stream("a"))
    graph.add((3,), do_nothing)
    assert graph.keys == ((1,), (3,))
    graph.replay((3,), Stream("a"))
    with pytest.raises(InFlight, match="all 2 are in flight"):
        graph.add((4,), do_nothing)


def test_step_write_waits_for_the_replay_that_reads_it(backend):
    release = threading.Event()
    step = backend.buffer("step", 8)
    seen = []
    graph = Graph("decode", backend)
    graph.bind("step", step)

    def wait_and_record() -> None:
        assert release.wait(60)
        seen.append(bytes(step.storage))

    graph.add((1,), wait_and_record)
    graph.write("step", 4, b"\1\2\3\4")
    fence = graph.replay((1,), Stream("main"))
    with pytest.raises(InFlight, match="in flight, up to fence 1"):
        graph.write("step", 4, b"\5\6\7\x08")
    with pytest.raises(InFlight, match="cannot read"):
        graph.view("step")
    release.set()
    fence.wait(60)
    graph.write("step", 4, b"\5\6\7\x08")
    assert seen == [b"\0\0\0\0\1\2\3\4"]
    assert bytes(graph.view("step")) == b"\0\0\0\0\5\6\7\x08"
    assert graph.view("step").readonly


def test_shared_step_buffer_is_guarded_for_both_graphs(backend):
    release = threading.Event()
    step = backend.buffer("step", 8)
    prefill, decode = Graph("prefill", backend), Graph("decode", backend)
    for graph in (prefill, decode):
        graph.bind("step", step)
    prefill.add((1,), lambda: release.wait(60) and None)
    prefill.replay((1,), Stream("main"))
    with pytest.raises(InFlight):
        decode.write("step", 0, b"x")
    release.set()
    prefill.wait(60)
    decode.write("step", 0, b"x")


def test_buffers_sharing_a_usage_are_busy_together(backend):
    release = threading.Event()
    shared = Usage()
    state, scratch, apart = (backend.buffer(name, 8) for name in ("state", "scratch", "apart"))
    state.usage = scratch.usage = shared
    graph = Graph("decode", backend)
    graph.bind("state", state)
    graph.add((1,), lambda: release.wait(60) and None)
    graph.replay((1,), Stream("main"))
    assert state.busy() and scratch.busy() and not apart.busy()
    other = Graph("other", backend)
    other.bind("scratch", scratch)
    with pytest.raises(InFlight, match="cannot write scratch"):
        other.write("scratch", 0, b"x")
    release.set()
    graph.wait(60)
    assert not scratch.busy() and shared.in_flight == ()
    other.write("scratch", 0, b"x")


def test_usage_is_busy_until_the_last_of_several_streams_ends(backend):
    usage = Usage()
    first, second = threading.Event(), threading.Event()
    fences = [backend.submit(lambda e=e: e.wait(60) and None, Stream(n)) for e, n in ((first, "a"), (second, "b"))]
    for fence in fences:
        usage.add_fence(fence)
    second.set()
    fences[1].wait(60)
    assert usage.busy() and usage.in_flight == (fences[0],)
    first.set()
    fences[0].wait(60)
    assert not usage.busy()


def test_rebinding_a_port_replaces_the_buffer():
    graph, backend = Graph("decode", DeadBackend()), FakeBackend()
    before, after = backend.buffer("before", 8), backend.buffer("after", 8)
    graph.add((1,), do_nothing)
    graph.bind("step", before)
    graph.bind("step", after)
    graph.replay((1,), Stream("main"))
    assert after.busy() and not before.busy()


def test_unbound_buffer_stays_busy_until_earlier_submissions_end():
    graph, backend = Graph("decode", DeadBackend()), FakeBackend()
    step, kept = backend.buffer("step", 8), backend.buffer("kept", 8)
    graph.add((1,), do_nothing)
    graph.bind("step", step)
    graph.replay((1,), Stream("main"))
    assert graph.unbind("step") is step and dict(graph.ports) == {}
    assert step.busy()
    step.usage = Usage()
    graph.bind("kept", kept)
    graph.replay((1,), Stream("main"))
    assert not step.busy() and kept.busy()
    with pytest.raises(ValueError, match="no port step; it has kept"):
        graph.unbind("step")


def test_removed_variant_is_returned_and_frees_its_key(backend):
    dropped = []
    graph = Graph("decode", backend, evicted=lambda key, variant: dropped.append(key))
    graph.add((1,), do_nothing)
    graph.replay((1,), Stream("main")).wait(60)
    assert graph.remove((1,)) is do_nothing
    assert not graph.has((1,)) and dropped == []
    graph.add((1,), do_nothing)
    with pytest.raises(MissingVariant, match=r"no variant for key \(2,\)"):
        graph.remove((2,))


def test_variant_in_flight_is_not_removed():
    graph = Graph("decode", DeadBackend())
    graph.add((1,), do_nothing)
    graph.replay((1,), Stream("main"))
    with pytest.raises(InFlight, match=r"cannot remove \(1,\): its last replay is in flight"):
        graph.remove((1,))
    assert graph.has((1,))


def test_replays_of_two_streams_retire_as_they_finish(backend):
    release = threading.Event()
    diary = EventRecorder()
    graph = Graph("decode", backend, observers=(diary,))
    graph.add((1,), lambda: release.wait(60) and None)
    graph.add((2,), do_nothing)
    graph.replay((1,), Stream("slow"))
    quick = Stream("quick")
    for _ in range(3):
        graph.replay((2,), quick).wait(60)
    graph.retire()
    release.set()
    graph.wait(60)
    retired = [entry for entry in diary.entries if entry[0] == "retired"]
    assert retired == [("retired", 1), ("retired", 2), ("retired", 3), ("retired", 1)]  # the slow one last


@pytest.mark.parametrize(("offset", "data"), [(-1, b"a"), (8, b"a"), (5, b"abcd")])
def test_write_stays_inside_its_buffer(backend, offset, data):
    graph = Graph("decode", backend)
    graph.bind("step", backend.buffer("step", 8))
    with pytest.raises(ValueError, match="exceed the 8 bytes of step"):
        graph.write("step", offset, data)


def test_view_has_the_requested_size(backend):
    graph = Graph("decode", backend)
    graph.bind("step", backend.buffer("step", 8))
    graph.write("step", 0, b"abcdefgh")
    assert bytes(graph.view("step", 2, 3)) == b"cde"
    assert bytes(graph.view("step", 6)) == b"gh"
    assert bytes(graph.view("step", 8)) == b""
    for offset, size in ((-1, 2), (7, 2), (9, None), (0, -1)):
        with pytest.raises(ValueError, match="exceed the 8 bytes of step"):
            graph.view("step", offset, size)


def test_unknown_port_is_reported(backend):
    graph = Graph("decode", backend)
    graph.bind("step", backend.buffer("step", 8))
    with pytest.raises(ValueError, match="no port stop; it has step"):
        graph.write("stop", 0, b"")


def test_exception_in_a_variant_reaches_the_waiter(backend):
    def raise_error() -> None:
        raise FloatingPointError("layer 3")

    graph = Graph("decode", backend)
    graph.add((1,), raise_error)
    fence = graph.replay((1,), Stream("main"))
    with pytest.raises(FloatingPointError, match="layer 3"):
        fence.wait(60)
    assert fence.done()


def test_fence_that_never_signals_misses_its_deadline():
    diary = EventRecorder()
    graph = Graph("decode", DeadBackend(), observers=(diary,))
    graph.add((1,), do_nothing)
    graph.replay((1,), Stream("main"))
    with pytest.raises(DeadlineMissed, match="not reached"):
        graph.wait(0.01)
    assert diary.entries[-1] == ("fault", DeadlineMissed)
    with pytest.raises(DeadlineMissed):  # still in flight
        graph.wait(0.0)


def test_observer_receives_all_events_in_order(backend):
    first, second = EventRecorder(), EventRecorder()
    graph = Graph("decode", backend, ir="the ir", observers=(first, second))
    graph.bind("step", backend.buffer("step", 4))
    graph.add((1,), do_nothing)
    main = Stream("main")
    graph.write("step", 0, b"ab")
    graph.replay((1,), main).wait(60)
    graph.write("step", 2, b"cd")  # the fence is done by now: retired is heard before the write
    graph.replay((1,), main)
    graph.wait(60)
    assert first.entries == [
        ("created", "decode", "the ir"),
        ("wrote", "step", 0, b"ab"),
        ("replayed", "decode", (1,), "main", 1),
        ("retired", 1),
        ("wrote", "step", 2, b"cd"),
        ("replayed", "decode", (1,), "main", 2),
        ("retired", 2),
    ]
    assert second.entries == first.entries


def test_observer_receives_a_failure_without_a_waiter(backend):
    def raise_error() -> None:
        raise FloatingPointError

    diary = EventRecorder()
    graph = Graph("decode", backend, observers=(diary,))
    graph.add((1,), raise_error)
    fence = graph.replay((1,), Stream("main"))
    while not fence.done():
        pass
    graph.retire()
    assert diary.entries[-1] == ("fault", FloatingPointError)


def test_failed_submission_keeps_the_stream_waits(backend):
    event, main, other = Event(), Stream("main"), Stream("other")
    graph = Graph("decode", backend)
    graph.add((1,), do_nothing)
    graph.replay((1,), other)
    event.record(other)
    main.wait(event)
    waits = main.waits
    assert len(waits) == 1
    backend.close()
    with pytest.raises(ValueError, match="closed"):
        graph.replay((1,), main)
    assert main.waits == waits
