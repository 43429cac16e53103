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
import struct
import sys
import time
import traceback
from collections.abc import Callable, Collection, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psutil

KILL_SECONDS = 5.0  # for the kernel to take back what a killed child held
CLOSE_SECONDS = 20.0  # for what a child does after its verdict; KFD takes 9 s to give up on a hung queue
LONGEST_STRETCH = 20  # deadlines, however loaded the machine is
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_FRAME = struct.Struct("<Q")  # of an answer: its bytes; 0 after the last one
How = Literal["returned", "raised", "crashed", "deadline", "stuck"]


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a child. `value` is the function's result; `text` is a traceback, or how the child ended.

    A child that did not end in order may have a `value` too: the last one that its function yielded.
    """

    how: How
    value: Any = None
    text: str = ""
    seconds: float = 0.0


def run_in_child(
    function: Callable[[], Any],
    timeout_seconds: float,
    *,
    close_seconds: float = CLOSE_SECONDS,
    exclude_queued: bool = False,
) -> ChildEnd:
    """Run `function` and return its result, which must be picklable. The child's standard output is
    redirected to its standard error.

    A generator function yields its result as soon as it is known, and yields it again when it is final. What it
    does after the first one has `close_seconds`; if that hangs or crashes, the result is kept.

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
        answers = _AnswerReader(readable, timeout_seconds, close_seconds, partial(queued_seconds, pid))
        finished = answers.read(exclude_queued=exclude_queued)
    except BaseException:
        _kill(pid)
        raise
    finally:
        os.close(readable)
    try:
        answer: tuple[How, Any, str] = pickle.loads(answers.last) if answers.last else ("crashed", None, "")
    except Exception as error:
        answer = "crashed", None, f"its result cannot be read: {error}"
    how, value, text = answer
    if not finished:
        dead = _kill(pid)
        now = time.monotonic()
        text = f"not finished within {answers.limit:g} s"
        if now > answers.start + answers.limit + 1:
            text += f", without the {now - answers.start - answers.limit:.0f} s that it waited for a processor"
        text += "" if dead else ", and SIGKILL does not end it"
        return ChildEnd("deadline" if dead else "stuck", value, text, now - start)
    status = _reap(pid, KILL_SECONDS)
    seconds = time.monotonic() - start
    if status is None:
        dead = _kill(pid)
        text = "its process does not end: the kernel does not release its resources"
        return ChildEnd("deadline" if dead else "stuck", value, text, seconds)
    _sweep(pid)
    if answers.complete:
        return ChildEnd(how, value, text, seconds)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ChildEnd("crashed", value, f"ended by signal {number} ({signal.Signals(number).name})", seconds)
    code, result = os.waitstatus_to_exitcode(status), "final result" if answers.last else "result"
    return ChildEnd("crashed", value, f"ended with exit code {code} and no {result}", seconds)


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
            result = function()
            for value in result if isinstance(result, Generator) else (result,):
                _write_answer(writable, pickle.dumps(("returned", value, "")))
        except BaseException:
            _write_answer(writable, pickle.dumps(("raised", None, traceback.format_exc())))
        sys.stdout.flush()
        sys.stderr.flush()
        _write_answer(writable, b"")
        code = 0
    finally:
        os._exit(code)


def _write_answer(fd: int, answer: bytes) -> None:
    view = memoryview(_FRAME.pack(len(answer)) + answer)
    while view:
        view = view[os.write(fd, view) :]


class _AnswerReader:
    """The answers of a child. `last` is the latest one as a pickle, `complete` whether no other follows. The child
    has `limit` seconds from `start` for the next one."""

    def __init__(self, fd: int, limit: float, close_seconds: float, queued: Callable[[], float]) -> None:
        self.fd, self.limit, self.close_seconds, self.queued = fd, limit, close_seconds, queued
        self.start = time.monotonic()
        self.last, self.complete = b"", False
        self._data = bytearray()

    def read(self, *, exclude_queued: bool) -> bool:
        """Read all answers. Return whether the pipe's end was reached in time."""
        queued_before, until = 0.0, self.start + self.limit
        while True:
            now = time.monotonic()
            if now >= until:
                extra = self.queued() - queued_before if exclude_queued else 0.0
                until = self.start + min(self.limit + extra, LONGEST_STRETCH * self.limit)
                if now >= until:
                    return False
            if not select.select([self.fd], [], [], until - now)[0]:
                continue
            part = os.read(self.fd, 1 << 16)
            if not part:
                return True
            first = not self.last
            self._take(part)
            if first and self.last:
                queued_before = self.queued() if exclude_queued else 0.0
                self.start, self.limit = time.monotonic(), self.close_seconds
                until = self.start + self.limit

    def _take(self, part: bytes) -> None:
        self._data += part
        while len(self._data) >= _FRAME.size:
            (size,) = _FRAME.unpack_from(self._data)
            if len(self._data) < _FRAME.size + size:
                return
            self.last, self.complete = bytes(self._data[_FRAME.size : _FRAME.size + size]) or self.last, not size
            del self._data[: _FRAME.size + size]


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
