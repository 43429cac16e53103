"""The reference that draws a token from logits on the host."""

from __future__ import annotations

import numpy as np
import pytest

from zinc_rt.golden.draws import draw_reference_token as draw
from zinc_rt.host.errors import CheckFailed
from zinc_rt.sched.sampling import Sampling


def sample_frequencies(sampling: Sampling, logits: np.ndarray, count: int = 2000) -> np.ndarray:
    result = [draw(sampling, logits, position=position) for position in range(count)]
    return np.bincount(result, minlength=len(logits)) / count


def test_greedy_selects_first_of_equal_maxima() -> None:
    assert draw(Sampling(), np.array([0, 3, 3, 1], np.float32), position=9) == 1


def test_samples_follow_the_softmax() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    np.testing.assert_allclose(
        sample_frequencies(Sampling(temperature=1.0), logits), [0.5, 0.3, 0.15, 0.05], atol=0.04
    )


@pytest.mark.parametrize(
    ("sampling", "expected_tokens"),
    [
        (Sampling(temperature=1.0, top_k=2), {0, 1}),
        (Sampling(temperature=1.0, top_p=0.7), {0, 1}),
        (Sampling(temperature=1.0, min_p=0.2), {0, 1, 2}),
    ],
)
def test_filter_keeps_the_most_likely_tokens(sampling: Sampling, expected_tokens: set[int]) -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    assert set(np.flatnonzero(sample_frequencies(sampling, logits, 400)).tolist()) == expected_tokens


def test_sample_depends_on_full_seed_choice_and_position() -> None:
    logits = np.zeros(1000, np.float32)

    def sample_once(seed: int, choice: int = 0, position: int = 5) -> int:
        return draw(Sampling(temperature=1.0, seed=seed), logits, choice=choice, position=position)

    base = sample_once(1)
    assert base == sample_once(1)
    others = [
        sample_once(2),
        sample_once(1 + (1 << 32)),
        sample_once((1 << 64) - 1),
        sample_once(1, choice=1),
        sample_once(1, position=6),
    ]
    assert base not in others and len(set(others)) == len(others)


def test_nan_logit_raises_with_its_index() -> None:
    with pytest.raises(CheckFailed, match="position 4: logit 1 is not a number"):
        draw(Sampling(), np.array([0, np.nan, 1], np.float32), position=4)
