"""The shared goldens: tiny models and what llama.cpp computes for them (`$ZINC_RT_TEST_DATA/goldens`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import Node
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.registry import build_model

STRUCTURES = (
    "deepseek2",
    "deepseek2lite",
    "gemma3",
    "gemma4",
    "gemma4moe",
    "llama",
    "mamba",
    "mistral",
    "mistral3",
    "mixtral",
    "phi3",
    "phi3long",
    "qwen2",
    "qwen3",
    "qwen35",
    "qwen35moe",
    "qwen3moe",
    "qwen3next",
)
QUANTISED = tuple(f"{name}-q" for name in STRUCTURES if name != "phi3long")
STEMS = (*(f"{name}-f32" for name in STRUCTURES), *QUANTISED)
SECOND = ("gemma2", "gptoss", "granite", "jamba", "llamaodd", "olmo2", "phi2", "qwen3odd")
"""Structures of `$ZINC_RT_TEST_DATA/goldens2` that this version supports."""
SECOND_STEMS = tuple(f"{name}-{kind}" for name in SECOND for kind in ("f32", "q"))
TRACED = ("deepseek2", "deepseek2lite", "gemma4", "gemma4moe", "gptoss", "jamba", "mamba", "qwen35moe")
CONTEXT = 256  # the n_ctx the goldens were made with, where the model reaches that far

Values = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Golden:
    stem: str
    model: GGUFFile
    arrays: Mapping[str, np.ndarray]

    @property
    def ctx(self) -> int:
        trained = self.model.metadata[f"{self.model.architecture}.context_length"]
        assert isinstance(trained, int)
        return min(max(CONTEXT, 2 * len(self.ids)), trained)

    @property
    def ids(self) -> list[int]:
        return [int(token) for token in self.arrays["ids"]]

    @property
    def rows(self) -> np.ndarray:
        """The positions whose values the file has."""
        return self.arrays.get("positions", np.arange(len(self.ids)))

    @property
    def error_limit(self) -> float:
        """Return the limit for the distance to llama.cpp over all logits; gemma4 has a larger range of
        activations.
        """
        return 1e-3 if self.stem.startswith("gemma4") else 3e-4

    @property
    def is_plain(self) -> bool:
        """Return whether llama.cpp used the same arithmetic, so that every array of the file can be compared."""
        return not any(name.endswith(("_deq", "_exactgelu")) for name in self.arrays)

    def exact(self, what: str) -> np.ndarray:
        """llama.cpp's values for our arithmetic: dequantised weights, else GELU without a table, else plain."""
        for name in (f"{what}_deq", f"{what}_exactgelu", what):
            if name in self.arrays:
                return self.arrays[name]
        raise KeyError(f"{self.stem} has no {what}")

    def engine(self, ordering: str = "canonical-1") -> Engine:
        return Engine(self.model, CpuBackend(ordering), ctx=self.ctx)


def find_golden_model(data_dir: Path, stem: str) -> Path:
    return data_dir / ("goldens2" if stem in SECOND_STEMS else "goldens") / f"{stem}.gguf"


def find_cached_model(data_dir: Path, stem: str, kv_type: str) -> Path:
    """Return the model `stem`; skip the test if its heads are not whole blocks of a cache's type."""
    path = find_golden_model(data_dir, stem)
    try:
        build_model(read_gguf(path), SequenceLimits(64, kv_type=kv_type))
    except UnsupportedError as error:
        assert kv_type == "q8_0" and "a head must be whole blocks of 32" in str(error)
        pytest.skip(str(error))
    return path


def read_golden(data_dir: Path, stem: str) -> Golden:
    file = find_golden_model(data_dir, stem)
    with np.load(file.with_suffix(".npz")) as arrays:
        return Golden(stem, read_gguf(file), dict(arrays))


def make_collector(values: Values) -> Callable[[Node, str, np.ndarray], None]:
    """A tap that stores every value by label: a node's first result by the node's label, further results by buffer
    name.
    """

    def record_value(node: Node, buffer: str, array: np.ndarray) -> None:
        values[node.label if buffer == node.outputs[0] else label_of(buffer)] = array.copy()

    return record_value


def label_of(buffer: str) -> str:
    """`act.ffn_moe_topk[2]` -> `ffn_moe_topk-2`."""
    return re.sub(r"\[(\d+)\]$", r"-\1", buffer.removeprefix("act."))
