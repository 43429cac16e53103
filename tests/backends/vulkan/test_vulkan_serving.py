"""A model that serves on Vulkan: every answer is T-CPU's, to the last bit of a log-probability."""

from __future__ import annotations

import pytest

from zinc_rt import LLM, Sampling
from zinc_rt.backends.vulkan.device import PhysicalDevice
from zinc_rt.engine.answering import Completion

pytestmark = pytest.mark.rest

PROMPTS = [[5, 6, 7], [8, 9], [1] * 40, [5, 6, 7, 8]]
SAMPLINGS = [
    Sampling(max_tokens=6, seed=1, logprobs=3, ignore_eos=True),
    Sampling(max_tokens=6, temperature=0.9, top_k=50, top_p=0.9, min_p=0.02, seed=3, n=2, ignore_eos=True),
    Sampling(
        max_tokens=6, temperature=1.4, seed=4, repetition_penalty=1.2, frequency_penalty=0.4, ignore_eos=True
    ),
    Sampling(max_tokens=6, seed=2, min_tokens=4, logit_bias={9: 8.0, 17: -3.0}, stop_token_ids=(9,), logprobs=0),
]


def generate_answers(tier: str) -> list[Completion]:
    with LLM("qwen35moe-q", tier=tier, slots=3, threads=1) as llm:
        return llm.generate(PROMPTS, SAMPLINGS)


def test_responses_match_the_oracle(vulkan_driver: PhysicalDevice) -> None:
    got, wanted = generate_answers("vulkan"), generate_answers("t_cpu")
    assert got == wanted
    assert len(got) == 5 and all(len(answer.token_ids) >= 4 for answer in got)
