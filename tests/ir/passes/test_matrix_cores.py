"""The ordering of prompts: which products use matrix cores, and bits that no chunk, tier or kernel set changes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES as TINY_MODELS
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.ir.op import Op
from zinc_rt.ir.passes.matrix_cores import (
    PRODUCTS,
    REPLACEMENTS,
    count_products,
    list_products,
    use_matrix_cores,
)
from zinc_rt.ir.verify import verify_graph
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
ARCHITECTURES = ("qwen3", "gemma3", "phi2", "qwen35moe", "deepseek2", "mamba", "gptoss")
EXPERTS = ("qwen35moe", "deepseek2", "gptoss")


def compute_logits(
    path: Path, tier: str, chunks: Sequence[int], prefill_ordering: str, prompt: Sequence[int] = PROMPT
) -> np.ndarray:
    """Return the logits of the first tokens of a prompt, read in chunks of these sizes."""
    backend = open_backend(choose_tier(tier, "auto", ordering="canonical-1"), "canonical-1", threads=1)
    options = EngineOptions(prefill_ordering=prefill_ordering)
    with Engine(read_gguf(path), backend, ctx=max(32, len(prompt)), options=options) as engine:
        sequence, tokens = engine.open(), iter(prompt)
        parts: Iterator[list[int]] = ([next(tokens) for _ in range(size)] for size in chunks)
        steps = [engine.step([(sequence, part)], range(len(part)), role="prompt") for part in parts]
        return np.concatenate(steps)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.rest(keep=2)
def test_prompts_have_the_same_bits_in_any_chunks_on_both_cpu_tiers(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, architecture, hidden=32)
    whole = compute_logits(path, "t_cpu", (11,), "wmma-f16")
    for chunks in ((1,) * 11, (3, 1, 7), (10, 1)):
        got = compute_logits(path, "t_cpu_native", chunks, "wmma-f16")
        np.testing.assert_array_equal(got.view(np.uint32), whole.view(np.uint32))
    plain = compute_logits(path, "t_cpu_native", (11,), "")
    assert (whole != plain).mean() > 0.5
    np.testing.assert_allclose(whole, plain, atol=2e-2 * np.abs(plain).max())


@pytest.mark.slow
@pytest.mark.parametrize("quantised", ["f32", "q"])
@pytest.mark.parametrize("structure", [name for name, made in TINY_MODELS.items() if not made.embeds])
def test_long_prompts_of_every_golden_model_in_any_chunks(structure: str, quantised: str, data_dir: Path) -> None:
    """The oracle takes seconds for some tokens: it computes the first ones only, which see no later token."""
    stem = f"{structure}-{quantised}.gguf"
    paths = [path for folder in ("goldens", "goldens2") if (path := data_dir / folder / stem).exists()]
    if not paths:
        pytest.skip(f"no golden model {stem}")
    chance = random.Random(stem)
    prompt = [chance.randrange(4, 500) for _ in range(chance.randrange(513, 701, 2))]
    whole = compute_logits(paths[0], "t_cpu_native", (512, len(prompt) - 512), "wmma-f16", prompt)
    for most in (7, 130):
        chunks: list[int] = []
        while sum(chunks) < len(prompt):
            chunks.append(min(chance.randint(1, most), len(prompt) - sum(chunks)))
        got = compute_logits(paths[0], "t_cpu_native", chunks, "wmma-f16", prompt)
        np.testing.assert_array_equal(got.view(np.uint32), whole.view(np.uint32))
    first = compute_logits(paths[0], "t_cpu", (21,), "wmma-f16", prompt)
    np.testing.assert_array_equal(first.view(np.uint32), whole[:21].view(np.uint32))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_replaced_graph_is_verified_and_counted(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, architecture, hidden=32)
    graph = build_model(read_gguf(path), SequenceLimits(ctx=32), "prefill").graph
    replaced = use_matrix_cores(graph, "wmma-bf16")
    verify_graph(replaced)
    counts = count_products(graph)
    number = sum(node.op in REPLACEMENTS for node in replaced.nodes)
    assert number == counts[""] > 0
    assert number == sum(group.count for group in list_products(graph) if not group.refusal)
    assert sum(counts.values()) - number == sum(node.op in PRODUCTS for node in replaced.nodes)
    assert any(node.op in PRODUCTS and node.op is not Op.MATMUL for node in graph.nodes) == (
        architecture in EXPERTS
    )
    assert [node.outputs for node in replaced.nodes] == [node.outputs for node in graph.nodes]


def test_refused_products_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, "phi2", hidden=32)
    graph = build_model(read_gguf(path), SequenceLimits(ctx=32), "prefill").graph
    (bias, *_) = [node.inputs[2] for node in graph.nodes if node.op is Op.MATMUL and node.inputs[2]]
    buffers = {**graph.buffers, bias: replace(graph.buffers[bias], dtype="f16")}
    counts = count_products(replace(graph, buffers=buffers))
    assert counts["a bias or scale of type f16"] == 1 and counts[""] > 0
