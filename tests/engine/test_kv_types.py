"""A model with cached keys and values in 16 and 8 bits: bytes, bits of every tier, refusals by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.vulkan.device import PhysicalDevice
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.kernels.gfx1201.table import KERNELS as GFX1201
from zinc_rt.kernels.sets import KernelSet
from zinc_rt.kernels.spirv.table import KERNELS as SPIRV
from zinc_rt.lower.lower import choose_entry
from zinc_rt.mem.context_bytes import groups_of
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.registry import build_model

TOKENS = [3, 11, 5, 2, 9, 8, 30, 17, 4, 12, 21, 6, 7, 40, 33, 25, 19, 1]


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> GGUFFile:
    """Return a model whose heads are whole blocks of q8_0."""
    path = tmp_path_factory.mktemp("kv") / "mistral.gguf"
    write_tiny(path, "mistral", quant="q")
    return read_gguf(str(path))


def compute_logits(gguf: GGUFFile, tier: str, kv_type: str) -> np.ndarray:
    """Return the logits of a prompt, and of one decoded token."""
    device = "sim" if tier in ("t1", "t2") else "auto"
    backend = open_backend(choose_tier(tier, device, ordering="canonical-1"), "canonical-1", threads=1)
    with Engine(gguf, backend, ctx=64, kv_type=kv_type) as engine:
        assert engine.ordering == ("canonical-1" if kv_type == "f32" else f"canonical-1-kv-{kv_type}")
        sequence = engine.open()
        logits = [engine.extend(sequence, tokens).copy() for tokens in (TOKENS, [7])]
        if backend.instrument is not None:
            assert [finding.text for finding in backend.instrument.findings()] == []
        return np.concatenate(logits)


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_native_tier_has_the_oracle_bits(mistral: GGUFFile, kv_type: str) -> None:
    oracle, native = (compute_logits(mistral, tier, kv_type) for tier in ("t_cpu", "t_cpu_native"))
    assert oracle.tobytes() == native.tobytes()
    exact = compute_logits(mistral, "t_cpu_native", "f32")
    assert 0 < np.abs(oracle - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("tier", "kv_type"),
    [
        ("t1", "f16"),
        ("t1", "q8_0"),
        pytest.param("t2", "f16", marks=pytest.mark.rest),
        pytest.param("t2", "q8_0", marks=pytest.mark.rest),
    ],
)
def test_gfx1201_has_the_native_bits(mistral: GGUFFile, tier: str, kv_type: str) -> None:
    """Fused, as in production; T-CPU has the native tier's bits."""
    gpu, native = (compute_logits(mistral, name, kv_type) for name in (tier, "t_cpu_native"))
    assert gpu.tobytes() == native.tobytes()


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_vulkan_has_the_native_bits(mistral: GGUFFile, kv_type: str, vulkan_driver: PhysicalDevice) -> None:
    gpu, native = (compute_logits(mistral, name, kv_type) for name in ("vulkan", "t_cpu_native"))
    assert gpu.tobytes() == native.tobytes()


@pytest.mark.parametrize("kernels", [GFX1201, SPIRV], ids=lambda kernels: kernels.target)
def test_gpu_kernels_refuse_caches_of_two_types_by_name(mistral: GGUFFile, kernels: KernelSet) -> None:
    graph = build_model(mistral, SequenceLimits(64, kv_type="f16"), "decode").graph
    keys = {name for name in graph.buffers if name.startswith("state.kv_k[")}
    assert keys
    mixed = replace(
        graph,
        buffers={
            name: replace(spec, dtype="f32") if name in keys else spec for name, spec in graph.buffers.items()
        },
    )
    refused = {
        node.op.name: entry
        for node in mixed.nodes
        if isinstance(entry := choose_entry(node, mixed, kernels.entries, "canonical-1"), str)
        and node.op.name != "BARRIER"
    }
    assert refused == dict.fromkeys(("KV_WRITE_BATCHED", "FLASH_ATTN"), "caches of different types: f16, f32")


@pytest.mark.parametrize(("kv_type", "share"), [("f16", 1 / 2), ("q8_0", 34 / 128)])
def test_pages_take_their_share_of_the_bytes(mistral: GGUFFile, kv_type: str, share: float) -> None:
    plain, small = (
        [
            group.bytes_per_token
            for group in groups_of(build_model(mistral, SequenceLimits(64, kv_type=kind)).graph)
        ]
        for kind in ("f32", kv_type)
    )
    assert small == [share * size for size in plain]


def test_head_of_partial_blocks_is_refused_by_name(tmp_path: Path) -> None:
    write_tiny(tmp_path / "llama.gguf", "llama")
    with pytest.raises(UnsupportedError, match="--kv-type q8_0: layer 0 has heads of 16 elements"):
        build_model(read_gguf(str(tmp_path / "llama.gguf")), SequenceLimits(64, kv_type="q8_0"))


def test_unknown_type_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="kv_type 'q4_0': expected one of f32, f16, q8_0"):
        SequenceLimits(64, kv_type="q4_0")
