"""What a validation will cost, before it starts: a short measurement of this machine, then arithmetic."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from zinc_rt.ir.graph import OpGraph
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.weight import Weight
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.model.builder import Model

LONG_SECONDS = 60.0
SAMPLE_WEIGHTS = 1 << 21
WORTH_MEASURING = 100_000_000  # multiply-adds; below it the answer is "a moment"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will cost. `seconds` None: too little work to be worth measuring."""

    seconds: float | None
    memory_bytes: int
    passes: int

    def __str__(self) -> str:
        memory = f"{self.memory_bytes / 2**20:,.0f} MiB beside the mapped file"
        if self.seconds is None:
            return f"a moment, {memory}"
        minutes = f"{self.seconds / 60:.1f} min" if self.seconds >= 90 else f"{self.seconds:.0f} s"
        return f"about {minutes} for {self.passes} passes, {memory}"


def multiply_adds(model: Model, graph: OpGraph) -> int:
    """The multiply-adds of one token, over the weights `graph` reads; of stacked experts only those a token
    uses."""
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


def estimate(
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
    one, many = (_seconds(model, ordering, count, threads) for count in (1, 16))
    each = max((many - one) / 15, 0.0)  # a further token costs less: its weights are unpacked already
    per_pass = one + each * (tokens - 1) + one * steps
    return Estimate(work / SAMPLE_WEIGHTS * per_pass * passes, memory, passes)


def _seconds(model: Model, ordering: str, tokens: int, threads: int) -> float:
    """Best of two over the first rows of the model's largest matrix, scaled to SAMPLE_WEIGHTS weights."""
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
