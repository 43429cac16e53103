"""Say what will run and what it will cost, before it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from zinc_rt.cli.describe import describe_model, describe_run, expanded_weights
from zinc_rt.cli.report import Report
from zinc_rt.engine.devices import SIMULATED
from zinc_rt.engine.resident import capacity_of
from zinc_rt.host.machine import available_cores
from zinc_rt.mem.plan import plan_memory
from zinc_rt.validate.estimate import LONG_SECONDS, Estimate, estimate
from zinc_rt.validate.runner import ValidationJob, ValidationRunner

PASSES_ALONE = 3  # untapped, token by token, second opinion


def announce(runner: ValidationRunner, report: Report, show: Callable[[str], None]) -> None:
    """Prints the header of one model and fills the report's."""
    job = runner.job
    described = describe_model(job.gguf)
    clamps = list(report.shortcuts)
    describe_run(report, runner.engine(job.tiers[0]))
    unchecked = [spec.choice.shortcut for spec in job.tiers if spec.choice.shortcut]
    report.shortcuts = list(dict.fromkeys([*clamps, *report.shortcuts, *unchecked, *_simulated(runner)]))
    devices = {
        spec.text: {**asdict(runner.engine(spec).backend.device), "ordering": spec.ordering} for spec in job.tiers
    }
    report.details["devices"] = devices
    report.details.setdefault("jobs", {})[job.name] = {
        "tokens": len(job.tokens),
        "steps": job.steps,
        "layers": [job.layers.first, job.layers.last, job.layers.total],
    }
    cost = _cost(job, runner)
    known = report.model.get("models", [report.model]) if report.model else []
    report.model = {"models": [*known, described]} if known else described
    layers = "all" if job.layers.whole else f"{job.layers.first}:{job.layers.last}"
    show(
        f"{job.gguf.path.name}  {job.gguf.architecture}, layers {layers} of {job.layers.total}, "
        f"sha256 {described['digest'][:12]}, ctx {job.ctx}, {job.tiers[0].ordering}"
    )
    show(f"  {len(job.tokens)} prompt tokens + {job.steps} steps; {cost}")
    for spec in job.tiers:
        device = devices[spec.text]
        show(f"  {spec.text:<6} {device['name']}, {device['arch']}; {spec.choice.why.partition(': ')[2]}")
        for expanded in expanded_weights(runner.engine(spec)):
            show(f"  {'':<6} {expanded}")
    if job.first_input is not None:
        show(f"  layer {job.layers.first} is fed by {job.first_input.origin}")
        report.details.setdefault("inputs", {})[job.name] = job.first_input.origin
    if job.golden is not None:
        arrays = f" {job.golden.variant}" if job.golden.variant else ""
        show(f"  reference: {job.golden.path.name}{arrays}, {job.golden.source}")
    if cost.seconds is not None and cost.seconds > LONG_SECONDS:
        show(f"  that is long; cheaper: {job.repro} --layers 0:1 --steps 0, or --ordering float32-dequant")


def _simulated(runner: ValidationRunner) -> list[str]:
    """The shortcut that a simulated device is."""
    tiers = ", ".join(spec.text for spec in runner.simulated)
    return [f"{tiers}: {SIMULATED}"] if tiers else []


def _cost(job: ValidationJob, runner: ValidationRunner) -> Estimate:
    engine = runner.engine(job.tiers[0])
    graph = engine.graph("prefill", (job.layers.feed,) if job.layers.feed else ())
    capacity = capacity_of((len(job.tokens), 1, len(job.tokens)))
    return estimate(
        engine.model,
        graph,
        plan_memory(graph, capacity=capacity, tap=True),
        job.tiers[0].ordering,
        tokens=len(job.tokens),
        steps=job.steps,
        passes=len(job.tiers) + (PASSES_ALONE if len(job.tiers) == 1 else len(job.tiers) - 1) + int(job.resync),
        threads=job.threads or available_cores(),
    )
