"""Prompts in an ordering of their own: the role of a token decides its bits, whatever step computes it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine import variants
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.llm import LLM
from zinc_rt.engine.opening import EMBEDDED
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.ir.graph import TokenRole
from zinc_rt.ir.op import Op
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sched.sampling import Sampling
from zinc_rt.serve.engine.prompt_logprobs import ForcedTokens

ANSWER = Sampling(12, logprobs=3, ignore_eos=True)
LENGTHS = (1, 37, 5, 64, 2, 17)


def make_prompts() -> list[list[int]]:
    chance = random.Random(3)
    return [[chance.randrange(500) for _ in range(length)] for length in LENGTHS]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("qwen3-q", tier="t_cpu_native", slots=3, ctx=256, prefill_ordering="wmma-f16") as opened:
        yield opened


def test_answers_in_steps_with_prompts_have_the_bits_of_solo_answers(llm: LLM) -> None:
    """Answers of different lengths, so that prompts are computed while others decode."""
    sampling = [Sampling(4 + 3 * index, logprobs=3, ignore_eos=True) for index in range(len(LENGTHS))]
    prompts = make_prompts()
    solo = [llm.generate([prompt], item)[0] for prompt, item in zip(prompts, sampling, strict=True)]
    launches, steps = llm.engine.runner.steps, llm.scheduler.counts.steps
    mixed = llm.generate(prompts, sampling)
    assert [(m.token_ids, m.logprobs) for m in mixed] == [(s.token_ids, s.logprobs) for s in solo]
    assert llm.engine.runner.steps - launches > llm.scheduler.counts.steps - steps, "steps with two launches"


def test_next_turn_reuses_pages_of_prompts_only(llm: LLM) -> None:
    """Pages of the answer were written in the ordering of decodes. The next turn's prompt computes them again,
    so its answer is that of the same prompt with nothing cached."""
    prompt = make_prompts()[1]
    first = llm.generate([prompt], Sampling(40, ignore_eos=True))[0]
    turn = [*prompt, *first.token_ids, 7, 8, 9]
    second = llm.generate([turn], ANSWER)[0]
    assert second.cached_tokens == 32, "the two full pages of the first prompt"
    again = llm.generate([turn], ANSWER)[0]
    assert again.cached_tokens == 64 and again.logprobs == second.logprobs
    llm.forget_cache(0)
    fresh = llm.generate([turn], ANSWER)[0]
    assert fresh.cached_tokens == 0 and fresh.logprobs == second.logprobs


def test_prompt_and_decode_graphs_differ_in_products_only(llm: LLM) -> None:
    prompt, decode = (llm.engine.graph(stage) for stage in ("prompt", "prefill"))
    changed = {new.op for old, new in zip(decode.nodes, prompt.nodes, strict=True) if old.op is not new.op}
    assert changed == {Op.MATMUL_WMMA_F16} and prompt.name != decode.name
    assert llm.engine.ordering == "canonical-1-prefill-wmma-f16"


@pytest.mark.parametrize("prefill", ["", "wmma-f16"])
def test_role_has_no_effect_without_a_prefill_ordering(prefill: str) -> None:
    gguf, options = read_gguf(EMBEDDED / "qwen3-q.gguf"), EngineOptions(prefill_ordering=prefill)
    roles: tuple[TokenRole, ...] = ("prompt", "decode")
    with Engine(gguf, CpuBackend("canonical-1", threads=1), ctx=32, options=options) as engine:
        rows = [engine.forward([3, 1, 4], role=role, rows="last") for role in roles]
        assert np.array_equal(*rows) == (not prefill)


def test_unusable_prefill_orderings_are_rejected_at_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="ordering float32-dequant has none"):
        LLM("qwen3-q", tier="t_cpu", ordering="float32-dequant", prefill_ordering="wmma-f16")
    with pytest.raises(UsageError, match="expected wmma-f16"):
        LLM("qwen3-q", tier="t_cpu", prefill_ordering="wmma-f17")
    monkeypatch.setattr(variants, "find_refusal", lambda node, *_: "no such kernel")
    with pytest.raises(UnsupportedError, match=r"t_cpu cannot run MATMUL_WMMA_F16 at .*: no such kernel"):
        LLM("qwen3-q", tier="t_cpu", prefill_ordering="wmma-f16")


def test_given_answer_is_computed_as_a_prompt(llm: LLM) -> None:
    """Log-probabilities of a prompt are those of an answer with given tokens, whose pages are those of the
    prompt."""
    prompt = make_prompts()[3]
    fresh = llm.generate([prompt], ANSWER)[0]
    llm.forget_cache(0)
    given, sampling = ForcedTokens(prompt[1:]), Sampling(len(prompt) - 1, ignore_eos=True, seed=0)
    llm.submit_tokens(1 << 20, prompt[:1], sampling, mask=given, decoded_from=len(prompt))
    llm.scheduler.receive()
    while llm.scheduler.live:
        llm.step()
    after = llm.generate([prompt], ANSWER)[0]
    assert after.cached_tokens == 48 and after.logprobs == fresh.logprobs
