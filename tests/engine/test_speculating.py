"""Speculation on a device: the same answers with every drafter, and models and settings that refuse it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vulkan_driver import require_driver

from zinc_rt.engine.answering import Completion
from zinc_rt.engine.llm import LLM
from zinc_rt.engine.speculating import ModelDrafter
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import ZincError
from zinc_rt.sched.sampling import Sampling

QWEN3 = FOLDER / "qwen3-q.gguf"
PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], [9, 8, 7, 6], [5] * 20]
SAMPLINGS = [
    Sampling(max_tokens=24, seed=1, ignore_eos=True),
    Sampling(max_tokens=24, temperature=0.2, seed=3, ignore_eos=True, logprobs=2),
    Sampling(max_tokens=24, temperature=1.0, top_k=3, seed=4, n=2, logit_bias={7: 9.0}, ignore_eos=True),
]


def answer_with(speculate: str, tier: str = "t_cpu", model: Path = QWEN3, **options: Any) -> list[Completion]:
    with LLM(model, tier, slots=3, ctx=128, speculate=speculate, **options) as llm:
        completions = llm.generate(PROMPTS, SAMPLINGS)
        assert not llm.scheduler.check()
        speculation = llm.scheduler.speculation
        if speculation is not None:
            usage = llm.usage()
            assert speculation.drafted == usage["draft_inputs"] > 0
            assert speculation.accepted == usage["draft_inputs"] - usage["draft_rejected"]
            assert usage["tokens_generated"] == sum(len(item.token_ids) for item in completions)
    return completions


@pytest.fixture(scope="module")
def plain() -> list[Completion]:
    return answer_with("off")


@pytest.mark.parametrize("speculate", ["ngram:2", f"draft:{QWEN3}:3"])
def test_speculation_changes_no_answer(speculate: str, plain: list[Completion]) -> None:
    assert answer_with(speculate) == plain


@pytest.mark.rest
@pytest.mark.parametrize("tier", ["t_cpu", "t_cpu_native"])
def test_recurrent_state_is_that_before_rejected_drafts(tier: str) -> None:
    model = FOLDER / "qwen35moe-q.gguf"
    drafted = answer_with("ngram:3", tier, model)
    assert drafted == answer_with("off", tier, model)


@pytest.mark.parametrize("architecture", ["mamba", "jamba"])
@pytest.mark.parametrize(
    "tier",
    [
        pytest.param("t_cpu_native", marks=pytest.mark.rest),
        pytest.param("t1", marks=pytest.mark.slow),
        pytest.param("vulkan", marks=pytest.mark.slow),
    ],
)
def test_scans_with_drafts_give_the_same_answers(tier: str, architecture: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_tiny(model, architecture)
    if tier == "vulkan":
        require_driver()
    drafted = answer_with("ngram:3", tier, model, device="sim" if tier == "t1" else "auto")
    assert drafted == answer_with("off", "t_cpu_native", model)


@pytest.mark.rest
@pytest.mark.parametrize("stem", ["gemma4-q", "gemma4moe-q"])
def test_model_with_a_window_is_its_own_draft_model(stem: str) -> None:
    model = FOLDER / f"{stem}.gguf"
    assert answer_with(f"draft:{model}:4", "t_cpu_native", model) == answer_with("off", "t_cpu_native", model)


def test_draft_model_equal_to_the_target_is_always_right() -> None:
    with LLM(QWEN3, "t_cpu", slots=2, ctx=128, speculate=f"draft:{QWEN3}:3") as llm:
        speculation = llm.scheduler.speculation
        assert speculation is not None
        speculation.adaptive = False
        llm.generate(PROMPTS, Sampling(max_tokens=12, ignore_eos=True))
        assert speculation.accepted == speculation.drafted > 20
        drafter = speculation.drafter
        assert isinstance(drafter, ModelDrafter) and not drafter.sequences


def test_stop_inside_accepted_drafts_ends_the_answer() -> None:
    whole = answer_with("off")[0].token_ids
    stop = next(token for at, token in enumerate(whole) if at > 6 and token not in whole[:at])
    sampling = Sampling(max_tokens=24, stop_token_ids=(stop,), ignore_eos=True)
    with LLM(QWEN3, "t_cpu", slots=1, ctx=128, speculate=f"draft:{QWEN3}:4") as llm:
        assert llm.scheduler.speculation is not None
        llm.scheduler.speculation.adaptive = False
        (answer,) = llm.generate([PROMPTS[0]], sampling)
    assert answer.token_ids == whole[: whole.index(stop) + 1] and answer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (QWEN3, {"speculate": "ngram", "ordering": "float32-dequant"}, "depend on the other tokens of its step"),
        (QWEN3, {"speculate": "ngram:0"}, "expected off, ngram"),
        (QWEN3, {"speculate": f"draft:{FOLDER / 'gemma4-q.gguf'}"}, "has another vocabulary than qwen3-q.gguf"),
        (QWEN3, {"speculate": "draft:missing.gguf"}, "missing.gguf"),
    ],
)
def test_unusable_speculation_is_refused(model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ZincError, match=message):
        LLM(model, "t_cpu", slots=1, ctx=64, **options)
