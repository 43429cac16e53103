"""The pool runs every item of a program once and in order of its barriers, whatever the threads do."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from backends.native_pool import STOPPED, Pool, Step
from kernels.native.libraries import find_compiler
from support import Counts

from zinc_rt.kernels.native import build

THREADS = (1, 2, 3, 8)


def make_task_chain(tasks: int, items: int, arrays: list[np.ndarray], **step: int) -> list[Step]:
    """Each task reads everything that the previous task wrote, so a task that starts early changes the last
    array.
    """
    arrays += [np.zeros(items, np.uint32) for _ in range(tasks + 1)]
    steps = []
    for i in range(tasks):
        steps.append(Step("chain", (arrays[i], arrays[i + 1], i, items), items, **step))
    return steps


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("items", [1, 2, 7, 64, 1000])
def test_every_item_runs_once(threads: int, items: int) -> None:
    ran = np.zeros(items + 1, np.uint32)
    with Pool(threads) as pool:
        for minimum, maximum in ((1, 1), (1, 1 << 30), (3, 5), (64, 64), (1 << 20, 1 << 20)):
            ran[:] = 0
            assert pool.run([Step("count", (ran,), items, least=minimum, most=maximum)]) == 0
            assert (ran[:items] == 1).all()
            assert ran[items] == 0


@pytest.mark.parametrize("shuffle", [0, 1, 2, 6, 9])
def test_every_item_runs_once_in_any_order(shuffle: int) -> None:
    ran = np.zeros(103, np.uint32)
    with Pool(3) as pool:
        for minimum in (1, 2, 50, 200):
            ran[:] = 0
            assert pool.run(pool.program([Step("count", (ran,), 103, least=minimum)], shuffle=shuffle)) == 0
            assert (ran == 1).all()


@pytest.mark.parametrize("threads", THREADS)
def test_barrier_waits_for_all_items_before_it(threads: int, slow_counts: Counts) -> None:
    arrays: list[np.ndarray] = []
    with Pool(threads) as pool:
        program = pool.program(make_task_chain(50, 37, arrays))
        for _ in range(slow_counts(50, 2000)):
            for array in arrays[1:]:
                array[:] = 0
            assert pool.run(program) == 0
            assert (arrays[-1] == 50).all()


@pytest.mark.parametrize("threads", THREADS)
def test_program_without_tasks_or_items_ends(threads: int) -> None:
    ran = np.zeros(4, np.uint32)
    with Pool(threads) as pool:
        assert pool.run([]) == 0
        assert pool.run([Step("count", (ran,), 0), Step("count", (ran,), "counts[1]")]) == 0
        assert pool.run([Step("count", (ran,), 0), Step("count", (ran,), 4), Step("count", (ran,), 0)]) == 0
        assert (ran == 1).all()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("threads", (1, 2, 4, 8))
def test_thousands_of_calls_with_varying_counts(threads: int, slow_counts: Counts) -> None:
    """A helper that is late from one call meets the counts of the next: it may claim nothing."""
    random = np.random.default_rng(threads)
    counts = np.zeros(4, np.int32)
    ran = np.zeros((3, 64), np.uint32)
    with Pool(threads) as pool:
        steps = [Step("count", (ran[i],), f"counts[{i}]", barrier=i != 1) for i in range(3)]
        program = pool.program(steps, counts)
        for call in range(slow_counts(2000, 100_000)):
            counts[:3] = random.integers(0, 65, 3)
            ran[:] = 0
            assert pool.run(program) == 0
            wanted = np.arange(64) < counts[:3, None]
            assert (ran == wanted).all(), f"call {call}"


@pytest.mark.parametrize("threads", THREADS)
def test_failing_kernel_ends_the_call_and_the_next_one_runs(threads: int) -> None:
    ran, behind = np.zeros(500, np.uint32), np.zeros(500, np.uint32)
    with Pool(threads) as pool:
        bad = pool.program(
            [Step("count", (ran,), 3), Step("fail", (ran, 77, 5), 500, most=8), Step("count", (behind,), 500)]
        )
        good = pool.program([Step("fail", (ran, 1000, 5), 500), Step("count", (behind,), 500)])
        for _ in range(50):
            ran[:], behind[:] = 0, 0
            assert pool.run(bad) == 5 << 32 | 1
            assert ran[77] == 0
            assert not behind.any()
            ran[:] = 0
            assert pool.run(good) == 0
            assert (ran == 1).all()
            assert (behind == 1).all()


@pytest.mark.parametrize("threads", THREADS)
def test_running_call_can_be_stopped(threads: int) -> None:
    go, started, ran = np.zeros(1, np.uint32), np.zeros(1, np.uint32), np.zeros(8, np.uint32)
    results: list[int] = []
    with Pool(threads) as pool:
        program = pool.program([Step("wait", (go, started), 1), Step("count", (ran,), 8)])
        caller = threading.Thread(target=lambda: results.append(pool.run(program)))
        caller.start()
        while not started[0]:
            time.sleep(0.001)
        pool.helpers.stop()
        go[0] = 1
        caller.join(60)
    assert results == [STOPPED]
    assert not ran.any()


def test_helpers_of_an_idle_pool_sleep() -> None:
    ran = np.zeros(8, np.uint32)
    with Pool(4) as pool:
        for _ in range(20):
            assert pool.run([Step("count", (ran,), 8)]) == 0
            pool.helpers.settle()
        while len(pool.helpers._wake._waiters) < 3:  # type: ignore[attr-defined]
            time.sleep(0.001)


def test_helpers_settle_between_calls_with_changing_counts(slow_counts: Counts) -> None:
    """What a call used may be freed then: a helper that still waits for items of the ended call would hang it."""
    counts = np.zeros(4, np.int32)
    ran = np.zeros(64, np.uint32)
    with Pool(8) as pool:
        program = pool.program([Step("count", (ran,), "counts[0]"), Step("count", (ran,), "counts[1]")], counts)
        for _ in range(slow_counts(300, 20_000)):
            counts[:2] = 1
            assert pool.run(program) == 0
            counts[:2] = 64
            pool.helpers.settle()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads")
def test_four_threads_on_one_cpu_finish() -> None:
    cpu = min(os.sched_getaffinity(0))
    arrays: list[np.ndarray] = []
    results: list[int] = []

    def run_calls() -> None:  # in a thread of its own: pinning lasts as long as the thread
        os.sched_setaffinity(0, {cpu})
        with Pool(4, (cpu,)) as pool:
            program = pool.program(make_task_chain(100, 16, arrays))
            results.extend(pool.run(program) for _ in range(20))

    thread = threading.Thread(target=run_calls)
    thread.start()
    thread.join(60)
    assert results == [0] * 20
    assert (arrays[-1] == 100).all()


@pytest.mark.slow  # minutes: zig builds the sanitizer's library first
def test_thread_sanitizer_reports_no_data_race(tmp_path: Path) -> None:
    program = tmp_path / "pool_threads"
    sources = (Path(__file__).with_name("pool_threads.c"), build.SOURCES / "pool.c")
    flags = ("-O2", "-g", "-std=c23", "-fsanitize=thread", f"-I{build.HEADERS}", "-o", str(program))
    command = (*find_compiler().command, *flags, *map(str, sources))
    result = subprocess.run(command, capture_output=True, text=True, env=build.make_environment(), timeout=1200)
    if result.returncode:
        pytest.skip(f"this compiler has no ThreadSanitizer here: {result.stderr.strip()[-300:]}")
    done = subprocess.run([program, "20000"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
