"""Worker threads for task lists: their number, CPU affinity and sleep."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from zinc_rt.backends.cpu.host_memory import allocate_aligned
from zinc_rt.backends.cpu.tasks import LINE_BYTES, PoolStruct
from zinc_rt.host.errors import UsageError

CGROUP_2 = "/sys/fs/cgroup/cpu.max"  # quota and period
CGROUP_1 = "/sys/fs/cgroup/cpu/cpu.cfs_{}_us"
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def choose_default_threads() -> int:
    """Return the number of physical cores available to this process, limited by its container's CPU quota."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not allowed:
        return os.cpu_count() or 1
    cores = {_read_file(SIBLINGS.format(cpu)) or str(cpu) for cpu in allowed}
    return max(1, min(len(cores), _read_quota() or len(cores)))


def _read_quota() -> int | None:
    """Return the CPU quota of the control group, in CPUs; None without a limit."""
    quota, _, period = _read_file(CGROUP_2).partition(" ")
    if not period:
        quota, period = (_read_file(CGROUP_1.format(which)) for which in ("quota", "period"))
    if quota.isdigit() and period.isdigit() and int(period):  # else "max", or -1: no limit
        return max(1, int(quota) // int(period))
    return None


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


class HelperThreads:
    """`threads` - 1 Python threads inside zrt_help; idle ones wait on a condition and cost nothing."""

    def __init__(self, library: ctypes.CDLL, threads: int, affinity: tuple[int, ...] = ()) -> None:
        self._room = allocate_aligned(ctypes.sizeof(PoolStruct) + LINE_BYTES)
        self.pool = PoolStruct.from_buffer(self._room.data)
        self.pool.threads = threads
        self._yield = _load_sched_yield()
        self.pool.yield_core = ctypes.cast(self._yield, ctypes.c_void_p).value
        self._library = library
        self._affinity = affinity
        self._wanted = threads - 1
        self._threads: list[threading.Thread] = []
        self._wake = threading.Condition()
        self._calls = 0
        self._closed = False

    def run(self, task_list: ctypes.Structure) -> int:
        """Run a task list and return zrt_run's result. Called from one thread at a time."""
        if not self._calls:
            self._pin_thread(0)  # the caller itself
        if len(self._threads) < self._wanted:
            self._start()
        with self._wake:
            self._calls += 1
            self._wake.notify_all()
        return int(self._library.zrt_run(ctypes.byref(self.pool), ctypes.byref(task_list)))

    def settle(self) -> None:
        """Wait until no helper accesses data of earlier calls."""
        self._library.zrt_settle(ctypes.byref(self.pool))

    def stop(self) -> None:
        """Abort the running call, which ends unfinished."""
        self.pool.stop = 1

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        while len(self._threads) < self._wanted:
            number = len(self._threads) + 1
            thread = threading.Thread(
                target=self._run_helper, args=(number,), name=f"native-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _run_helper(self, number: int) -> None:
        self._pin_thread(number)
        seen, calls = 0, 0
        while True:
            with self._wake:
                while self._calls == calls and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                calls = self._calls
            seen = self._library.zrt_help(ctypes.byref(self.pool), seen)

    def _pin_thread(self, number: int) -> None:
        """Pin the calling thread. Skipped if a CPU went offline since `check_affinity`; then threads run
        anywhere.
        """
        if self._affinity:
            with suppress(OSError):
                os.sched_setaffinity(0, {self._affinity[number % len(self._affinity)]})


def check_affinity(cpus: tuple[int, ...]) -> None:
    """Raise UsageError for CPUs that threads cannot be pinned to."""
    if not cpus:
        return
    if not hasattr(os, "sched_getaffinity"):
        raise UsageError("ZINC_RT_CPU_AFFINITY: this system cannot pin threads", next="unset it")
    allowed = os.sched_getaffinity(0)
    if missing := [cpu for cpu in cpus if cpu not in allowed]:
        raise UsageError(
            f"ZINC_RT_CPU_AFFINITY: this process is not allowed to run on CPU {missing[0]}",
            next=f"use only these CPUs: {', '.join(map(str, sorted(allowed)))}",
        )


def _load_sched_yield() -> Any:
    """Call the C library's sched_yield, which yields the core to another runnable thread."""
    if os.name == "nt":
        return ctypes.WinDLL("kernel32").SwitchToThread  # type: ignore[attr-defined]
    return ctypes.CDLL(None).sched_yield
