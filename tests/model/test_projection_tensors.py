"""Merged projections, and the biases and scales beside them: one model, written in different ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.tiny_models import writer
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.model.gguf import read_gguf

Tensors = dict[str, np.ndarray]
TOKENS = [5, 17, 300, 44, 17]


@pytest.fixture
def model_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., np.ndarray]:
    """Return the logits of the tiny model `architecture` after `change` was applied to its tensors and `metadata`
    was added.
    """
    plain = writer.build_tiny

    def run(architecture: str, change: Callable[[Tensors], Tensors], **metadata: int) -> np.ndarray:
        def change_content(*args: object, **sizes: object) -> writer.ModelContent:
            content = plain(*args, **sizes)  # type: ignore[arg-type]
            tensors = change(dict(content.tensors))
            return replace(content, tensors=tensors, metadata={**content.metadata, **metadata})

        monkeypatch.setattr(writer, "build_tiny", change_content)
        writer.write_tiny(tmp_path / "m.gguf", architecture)
        with Engine(read_gguf(tmp_path / "m.gguf"), CpuBackend("canonical-1"), ctx=64) as engine:
            return engine.forward(TOKENS)

    return run


def test_merged_bias_equals_the_three_biases(model_logits: Callable[..., np.ndarray]) -> None:
    def merge_qkv(tensors: Tensors) -> Tensors:
        for name in [name for name in tensors if ".attn_q." in name]:
            parts = [tensors.pop(name.replace("attn_q", f"attn_{which}")) for which in "qkv"]
            tensors[name.replace("attn_q", "attn_qkv")] = np.concatenate(parts)
        return tensors

    assert np.array_equal(model_logits("qwen2", merge_qkv), model_logits("qwen2", dict))


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("architecture", "projections"),
    [
        ("qwen3", ("attn_q", "attn_output", "ffn_gate", "ffn_down")),
        ("qwen3moe", ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")),
        ("qwen35moe", ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "attn_qkv", "ssm_out")),
    ],
)
def test_scale_equals_scaled_weights(
    architecture: str, projections: tuple[str, ...], model_logits: Callable[..., np.ndarray]
) -> None:
    """With powers of two both round alike."""

    def scale_projections(tensors: Tensors) -> Tensors:
        for name, values in list(tensors.items()):
            if name.endswith(".weight") and name.split(".")[-2] in projections:
                scales = np.float32([0.5, 4, 2, 0.25, 8, 1, 16, 2])[: len(values) if values.ndim == 3 else 1]
                tensors[name] = values / scales.reshape(-1, *[1] * (values.ndim - 1))
                tensors[name.replace(".weight", ".scale")] = scales
        return tensors

    assert np.array_equal(model_logits(architecture, scale_projections), model_logits(architecture, dict))


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("architecture", ["llama", "mistral3"])
def test_one_expert_equals_the_dense_layer(architecture: str, model_logits: Callable[..., np.ndarray]) -> None:
    def as_experts(tensors: Tensors) -> Tensors:
        for name in [name for name in tensors if name.split(".")[-2] in ("ffn_gate", "ffn_up", "ffn_down")]:
            tensors[name.replace(".weight", "_exps.weight")] = tensors.pop(name)[None]
        for name in [name for name in tensors if ".ffn_norm." in name]:
            tensors[name.replace("ffn_norm", "ffn_gate_inp")] = tensors[name][None]
        return tensors

    one = model_logits(architecture, as_experts, expert_count=1, expert_used_count=1)
    assert np.array_equal(one, model_logits(architecture, dict))


@pytest.mark.parametrize(
    "name", ["blk.2.attn_norm.bias", "blk.1.ffn_gate_up_exps.scale", "blk.0.ffn_gate_inp.bias"]
)
def test_bias_or_scale_the_architecture_does_not_apply_is_rejected(
    name: str, model_logits: Callable[..., np.ndarray]
) -> None:
    with pytest.raises(UnsupportedError, match=f"architecture llama does not use the tensor {name}"):
        model_logits("llama", lambda tensors: tensors | {name: np.ones(8, np.float32)})
