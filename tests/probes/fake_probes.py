"""Probes that misbehave in every way there is, and a plan to run them under."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from zinc_rt.cli.report import Result
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.kit.context import ProbeContext, ProbeOptions
from zinc_rt.probes.outcome import T1, Failed, Outcome, Signature, passed, symptom
from zinc_rt.probes.probe import Probe
from zinc_rt.probes.runner import ProbeRunner, RunPlan

SPEC = DeviceSpec(simulated=True, time_scale=0.1)


def good(c: ProbeContext) -> Outcome:
    return passed(answer=42)


def bad(c: ProbeContext) -> Outcome:
    raise Failed("wrong-data", "the sky is green", measure={"sky": "green"})


def hang(c: ProbeContext) -> Outcome:
    time.sleep(60)
    return passed()


def deaf(c: ProbeContext) -> Outcome:
    """Only SIGKILL ends it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return hang(c)


def crash(c: ProbeContext) -> Outcome:
    faulthandler.disable()  # pytest's would fill the screen
    os.kill(os.getpid(), signal.SIGSEGV)
    return passed()


def leave(c: ProbeContext) -> Outcome:
    os._exit(7)


def bug(c: ProbeContext) -> Outcome:
    raise KeyError("no such thing")


def errno(c: ProbeContext) -> Outcome:
    raise PermissionError(13, "not yours")


def probe(name: str, run: Callable[[ProbeContext], Outcome] = good, **more: Any) -> Probe:
    defaults: dict[str, Any] = {"tiers": (T1,), "hazard": 0, "proves": "something", "passes_when": "it does"}
    defaults["signatures"] = (Signature(symptom("wrong-data"), "the paint was wrong", "buy blue"),)
    return Probe(name, f"probe {name}", run=run, **{**defaults, **more})


def plan(**more: Any) -> RunPlan:
    defaults: dict[str, Any] = {
        "spec": SPEC,
        "tiers": (T1,),
        "hazard": 2,
        "options": ProbeOptions((T1,)),
        "alive": None,
        "timeout_seconds": 0.0,
    }
    return RunPlan(**{**defaults, **more})


def run(
    probes: Sequence[Probe], *, journal: Path | None = None, boot: str = "b1", **more: Any
) -> dict[str, Result]:
    runner = ProbeRunner(plan(**more), probes, Journal(journal, "fake", boot=boot))
    return {result.id: result for result in runner.run()}
