"""`zinc-rt validate --isolation`: a mix of requests, each compared bit for bit with a solo run."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from zinc_rt.cli import options
from zinc_rt.cli.describe import describe_executed, describe_model, describe_run
from zinc_rt.cli.output import start_report
from zinc_rt.cli.progress import ProgressStage, show_stages
from zinc_rt.cli.report import Report
from zinc_rt.engine.devices import SIMULATED
from zinc_rt.engine.engine import name_ordering
from zinc_rt.host.errors import UsageError
from zinc_rt.host.settings import Settings
from zinc_rt.host.terminal import Part
from zinc_rt.model.pooling import find_pooling
from zinc_rt.validate.isolation.trial import MixTrial
from zinc_rt.validate.isolation.verdict import MixVerdict
from zinc_rt.validate.report import IsolationReport
from zinc_rt.validate.runner import ValidationJob

NO_CLAIM = "float32-dequant"  # its summation order depends on the BLAS call
FEW_MIXES = 4  # failed ones, after which no other runs
OTHER = ("prompt", "tokens", "golden", "resync", "emit_repro", "html")  # of a validation of layers


def run_isolation(
    arguments: argparse.Namespace, settings: Settings, jobs: list[ValidationJob], show: Callable[[Part], None]
) -> IsolationReport:
    """Run every mix of every model on every tier and show each result. The caller prints the verdict line and
    writes the result files.
    """
    for name in OTHER:
        if getattr(arguments, name):
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --isolation", next="remove it")
    for name in ("requests", "mixes"):
        if getattr(arguments, name) < 1:
            raise UsageError(f"--{name} {getattr(arguments, name)}: expected 1 or more")
    for job in jobs:
        if find_pooling(job.gguf) and arguments.drafts is not None:
            raise UsageError(
                f"--drafts {arguments.drafts}: {job.name} is an embedding model, and generates no text",
                next="remove --drafts",
            )
    report = IsolationReport(
        "validate",
        ordering=arguments.ordering,
        shortcuts=settings.list_shortcuts(),
        strict=arguments.strict,
        models=len(jobs),
    )
    start_report(report, arguments)
    digest: list[str] = []
    with show_stages(plain=not hasattr(arguments, "screen")) as stage:  # a caller from Python gets no plain lines
        for number, job in enumerate(jobs, 1):
            name = f"model {number} of {len(jobs)}: {job.name}"
            for verdict in _run_mixes(job, arguments, report, stage, name, show):
                report.verdicts.append(verdict)
                report.results += verdict.results()
                digest += verdict.lines()
    if arguments.device != "sim" and report.simulated_tiers():
        report.details["simulated_unasked"] = report.simulated_tiers()
    for shortcut in report.shortcuts:
        show(f"shortcut  {shortcut}")
    report.details["digest"] = digest
    for line in digest:
        show(line)
    if failed := [result for result in report.results if result.status == "fail"]:
        show(f"repro      {failed[0].repro}")
    return report


def _run_mixes(
    job: ValidationJob,
    arguments: argparse.Namespace,
    report: Report,
    stage: ProgressStage,
    name: str,
    show: Callable[[Part], None],
) -> Iterator[MixVerdict]:
    for spec in job.tiers:
        if spec.ordering == NO_CLAIM:
            raise UsageError(
                f"{spec.text}: {NO_CLAIM} does not guarantee identical bits for requests in a mix",
                next="--ordering canonical-1",
            )
    trial = MixTrial(
        job,
        arguments.seed,
        arguments.requests,
        ctx=arguments.ctx,
        draft=None if arguments.drafts == "all" else arguments.drafts,
        mixes=arguments.mixes,
        every_draft=arguments.drafts == "all",
        repro=_make_repro(job, arguments),
        say=lambda text: stage.say(f"{name}, {text}"),
    )
    ordering = name_ordering(job.tiers[0].ordering, job.kv_type, job.prefill_ordering)
    show(f"{job.gguf.path.name}  {job.gguf.architecture}, {ordering}; {trial.description}")
    models = report.model.get("models", [])
    report.model = {"models": [*models, describe_model(job.gguf)]}
    for spec in job.tiers:
        with trial.open_engine(spec) as engine:
            shortcuts = report.shortcuts
            describe_run(report, engine)
            simulated = [f"{spec.text}: {SIMULATED}"] if spec.choice.simulated else []
            report.shortcuts = list(dict.fromkeys([*shortcuts, *report.shortcuts, *simulated]))
            report.details.setdefault("devices", {})[spec.text] = report.device
            totals, embeds = Counter[str](), bool(engine.model.pooling)
            for number, verdict in enumerate(trial.verdicts(spec, engine), 1):
                report.shortcuts = list(dict.fromkeys([*report.shortcuts, *trial.shortcuts]))
                totals.update(mixes=1, failed=not verdict.passed, rows=verdict.witness.rows)
                totals.update(embeddings=verdict.witness.compared)
                totals.update(steps=len(verdict.story.steps), tokens=verdict.witness.tokens)
                if number == 1 or not verdict.passed:
                    if number > 1:
                        words = shlex.join(["--mixes", str(number)])
                        verdict = replace(verdict, repro=f"{verdict.repro} {words}")
                    report.details.setdefault("mixes", []).append(verdict.report_figures())
                    show(f"  {spec.text:<6} {verdict.format_summary()}")
                    yield verdict
                if totals["failed"] == FEW_MIXES:
                    break
            describe_executed(report, engine)
        report.details.setdefault("totals", {})[spec.text] = dict(totals)
        if trial.mixes > 1:
            compared = f"{totals['embeddings']} embeddings" if embeds else f"{totals['rows']} rows of logits"
            ran = f"{totals['steps']} steps, {totals['tokens']} tokens, {compared} compared"
            show(f"  {spec.text:<6} {totals['mixes']} mixes, {totals['failed']} failed: {ran}")
    show("")


def _make_repro(job: ValidationJob, arguments: argparse.Namespace) -> str:
    words = ["zinc-rt", "validate", "--isolation", "--model", str(job.gguf.path)]
    words += ["--tiers", ",".join(spec.text for spec in job.tiers)]
    if arguments.device != "auto":
        words += [
            "--device",
            options.find_simulated_chip(vars(arguments)) if arguments.device == "sim" else arguments.device,
        ]
    words += options.order_options(vars(arguments))
    if arguments.ordering != "canonical-1":
        words += ["--ordering", arguments.ordering]
    if job.kv_type != "f32":
        words += ["--kv-type", job.kv_type]
    if job.prefill_ordering:
        words += ["--prefill-ordering", job.prefill_ordering]
    if arguments.drafts is not None:
        words += ["--drafts", arguments.drafts]
    if arguments.ctx is not None:
        words += ["--ctx", str(arguments.ctx)]
    return shlex.join([*words, "--seed", str(arguments.seed), "--requests", str(arguments.requests)])
