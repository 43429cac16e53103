"""The execution contract, line by line: what it must be able to do, and what must never get into it."""

from __future__ import annotations

import ast
import gc
import inspect
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_backend import FakeBackend

import zinc_rt.exec
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.exec import (
    Buffer,
    Event,
    Fence,
    Graph,
    GraphCache,
    HostExecutor,
    MissingVariant,
    Plan,
    Stream,
    Usage,
    copy,
    wrap,
)
from zinc_rt.host.errors import ZincError

FOLDER = Path(zinc_rt.exec.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))


@pytest.fixture
def backend():
    backend = FakeBackend(workers=2)
    yield backend
    backend.close()


def make_graph(backend: FakeBackend, name: str, call, **options) -> Graph:
    graph = Graph(name, backend, **options)
    graph.add((1,), call)
    return graph


def do_nothing() -> None:
    pass


# What it must be able to do


def test_memory_is_allocated_with_name_size_and_heap():
    cpu = CpuBackend("canonical-1")
    buffer = cpu.alloc(64, "host_visible", "state")
    assert (buffer.name, buffer.size_bytes, buffer.heap, buffer.owned) == ("state", 64, "host_visible", True)
    cpu.free(buffer)
    assert buffer.storage is None
    cpu.close()


def test_foreign_memory_is_wrapped_not_copied():
    array = np.arange(8, dtype=np.uint8)
    buffer = wrap("frame", array, 8, "host_visible", 0x1000)
    assert buffer.storage is array and buffer.gpu_va == 0x1000 and not buffer.owned


def test_buffer_copies_run_in_stream_order(backend):
    a, b, main = backend.buffer("a", 4), backend.buffer("b", 4), Stream("main")
    make_graph(backend, "write", lambda: a.storage.__setitem__(slice(0, 4), b"abcd")).replay((1,), main)
    copy(backend, a, 0, b, 0, 4, main)
    make_graph(backend, "erase", lambda: a.storage.__setitem__(slice(0, 4), b"----")).replay((1,), main).wait(60)
    assert bytes(b.storage) == b"abcd"


def test_variant_can_be_any_object_and_is_owned_by_its_backend(backend):
    class BuiltVariant:
        calls = 0

        def __call__(self) -> None:
            self.calls += 1

    built = BuiltVariant()
    main = Stream("main")
    result = make_graph(backend, "decode", built)
    result.replay((1,), main)
    result.replay((1,), main).wait(60)
    assert built.calls == 2
    assert result.remove((1,)) is built and built.calls == 2


def test_missing_key_is_an_error_even_if_a_similar_key_exists(backend):
    ran: list[int] = []
    graph = Graph("decode", backend)
    for size in (16, 128):
        graph.add((1, size), lambda size=size: ran.append(size))
    main = Stream("main")
    for key in ((1, 17), (1, 15), (2, 16), (1,), (16, 1), ()):
        with pytest.raises(MissingVariant):
            graph.replay(key, main)
    assert ran == [] and main.last is None


def test_batch_size_is_one_more_number_in_the_key(backend):
    ran: list[tuple[int, int]] = []
    graph = Graph("decode", backend)
    for key in ((1, 16), (2, 16), (8, 16)):
        graph.add(key, lambda key=key: ran.append(key))
    graph.replay((2, 16), Stream("main")).wait(60)
    assert ran == [(2, 16)] and graph.has((8, 16)) and not graph.has((4, 16))


def test_variant_table_is_bounded_and_evicts_least_recently_used(backend):
    gone: list[object] = []
    graph = Graph("decode", backend, max_variants=3, evicted=lambda key, variant: gone.append(key))
    main = Stream("main")
    for position in range(3):
        graph.add((position,), do_nothing)
    graph.replay((0,), main).wait(60)
    graph.add((3,), do_nothing)
    graph.add((4,), do_nothing)
    assert gone == [(1,), (2,)] and graph.keys == ((0,), (3,), (4,))


