"""The step times of the scheduler are those of `perf predict`, within 5 %."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from zinc_rt.ir.op import WMMA_FORMS
from zinc_rt.ir.passes.matrix_cores import use_matrix_cores
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.predict.devices import load_table
from zinc_rt.perf.predict.roofline import compute_parts
from zinc_rt.perf.predict.token_work import compute_work
from zinc_rt.perf.synthetic import SHAPES, write_synthetic
from zinc_rt.sched.step_cost import PREDICTED, PREDICTED_BY_PREFILL, PREDICTED_WMMA, StepCost

CTX = 32_768
STEPS = (  # prompt tokens, decodes, position of the last token
    (0, 1, 4095),
    (0, 4, 1000),
    (0, 16, 4095),
    (3, 0, 2),
    (40, 0, 39),
    (256, 0, 2047),
    (512, 0, 511),
)


@pytest.mark.rest
def test_step_costs_match_the_prediction(tmp_path: Path) -> None:
    model = read_gguf(str(write_synthetic(tmp_path / "m.gguf", SHAPES["qwen3-8b-q4_k_m"], header_only=True)))
    device, assumed = load_table().device("R9700"), load_table().case("likely")
    assert PREDICTED.card == device.name
    for prompt, decodes, position in STEPS:
        work = compute_work(model, ctx=CTX, position=position, tokens=max(1, prompt), sequences=max(1, decodes))
        seconds = compute_parts(work, device, assumed).seconds
        context = (position + 1) * max(1, decodes)
        assert PREDICTED.nanoseconds(prompt, decodes, context) == pytest.approx(1e9 * seconds, rel=0.05)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("ordering", "prompt", "position"),
    [("wmma-f16", 64, 63), ("wmma-f16", 256, 2047), ("wmma-bf16", 256, 2047)],
)
def test_costs_of_prompts_on_matrix_cores_match_the_prediction(
    ordering: str, prompt: int, position: int, tmp_path: Path
) -> None:
    model = read_gguf(str(write_synthetic(tmp_path / "m.gguf", SHAPES["qwen3-8b-q4_k_m"], header_only=True)))
    device, assumed = load_table().device("R9700"), load_table().case("likely")
    work = compute_work(
        model,
        ctx=CTX,
        position=position,
        tokens=prompt,
        sequences=1,
        transform=partial(use_matrix_cores, ordering=ordering),
    )
    seconds = compute_parts(work, device, assumed).seconds
    cost = PREDICTED_BY_PREFILL[ordering]
    assert cost.nanoseconds(prompt, 0, position + 1) == pytest.approx(1e9 * seconds, rel=0.05)


def test_every_prefill_ordering_has_a_prediction() -> None:
    assert list(PREDICTED_BY_PREFILL) == ["", *WMMA_FORMS]


def test_a_step_with_both_roles_is_two_launches() -> None:
    """Drafts are in the launch of decodes, and both launches take their time."""
    cost = PREDICTED_WMMA
    decodes, prompt = cost.nanoseconds(0, 4, 0), cost.nanoseconds(100, 0, 100)
    assert cost.nanoseconds(100, 4, 100) == pytest.approx(decodes + prompt, rel=0.01)
    assert cost.nanoseconds(0, 4, 0, drafts=8) == PREDICTED.nanoseconds(8, 4, 0)
    assert cost.nanoseconds(128, 4, 0) < PREDICTED.nanoseconds(128, 4, 0)


def test_a_tile_costs_the_same_however_full() -> None:
    times = [PREDICTED.nanoseconds(tokens, 0, tokens) for tokens in (17, 18, 20, 21)]
    assert times[0] == times[1] == times[2] < times[3]


def test_more_tokens_of_one_size_take_longer() -> None:
    """What the search for the most tokens within a budget depends on."""
    for size in range(1, 10):
        times = [PREDICTED.nanoseconds(n, 0, n) for n in range((1 << size >> 1) + 1, (1 << size) + 1)]
        assert times == sorted(times)


def test_step_without_a_curve_is_linear() -> None:
    plain = StepCost("a card", "a model", 100, prompt_us=10, decode_us=20, context_us=1, source="this test")
    assert plain.nanoseconds(3, 2, 7) == 1000 * (100 + 30 + 40 + 7)
