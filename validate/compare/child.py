"""Run a program in a separate process group, with a time-out, and end all processes that it started."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

MAX_OUTPUT_BYTES = 64 << 20  # of each stream; the rest is left out
GRACE_SECONDS = 2.0  # between asking to end and ending


@dataclass(frozen=True, slots=True)
class ChildRun:
    """The outcome of a program. `code` is None if it timed out or could not be started."""

    command: str
    seconds: float
    code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def failure_reason(self) -> str:
        """Return one line that describes an unsuccessful end."""
        if self.timed_out:
            return f"did not end within {self.seconds:.0f} s"
        if self.error:
            return self.error
        how = f"exit code {self.code}"
        if self.code is not None and self.code < 0:
            how = f"killed by {signal.Signals(-self.code).name}"
        lines = [line.strip() for line in self.stderr.splitlines() if re.search(r"[A-Za-z]{3}", line)]
        lines = [line for line in lines if re.match(r"\w*(?:Error|Exit|error)\b", line)] or lines
        return f"{how}: {lines[-1][:200]}" if lines else how


def run_child(words: Sequence[str], timeout_seconds: float, settings: Mapping[str, str] | None = None) -> ChildRun:
    """Run a program. Its output goes through files, so that a program that hangs cannot fill a pipe. `settings`
    are added to the environment.
    """
    command = shlex.join(words)
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(settings or {})},
                start_new_session=True,
            )
        except OSError as error:
            text = f"cannot be started: {error.strerror or error}"
            return ChildRun(command, 0.0, None, "", "", error=text)
        timed_out = False
        try:
            code: int | None = child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            timed_out, code = True, None
            _stop_child(child)
        except BaseException:
            _stop_child(child)
            raise
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(MAX_OUTPUT_BYTES).decode(errors="replace"))
    return ChildRun(command, time.monotonic() - start, code, texts[0], texts[1], timed_out=timed_out)


def _stop_child(child: subprocess.Popen[bytes]) -> None:
    """End the process, first with a signal that lets it release a GPU's queues. A process blocked in a driver may
    survive even a kill.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
            if number == signal.SIGTERM:
                continue  # what it started may still be there
            return
