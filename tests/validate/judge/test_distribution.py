"""χ² tests of sampled tokens: correct samples pass at the stated rate, wrong settings do not."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from zinc_rt.validate.judge.answers import NumericSample
from zinc_rt.validate.judge.distribution import (
    COUNTED,
    SETTINGS,
    SIGNIFICANCE,
    SamplingTest,
    Shape,
    check_sampling,
    chi_square_probability,
)
from zinc_rt.validate.judge.engine_client import EngineAnswer, ReportedToken
from zinc_rt.validate.judge.oracle import NextToken
from zinc_rt.validate.judge.questions import JudgeQuestion
from zinc_rt.validate.judge.schedule import AskedQuestion

VOCABULARY, COUNT = 64, 400
NAMED = {setting.name: setting for setting in SETTINGS}


class RandomModel:
    """Distributions that depend on the last two tokens. Temperature and nucleus have a visible effect."""

    def prepare(self, asked: Iterable[object]) -> None:
        list(asked)

    def predict(self, prompt: Sequence[int], answer: Sequence[int] = ()) -> list[NextToken]:
        whole = (*prompt, *answer)
        return [_predict(whole[max(0, end - 2) : end]) for end in range(len(prompt), len(whole) + 1)]


@functools.cache
def _predict(last: tuple[int, ...]) -> NextToken:
    logits = (2.5 * np.random.default_rng(last).standard_normal(VOCABULARY)).astype(np.float32)
    wide = logits.astype(np.float64)
    return NextToken(logits, float(np.log(np.exp(wide).sum())), int(wide.argmax()))


def sample(
    name: str, shape: Shape | None = None, *, seed: int = 1, counted: str = "of the answer", noise: float = 0.0
) -> SamplingTest:
    """Return the test of COUNT tokens drawn with `shape`, by default the setting's own. `noise`: of the logits."""
    chance, setting, model = np.random.default_rng(seed), NAMED[name], RandomModel()
    asked = []
    for number in range(COUNT // setting.tokens):
        prompt, tokens = (5, 7, number % 4), list[int]()
        for _ in range(setting.tokens):
            logits = model.predict(prompt, tokens)[-1].logits.astype(np.float64)
            logits += noise * np.random.default_rng(prompt).standard_normal(VOCABULARY)
            counts = np.bincount(np.array(COUNTED[counted](prompt, tokens), int), minlength=VOCABULARY)
            probability = (shape or setting.shape)(logits, counts)
            tokens.append(int(chance.choice(VOCABULARY, p=probability)))
        answer = EngineAnswer("", "length", tuple(ReportedToken(token, "", None) for token in tokens))
        question = JudgeQuestion(f"distribution/{name}/{number}", "sampled", {"max_tokens": 1}, prompt)
        asked.append(AskedQuestion(question, "crowd", answer))
    numerics = [NumericSample(3, noise**2 / 2, noise)]  # of two distributions whose logits differ by this much
    (test,) = check_sampling(model, asked, numerics)  # type: ignore[arg-type]
    return test


@pytest.mark.parametrize("name", NAMED)
def test_correct_samples_pass(name: str) -> None:
    test = sample(name)
    assert test.describe() == ""
    assert 0.3 < test.bias < 0.7


def plain(logits: np.ndarray, counts: np.ndarray) -> np.ndarray:
    shifted: np.ndarray = np.exp(logits - logits.max())
    return shifted / shifted.sum()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("temperature 0.6", plain),
        ("temperature 0.6", NAMED["temperature 1.5"].shape),
        ("temperature 1.5", plain),
        ("top_p 0.5", plain),
        ("top_p 0.8", plain),
        ("top_p 0.8", NAMED["top_p 0.5"].shape),
        ("top_k 8", plain),
    ],
)
def test_wrong_setting_is_found(name: str, shape: Shape) -> None:
    assert sample(name, shape).describe().startswith(f"{name}: ")


@pytest.mark.parametrize("counted", COUNTED)
def test_penalties_of_any_counting_pass(counted: str) -> None:
    assert sample("penalties", counted=counted).describe() == ""


def test_divergence_of_arithmetic_is_no_wrong_setting() -> None:
    for name in ("temperature 0.6", "top_p 0.8", "top_k 8"):
        assert sample(name, noise=0.1).describe() == ""


def test_one_token_that_is_drawn_too_often_is_found() -> None:
    def prefer(logits: np.ndarray, counts: np.ndarray) -> np.ndarray:
        probability = NAMED["temperature 0.6"].shape(logits, counts)
        second, third = np.argsort(-probability)[1:3]
        probability[[second, third]] = 0, probability[[second, third]].sum()
        return probability

    assert "of tokens" in sample("temperature 0.6", prefer).describe()


@pytest.mark.slow
def test_chances_of_correct_samples_are_uniform() -> None:
    chances = [
        chance
        for name, setting in NAMED.items()
        if setting.tokens == 1
        for seed in range(100)
        for chance in sample(name, seed=seed).chances.values()
    ]
    assert len(chances) == 1000
    for level in (0.1, 0.01):  # within four standard deviations
        assert np.mean(np.array(chances) < level) < level + 4 * (level / len(chances)) ** 0.5
    assert min(chances) > SIGNIFICANCE


def test_chi_square_has_the_published_quantiles() -> None:
    assert chi_square_probability(3.841459, 1) == pytest.approx(0.05, rel=1e-5)
    assert chi_square_probability(37.697298, 15) == pytest.approx(0.001, rel=1e-4)
    assert chi_square_probability(149.449253, 100) == pytest.approx(0.001, rel=1e-4)
    assert chi_square_probability(0.0, 5) == 1.0
    assert chi_square_probability(5.0, 0) == 1.0
    # the mean of a noncentral distribution is freedom + noncentrality
    assert 0.4 < chi_square_probability(15 + 30, 15, 30.0) < 0.5
