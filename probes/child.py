"""Run a function in a separate process with a deadline, isolated from the parent.

The child is forked from a parent without an open device (KFD does not survive a fork, so every probe opens
it), and ended with all processes it started. A child that does not end even after SIGKILL is stuck inside
the kernel.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

KILL_SECONDS = 5.0  # for the kernel to take back what a killed child held
LONGEST_STRETCH = 20  # deadlines, however loaded the machine is
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
How = Literal["returned", "raised", "crashed", "deadline", "stuck"]


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a child. `value` is the function's result; `text` is a traceback, or how the child ended."""

    how: How
    value: Any = None
    text: str = ""
    seconds: float = 0.0


def run_in_child(function: Callable[[], Any], timeout_seconds: float, *, exclude_queued: bool = False) -> ChildEnd:
    """Run `function` and return its result, which must be picklable. The child's standard output is
    redirected to its standard error.

    `exclude_queued`: the time that the child waited for a processor does not count, up to LONGEST_STRETCH times
    `timeout_seconds` in all. For a simulated device, which runs in the child: there a loaded machine is no hang.
    """
    start = time.monotonic()
    readable, writable = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores what is raised in its callbacks around a fork: a Ctrl-C there would be lost.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if pid == 0:
        os.close(readable)
        _run_child(function, writable, before)
    os.close(writable)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

        def seconds_left(now: float) -> float:
            extra = queued_seconds(pid) if exclude_queued else 0.0
            return start + min(timeout_seconds + extra, LONGEST_STRETCH * timeout_seconds) - now

        data, finished = _read(readable, seconds_left, start + timeout_seconds)
    except BaseException:
        _kill(pid)
        raise
    finally:
        os.close(readable)
    if not finished:
        dead = _kill(pid)
        seconds = time.monotonic() - start
        text = f"not finished within {timeout_seconds:g} s"
        if seconds > timeout_seconds + 1:
            text += f", without the {seconds - timeout_seconds:.0f} s that it waited for a processor"
        text += "" if dead else ", and SIGKILL does not end it"
        return ChildEnd("deadline" if dead else "stuck", None, text, seconds)
    status = _reap(pid, KILL_SECONDS)
    seconds = time.monotonic() - start
    if status is None:
        dead = _kill(pid)
        text = "its process does not end: the kernel does not release its resources"
        return ChildEnd("deadline" if dead else "stuck", None, text, seconds)
    _sweep(pid)
    if data:
        try:
            how, value, text = pickle.loads(data)
        except Exception as error:
            return ChildEnd("crashed", None, f"its result cannot be read: {error}", seconds)
        return ChildEnd(how, value, text, seconds)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ChildEnd("crashed", None, f"ended by signal {number} ({signal.Signals(number).name})", seconds)
    return ChildEnd(
        "crashed", None, f"ended with exit code {os.waitstatus_to_exitcode(status)} and no result", seconds
    )


def queued_seconds(pid: int) -> float:
    """Return the seconds that the threads of the process and of its descendants were ready to run but had no
    processor (the second field of /proc/PID/task/TID/schedstat); 0.0 if the kernel does not count them.

    A thread that sleeps, or that computes without end on a free processor, adds nothing: a hang still ends at its
    deadline.
    """
    try:
        processes = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return 0.0
    return (
        sum(_queued_ns(path) for each in processes for path in Path(f"/proc/{each}/task").glob("*/schedstat"))
        / 1e9
    )


def _queued_ns(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0  # the thread has ended


def _run_child(function: Callable[[], Any], writable: int, mask: Collection[int]) -> None:
    """Run the child's side. It never returns."""
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a probe never outlives the harness
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.dup2(2, 1)
        try:
            answer = pickle.dumps(("returned", function(), ""))
        except BaseException:
            answer = pickle.dumps(("raised", None, traceback.format_exc()))
        sys.stdout.flush()
        sys.stderr.flush()
        _write(writable, answer)
        code = 0
    finally:
        os._exit(code)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read(fd: int, seconds_left: Callable[[float], float], until: float) -> tuple[bytes, bool]:
    """Read all bytes up to the end of the pipe. Return them, and whether the end was reached in time.
    `seconds_left(now)` is asked at `until`, and again when the time that it returned is over."""
    parts: list[bytes] = []
    while True:
        now = time.monotonic()
        if now >= until:
            left = seconds_left(now)
            if left <= 0:
                return b"", False
            until = now + left
        if not select.select([fd], [], [], until - now)[0]:
            continue
        part = os.read(fd, 1 << 16)
        if not part:
            return b"".join(parts), True
        parts.append(part)


def _reap(pid: int, timeout_seconds: float) -> int | None:
    until = time.monotonic() + timeout_seconds
    while True:
        result, status = os.waitpid(pid, os.WNOHANG)
        if result:
            return status
        if time.monotonic() > until:
            return None
        time.sleep(0.002)


def _sweep(pid: int) -> None:
    """Kill the remaining processes that the child started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _kill(pid: int) -> bool:
    """Kill the child and its processes. Return whether it has ended."""
    _sweep(pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return _reap(pid, KILL_SECONDS) is not None
