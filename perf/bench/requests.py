"""Measure requests through the scheduler and prefix cache that the product's LLM and server use.

The results are the first token of a cached prompt and of an idle device, the gaps of an interactive stream among
batch requests, and the tokens of one host step.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

from zinc_rt.cli.report import Result
from zinc_rt.engine.answering import Answering, SubmittedPrompt
from zinc_rt.engine.engine import Engine
from zinc_rt.host.errors import UsageError
from zinc_rt.perf.bench.runs import BenchWorkload
from zinc_rt.perf.gate.figures import FIGURES, REQUEST_FIGURES
from zinc_rt.perf.machine import Sampler
from zinc_rt.perf.structure.lab import make_prompt
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.tenant import Priority, Tenant

INTERACTIVE, BATCH = "interactive", "batch"
TENANTS = (Tenant(INTERACTIVE, Priority.INTERACTIVE), Tenant(BATCH, Priority.BATCH))
IDLE_SECONDS = 0.05  # without any work, before a request
BATCH_PROMPT = 16  # tokens; each batch request has its own


@dataclass(slots=True)
class RequestRuns:
    """Samples of each run. `warm` and `idle` are seconds to the first token, `cached` the prompt tokens that came
    from the cache, `steady` the seconds of a later token, `gaps` the seconds between tokens of the interactive
    stream, `spans` the tokens of each host step.
    """

    warm: list[float] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)
    gaps: list[list[float]] = field(default_factory=list)
    spans: list[float] = field(default_factory=list)


def measure_requests(engine: Engine, load: BenchWorkload, sampler: Sampler) -> RequestRuns:
    """Run the requests of every measured run, after the warm-up. The engine must have no open sequence, and
    remains open. Raise UsageError if requests and their answers do not fit the context.
    """
    if BATCH_PROMPT + load.tokens > engine.limits.ctx:
        raise UsageError(
            f"{BATCH_PROMPT} + {load.tokens} tokens do not fit the context of {engine.limits.ctx}",
            next="a larger --ctx, or fewer tokens",
        )
    front, timed = Answering(engine, TENANTS), RequestRuns()
    for number in range(load.warmup + load.runs):
        kept = timed if number >= load.warmup else RequestRuns()
        sampler.look()
        _measure_first_tokens(front, load, kept)
        sampler.look()
        _measure_stream(front, load, kept)
    return timed


def _measure_first_tokens(front: Answering, load: BenchWorkload, kept: RequestRuns) -> None:
    prompt = make_prompt(front.engine.model.vocab, load.prompt_tokens)
    _run(front, prompt, 1)  # which leaves it in the prefix cache
    seconds, asked = _run(front, prompt, 1)
    kept.warm.append(seconds[0])
    kept.cached.append(asked.cached_tokens)
    time.sleep(IDLE_SECONDS)
    seconds, _ = _run(front, [1], 4)
    kept.idle.append(seconds[0])
    kept.steady.append(statistics.median(seconds[1:]))


def _run(front: Answering, prompt: list[int], tokens: int) -> tuple[list[float], SubmittedPrompt]:
    """Answer one request alone. Return the seconds of each of its tokens; the first is measured from the request's
    arrival.
    """
    clock, last = time.perf_counter, time.perf_counter()
    asked = front.submit(prompt, Sampling(max_tokens=tokens, ignore_eos=True), tenant=INTERACTIVE)
    seconds: list[float] = []
    while not asked.done:
        front.step()
        now, fresh = clock(), len(asked.answers[0].token_ids) - len(seconds)
        seconds += [(now - last) / fresh] * fresh if fresh else []
        last = now if fresh else last
    return seconds, asked


def _measure_stream(front: Answering, load: BenchWorkload, kept: RequestRuns) -> None:
    """Read an interactive stream while batch requests fill the other slots and wait for them."""
    vocab, clock = front.engine.model.vocab, time.perf_counter
    others = [
        front.submit(
            [(3 * index + location) % vocab for location in range(BATCH_PROMPT)],
            Sampling(max_tokens=load.tokens, ignore_eos=True),
            tenant=BATCH,
        )
        for index in range(2 * load.slots if load.slots > 1 else 0)
    ]
    asked = front.submit([1, 2, 3], Sampling(max_tokens=load.tokens + 1, ignore_eos=True), tenant=INTERACTIVE)
    gaps: list[float] = []
    steps, count, last = 0, 0, clock()
    while not asked.done:
        before = front.scheduler.counts.steps
        front.step()
        now, tokens = clock(), len(asked.answers[0].token_ids)
        if tokens > count:
            steps += front.scheduler.counts.steps - before if count else 0
            gaps += [now - last] if count else []
            count, last = tokens, now
    for other in others:
        front.cancel(other)
    kept.gaps.append(gaps)
    kept.spans.append((count - 1) / max(1, steps))


def make_request_results(timed: RequestRuns, load: BenchWorkload, tier: str) -> list[Result]:
    """Return the figures with their samples; `fairness` only with several slots."""
    measures: dict[str, dict[str, object]] = {
        "ttft_warm": {"prompt_tokens": load.prompt_tokens, "runs": timed.warm, "cached": timed.cached},
        "idle_to_stream": {"runs": timed.idle, "steady": timed.steady},
        "endurance": {"runs": timed.spans},
    }
    if load.slots > 1:
        measures["fairness"] = {"runs": timed.gaps, "slots": load.slots, "others": 2 * load.slots}
    results = []
    for name, measure in measures.items():
        figure = REQUEST_FIGURES[name]
        value = FIGURES[name].of[figure](measure)
        results.append(Result(name, "bench", "pass", tier=tier, measure={figure: value, **measure}))
    return results
