"""The smallest case that shows a failure again: the run recorded, bisected to one node, that node alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from zinc_rt.golden.capture import capture
from zinc_rt.replay.bisect import bisect
from zinc_rt.replay.one_node_log import emit_repro
from zinc_rt.trace.recorder import record
from zinc_rt.validate.check_result import CheckResult
from zinc_rt.validate.runner import ValidationRunner
from zinc_rt.validate.tiers import TierSpec


def with_repro(
    runner: ValidationRunner, spec: TierSpec, follow: list[int], result: CheckResult, *, folder: Path
) -> CheckResult:
    """The `result` with a folder of its own: run.zlog, and node.zlog with its test where one node is at fault.

    Raises OutputError where the folder cannot be written.
    """
    job = runner.job
    here = folder / job.name / spec.text.replace(":", "-")
    here.mkdir(parents=True, exist_ok=True)
    runner.say(f"{spec.text}: the run recorded and bisected")
    log = here / "run.zlog"
    with record(runner.engine(spec), log):
        capture(runner.engine(spec), job.tokens, None, steps=job.steps, follow=follow, inject=runner.inject())
    found = bisect(log, spec.choice, threads=job.threads)
    artifacts, repro = [str(log)], f"zinc-rt-replay {log} --tiers {spec.name} --bisect"
    if found.where is not None:
        emitted = emit_repro(log, found, here, spec.choice)
        artifacts, repro = [*artifacts, *map(str, emitted.paths)], emitted.command
    return replace(result, artifacts=artifacts, repro=repro, cause=found.text)
