"""Random weights by name, scaled so that logits have a spread of 1 to 2.5 at any size."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np


@dataclass
class RandomWeights:
    """Collects float32 tensors in file order. The values of a tensor depend only on the seed and its name."""

    seed: int
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def random(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def put(self, name: str, values: np.ndarray) -> None:
        assert name not in self.tensors, name
        self.tensors[name] = np.ascontiguousarray(values, np.float32)

    def add_normal(self, name: str, shape: tuple[int, ...], *, std: float, mean: float = 0.0) -> None:
        self.put(name, mean + std * self.random(name).standard_normal(shape))

    def add_uniform(self, name: str, shape: tuple[int, ...], low: float, high: float) -> None:
        self.put(name, self.random(name).uniform(low, high, shape))

    def add_matrix(
        self, name: str, out: int, into: int, *, gain: float = 1.0, stack: tuple[int, ...] = ()
    ) -> None:
        """Return (*stack, out, into) weights: inputs of variance 1 give outputs of standard deviation
        `gain`."""
        self.add_normal(f"{name}.weight", (*stack, out, into), std=gain / into**0.5)

    def add_norm(self, name: str, size: int) -> None:
        values = 1 + 0.25 * self.random(name).standard_normal(size)
        self.put(f"{name}.weight", np.clip(values, 0.2, 1.8))
