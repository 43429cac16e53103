"""Models of random size and type give llama.cpp's logits: what the shared goldens fix for one size, at many."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest
from random_sizes import random_sizes
from support import Counts

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.llama_cpp.importing import import_llama_cpp
from zinc_rt.golden.tiny_models.architectures import GENERATORS
from zinc_rt.golden.tiny_models.quantize import WRITABLE
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.model.gguf import read_gguf

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None,
    reason="llama-cpp-python is not installed (extra: llama-cpp)",
)

LIMIT = 5e-4  # of any logit, their spread being 1 to 2.5; measured 4.4e-4 (mamba) over 200 models
GELU_TABLE_LIMIT = 4e-2  # llama.cpp's GELU is a float16 table, and 7 layers amplify it; measured 2.4e-2


@pytest.mark.parametrize("architecture", GENERATORS)
def test_random_size_model_matches_llama_cpp_logits(
    architecture: str, tmp_path: Path, slow_counts: Counts
) -> None:
    limit = GELU_TABLE_LIMIT if architecture.startswith("gemma") else LIMIT
    path = tmp_path / "m.gguf"
    for seed in range(slow_counts(1, 12)):
        sizes = random_sizes(architecture, seed)
        quant = random.Random(seed).choice(["f32", "q", *WRITABLE])
        ids = np.random.default_rng(seed).integers(0, sizes["vocab"], 1 + 13 * seed % 41).tolist()
        write_tiny(path, architecture, quant=quant, **sizes)
        theirs = import_llama_cpp(path, ids, tmp_path / "m.npz", steps=0, dequantised=True)["logits_deq"]
        with Engine(read_gguf(path), CpuBackend("float32-dequant"), ctx=256) as engine:
            ours = engine.forward(ids)
        assert np.abs(ours - theirs).max() <= limit, f"{architecture} {quant} {sizes}, {len(ids)} tokens"
