"""Any mix is alone: whoever else runs, is parked, evicted, forked, skipped for a slow reader or found in the
cache, every request has the tokens and the logits, to the bit, that it has on an engine of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest
from support import Counts
from vulkan_driver import require_driver

from zinc_rt.backends import registry
from zinc_rt.backends.spec import Host
from zinc_rt.engine.answering import Answering, SubmittedPrompt
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.draws import draw_reference_token as draw
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.request import RUNNING, State
from zinc_rt.sched.sampling import Sampling

MODELS = ("qwen3-q", "qwen35moe-q", "gemma4-q")  # plain, recurrent and attention, a window beside full attention
CTX, SLOTS, STEP_TOKENS = 128, 4, 24
PAGES, STATE_ROWS = 20, 12  # fewer than four whole contexts want: 32
Key = tuple[int, int, int]  # request, choice, position of the token drawn


@dataclass
class RequestMix:
    """Run requests that arrive at random steps; return what the device computed for each row."""

    llm: Answering
    random: Random
    stalls: Random  # which readers stall
    asked: list[SubmittedPrompt] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)
    logits: dict[Key, bytes] = field(default_factory=dict)
    steps: int = 0

    def check_step(self, plan: StepPlan, logits: np.ndarray) -> None:
        for row in range(plan.rows):
            request = self.llm.scheduler.slots.requests[plan.row_slot[row]]
            assert request is not None
            key = request.number, request.choice, int(plan.row_position[row])
            assert self.logits.setdefault(key, logits[row].tobytes()) == logits[row].tobytes(), f"{key} again"

    def run(self, requests: list[tuple[list[int], Sampling]]) -> None:
        scheduler, random = self.llm.scheduler, self.random
        self.llm.runner.watch = self.check_step
        waiting = list(requests)
        while waiting or not all(asked.done for asked in self.asked):
            if waiting and random.random() < 0.35:
                self.asked.append(self.llm.submit(*waiting.pop()))
            running = list(scheduler.running())
            if running and random.random() < 0.2:
                scheduler.park(random.choice(running))
            holding = [
                request
                for request in scheduler.requests()
                if request.state in RUNNING or request.state is State.PARKED
            ]
            if holding and random.random() < 0.15:
                scheduler.evict(random.choice(holding))
            live = [asked for asked in self.asked if not asked.done]
            if live and random.random() < 0.03:
                self.cancelled.add(id(choice := random.choice(live)))
                self.llm.cancel(choice)
            if live:
                stalled = self.stalls.choice(live) if self.stalls.random() < 0.35 else None
                self.step(stalled)
                if stalled is not None:
                    self.llm.scheduler.resume(stalled.number)
            assert scheduler.check() == []

    def step(self, stalled: SubmittedPrompt | None) -> None:
        """One step. A reader may stall after a step is planned and before it is submitted."""
        scheduler = self.llm.scheduler
        schedule = scheduler.schedule

        def planned_step() -> StepPlan:
            plan = schedule()
            if stalled is not None:
                scheduler.hold(stalled.number)
            return plan

        scheduler.schedule = planned_step  # type: ignore[method-assign]
        try:
            self.llm.step()
        finally:
            scheduler.schedule = schedule  # type: ignore[method-assign]
        self.steps += 1

    @property
    def skipped_rows(self) -> int:
        """How many rows the device skipped."""
        return self.llm.usage()["rows_discarded"]


def requests_of(random: Random, count: int, vocab: int, *, sampled: bool) -> list[tuple[list[int], Sampling]]:
    """Prompts, some with a common beginning, each with its own sampling parameters."""
    beginnings = [[random.randrange(vocab) for _ in range(length)] for length in (0, 33)]
    result = []
    for seed in range(count):
        tail = [random.randrange(vocab) for _ in range(random.choice((1, 2, 7, 17, 30)))]
        options: dict[str, Any] = {"max_tokens": random.randint(1, 9), "seed": seed}
        options["n"] = random.choice((1, 1, 1, 3))
        if sampled:
            options |= random.choice(
                (
                    {},
                    {"temperature": 1.0},
                    {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
                    {"repetition_penalty": 1.4, "frequency_penalty": 0.7, "presence_penalty": -0.3},
                    {"temperature": 1.2, "frequency_penalty": 1.5, "logprobs": 3},
                    {"logit_bias": {5: 8.0, 9: -100.0, vocab - 1: 3.5}, "min_tokens": 1},
                )
            )
        result.append((random.choice(beginnings) + tail, Sampling(**options)))
    return result


@dataclass
class SoloRun:
    """Return a request's results when it runs alone on the oracle's engine, adjusted and sampled on the host."""

    engine: Engine
    end_ids: frozenset[int]

    def check(self, asked: SubmittedPrompt, mix: RequestMix) -> None:
        for answer in asked.answers:
            result: list[int] = []
            sequence, fed = self.engine.open(), asked.tokens
            for token in answer.token_ids:
                logits = self.engine.extend(sequence, fed, rows="last")[0]
                key = asked.number, answer.index, sequence.position
                assert mix.logits[key] == logits.tobytes(), f"logits of {key}"
                logits = adjust_logits(logits, asked.sampling, asked.tokens, result, self.end_ids)
                wanted = draw(asked.sampling, logits, choice=answer.index, position=sequence.position)
                assert token == wanted, f"token {len(result)} of {key}: {asked.sampling}"
                result.append(token)
                fed = [token]
            self.engine.release(sequence)
            if id(asked) not in mix.cancelled:
                ended = result[-1] in self.end_ids
                assert answer.ended == ("stop" if ended else "length")
                assert ended or len(result) == asked.sampling.max_tokens


def adjust_logits(
    logits: np.ndarray, sampling: Sampling, prompt: list[int], generated: list[int], end_ids: frozenset[int]
) -> np.ndarray:
    """Apply a request's bias, penalties and min_tokens as described in docs/library.md."""
    out, one = logits.copy(), np.float32
    for token, bias in sampling.logit_bias.items():
        out[token] += one(bias)
    for token in {*prompt, *generated}:
        out[token] = out[token] / one(sampling.repetition_penalty) if out[token] > 0 else (
            out[token] * one(sampling.repetition_penalty)
        )  # fmt: skip
    for token in set(generated):
        out[token] -= one(sampling.frequency_penalty) * one(generated.count(token))
        out[token] -= one(sampling.presence_penalty)
    if len(generated) < sampling.min_tokens:
        out[list(end_ids)] = -np.inf
    return out


