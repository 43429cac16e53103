"""The effect of more slots: one engine decodes alternately with few and with many, so that drift favours
neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.cli.report import Result
from zinc_rt.engine.engine import Engine
from zinc_rt.perf.bench.runs import BenchWorkload, TimedRuns, make_results, measure_runs
from zinc_rt.perf.intervals import compute_ratio_interval
from zinc_rt.perf.machine import Sampler


def run_in_turns(engine: Engine, loads: Sequence[BenchWorkload], sampler: Sampler) -> list[TimedRuns]:
    """Return the timed runs of each load: first run 1 of every load, then run 2 of every load."""
    *_, timed = zip(*(measure_runs(engine, load, sampler) for load in loads), strict=True)
    return list(timed)


def make_scaling_results(
    timed: Sequence[TimedRuns], loads: Sequence[BenchWorkload], tier: str, sampler: Sampler
) -> list[Result]:
    """Return the prompts and first tokens for the first number of slots, the decode of each, and its speed
    relative to the first.
    """
    first, *rest = (make_results(item, load, tier, sampler) for item, load in zip(timed, loads, strict=True))
    counts = list(first)
    for load, (decode, *_) in zip(loads[1:], rest, strict=True):
        decode.id = f"{decode.id}-{load.slots}"
        counts.append(decode)
    rates = [
        [load.slots * len(run) / sum(run) for run in item.tokens] for item, load in zip(timed, loads, strict=True)
    ]
    for load, rate in zip(loads[1:], rates[1:], strict=True):
        ratio, low, high = compute_ratio_interval(rate, rates[0])
        measure = {
            "ratio": ratio,
            "ratio_low": low,
            "ratio_high": high,
            "slots": load.slots,
            "over": loads[0].slots,
        }
        counts.append(Result(f"scaling-{load.slots}", "bench", "pass", tier=tier, measure=measure))
    return counts
