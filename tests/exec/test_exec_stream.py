from __future__ import annotations

import threading

import pytest
from fake_backend import DeadFence

from zinc_rt.exec import DeadlineMissed, Event, HostExecutor, JoinedFence, Stream
from zinc_rt.host.errors import ZincError


def submit_and_wait(executor: HostExecutor, call, stream: Stream):
    fence = executor.submit(call, stream)
    stream.record_submission(fence)
    return fence


def test_one_stream_keeps_its_order():
    ran: list[int] = []
    main = Stream("main")
    with HostExecutor(workers=4) as executor:
        fences = [submit_and_wait(executor, lambda n=n: ran.append(n), main) for n in range(200)]
        fences[-1].wait(60)
        assert all(fence.done() for fence in fences)
    assert ran == list(range(200))
    assert [fence.value for fence in fences] == list(range(1, 201))


def test_two_streams_run_concurrently():
    meet = threading.Barrier(2)
    with HostExecutor(workers=2) as executor:
        fences = [submit_and_wait(executor, lambda: meet.wait(60) and None, Stream(name)) for name in "ab"]
        for fence in fences:
            fence.wait(60)


@pytest.mark.parametrize("workers", [1, 2])
def test_stream_waits_for_event_of_another(workers):
    ran: list[str] = []
    release = threading.Event()
    a, b, event = Stream("a"), Stream("b"), Event()

    def wait_for_release() -> None:
        assert release.wait(60)
        ran.append("a")

    with HostExecutor(workers=workers) as executor:
        submit_and_wait(executor, wait_for_release, a)
        event.record(a)
        b.wait(event)
        end = submit_and_wait(executor, lambda: ran.append("b"), b)
        assert not event.done()
        release.set()
        end.wait(60)
        event.wait(60)
    assert ran == ["a", "b"]
    assert b.waits == ()


def test_unrecorded_event_orders_nothing_and_is_reported():
    with pytest.raises(ValueError, match="no stream recorded"):
        Stream("main").wait(Event())
    with pytest.raises(ValueError, match="no stream recorded"):
        Event().wait(0)


def test_event_on_an_empty_stream_is_done():
    event = Event()
    event.record(Stream("empty"))
    event.wait(0)
    assert event.done()


def test_higher_priority_stream_goes_first():
    ran: list[str] = []
    release = threading.Event()
    with HostExecutor(workers=1) as executor:
        submit_and_wait(executor, lambda: release.wait(60) and None, Stream("busy"))
        low = submit_and_wait(executor, lambda: ran.append("low"), Stream("low"))
        high = submit_and_wait(executor, lambda: ran.append("high"), Stream("high", priority=1))
        release.set()
        low.wait(60)
        high.wait(60)
    assert ran == ["high", "low"]


def test_missed_deadline_names_stream_and_fence():
    release = threading.Event()
    with HostExecutor("cpu") as executor:
        fence = submit_and_wait(executor, lambda: release.wait(60) and None, Stream("main"))
        with pytest.raises(DeadlineMissed, match="cpu, stream main: fence 1 not reached"):
            fence.wait(0.02)
        release.set()
        fence.wait(60)


def test_failure_also_fails_work_queued_after_it():
    release = threading.Event()
    ran: list[str] = []
    a, b, event = Stream("a"), Stream("b"), Event()

    def wait_and_raise() -> None:
        assert release.wait(60)
        raise FloatingPointError("no")

    with HostExecutor(workers=2) as executor:
        fences = [
            submit_and_wait(executor, wait_and_raise, a),
            submit_and_wait(executor, lambda: ran.append("queued"), a),
        ]
        event.record(a)
        b.wait(event)
        fences.append(submit_and_wait(executor, lambda: ran.append("dependent"), b))
        release.set()
        for fence in fences:
            with pytest.raises(FloatingPointError):
                fence.wait(60)
        submit_and_wait(executor, lambda: ran.append("later"), a).wait(60)
    assert ran == ["later"]


def test_fence_of_another_executor_is_waited_for():
    release = threading.Event()
    ran: list[str] = []
    a, b, event = Stream("a"), Stream("b"), Event()
    with HostExecutor("one") as executor, HostExecutor("two") as two:
        submit_and_wait(executor, lambda: release.wait(60) and None, a)
        event.record(a)
        b.wait(event)
        fence = submit_and_wait(two, lambda: ran.append("b"), b)
        assert not fence.done()
        release.set()
        fence.wait(60)
    assert ran == ["b"]


def test_closing_fails_work_that_never_ran():
    main = Stream("main")
    main.waits = (DeadFence(),)
    executor = HostExecutor()
    fence = submit_and_wait(executor, lambda: None, main)
    executor.close()
    executor.close()
    with pytest.raises(ZincError, match="closed before this call ran"):
        fence.wait(0)
    with pytest.raises(ValueError, match="is closed"):
        executor.submit(lambda: None, main)


def test_joined_fences_have_one_deadline_and_propagate_errors():
    main = Stream("main")
    with HostExecutor() as executor:
        good = submit_and_wait(executor, lambda: None, main)
        bad = submit_and_wait(executor, lambda: 1 / 0, main)
        with pytest.raises(ZeroDivisionError):
            JoinedFence([good, bad]).wait(60)
        assert JoinedFence([good, bad]).done()
        assert JoinedFence([good, bad]).value == 2
    with pytest.raises(DeadlineMissed):
        JoinedFence([DeadFence(), DeadFence()]).wait(0.01)


def test_ctrl_c_while_a_worker_starts_leaves_a_closable_executor(monkeypatch):
    def raise_interrupt(thread):
        raise KeyboardInterrupt

    executor = HostExecutor("test")
    ran = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            executor.submit(lambda: ran.append(1), Stream("a"))
    executor.close()
    assert not ran
