"""A token that is drawn costs what the most likely token costs: one write, one submission, one wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_masks import FakeMask, ManualPool
from vulkan_driver import require_driver

from zinc_rt import LLM, Sampling
from zinc_rt.engine.answering import Answer, SubmittedPrompt
from zinc_rt.engine.kv_audit import audit_kv
from zinc_rt.engine.variants import Variants
from zinc_rt.ir.op import Op
from zinc_rt.sched.plan import StepPlan

TIERS = ("t_cpu", "t1", "t2", "vulkan", "t_cpu_native")
DRAWS = Sampling(
    max_tokens=12, temperature=0.9, seed=5, presence_penalty=0.4, frequency_penalty=0.3, repetition_penalty=1.2,
    logit_bias={7: 2.0, 9: -100.0}, min_tokens=12, logprobs=3, ignore_eos=True,
)  # fmt: skip


@contextmanager
def open_llm(tier: str, *, slots: int = 4) -> Iterator[LLM]:
    if tier == "vulkan":
        require_driver()
    device = "sim" if tier in ("t1", "t2") else "auto"
    with LLM("qwen3-q", tier=tier, device=device, slots=slots, ctx=64, graph_cache=False) as llm:
        yield llm


def submission_counts(llm: LLM) -> np.ndarray:
    """Return the counts of submissions, waits and writes; submissions are counted by the backend if it does so."""
    submission = llm.runner.runner.submission
    return np.array(
        [
            submission["steps"],
            submission["waits"],
            submission["host_writes"],
            submission["fast"] + submission["careful"],
        ]
    )


@pytest.mark.parametrize("sampling", [DRAWS, Sampling(max_tokens=12, ignore_eos=True)], ids=["drawn", "greedy"])
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.rest(keep=2)
def test_token_costs_one_submission_and_one_wait(tier: str, sampling: Sampling) -> None:
    with open_llm(tier) as llm:
        first = llm.submit([1, 2, 3], sampling)
        llm.step()
        counts = int(sampling.penalised)  # a write of a slot's token counts
        assert submission_counts(llm)[:3].tolist() == [1, 1, 1 + counts]
        asked = [first, *(llm.submit([1, number], sampling) for number in range(2))]
        llm.step()
        before, tokens = submission_counts(llm), sum(len(item.answers[0].token_ids) for item in asked)
        for _ in range(4):
            llm.step()
        assert sum(len(item.answers[0].token_ids) for item in asked) == tokens + 12
        spent = (submission_counts(llm) - before).tolist()
        assert spent[:3] == [4, 4, 4] and spent[3] in (0, 4)


def test_greedy_steps_sample_nothing_and_deliver_by_the_ring() -> None:
    with open_llm("t_cpu") as llm:
        llm.generate([[1, 2], [3]], Sampling(max_tokens=3))
        greedy = [item.graph for item in llm.engine.variants.ran()]
        assert {graph.name for graph in greedy} == {"qwen3-prefill-greedy", "qwen3-decode-greedy"}
        ops = {node.op for graph in greedy for node in graph.nodes}
        assert Op.STREAM_OUT in ops and not ops & {Op.LOGITS_ADJUST, Op.SAMPLE_SLOTS, Op.LOGPROBS}
        llm.generate([[1, 2]], Sampling(max_tokens=3, temperature=1.0, seed=1, ignore_eos=True))
        assert {item.graph.name for item in llm.engine.variants.ran()} == {
            f"qwen3-{stage}-{form}" for stage in ("prefill", "decode") for form in ("greedy", "sample")
        }


@pytest.mark.parametrize("sampling", [Sampling(max_tokens=4), DRAWS], ids=["greedy", "drawn"])
def test_only_prebuilt_variants_run(sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []
    build = Variants._build
    monkeypatch.setattr(
        Variants, "_build", lambda self, what, *rest: built.append(what) or build(self, what, *rest)
    )
    with open_llm("t_cpu") as llm:
        llm.build(5, sampling)
        assert len(built) == 2
        llm.generate([[1, 2, 3, 4, 5]], sampling)
        assert len(built) == 2


class TurnMasks(FakeMask):
    """Permits ids that are congruent to the number of tokens modulo 5."""

    def fill(self, words: np.ndarray) -> None:
        super().fill(words)
        bits = np.arange(32 * len(words)) % 5 == len(self.tokens) % 5
        words[:] = np.packbits(bits, bitorder="little").view(np.int32)

    def fork(self) -> TurnMasks:
        return TurnMasks(self.spend)


def masked_run(llm: LLM, pool: ManualPool, *, interval: int) -> tuple[list[SubmittedPrompt], list[int]]:
    """Two requests with masks and one without; masks are filled every that many steps, 0: immediately. Return the
    submissions of each step as well."""
    pool.held = interval > 0
    asked = [
        llm.submit([4, 2, 3], DRAWS, grammar=TurnMasks()),
        llm.submit([1, 2], DRAWS),
        llm.submit([8], Sampling(max_tokens=9, ignore_eos=True), grammar=TurnMasks()),
    ]
    spent = list[int]()
    while not all(item.done for item in asked):
        before = submission_counts(llm)
        llm.step()
        spent.append(int((submission_counts(llm) - before)[0]))
        if interval and not len(spent) % interval:
            pool.release()
    return asked, spent


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.rest(keep=2)
def test_late_masks_do_not_change_answers(tier: str) -> None:
    with open_llm(tier) as llm:
        pool = ManualPool(llm.scheduler.fills, lambda: 0)
        in_time, spent = masked_run(llm, pool, interval=0)
        assert llm.scheduler.counts.masks_late == 0 and set(spent) == {1}
        for number in (0, 2):
            tokens = in_time[number].answers[0].token_ids
            assert [token % 5 for token in tokens] == [index % 5 for index in range(len(tokens))]
        for every in (2, 3):
            before = llm.scheduler.counts.masks_late
            late, spent = masked_run(llm, pool, interval=every)
            assert llm.scheduler.counts.masks_late >= before + 12 and max(spent) == 1
            for item, other in zip(in_time, late, strict=True):
                assert item.answers[0].token_ids == other.answers[0].token_ids
                assert item.answers[0].logprobs == other.answers[0].logprobs
        assert not llm.scheduler.check() and not llm.scheduler.late


def test_matcher_that_is_too_slow_ends_only_its_answer() -> None:
    with open_llm("t_cpu") as llm:
        now = [0]
        ManualPool(llm.scheduler.fills, lambda: now[0])
        llm.scheduler.fills.starved_ns = lambda thread: 0
        slow = llm.submit([1, 2], DRAWS, grammar=TurnMasks(lambda: now.__setitem__(0, now[0] + 51_000_000)))
        other = llm.submit([3, 4], DRAWS)
        while not (slow.done and other.done):
            llm.step()
        assert slow.answers[0].ended == "grammar_too_slow" and not slow.answers[0].token_ids
        assert other.answers[0].ended == "length"


def generate_answer(llm: LLM, prompt: list[int]) -> list[int]:
    return list(llm.generate([prompt], GREEDY)[0].token_ids)


GREEDY = Sampling(max_tokens=24, ignore_eos=True)


@pytest.mark.parametrize("steps", [1, 10, 300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_greedy_reader_that_stalls_inside_a_character_loses_no_token(steps: int) -> None:
    """It is paused after a step was planned, so the device skips its row. The others go on, and the ring is
    written many times over."""
    with open_llm("t_cpu_native") as llm:
        wanted = {first: generate_answer(llm, [first, 2]) for first in range(6)}
        scheduler = llm.scheduler
        now = [scheduler.clock_ns()]
        scheduler.clock_ns = lambda: now[0]  # the time limit of a reader is not what this is about
        scheduler.limits = replace(scheduler.limits, client_timeout_steps=9_000)
        slow = llm.submit([0, 2], GREEDY)
        (answer,) = slow.answers
        others = [llm.submit([first, 2], GREEDY) for first in (1, 2, 3)]
        while not ends_inside_character(answer):
            llm.step()
        schedule, result, before = scheduler.schedule, len(answer.token_ids), scheduler.counts.steps

        def planned_step() -> StepPlan:
            plan = schedule()
            assert slow.request is not None and slow.request.slot in plan.row_slot[: plan.rows]
            scheduler.hold(slow.number)
            return plan

        scheduler.schedule = planned_step  # type: ignore[method-assign]
        llm.step()
        scheduler.schedule = schedule  # type: ignore[method-assign]
        assert llm.usage()["rows_discarded"] == 1
        while scheduler.counts.steps < before + steps:
            now[0] += 1000
            for index, other in enumerate(others):
                if other.done:
                    assert other.answers[0].token_ids == wanted[other.tokens[0]]
                    others[index] = llm.submit([(other.tokens[0] + 1) % 6, 2], GREEDY)
            llm.step()
        assert len(answer.token_ids) == result
        scheduler.resume(slow.number)
        while not all(item.done for item in (slow, *others)):
            llm.step()
        if steps < 9_000:
            assert answer.token_ids == wanted[0] and answer.ended == "length"
        else:
            assert answer.token_ids == wanted[0][:result] and answer.ended == "client_too_slow"
        assert all(other.answers[0].token_ids == wanted[other.tokens[0]] for other in others)
        assert not scheduler.check() and not audit_kv(scheduler, llm.runner)


def ends_inside_character(answer: Answer) -> bool:
    """Return whether the decoder holds an incomplete character."""
    assert answer.text_out is not None
    decoder: Any = answer.text_out._decoder._decoder
    return bool(decoder.getstate()[0])