QUICK = {("qwen3-q", "t2"), ("qwen35moe-q", "vulkan")}  # of those that compile their kernels first
TIERS = [
    pytest.param(model, tier, marks=[] if tier == "t_cpu_native" or (model, tier) in QUICK else pytest.mark.slow)
    for model in MODELS
    for tier in ("t_cpu_native", "vulkan", "t1", "t2")
]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def solo_run(model: str) -> Iterator[Engine]:
    """An engine for the simplest method: native if this machine supports it, because it has the oracle's bits."""
    native = registry.spec("t_cpu_native").probe(Host(1)).usable
    backend = open_backend(choose_tier("t_cpu_native" if native else "t_cpu"), "canonical-1")
    with Engine(read_gguf(FOLDER / f"{model}.gguf"), backend, ctx=CTX) as engine:
        yield engine


def run_mix(model: str, tier: str, alone: Engine, *, count: int, seed: int, sampled: bool = True) -> RequestMix:
    gguf = read_gguf(FOLDER / f"{model}.gguf")
    simulated = tier in ("t1", "t2")
    options = {"sanitizer": "full"} if simulated else {}
    backend = open_backend(choose_tier(tier, "sim" if simulated else "auto", **options), "canonical-1")
    groups = 2 if model == "gemma4-q" else 1
    limits = SequenceLimits(
        CTX, SLOTS, pages=(PAGES,) * groups, state_rows=STATE_ROWS, step_tokens=STEP_TOKENS, rows=SLOTS
    )
    with Engine(gguf, backend, limits=limits) as engine:
        random = Random(seed)
        mix = RequestMix(Answering(engine), random, Random(seed))
        mix.run(requests_of(random, count, engine.model.vocab, sampled=sampled))
        findings = backend.instrument.findings() if backend.instrument is not None else []
        assert not findings, findings[0].text
        reference = SoloRun(alone, frozenset(mix.llm.tokenizer.eog_ids) if mix.llm.tokenizer else frozenset())
        for asked in mix.asked:
            reference.check(asked, mix)
        assert not mix.llm.scheduler.live and not any(mix.llm.scheduler.bound)
    return mix


@pytest.mark.rest
def test_random_greedy_mix_with_stalled_readers_matches_solo_runs(model: str, solo_run: Engine) -> None:
    """All steps are of the greedy form, which delivers by the ring as well."""
    mix = run_mix(model, "t_cpu", solo_run, count=8, seed=2, sampled=False)
    names = {variant.graph.name.rpartition("-")[2] for variant in mix.llm.engine.variants.ran()}
    assert mix.skipped_rows > 1 and not names & {"sample", "prefill", "decode"} and "greedy" in names


@pytest.mark.rest
def test_random_request_mix_on_oracle_matches_solo_runs(model: str, solo_run: Engine, slow_counts: Counts) -> None:
    mixes = [run_mix(model, "t_cpu", solo_run, count=8, seed=seed) for seed in range(slow_counts(1, 20))]
    counts = [mix.llm.scheduler.counts for mix in mixes]
    assert sum(count.parked for count in counts) > 1 and sum(count.evicted for count in counts) > 0
    assert sum(asked.cached_tokens for mix in mixes for asked in mix.asked) > 0
    assert sum(asked.sampling.n > 1 for mix in mixes for asked in mix.asked) > 0
    assert sum(mix.steps for mix in mixes) > 20 and sum(mix.skipped_rows for mix in mixes) > 1


@pytest.mark.parametrize(("model", "tier"), TIERS, indirect=["model"])
@pytest.mark.rest(keep=1)
def test_random_request_mix_matches_solo_runs_on_every_tier(
    model: str, tier: str, solo_run: Engine, slow_counts: Counts
) -> None:
    """Simulated ones at sanitizer full: nothing reads what it should not, whoever was there before."""
    if tier == "t_cpu_native" and not registry.spec(tier).probe(Host(1)).usable:
        pytest.skip(registry.spec(tier).probe(Host(1)).why)
    if tier == "vulkan":
        require_driver()
    steps, seed = 0, 0
    while steps < slow_counts(1, 200):
        steps += run_mix(model, tier, solo_run, count=slow_counts(3, 12), seed=seed).steps
        seed += 1
