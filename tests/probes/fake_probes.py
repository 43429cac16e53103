"""Probes that misbehave in every way there is, and a plan to run them under."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from zinc_rt.cli.report import Result
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.kit.context import ProbeContext, ProbeOptions
from zinc_rt.probes.outcome import T1, Outcome, ProbeFailed, Signature, passed, symptom
from zinc_rt.probes.probe import Probe
from zinc_rt.probes.runner import ProbeRunner, RunPlan

SPEC = DeviceSpec(simulated=True, time_scale=0.1)


def pass_probe(context: ProbeContext) -> Outcome:
    return passed(answer=42)


def fail_probe(context: ProbeContext) -> Outcome:
    raise ProbeFailed("wrong-data", "the sky is green", measure={"sky": "green"})


def hang_until_killed(context: ProbeContext) -> Outcome:
    time.sleep(60)
    return passed()


def ignore_sigterm(context: ProbeContext) -> Outcome:
    """Only SIGKILL ends it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return hang_until_killed(context)


def crash_by_signal(context: ProbeContext) -> Outcome:
    faulthandler.disable()  # pytest's would fill the screen
    os.kill(os.getpid(), signal.SIGSEGV)
    return passed()


def exit_early(context: ProbeContext) -> Outcome:
    os._exit(7)


def fail_and_hang_at_close(context: ProbeContext) -> Outcome:
    context.__dict__["close"] = partial(time.sleep, 60)
    return fail_probe(context)


def pass_and_hang_at_close(context: ProbeContext) -> Outcome:
    context.__dict__["close"] = partial(time.sleep, 60)
    return passed(answer=42)


def pass_and_crash_at_close(context: ProbeContext) -> Outcome:
    context.__dict__["close"] = partial(crash_by_signal, context)
    return passed(answer=42)


def raise_bug(context: ProbeContext) -> Outcome:
    raise KeyError("no such thing")


def raise_errno(context: ProbeContext) -> Outcome:
    raise PermissionError(13, "not yours")


def make_probe(name: str, run: Callable[[ProbeContext], Outcome] = pass_probe, **more: Any) -> Probe:
    defaults: dict[str, Any] = {"tiers": (T1,), "hazard": 0, "proves": "something", "passes_when": "it does"}
    defaults["signatures"] = (Signature(symptom("wrong-data"), "the paint was wrong", "buy blue"),)
    return Probe(name, f"probe {name}", run=run, **{**defaults, **more})


def make_plan(**more: Any) -> RunPlan:
    defaults: dict[str, Any] = {
        "spec": SPEC,
        "tiers": (T1,),
        "hazard": 2,
        "options": ProbeOptions((T1,)),
        "alive": None,
        "timeout_seconds": 0.0,
    }
    return RunPlan(**{**defaults, **more})


def run_probes(
    probes: Sequence[Probe], *, journal: Path | None = None, boot: str = "b1", **more: Any
) -> dict[str, Result]:
    runner = ProbeRunner(make_plan(**more), probes, Journal(journal, "fake", boot=boot))
    return {result.id: result for result in runner.run()}