def test_two_graphs_share_data_by_binding_one_buffer(backend):
    features = backend.buffer("features", 4)
    vision = make_graph(backend, "vision", lambda: features.storage.__setitem__(slice(0, 4), b"seen"))
    seen: list[bytes] = []
    action = make_graph(backend, "action", lambda: seen.append(bytes(features.storage)))
    vision.bind("out", features)
    action.bind("in", features)
    assert vision.ports["out"] is action.ports["in"]
    main = Stream("main")
    vision.replay((1,), main)
    action.replay((1,), main)
    action.wait(60)
    vision.wait(60)
    assert seen == [b"seen"] and bytes(action.view("in")) == b"seen"


def test_plan_orders_replays_by_data_alone_and_is_repeatable(backend):
    ran: list[str] = []
    eyes, hands = Stream("eyes"), Stream("hands")
    plan = Plan()
    see = plan.add(make_graph(backend, "vision", lambda: ran.append("vision")), (1,), eyes)
    think = plan.add(make_graph(backend, "encoder", lambda: ran.append("encoder")), (1,), hands)
    move = plan.add(make_graph(backend, "action", lambda: ran.append("action")), (1,), eyes)
    plan.after(think, see)
    plan.after(move, think)
    for _ in range(5):
        plan.execute().wait(60)
    assert ran == ["vision", "encoder", "action"] * 5


def test_event_orders_two_streams_outside_any_plan(backend):
    gate = threading.Event()
    ran: list[str] = []
    main, side, event = Stream("main"), Stream("side"), Event()

    def wait_for_gate() -> None:
        assert gate.wait(60)
        ran.append("main")

    make_graph(backend, "first", wait_for_gate).replay((1,), main)
    event.record(main)
    side.wait(event)
    last = make_graph(backend, "second", lambda: ran.append("side")).replay((1,), side)
    gate.set()
    last.wait(60)
    assert ran == ["main", "side"] and event.done()


def test_higher_priority_stream_goes_first_at_the_next_replay():
    """What a hard interruption needs: the host submits no more, and waits for one short replay at most."""
    gate, ran = threading.Event(), []
    backend = FakeBackend(workers=1)
    slow = make_graph(backend, "running", lambda: gate.wait(60) and None)
    step = make_graph(backend, "step", lambda: ran.append("step"))
    stop = make_graph(backend, "stop", lambda: ran.append("stop"))
    normal, urgent = Stream("normal"), Stream("urgent", priority=1)
    slow.replay((1,), normal)
    for _ in range(3):
        last = step.replay((1,), normal)
    stop.replay((1,), urgent)
    gate.set()
    last.wait(60)
    backend.close()
    assert ran == ["stop", "step", "step", "step"]


def test_independent_streams_run_concurrently(backend):
    meet = threading.Barrier(2)
    fences = [
        make_graph(backend, n, lambda: meet.wait(60) and None).replay((1,), Stream(n)) for n in ("hear", "move")
    ]
    for fence in fences:
        fence.wait(60)


def test_host_can_overwrite_an_input_buffer_between_replays(backend):
    goal = backend.buffer("goal", 5)
    seen: list[bytes] = []
    built = make_graph(backend, "action", lambda: seen.append(bytes(goal.storage)))
    built.bind("goal", goal)
    main = Stream("main")
    for wanted in (b"left ", b"right"):
        built.write("goal", 0, wanted)
        built.replay((1,), main)
        built.wait(60)
    assert seen == [b"left ", b"right"] and built.keys == ((1,),)


def test_host_can_speculate_verify_and_roll_back_with_copies(backend):
    """Speculation: a snapshot beside the work, a check, a copy back, and the same bits as without the guess."""
    state, saved = backend.buffer("state", 1), backend.buffer("saved", 1)

    def run_step() -> None:
        state.storage[0] += 1

    advance = make_graph(backend, "advance", run_step)
    main, side, before, result = Stream("main"), Stream("side"), Event(), Event()
    advance.replay((1,), main)
    before.record(main)
    side.wait(before)
    copy(backend, state, 0, saved, 0, 1, side)
    result.record(side)
    main.wait(result)
    for _ in range(3):
        advance.replay((1,), main).wait(60)
    assert state.storage[0] == 4
    copy(backend, saved, 0, state, 0, 1, main).wait(60)
    advance.replay((1,), main).wait(60)
    assert state.storage[0] == 2


