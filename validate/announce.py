"""Print what will run and its estimated cost before the run starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from zinc_rt.cli.describe import count_expanded_weights, describe_model, describe_run
from zinc_rt.cli.report import Report
from zinc_rt.engine.devices import SIMULATED
from zinc_rt.engine.resident import parse_capacity
from zinc_rt.host.machine import count_available_cores
from zinc_rt.ir.graph import OpGraph
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.weight import Weight
from zinc_rt.mem.plan import MemoryPlan, plan_memory
from zinc_rt.model.builder import Model
from zinc_rt.validate.runner import ValidationJob, ValidationRunner

LONG_SECONDS = 60.0
SAMPLE_WEIGHTS = 1 << 21
WORTH_MEASURING = 100_000_000  # multiply-adds; below it the answer is "a moment"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated cost of a run. `seconds` is None if the work is too small to estimate."""

    seconds: float | None
    memory_bytes: int
    passes: int

    def __str__(self) -> str:
        memory = f"{self.memory_bytes / 2**20:,.0f} MiB in addition to the mapped file"
        if self.seconds is None:
            return f"a moment, {memory}"
        minutes = f"{self.seconds / 60:.1f} min" if self.seconds >= 90 else f"{self.seconds:.0f} s"
        return f"about {minutes} for {self.passes} passes, {memory}"


def multiply_adds(model: Model, graph: OpGraph) -> int:
    """Return the number of multiply-adds of one token over the weights that `graph` reads. For stacked experts,
    count only the selected ones.
    """
    gguf = model.gguf
    count, used = (
        gguf.metadata.get(f"{gguf.architecture}.{key}", 1) for key in ("expert_count", "expert_used_count")
    )
    share = int(used) / int(count) if isinstance(count, int) and isinstance(used, int) and count else 1.0
    total = 0.0
    for spec in graph.by_role("weight"):
        if len(spec.shape) >= 2 and spec.name != "model.embed_table":
            total += np.prod([int(dim) for dim in spec.shape]) * (share if len(spec.shape) == 3 else 1.0)
    lm_head = graph.buffers.get("model.embed_table")
    if lm_head is not None and "model.lm_head_weight" not in graph.buffers:
        total += np.prod([int(dim) for dim in lm_head.shape])
    return int(total)


def estimate_cost(
    model: Model,
    graph: OpGraph,
    plan: MemoryPlan,
    ordering: str,
    *,
    tokens: int,
    steps: int,
    passes: int,
    threads: int,
) -> Estimate:
    work = multiply_adds(model, graph)
    memory = sum(a.size_bytes for name, a in plan.allocations.items() if not name.startswith("weight/"))
    if work * (tokens + steps) * passes < WORTH_MEASURING:
        return Estimate(None, memory, passes)
    one, many = (_measure_seconds(model, ordering, count, threads) for count in (1, 16))
    item = max((many - one) / 15, 0.0)  # a further token costs less: its weights are unpacked already
    per_pass = one + item * (tokens - 1) + one * steps
    return Estimate(work / SAMPLE_WEIGHTS * per_pass * passes, memory, passes)


def _measure_seconds(model: Model, ordering: str, tokens: int, threads: int) -> float:
    """Measure the first rows of the model's largest matrix, scaled to SAMPLE_WEIGHTS weights. Return the best of
    two runs.
    """
    weight = max((w for w in model.weights.values() if len(w.shape) == 2), key=lambda w: w.nbytes)
    rows = max(1, min(weight.shape[0], SAMPLE_WEIGHTS // weight.shape[1]))
    sample: Weight = weight[:rows]
    math = arithmetic(ordering, threads=threads)
    x = np.ones((tokens, weight.shape[1]), np.float32)
    best = np.inf
    for _ in range(2):
        started = time.perf_counter()
        math.linear(x, sample)
        best = min(best, time.perf_counter() - started)
    return float(best) * SAMPLE_WEIGHTS / (rows * weight.shape[1])


PASSES_ALONE = 3  # untapped, token by token, second opinion


def announce_run(runner: ValidationRunner, report: Report, show: Callable[[str], None]) -> None:
    """Print the header of one model and add it to the report."""
    job = runner.job
    described = describe_model(job.gguf)
    clamps = list(report.shortcuts)
    smallest = min(report.ctx or job.ctx, job.ctx)
    describe_run(report, runner.engine(job.tiers[0]))
    report.ctx = smallest  # of all models: the checks of a later model say nothing about an earlier one's context
    unchecked = [spec.choice.shortcut for spec in job.tiers if spec.choice.shortcut]
    report.shortcuts = list(
        dict.fromkeys([*clamps, *report.shortcuts, *unchecked, *_simulation_shortcuts(runner)])
    )
    devices = {
        spec.text: {**asdict(runner.engine(spec).backend.device), "ordering": spec.ordering} for spec in job.tiers
    }
    report.details["devices"] = devices
    report.details.setdefault("jobs", {})[job.name] = {
        "tokens": len(job.tokens),
        "steps": job.steps,
        "ctx": job.ctx,
        "layers": [job.layers.first, job.layers.last, job.layers.total],
    }
    cost = _estimate_job(job, runner)
    known = report.model.get("models", [report.model]) if report.model else []
    report.model = {"models": [*known, described]} if known else described
    layers = "all" if job.layers.whole else f"{job.layers.first}:{job.layers.last}"
    show(
        f"{job.gguf.path.name}  {job.gguf.architecture}, layers {layers} of {job.layers.total}, "
        f"sha256 {described['digest'][:12]}, ctx {job.ctx}, {runner.engine(job.tiers[0]).ordering}"
    )
    show(f"  {len(job.tokens)} prompt tokens + {job.steps} steps; {cost}")
    for spec in job.tiers:
        device = devices[spec.text]
        show(f"  {spec.text:<6} {device['name']}, {device['arch']}; {spec.choice.why.partition(': ')[2]}")
        for expanded in count_expanded_weights(runner.engine(spec)):
            show(f"  {'':<6} {expanded}")
    if job.first_input is not None:
        show(f"  layer {job.layers.first} reads its input from {job.first_input.origin}")
        report.details.setdefault("inputs", {})[job.name] = job.first_input.origin
    if job.golden is not None:
        arrays = f" {job.golden.variant}" if job.golden.variant else ""
        show(f"  reference: {job.golden.path.name}{arrays}, {job.golden.source}")
    if cost.seconds is not None and cost.seconds > LONG_SECONDS:
        show(f"  long; cheaper: {job.repro} --layers 0:1 --steps 0, or --ordering float32-dequant")


def _simulation_shortcuts(runner: ValidationRunner) -> list[str]:
    """Return the shortcut entry for a simulated device."""
    tiers = ", ".join(spec.text for spec in runner.simulated)
    return [f"{tiers}: {SIMULATED}"] if tiers else []


def _estimate_job(job: ValidationJob, runner: ValidationRunner) -> Estimate:
    engine = runner.engine(job.tiers[0])
    graph = engine.graph("prefill", (job.layers.feed,) if job.layers.feed else ())
    capacity = parse_capacity((len(job.tokens), 1, len(job.tokens)))
    return estimate_cost(
        engine.model,
        graph,
        plan_memory(graph, capacity=capacity, tap=True),
        job.tiers[0].ordering,
        tokens=len(job.tokens),
        steps=job.steps,
        passes=len(job.tiers) + (PASSES_ALONE if len(job.tiers) == 1 else len(job.tiers) - 1) + int(job.resync),
        threads=job.threads or count_available_cores(),
    )
