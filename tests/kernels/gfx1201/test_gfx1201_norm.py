"""gfx1201 RMS norms bit for bit against the oracle, at unkind shapes and values, without any finding."""

from __future__ import annotations

import numpy as np
import pytest
from harness import check_op
from kernels.op_cases import make_weight, random_floats

from zinc_rt.ir.op import Op

SIZES = [1, 2, 3, 5, 31, 64, 100, 127, 128, 129, 255, 256, 500, 512, 513, 640, 1024, 1027, 2048, 2817]
EPS = 1e-6


def edge_rows(rows: int, columns: int) -> np.ndarray:
    """Ordinary values; all zero; denormal; squares that overflow; one NaN; one infinity; outliers."""
    x = random_floats(columns, rows, columns)
    for row, (scale, outlier) in enumerate([(0, -0.0), (1e-42, 0), (1e25, 1), (1, np.nan), (1, np.inf), (1, 1e6)]):
        if row + 1 < rows:
            x[row + 1] *= np.float32(scale)
            x[row + 1, (row * 37) % columns] += np.float32(outlier)
    return x


@pytest.mark.parametrize("size", SIZES)
def test_rms_norm_over_whole_rows(size: int) -> None:
    check_op(
        Op.RMS_NORM,
        edge_rows(7, size),
        make_weight(random_floats(1, size)),
        eps=EPS,
        size=size,
        capacity={"tokens": 9},
    )


@pytest.mark.rest(keep=4)
@pytest.mark.parametrize("size", SIZES)
def test_residual_is_added_first(size: int) -> None:
    x, residual = edge_rows(7, size), random_floats(2, 7, size)
    check_op(
        Op.RESIDUAL_RMS_NORM, x, residual, make_weight(random_floats(3, size)), eps=EPS, capacity={"tokens": 8}
    )


def test_zero_epsilon_gives_nan_for_a_zero_row() -> None:
    """A row of zeros: 1 / 0 is infinite and 0 times that NaN, as in the definition."""
    (y,) = check_op(
        Op.RMS_NORM, np.zeros((2, 64), np.float32), make_weight(np.ones(64, np.float32)), eps=0.0, size=64
    )
    assert np.isnan(y).all()


def test_epsilon_may_be_large_or_denormal() -> None:
    for eps in (1e-45, 1e-30, 3e38):
        check_op(Op.RMS_NORM, random_floats(1, 2, 96) * np.float32(1e-22), eps=eps, size=96)


@pytest.mark.parametrize(("columns", "size"), [(5, 5), (128, 128), (300, 100), (1029, 1029)])
def test_norm_added_to_a_residual(columns: int, size: int) -> None:
    x, residual, w = (
        random_floats(1, 3, columns, scale=3),
        random_floats(2, 3, columns, scale=20),
        make_weight(random_floats(3, size)),
    )
    check_op(Op.RMS_NORM, x, w, residual, eps=1e-6, size=size, capacity={"tokens": 4})
    check_op(Op.RMS_NORM, x, None, residual, eps=1e-6, size=size)
