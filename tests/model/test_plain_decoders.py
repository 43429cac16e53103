"""Plain decoders without a golden match a float64 forward pass written from llama.cpp's sources.

The pass is checked itself by architectures that have goldens of llama.cpp (test_goldens.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import gguf_bytes, pack_string_field

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.model.registry import ARCHITECTURES as SUPPORTED
from zinc_rt.model.registry import MISSING_FOR, build_model, require_architecture

IDS = [int(token) for token in np.random.default_rng(5).integers(3, 500, 21)]
Array = np.ndarray


@dataclass(frozen=True)
class Facts:
    """What src/models/NAME.cpp does differently from a plain llama."""

    neox: bool = False
    post_norms: bool = False
    ffn_norm: str = "ffn_norm"
    whole_norms: bool = False
    gelu: bool = False
    renormalise: bool = True
    unrotated_step: int = 0
    logit_divisor: float = 1.0
    residual: float = 1.0
    embedding: float = 1.0
    attention: float = 0.0
    cap: float = 0.0
    logit_cap: float = 0.0
    period: int = 0  # of as many layers the last has no window


ARCHITECTURES = {
    "glm4": Facts(post_norms=True),
    "smollm3": Facts(unrotated_step=4),
    "seed_oss": Facts(neox=True, ffn_norm="post_attention_norm"),
    "ernie4_5": Facts(),
    "exaone": Facts(neox=True),
    "gemma": Facts(neox=True, gelu=True, embedding=8.0),  # the square root of the tiny model's width
    "qwen2moe": Facts(neox=True, renormalise=False),
    "olmoe": Facts(neox=True, renormalise=False, whole_norms=True),
    "granitemoe": Facts(logit_divisor=1.6, residual=0.22, embedding=12.0, attention=0.09),
    # The rest have goldens, and check the pass.
    "gemma2": Facts(neox=True, gelu=True, embedding=8.0, post_norms=True, cap=2.0, logit_cap=10.0, period=2),
    "granite": Facts(logit_divisor=1.6, residual=0.22, embedding=12.0, attention=0.09),
    "llama": Facts(),
    "mixtral": Facts(),
    "qwen2": Facts(neox=True),
}


def float64_logits(gguf: GGUFFile, facts: Facts, ids: list[int]) -> Array:
    key = lambda name: gguf.metadata[f"{gguf.architecture}.{name}"]  # noqa: E731
    get = lambda name: gguf.tensors[name].data.astype(np.float64)  # noqa: E731
    has = lambda name: name in gguf.tensors  # noqa: E731
    eps = float(key("attention.layer_norm_rms_epsilon"))  # type: ignore[arg-type]
    heads, kv_heads = int(key("attention.head_count")), int(key("attention.head_count_kv"))  # type: ignore[call-overload]
    layers, width = int(key("block_count")), int(key("embedding_length"))  # type: ignore[call-overload]
    head_dim = gguf.metadata.get(f"{gguf.architecture}.attention.key_length", width // heads)
    n_rot = int(gguf.metadata.get(f"{gguf.architecture}.rope.dimension_count", head_dim))  # type: ignore[call-overload]
    base = float(key("rope.freq_base"))  # type: ignore[arg-type]
    factors = get("rope_freqs.weight") if has("rope_freqs.weight") else 1.0

    def rms(x: Array, name: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * get(f"{name}.weight")

    def linear(x: Array, name: str) -> Array:
        y = x @ get(f"{name}.weight").T
        return y + get(f"{name}.bias") if has(f"{name}.bias") else y

    def rotate(x: Array, base: float) -> Array:
        angle = np.arange(len(x))[:, None] * base ** (-2.0 * np.arange(n_rot // 2) / n_rot) / factors
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        halves = slice(0, n_rot // 2), slice(n_rot // 2, n_rot)
        first, second = halves if facts.neox else (slice(0, n_rot, 2), slice(1, n_rot, 2))
        y = x.copy()
        y[..., first] = x[..., first] * cos - x[..., second] * sin
        y[..., second] = x[..., first] * sin + x[..., second] * cos
        return y

    def attention(h: Array, at: str, turns: bool, slides: bool) -> Array:
        q, k, v = (linear(h, f"{at}.attn_{name}") for name in "qkv")
        if facts.whole_norms:
            q, k = rms(q, f"{at}.attn_q_norm"), rms(k, f"{at}.attn_k_norm")
        q, k, v = (x.reshape(len(h), count, -1) for x, count in ((q, heads), (k, kv_heads), (v, kv_heads)))
        if turns:
            own = gguf.metadata.get(f"{gguf.architecture}.rope.freq_base_swa", base) if slides else base
            q, k = rotate(q, float(own)), rotate(k, float(own))  # type: ignore[arg-type]
        k, v = (np.repeat(x, heads // kv_heads, axis=1) for x in (k, v))
        score = np.einsum("qhd,khd->hqk", q, k) * (facts.attention or q.shape[-1] ** -0.5)
        if facts.cap:
            score = np.tanh(score / facts.cap) * facts.cap
        visible = np.tri(len(h), dtype=bool)
        if slides:
            visible &= ~np.tri(len(h), k=-int(key("attention.sliding_window")), dtype=bool)  # type: ignore[call-overload]
        score = np.where(visible, score, -np.inf)
        weights = np.exp(score - score.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return linear(np.einsum("hqk,khd->qhd", weights, v).reshape(len(h), -1), f"{at}.attn_output")

    def activation(gate: Array) -> Array:
        if facts.gelu:
            return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * gate * (1 + 0.044715 * gate * gate)))
        return gate / (1 + np.exp(-gate))

    def experts(h: Array, at: str) -> Array:
        used = int(key("expert_used_count"))  # type: ignore[call-overload]
        gate, up, down = (get(f"{at}.ffn_{name}_exps.weight") for name in ("gate", "up", "down"))
        logits = linear(h, f"{at}.ffn_gate_inp")
        share = np.exp(logits - logits.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        out = np.zeros_like(h)
        for token, x in enumerate(h):
            best = np.argsort(-share[token], kind="stable")[:used]
            weights = share[token, best]
            if facts.renormalise:
                weights = weights / weights.sum()
            for weight, expert in zip(weights, best, strict=True):
                out[token] += weight * (down[expert] @ (activation(gate[expert] @ x) * (up[expert] @ x)))
        if has(f"{at}.ffn_gate_shexp.weight"):
            gated = activation(linear(h, f"{at}.ffn_gate_shexp")) * linear(h, f"{at}.ffn_up_shexp")
            shared = linear(gated, f"{at}.ffn_down_shexp")
            if has(f"{at}.ffn_gate_inp_shexp.weight"):
                shared = shared / (1 + np.exp(-(h @ get(f"{at}.ffn_gate_inp_shexp.weight"))))[:, None]
            out += shared
        return out

    def feed_forward(h: Array, at: str) -> Array:
        if has(f"{at}.ffn_gate_inp.weight"):
            return experts(h, at)
        if has(f"{at}.ffn_gate.weight"):
            gate, up = linear(h, f"{at}.ffn_gate"), linear(h, f"{at}.ffn_up")
        else:
            gate, up = np.split(linear(h, f"{at}.ffn_up"), 2, axis=-1)
        return linear(activation(gate) * up, f"{at}.ffn_down")

    x = get("token_embd.weight")[ids] * facts.embedding
    for layer in range(layers):
        at = f"blk.{layer}"
        turns = not (facts.unrotated_step and (layer + 1) % facts.unrotated_step == 0)
        slides = facts.period > 0 and layer % facts.period < facts.period - 1
        y = attention(rms(x, f"{at}.attn_norm"), at, turns, slides)
        x = x + facts.residual * (rms(y, f"{at}.post_attention_norm") if facts.post_norms else y)
        y = feed_forward(rms(x, f"{at}.{facts.ffn_norm}"), at)
        x = x + facts.residual * (rms(y, f"{at}.post_ffw_norm") if facts.post_norms else y)
    head = "output.weight" if has("output.weight") else "token_embd.weight"
    logits = rms(x, "output_norm") @ get(head).T / facts.logit_divisor
    return np.tanh(logits / facts.logit_cap) * facts.logit_cap if facts.logit_cap else logits


def logits_of(gguf: GGUFFile) -> Array:
    with Engine(gguf, CpuBackend("canonical-1"), ctx=32) as engine:
        return engine.forward(IDS)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[[str], GGUFFile]:
    def build(architecture: str) -> GGUFFile:
        path = tmp_path / f"{architecture}.gguf"
        write_tiny(path, architecture, quant="f32")
        return read_gguf(path)

    return build


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_match_the_float64_pass(architecture: str, tiny: Callable[[str], GGUFFile]) -> None:
    gguf = tiny(architecture)
    wanted = float64_logits(gguf, ARCHITECTURES[architecture], IDS)
    away = np.abs(logits_of(gguf) - wanted).max()
    print(f"{architecture}: {away:.1e}")
    assert wanted.std() > 0.1
    assert away < 1e-4


def test_gemma2_period_and_own_rope_base_match_the_float64_pass(tiny: Callable[[str], GGUFFile]) -> None:
    gguf = tiny("gemma2")
    plain = logits_of(gguf)
    changes = {"attention.sliding_window_pattern": 3, "rope.freq_base_swa": 500.0, "attn_logit_softcapping": 1.0}
    changed = replace(gguf, metadata=gguf.metadata | {f"gemma2.{key}": value for key, value in changes.items()})
    wanted = float64_logits(changed, replace(ARCHITECTURES["gemma2"], cap=1.0, period=3), IDS)
    assert np.abs(logits_of(changed) - wanted).max() < 1e-4
    assert np.abs(plain - wanted).max() > 1e-2


WRONG = {
    "gemma2": Facts(neox=True, gelu=True, embedding=8.0, post_norms=True, logit_cap=10.0, period=2),
    "glm4": Facts(),
    "smollm3": Facts(),
    "seed_oss": Facts(ffn_norm="post_attention_norm"),
    "exaone": Facts(),
    "gemma": Facts(neox=True, embedding=8.0),
    "qwen2moe": Facts(neox=True),
    "olmoe": Facts(neox=True, renormalise=False),
    "granitemoe": Facts(logit_divisor=1.6, residual=0.22, embedding=12.0),
}


@pytest.mark.parametrize("architecture", WRONG)
def test_float64_pass_notices_a_missing_fact(architecture: str, tiny: Callable[[str], GGUFFile]) -> None:
    gguf, wrong = tiny(architecture), WRONG[architecture]
    assert np.abs(logits_of(gguf) - float64_logits(gguf, wrong, IDS)).max() > 1e-2


def test_optional_scales_of_granite(tiny: Callable[[str], GGUFFile]) -> None:
    gguf, limits = tiny("granite"), SequenceLimits(ctx=32)

    def nodes(**changes: object) -> list[Node]:
        changed = {f"granite.{key.replace('__', '.')}": value for key, value in changes.items()}
        kept = {key: value for key, value in ({**gguf.metadata, **changed}).items() if value is not None}
        return list(build_model(replace(gguf, metadata=kept), limits).graph.nodes)

    assert sum(node.op is Op.ROPE for node in nodes()) == 6
    assert not any(node.op is Op.ROPE for node in nodes(rope__scaling__finetuned=False))
    assert nodes() != nodes(attention__scale=None)
    (default, *_) = (node.attrs["scale"] for node in nodes(attention__scale=None) if "heads" in node.attrs)
    assert default == 16**-0.5
    plain = nodes(embedding_scale=None, residual_scale=None, logit_scale=1.0)
    assert not any(node.op is Op.SCALE for node in plain)
    for wrong in (None, 0.0):
        with pytest.raises(InputError, match="logit_scale"):
            nodes(logit_scale=wrong)


@pytest.mark.parametrize(
    ("architecture", "key", "value", "neutral"),
    [
        ("smollm3", "attention.scale", 0.09, 0.0),
        ("seed_oss", "attention.scale", 0.09, 0.0),
        ("qwen2", "attn_logit_softcapping", 50.0, 0.0),
        ("llama", "logit_scale", 1.6, 1.0),
        ("qwen2", "attention.causal", False, True),
    ],
)
def test_key_that_changes_results_and_is_not_applied_is_refused(
    architecture: str, key: str, value: object, neutral: object, tiny: Callable[[str], GGUFFile]
) -> None:
    gguf, name = tiny(architecture), f"{architecture}.{key}"
    with pytest.raises(UnsupportedError, match=rf"{name} is {value}, which this version does not apply"):
        build_model(replace(gguf, metadata={**gguf.metadata, name: value}), SequenceLimits(ctx=32))
    build_model(replace(gguf, metadata={**gguf.metadata, name: neutral}), SequenceLimits(ctx=32))


def test_key_that_llama_cpp_ignores_is_allowed(tiny: Callable[[str], GGUFFile]) -> None:
    gguf = tiny("jamba")
    build_model(
        replace(gguf, metadata={**gguf.metadata, "jamba.expert_weights_scale": 2.0}), SequenceLimits(ctx=32)
    )


@pytest.mark.parametrize("name", ["rope_factors_long.weight", "rope_factors_short.weight"])
def test_rope_factors_that_are_not_applied_are_refused(name: str, tiny: Callable[[str], GGUFFile]) -> None:
    gguf = tiny("granite")
    factors = replace(gguf.tensors["output_norm.weight"], name=name)
    with pytest.raises(UnsupportedError, match=f"architecture granite does not use the tensor {name}"):
        build_model(replace(gguf, tensors={**gguf.tensors, name: factors}), SequenceLimits(ctx=32))


def test_gemma2_defaults_and_invalid_cap(tiny: Callable[[str], GGUFFile]) -> None:
    gguf, limits = tiny("gemma2"), SequenceLimits(ctx=32)

    def nodes(**changes: object) -> list[Node]:
        changed = {f"gemma2.{key}": value for key, value in changes.items()}
        kept = {key: value for key, value in ({**gguf.metadata, **changed}).items() if value is not None}
        return list(build_model(replace(gguf, metadata=kept), limits).graph.nodes)

    default = nodes(attn_logit_softcapping=None, final_logit_softcapping=None)
    assert {node.attrs["cap"] for node in default if node.op is Op.FLASH_ATTN_BATCHED} == {50.0}
    assert [node.attrs["cap"] for node in default if node.op is Op.SOFTCAP] == [30.0]
    windows = [node.attrs["window"] for node in nodes() if node.op is Op.FLASH_ATTN_BATCHED]
    assert windows[0] > 0 and windows[1] == 0 and windows[:2] == windows[2:]
    with pytest.raises(InputError, match="attn_logit_softcapping is -1"):
        nodes(attn_logit_softcapping=-1.0)


def test_unsupported_architecture_names_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes([pack_string_field("general.architecture", "mamba2")]))
    with pytest.raises(UnsupportedError, match=r"'mamba2' is not supported .*: it needs the Mamba-2 scan"):
        require_architecture(read_gguf(path))
    assert not set(MISSING_FOR) & set(SUPPORTED)
