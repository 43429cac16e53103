"""Timed runs of one engine, each a prompt and generated tokens, with the seconds of every token.

A gate recomputes its figures from these samples (perf/gate/figures.py), so nothing is averaged here. End tokens
are ignored: every run generates the requested number of tokens.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.cli.report import Result
from zinc_rt.engine.engine import Engine
from zinc_rt.host.errors import UsageError
from zinc_rt.ir.op import Op
from zinc_rt.perf.gate.figures import compute_percentile, compute_prompt_speeds, compute_speeds
from zinc_rt.perf.intervals import compute_ratio_interval
from zinc_rt.perf.machine import Sampler
from zinc_rt.perf.structure.lab import make_prompt

PERCENTILES = (0.50, 0.90, 0.99)


@dataclass(frozen=True, slots=True)
class BenchWorkload:
    """A workload. Every run prefills `slots` prompts, one after the other, and then generates `tokens` tokens for
    each.
    """

    prompt_tokens: int = 128
    tokens: int = 128
    slots: int = 1
    warmup: int = 1
    runs: int = 5

    def check(self, ctx: int) -> None:
        """Check the counts. Raise UsageError if the values are not positive or do not fit the context."""
        for name in ("prompt_tokens", "tokens", "slots", "runs"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected 1 or more")
        if self.warmup < 0:
            raise UsageError(f"--warmup {self.warmup}: expected 0 or more")
        if self.prompt_tokens + self.tokens > ctx:
            raise UsageError(
                f"{self.prompt_tokens} + {self.tokens} tokens do not fit the context of {ctx}",
                next="use a larger --ctx or fewer tokens",
            )


@dataclass(slots=True)
class TimedRuns:
    """Seconds of each prompt, to each run's first token, and of each generated token, run by run."""

    prompts: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    tokens: list[list[float]] = field(default_factory=list)


def measure_runs(engine: Engine, load: BenchWorkload, sampler: Sampler) -> Iterator[TimedRuns]:
    """Run the warm-up, then yield the same record after each measured run, extended by that run."""
    timed = TimedRuns()
    for number in range(load.warmup + load.runs):
        kept = timed if number >= load.warmup else TimedRuns()
        _run(engine, load, sampler, kept)
        if kept is timed:
            yield timed


def _run(engine: Engine, load: BenchWorkload, sampler: Sampler, timed: TimedRuns) -> None:
    clock = time.perf_counter
    prompt = make_prompt(engine.model.vocab, load.prompt_tokens)
    sequences, tokens = [], []
    for _ in range(load.slots):
        sequence = engine.open()
        sampler.look()
        started = clock()
        logits = engine.extend(sequence, prompt, rows="last", role="prompt")
        timed.prompts.append(clock() - started)
        tokens.append(int(logits[-1].argmax()))
        timed.firsts.append(clock() - started)
        sequences.append(sequence)
    rows = list(range(load.slots))
    seconds = []
    for _ in range(load.tokens):
        sampler.look()
        started = clock()
        batch = [(sequence, [token]) for sequence, token in zip(sequences, tokens, strict=True)]
        tokens = engine.advance(batch, rows).tokens.tolist()
        seconds.append(clock() - started)
    timed.tokens.append(seconds)
    for sequence in sequences:
        engine.release(sequence)


def make_results(timed: TimedRuns, load: BenchWorkload, tier: str, sampler: Sampler) -> list[Result]:
    """Return the figures with their samples."""
    name = "decode" if load.slots == 1 else "aggregate"
    workload = {"slots": load.slots, "runs": timed.tokens}
    seconds = [seconds for run in timed.tokens for seconds in run]
    rates = compute_speeds(workload)
    decode = {
        "tokens_per_second": statistics.median(rates),
        "spread": _compute_spread(rates),
        **{f"p{round(100 * share)}_seconds": compute_percentile(seconds, share) for share in PERCENTILES},
        **workload,
    }
    prompts = {"prompt_tokens": load.prompt_tokens, "runs": timed.prompts}
    rates = compute_prompt_speeds(prompts)
    prefill = {"tokens_per_second": statistics.median(rates), "spread": _compute_spread(rates), **prompts}
    first = {
        "seconds": statistics.median(timed.firsts),
        "spread": _compute_spread(timed.firsts),
        "runs": timed.firsts,
    }
    results_ = [
        Result(name, "bench", "pass", tier=tier, measure=decode),
        Result("prefill", "bench", "pass", tier=tier, measure=prefill),
        Result("ttft", "bench", "pass", tier=tier, measure=first),
    ]
    watts = [sample["power_w"] for sample in sampler.samples if "power_w" in sample]
    if watts:
        measure = {"watts": statistics.fmean(watts), "runs": watts}
        results_.append(Result("power", "bench", "pass", tier=tier, measure=measure))
    return results_


def compare_with_peer(
    pairs: list[tuple[float, float]], command: str, tier: str, peer: Mapping[str, Any] | None = None
) -> Result:
    """Return the ratio of our tok/s to another command's, run in alternation, with a 95 % interval. `peer` is the
    program's identity and output, to be recorded.
    """
    ratio, low, high = compute_ratio_interval(*zip(*pairs, strict=True))
    measure = {
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "pairs": [list(pair) for pair in pairs],
        "peer": dict(peer or {}),
    }
    return Result("against", "bench", "pass", tier=tier, reference=command, measure=measure)


def alternate_runs(
    engine: Engine, load: BenchWorkload, sampler: Sampler, theirs: Callable[[], float]
) -> tuple[TimedRuns, list[tuple[float, float]]]:
    """Run pairs that consist of one run of ours and one of theirs. The order alternates, so that drift favours
    neither.
    """
    ours = measure_runs(engine, load, sampler)
    timed, pairs = TimedRuns(), []
    for number in range(load.runs):
        their_speed = theirs() if number % 2 else 0.0
        timed = next(ours)
        their_speed = their_speed or theirs()
        our_speed = load.slots * load.tokens / sum(timed.tokens[-1])
        pairs.append((our_speed, their_speed))
    return timed, pairs


def count_nodes(engine: Engine) -> int:
    """Return the number of nodes, without barriers, of the largest decode graph that ran, fused if the tier fuses.
    Before a decoded token, count the graph as the model defines it.
    """
    ran = [variant.graph for variant in engine.variants.ran() if variant.graph.stage == "decode"]
    graphs = ran or [engine.graph("decode")]
    return max(sum(node.op is not Op.BARRIER for node in graph.nodes) for graph in graphs)


def _compute_spread(values: list[float]) -> float:
    """Return (largest - smallest) / median."""
    return (max(values) - min(values)) / statistics.median(values)