def test_replay_cost_is_independent_of_port_count(backend):
    class CountedUsage(Usage):
        told = 0

        def add_fence(self, fence: Fence) -> None:
            CountedUsage.told += 1
            super().add_fence(fence)

    result = make_graph(backend, "decode", do_nothing)
    usages = CountedUsage(), CountedUsage()
    for number in range(120):
        buffer = Buffer(f"b{number}", 4, "host_visible", bytearray(4), usage=usages[number % 2])
        result.bind(buffer.name, buffer)
    result.replay((1,), Stream("main")).wait(60)
    assert CountedUsage.told == 2


def test_close_releases_every_buffer():
    threads = set(threading.enumerate())
    backend = FakeBackend()
    cache = GraphCache(2)
    state = backend.buffer("state", 4)
    result = cache.get("a", lambda: make_graph(backend, "decode", do_nothing))
    result.bind("state", state)
    plan = Plan()
    plan.add(result, (1,), Stream("main"))
    plan.execute().wait(60)
    result.wait(60)
    backend.close()
    backend.close()
    assert set(threading.enumerate()) <= threads
    alive = [weakref.ref(item) for item in (result, plan, cache)]
    del result, plan, cache
    gc.collect()
    assert [item() for item in alive] == [None, None, None] and not state.busy()


def test_work_queued_at_close_fails_with_a_message():
    gate = threading.Event()
    backend = FakeBackend(workers=1)
    main = Stream("main")
    make_graph(backend, "running", lambda: gate.wait(60) and None).replay((1,), main)
    queued = make_graph(backend, "queued", do_nothing).replay((1,), main)
    closing = threading.Thread(target=backend.close)
    closing.start()
    with pytest.raises(ZincError, match="was closed before this call ran"):
        queued.wait(60)
    gate.set()
    closing.join(5)


# What must never get into it

POLICY = [
    "session",
    "tenant",
    "kv",
    "token",
    "model",
    "schedul",
    "prefix",
    "prompt",
    "page",
    "request",
    "agent",
    "tool",
    "sensor",
    "cadence",
    "episode",
    "robot",
    "latency",
    "hint",
    "family",
    "preempt",
    "quota",
    "budget",
    "user",
    "http",
    "chat",
    "layer",
    "sampl",
]  # in any public name

# Everything that may be said of each object. A scenario that wants one more field wants policy: it belongs above.
PARAMETERS = {
    Buffer: "name size_bytes heap storage gpu_va usage owned",
    Usage: "",
    wrap: "name storage size_bytes heap gpu_va usage",
    copy: "copier source source_offset_bytes target target_offset_bytes size_bytes stream",
    Graph: "name launcher max_variants ir observers evicted",
    Graph.add: "self key variant",
    Graph.remove: "self key",
    Graph.bind: "self port buffer",
    Graph.unbind: "self port",
    Graph.replay: "self key stream",
    Graph.write: "self port offset_bytes data",
    Graph.view: "self port offset_bytes size_bytes",
    GraphCache: "max_graphs dropped",
    Plan: "",
    Plan.add: "self graph key stream",
    Plan.after: "self step earlier",
    Plan.execute: "self",
    Stream: "name priority",
    Event: "",
    HostExecutor: "name workers",
}


def public_names(path: Path) -> Iterator[str]:
    """Return the classes, functions, parameters, fields and constants of a file, without those that start with
    _.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef() | ast.FunctionDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_contract_imports_no_other_package_and_no_dependency(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] in sys.stdlib_module_names for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            own = module == "zinc_rt.host.errors" or module.startswith("zinc_rt.exec")
            assert own or module.split(".")[0] in sys.stdlib_module_names, module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_contract_names_mention_no_scenario(path: Path) -> None:
    names = [name for name in public_names(path) if not name.startswith("_")]
    assert [name for name in names if any(word in name.lower() for word in POLICY)] == []
    assert "priority" not in names or path.stem == "stream", "only a stream has a priority"


@pytest.mark.parametrize("thing", PARAMETERS, ids=lambda thing: thing.__qualname__)
def test_signatures_contain_only_required_parameters(thing) -> None:
    assert " ".join(inspect.signature(thing).parameters) == PARAMETERS[thing]
