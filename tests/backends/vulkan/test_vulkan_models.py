"""Models through a Vulkan driver give T-CPU's bits: every value of every node, one pass and token by token, alone
and side by side."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from every_value import assert_same, record_every_value
from model.goldens import SECOND_STEMS, STEMS, find_cached_model, find_golden_model
from random_sizes import random_sizes
from support import Counts

from zinc_rt.backends import registry
from zinc_rt.backends.vulkan.device import PhysicalDevice
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.architectures import CAUSAL
from zinc_rt.golden.tiny_models.quantize import WRITABLE
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.model.gguf import read_gguf


def engine(model: Path, tier: str, ordering: str, kv_type: str) -> Engine:
    backend = open_backend(choose_tier(tier, ordering=ordering), ordering, threads=1)
    return Engine(read_gguf(model), backend, ctx=64, slots=2, kv_type=kv_type)


def assert_bits_match_t_cpu(model: Path, steps: int, ordering: str = "canonical-1", kv_type: str = "f32") -> None:
    got = record_every_value(engine(model, "vulkan", ordering, kv_type), steps=steps)
    assert_same(got, record_every_value(engine(model, "t_cpu", ordering, kv_type), steps=steps))


@pytest.mark.parametrize("stem", ["qwen3-q", "qwen35moe-q"])
@pytest.mark.rest
def test_embedded_model(stem: str, vulkan_driver: PhysicalDevice, slow_counts: Counts) -> None:
    assert_bits_match_t_cpu(FOLDER / f"{stem}.gguf", slow_counts(2, 16))


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["gemma4-q", "gemma4moe-q"])
def test_other_embedded_models(stem: str, vulkan_driver: PhysicalDevice) -> None:
    assert_bits_match_t_cpu(FOLDER / f"{stem}.gguf", 2)


@pytest.mark.slow
@pytest.mark.parametrize("stem", [*STEMS, *SECOND_STEMS])
def test_tiny_models(stem: str, vulkan_driver: PhysicalDevice, data_dir: Path) -> None:
    assert_bits_match_t_cpu(find_golden_model(data_dir, stem), 4)


@pytest.mark.slow
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("stem", [*STEMS, *SECOND_STEMS])
def test_tiny_models_with_smaller_caches(
    stem: str, kv_type: str, vulkan_driver: PhysicalDevice, data_dir: Path
) -> None:
    assert_bits_match_t_cpu(find_cached_model(data_dir, stem, kv_type), 2, kv_type=kv_type)


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["qwen3-q", "qwen35moe-q", "gemma4-q"])
def test_quantised_activations(stem: str, vulkan_driver: PhysicalDevice) -> None:
    if not registry.spec("vulkan").computes("canonical-1-q8"):
        pytest.skip("the tier's row names no canonical-1-q8")
    assert_bits_match_t_cpu(FOLDER / f"{stem}.gguf", 2, "canonical-1-q8")


@pytest.mark.slow
@pytest.mark.parametrize("architecture", CAUSAL)
def test_models_of_random_size_and_type(architecture: str, tmp_path: Path, vulkan_driver: PhysicalDevice) -> None:
    """Every weight type there is, by a kernel of its own or expanded; widths that no tile divides."""
    path = tmp_path / "m.gguf"
    for seed in range(3):
        sizes = random_sizes(architecture, seed)
        quant = random.Random(f"{architecture} {seed}").choice(["f32", "q", *WRITABLE])
        write_tiny(path, architecture, quant=quant, **sizes)
        assert_bits_match_t_cpu(path, 1)
