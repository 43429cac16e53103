"""Run the cases of a probe in separate processes: a hung queue takes down its process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from zinc_rt.probes.endings import make_child_outcome, run_in
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.outcome import Outcome, ProbeStuck, passed

Case = Callable[[ProbeContext], dict[str, Any]]


def in_processes(c: ProbeContext, cases: Mapping[str, Case], seconds: float) -> Outcome:
    """Run each case in a separate process: a queue that faulted or hung affects all queues of its process."""
    measure: dict[str, Any] = {}
    notes: list[str] = []
    log: list[str] = []
    for name, case in cases.items():
        ended = c.run_in_child(partial(_run_case, case), seconds)
        outcome = make_child_outcome(ended)
        if outcome.status == "fail":
            raise ProbeStuck(
                replace(outcome, reason=f"{name}: {outcome.reason}", measure=measure | outcome.measure)
            )
        measure |= {f"{name} {key}": value for key, value in outcome.measure.items()}
        notes += outcome.notes
        log += outcome.log
    return Outcome("pass", measure=measure, notes=tuple(notes), log=tuple(log))


def _run_case(case: Case, c: ProbeContext) -> Iterator[Outcome]:
    return run_in(c, lambda context: passed(**case(context)))
