"""Replay a log on any tier, in this or a new process, and compare every output with the recorded one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from zinc_rt.engine.devices import Choice, choose_tier
from zinc_rt.engine.resident import Variant
from zinc_rt.host.errors import UsageError
from zinc_rt.trace.plans import find_plan_differences, require_draws
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.rebuilt import Opener, RebuiltModel, hash_value, make_opener, read_value
from zinc_rt.trace.tape import RecordedStep, Tape, read_tape, require_inputs
from zinc_rt.trace.weight_sources import find_sources


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """An output that differs from the recorded one. `node` is -1 for a graph's output at level inputs."""

    step: int
    buffer: str
    node: int
    label: str
    want: str  # sha256
    got: str


@dataclass(slots=True)
class ReplayOutcome:
    """The result of a replay. `live_seconds`: the duration of the same steps in the recorded run,
    submission to end. `departures`: deviations of the recording from the plan, by step."""

    tier: str
    ordering: str
    recorded_tier: str
    steps: int = 0
    compared: int = 0
    differences: list[OutputDifference] = field(default_factory=list)
    seconds: float = 0.0
    live_seconds: float = 0.0
    findings: list[str] = field(default_factory=list)
    departures: dict[int, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Return whether at least one output was compared, all had the recorded bits, and the input of every step
        matched the plan.
        """
        return bool(self.compared) and not self.differences and not self.departures

    @property
    def text(self) -> str:
        if self.departures:
            step, text = min(self.departures.items())
            return f"{self.tier}: step {step} was not given what was planned: {text}"
        if self.differences:
            first = self.differences[0]
            name = f"{first.label} " if first.label else ""
            return (
                f"{self.tier}: {len(self.differences)} of {self.compared} outputs differ from "
                f"{self.recorded_tier}, first at step {first.step}: {name}{first.buffer}"
            )
        return f"{self.tier}: {self.compared} outputs of {self.steps} steps as recorded on {self.recorded_tier}"


def replay(
    log_path: str | os.PathLike[str],
    choice: Choice | Opener | None = None,
    *,
    tier: str = "",
    model: str | Path | None = None,
    until: int | None = None,
    start: int = 0,
    threads: int = 0,
    timeout_seconds: float | None = None,
    advance: Callable[[int], None] = lambda steps: None,
) -> ReplayOutcome:
    """Run steps 0 to `until` (inclusive, default all) on a tier, and compare outputs from step `start` on.

    `log_path`: a path or a recorder. `choice`: from zinc_rt.engine.devices, or a function that opens a
    backend for an ordering; otherwise `tier` by name, otherwise the recorded one, simulated if there is no
    GPU for it. `model`: the present path of the recorded model. `timeout_seconds`: per step; None: chosen
    for the device. Raises InputError for an unusable log or model file, UnsupportedError for something the
    tier cannot run, and any error that ends a replay.
    """
    with LogReader(log_path) as log:
        tape = read_tape(log)
        require_inputs(log, tape)
        choice = choice or choose_tier(tier or str(tape.header.get("tier", "")), simulate=True)
        require_draws(log, tape)
        steps = select_steps(tape, until, start)
        sources = find_sources(log, tape, model)
        opener = make_opener(choice, threads=threads)
        with RebuiltModel(log, tape, sources, opener, timeout_seconds=timeout_seconds) as rebuilt:
            outcome = ReplayOutcome(
                rebuilt.backend.spec.tier, rebuilt.backend.ordering, str(tape.header.get("tier", "?"))
            )
            last = steps[-1].number
            outcome.departures = {
                index: text for index, text in find_plan_differences(log, tape).items() if index <= last
            }
            known = set(rebuilt.findings())  # of others that share the device
            for step in steps:
                variant = rebuilt.write(step)
                start_time = time.monotonic()
                rebuilt.submit(step, variant)
                outcome.seconds += time.monotonic() - start_time
                outcome.live_seconds += step.seconds or 0.0
                outcome.steps += 1
                if step.number >= start:
                    _compare(outcome, step, variant)
                advance(1)
            outcome.findings = [finding.text for finding in rebuilt.findings() if finding not in known]
            if changed := rebuilt.find_other_kernels():
                outcome.problems.append(f"the kernels differ from the recorded ones: {', '.join(changed)}")
        outcome.problems += log.problems
    return outcome


def select_steps(tape: Tape, until: int | None, start: int) -> list[RecordedStep]:
    last = tape.steps[-1].number
    if until is not None and not 0 <= until <= last:
        raise UsageError(f"--until {until}: the log has steps 0 to {last}")
    end = last if until is None else until
    if not 0 <= start <= end:
        raise UsageError(f"--from {start}: expected 0 to {end}")
    return [step for step in tape.steps if step.number <= end]


def find_unequal_output(step: RecordedStep, variant: Variant) -> str:
    """Return the first output of a step whose value in `variant` is not the recorded one; "" if all are equal."""
    unequal = (out for out in step.outputs if hash_value(read_value(variant, out.buffer, step)) != out.sha256)
    return next((out.label or out.buffer for out in unequal), "")


def _compare(outcome: ReplayOutcome, step: RecordedStep, variant: Variant) -> None:
    for output in step.outputs:
        got = hash_value(read_value(variant, output.buffer, step))
        outcome.compared += 1
        if got != output.sha256:
            outcome.differences.append(
                OutputDifference(step.number, output.buffer, output.node, output.label, output.sha256, got)
            )
