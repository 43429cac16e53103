"""ARGMAX and SAMPLE on t_cpu_native: the oracle's tokens."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check_op
from kernels.native.unkind import edge_values

from zinc_rt.ir.op import Op

ONE = ("canonical-1",)
OFF = (1.0, 0.0, 1.0, 0.0)  # temperature, top_k, top_p, min_p: no filter


def check_samples(logits: np.ndarray, *settings: tuple[float, ...]) -> None:
    """One row for each of settings, cycling through the rows of logits."""
    rows = len(settings)
    random = np.random.default_rng(rows)
    check_op(
        Op.SAMPLE,
        np.resize(logits, (rows, logits.shape[1])),
        random.integers(-(2**31), 2**31, (rows, 2)).astype(np.int32),
        np.array(settings, np.float32),
        random.integers(0, 5, rows).astype(np.int32),
        random.integers(0, 5000, rows).astype(np.int32),
        capacity={"rows": rows + 2},
        orderings=ONE,
    )


@pytest.mark.parametrize("vocab", [1, 15, 16, 17, 1000, 4099])
def test_argmax_matches(vocab: int) -> None:
    random = np.random.default_rng(vocab)
    ties = random.integers(0, 4, (20, vocab)).astype(np.float32) * random.choice([-1, 0, 1], (20, 1))
    for logits in (ties, edge_values(1, 20, vocab, share=0.3), edge_values(2, 20, vocab, share=0.7 / vocab)):
        check_op(Op.ARGMAX, logits.astype(np.float32), capacity={"rows": 25}, orderings=ONE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_argmax_of_one_value_matches(value: float) -> None:
    check_op(Op.ARGMAX, np.full((2, 37), value, np.float32), orderings=ONE)


@pytest.mark.parametrize("vocab", [1, 2, 17, 1000, 5000])
def test_every_filter_matches(vocab: int) -> None:
    logits = np.random.default_rng(vocab).normal(size=(7, vocab)).astype(np.float32) * 3
    settings = [
        (temperature, top_k, top_p, min_p)
        for temperature in (0.0, 0.3, 1.0, 5.0)
        for top_k in (0, 1, 40, 10000)
        for top_p in (0.1, 0.95, 1.0)
        for min_p in (0.0, 0.1)
    ]
    check_samples(logits, *settings)


@pytest.mark.parametrize(
    "settings",
    [
        (-1.0, 5, 0.5, 0.5),
        (np.nan, 5, 0.5, 0.0),
        (np.inf, 5, 0.5, 0.0),
        (1e-45, 0, 0.9, 0.0),
        (1.0, 0.5, 1.0, 0.0),
        (1.0, 2.9, 1.0, 0.0),
        (1.0, np.inf, 1.0, 0.0),
        (1.0, np.nan, 1.0, 0.0),
        (1.0, -3, 1.0, 0.0),
        (1.0, 0, 0.0, 0.0),
        (1.0, 0, -1.0, 0.0),
        (1.0, 0, np.nan, 0.0),
        (1.0, 0, 1.0, 1.0),
        (1.0, 0, 1.0, 2.0),
        (1.0, 0, 1.0, np.nan),
        (1.0, 0, 1.0, -0.5),
    ],
)
def test_settings_at_their_limits_match(settings: tuple[float, ...]) -> None:
    check_samples(np.random.default_rng(3).normal(size=(9, 301)).astype(np.float32) * 2, *[settings] * 9)


def test_ties_keep_their_order() -> None:
    logits = np.random.default_rng(3).integers(-1, 2, (30, 301)).astype(np.float32) * np.float32(0.5)
    logits = np.where(logits == 0, np.copysign(0, np.random.default_rng(4).normal(size=logits.shape)), logits)
    for min_p in (0.0, 1.0):  # 1: as likely as the best
        check_samples(
            logits.astype(np.float32),
            *[(3.0, top_k, 1.0, min_p) for top_k in (0, 3, 50, 120, 250, 301) for _ in range(5)],
        )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e-42])
def test_nan_logits_match(value: float) -> None:
    """Some of them, then all."""
    logits = np.random.default_rng(3).normal(size=(24, 301)).astype(np.float32) * 30
    logits[:, 5::60] = value
    settings = [
        (temperature, top_k, top_p, min_p)
        for temperature in (0.7, 10.0)
        for top_k in (0, 3, 299)
        for top_p in (0.5, 1.0)
        for min_p in (0.0, 0.05)
    ]
    check_samples(logits, *settings)
    check_samples(np.full((1, 37), value, np.float32), *settings)


def test_real_model_vocabulary_matches() -> None:
    logits = np.random.default_rng(3).normal(size=(2, 152_064)).astype(np.float32) * 4
    check_samples(logits, OFF, (0.7, 20, 0.8, 0.0), (1.0, 0, 0.9, 0.05), (0.0, 0, 1.0, 0.0))
