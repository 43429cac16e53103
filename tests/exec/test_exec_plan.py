from __future__ import annotations

import itertools
import time

import pytest
from fake_backend import FakeBackend

from zinc_rt.exec import Graph, MissingVariant, Plan, Stream


class RunRecorder:
    """Graphs whose variants record when they ran."""

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.ran: list[str] = []

    def graph(self, name: str, seconds: float = 0.0) -> Graph:
        def sleep_and_record() -> None:
            time.sleep(seconds)
            self.ran.append(name)

        graph = Graph(name, self.backend)
        graph.add((1,), sleep_and_record)
        return graph


@pytest.fixture
def recorder():
    backend = FakeBackend(workers=2)
    yield RunRecorder(backend)
    backend.close()


def test_cross_stream_dependency_holds_when_the_later_step_is_ready_first(recorder):
    a, b = Stream("a"), Stream("b")
    plan = Plan()
    vision = plan.add(recorder.graph("vision", 0.02), (1,), a)
    action = plan.add(recorder.graph("action"), (1,), b)
    plan.after(action, vision)
    for _ in range(3):
        plan.execute().wait(60)
    assert recorder.ran == ["vision", "action"] * 3


def test_steps_run_in_dependency_order_on_one_stream(recorder):
    main = Stream("main")
    plan = Plan()
    steps = [plan.add(recorder.graph(name), (1,), main) for name in "abc"]
    plan.after(steps[0], steps[2])
    plan.execute().wait(60)
    assert recorder.ran == ["b", "c", "a"]


@pytest.mark.parametrize("streams", list(itertools.product((0, 1), repeat=4)))
def test_diamond_dependency_holds_on_any_streams(recorder, streams):
    pool = Stream("a"), Stream("b")
    plan = Plan()
    top, left, right, bottom = (
        plan.add(recorder.graph(name, 0.002), (1,), pool[number])
        for name, number in zip("tlrb", streams, strict=True)
    )
    for step, earlier in ((left, top), (right, top), (bottom, left), (bottom, right)):
        plan.after(step, earlier)
    fence = plan.execute()
    fence.wait(60)
    assert fence.done()
    assert recorder.ran[0] == "t" and recorder.ran[-1] == "b" and sorted(recorder.ran) == ["b", "l", "r", "t"]


def test_cycle_is_rejected_where_it_closes(recorder):
    plan, main = Plan(), Stream("main")
    first, second, third = (plan.add(recorder.graph(name), (1,), main) for name in "abc")
    plan.after(second, first)
    plan.after(third, second)
    with pytest.raises(ValueError, match="step 0 after step 2 creates a cycle"):
        plan.after(first, third)
    with pytest.raises(ValueError, match="creates a cycle"):
        plan.after(first, first)
    plan.execute().wait(60)
    assert recorder.ran == ["a", "b", "c"]


@pytest.mark.parametrize(("step", "earlier"), [(1, 0), (0, 1), (-1, 0), (0, -1)])
def test_unknown_step_is_rejected(recorder, step, earlier):
    plan = Plan()
    plan.add(recorder.graph("a"), (1,), Stream("main"))
    with pytest.raises(ValueError, match="in a plan of 1"):
        plan.after(step, earlier)


def test_missing_key_stops_the_plan_before_anything_runs(recorder):
    plan, main = Plan(), Stream("main")
    plan.add(recorder.graph("a"), (1,), main)
    plan.add(recorder.graph("b"), (2,), main)
    with pytest.raises(MissingVariant, match=r"plan step 1: graph b has no variant for key \(2,\)"):
        plan.execute()
    assert recorder.ran == [] and main.last is None


def test_empty_plan_runs_nothing_and_reports_it():
    with pytest.raises(ValueError, match="the plan has no steps"):
        Plan().execute()


def test_failed_step_fails_its_dependents(recorder):
    def raise_error() -> None:
        raise FloatingPointError("vision")

    bad = Graph("bad", recorder.backend)
    bad.add((1,), raise_error)
    plan = Plan()
    first = plan.add(bad, (1,), Stream("a"))
    second = plan.add(recorder.graph("action"), (1,), Stream("b"))
    plan.after(second, first)
    with pytest.raises(FloatingPointError, match="vision"):
        plan.execute().wait(60)
    assert recorder.ran == []
