"""Operands that are hard to be right on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.native.harness import make_backend

from zinc_rt.backends.cpu.one_node import Operand, run_node
from zinc_rt.backends.cpu.tasks import TaskSplitting
from zinc_rt.host.errors import InputError
from zinc_rt.ir.op import Op

FINITE = (0.0, -0.0, 1e-45, -1e-41, 1.2e-38, 3.4e38, -3.4e38, 1e-20, 88.0, -104.0)
UNKIND = (*FINITE, np.nan, np.inf, -np.inf)


def edge_values(seed: int, *shape: int, specials: tuple[float, ...] = UNKIND, share: float = 0.1) -> np.ndarray:
    """Return normal values of all magnitudes, a fraction of them replaced by values from `specials`."""
    random = np.random.default_rng(seed)
    values = random.normal(size=shape) * np.exp2(random.integers(-8, 8, shape))
    return np.where(random.random(shape) < share, random.choice(specials, shape), values).astype(np.float32)


def int32_indices(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def assert_rejected(
    sentence: str, op: Op, *operands: Operand, outputs: tuple[np.ndarray, ...] = (), **attrs: Any
) -> None:
    """The kernel ends the step with this reason."""
    with pytest.raises(InputError, match=sentence):
        run_node(make_backend("canonical-1", 2, TaskSplitting()), op, operands, outputs, **attrs)
