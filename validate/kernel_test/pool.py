"""Run cases in worker processes. Each worker has its own device, and a worker that dies is replaced."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from zinc_rt.host import errors
from zinc_rt.host.errors import CheckFailed, ZincError
from zinc_rt.kernels.cases import Case
from zinc_rt.validate.kernel_test.bench import TIMEOUT_SECONDS, CaseOutcome
from zinc_rt.validate.kernel_test.select import PlannedCase
from zinc_rt.validate.kernel_test.side import Side
from zinc_rt.validate.kernel_test.worker import from_json

BATCH = 24  # neighbours that one worker takes: they share kernels
COSTLY = ("finding", "stopped", "died")  # the device or the process begins anew after each
COSTLY_MOST = 6  # of one kernel; its other cases are left out


@dataclass(frozen=True, slots=True)
class CaseRun:
    """A case and its outcome."""

    case: Case
    outcome: CaseOutcome
    seconds: float = 0.0


class Worker:
    """A process that runs cases, started on first use."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._process: subprocess.Popen[str] | None = None

    def run(self, case: Case, kernels: tuple[str, ...] = (), timeout_seconds: float = TIMEOUT_SECONDS) -> CaseRun:
        """Run one case. Raise ZincError if the tier cannot be opened. The death of the process is an outcome."""
        process = self._start_process()
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):  # it has died: what it said last is still there
            process.stdin.write(json.dumps({"case": case.text(), "timeout": timeout_seconds}) + "\n")
            process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            return CaseRun(case, CaseOutcome("died", kernels, self._end(process)))
        reply: dict[str, Any] = json.loads(answer)
        if "error" in reply:
            self.close()
            raise _make_error(reply)
        return CaseRun(case, from_json(reply), reply["seconds"])

    def close(self) -> None:
        """End the process, immediately if it is busy."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    def _start_process(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "zinc_rt.validate.kernel_test.worker", json.dumps(self._side.as_dict())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._process

    def _end(self, process: subprocess.Popen[str]) -> str:
        code = process.wait()
        self.close()
        if code < 0:
            return f"the process that ran it was ended by {signal.Signals(-code).name}"
        return f"the process that ran it ended with exit code {code}"


def run_all(
    side: Side, plans: Sequence[PlannedCase], jobs: int, *, ran: Callable[[], None] = lambda: None
) -> list[CaseRun]:
    """Run every case in order; rejected ones are not sent to a worker. The remaining cases of a kernel that ended
    the device COSTLY_MOST times are skipped. Raises the workers' exceptions.
    """
    work: queue.SimpleQueue[list[tuple[int, PlannedCase]]] = queue.SimpleQueue()
    runnable = [(number, item) for number, item in enumerate(plans) if item.kernels]
    for start in range(0, len(runnable), BATCH):
        work.put(runnable[start : start + BATCH])
    outcomes = {
        number: CaseRun(item.case, CaseOutcome("refused", said=item.refused))
        for number, item in enumerate(plans)
        if not item.kernels
    }
    failures: list[BaseException] = []
    costly: Counter[str] = Counter()
    stop = threading.Event()
    workers = [Worker(side) for _ in range(max(1, min(jobs, -(-len(runnable) // BATCH))))]

    def drain(worker: Worker) -> None:
        try:
            while not stop.is_set():
                try:
                    batch = work.get_nowait()
                except queue.Empty:
                    return
                for number, item in batch:
                    if stop.is_set():
                        return
                    outcomes[number] = result = _skip_costly(item, costly) or worker.run(item.case, item.kernels)
                    _count(costly, result.outcome)
                    ran()
        except BaseException as error:
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=drain, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # Ctrl-C gets through
    finally:
        stop.set()
        for worker in workers:
            worker.close()
    if failures:
        raise failures[0]
    return [outcomes[number] for number in sorted(outcomes)]


def _skip_costly(plan: PlannedCase, costly: Counter[str]) -> CaseRun | None:
    for name in plan.kernels:
        if costly[name] >= COSTLY_MOST:
            return CaseRun(plan.case, CaseOutcome("left out", plan.kernels, blamed=name))
    return None


def _count(costly: Counter[str], outcome: CaseOutcome) -> None:
    if outcome.status in COSTLY:
        costly.update([outcome.blamed] if outcome.blamed else outcome.kernels[-1:])


def _make_error(reply: dict[str, Any]) -> ZincError:
    """Return the worker's own error, with its exit code."""
    codes = {kind.exit_code: kind for kind in (ZincError, CheckFailed, errors.NothingRan)}
    return codes.get(reply["exit"], ZincError)(reply["error"])


def count_outcomes(ran: Iterable[CaseRun]) -> Counter[str]:
    return Counter(run.outcome.status for run in ran)
