"""More threads than CPUs: a program of 340 tasks by four threads pinned to one CPU, against one thread there.

    pytest perf/bench_native_pool.py -n 0 --benchmark-enable

Progress is counted in items, never in threads that arrive: a thread that the system does not run holds nobody up
but where it was stopped inside a claim. A barrier that waits for arriving threads costs a time slice a task here.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends.cpu.host_memory import aligned
from zinc_rt.backends.cpu.library import Library, library
from zinc_rt.backends.cpu.tasks import LINE_BYTES, TASK, TaskListStruct
from zinc_rt.backends.cpu.threads import Helpers
from zinc_rt.errors import UnsupportedError
from zinc_rt.kernels.native.task import ANY

TASKS, ROWS, COLUMNS = 340, 32, 2048  # as many tasks as a small model's token has, about 10 us each
LIMIT = 3.0
ROUNDS = 15


class PoolOfAdds:
    """y += x by `TASKS` tasks, each after the one before."""

    def __init__(self, code: Library) -> None:
        self.x, self.y = (aligned(4 * ROWS * COLUMNS).view(np.float32) for _ in range(2))
        self.x[:] = 1
        x, y = self.x.ctypes.data, self.y.ctypes.data
        self.block = ctypes.create_string_buffer(struct.pack("<QQQI", y, x, y, COLUMNS))
        self.tasks, self.cells = aligned(TASKS * TASK.itemsize).view(TASK), aligned(TASKS * LINE_BYTES)
        self.tasks["run"], self.tasks["arguments"] = code.address("add"), ctypes.addressof(self.block)
        self.tasks["dims"], self.tasks["barrier"] = (1, ROWS, 1), 1
        self.tasks["least"], self.tasks["most"] = 1, ANY
        self.counts = aligned(LINE_BYTES)
        self.struct = TaskListStruct(
            self.tasks.ctypes.data, self.counts.ctypes.data, self.cells.ctypes.data, TASKS, 0
        )


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads")
def test_four_threads_on_one_cpu(benchmark: Any) -> None:
    try:
        code = library()
    except UnsupportedError as error:
        pytest.skip(str(error))
    cpu = min(os.sched_getaffinity(0))
    seconds: dict[int, list[float]] = {1: [], 4: []}
    sums: list[float] = []

    def rounds() -> None:  # in a thread of its own: pinning lasts as long as the thread
        adds = PoolOfAdds(code)
        helpers = {threads: Helpers(code.handle, threads, (cpu,)) for threads in seconds}
        for _ in range(ROUNDS):
            for threads, taken in seconds.items():
                began = time.perf_counter()
                assert helpers[threads].run(adds.struct) == 0
                taken.append(time.perf_counter() - began)
        sums.extend(map(float, adds.y))
        for each in helpers.values():
            each.close()

    def pinned() -> None:
        thread = threading.Thread(target=rounds)
        thread.start()
        thread.join()

    benchmark.pedantic(pinned, rounds=1)
    assert set(sums[: ROWS * COLUMNS]) == {2.0 * ROUNDS * TASKS}
    ratio = float(np.median(seconds[4]) / np.median(seconds[1]))
    benchmark.extra_info.update(ratio=ratio, limit_ratio=LIMIT, peer="one thread on that CPU")
    if benchmark.stats is not None:
        assert ratio <= LIMIT, f"four threads took {ratio:.2f} times as long"
