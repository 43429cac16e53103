"""Tensors and metadata of plain decoders: llama, mistral, mixtral, mistral3, phi3, granite, olmo2, glm4, smollm3,
seed_oss, ernie4_5, exaone, olmoe, granitemoe, gptoss."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from zinc_rt.golden.tiny_models.parts import (
    WINDOW,
    Metadata,
    Sizes,
    add_attention,
    add_decoder_layers,
    add_dense_ffn,
    add_embedding_and_output,
    add_mixture,
    block_names,
    expert_metadata,
    head_metadata,
)
from zinc_rt.golden.tiny_models.weights import RandomWeights


def llama(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a llama model with Llama 3's rope frequency factors."""
    add_embedding_and_output(w, s)
    w.put("rope_freqs.weight", np.geomspace(1, 8, s.head_dim // 2))
    add_decoder_layers(w, s)
    return head_metadata(s) | {"rope.freq_base": 500000.0, "rope.dimension_count": s.head_dim}


def mistral(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a mistral model with heads wider than hidden / heads, and linear rope scaling."""
    add_embedding_and_output(w, s)
    add_decoder_layers(w, s)
    return head_metadata(s) | {
        "rope.freq_base": 1e6,
        "rope.dimension_count": s.head_dim,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 2.0,
    }


def mixtral(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s)
    add_decoder_layers(w, s, partial(add_mixture, width=s.ffn))
    rope: Metadata = {"rope.freq_base": 1e6, "rope.dimension_count": s.head_dim}
    return head_metadata(s) | expert_metadata(s) | rope


def mistral3(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a mistral3 model: YaRN with its betas, and queries scaled by position beyond a quarter of the
    context."""
    add_embedding_and_output(w, s)
    add_decoder_layers(w, s)
    return head_metadata(s) | {
        "rope.freq_base": 10000.0,
        "rope.dimension_count": s.head_dim,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": max(1, s.context // 16),
        "rope.scaling.yarn_beta_fast": 4.0,
        "rope.scaling.yarn_beta_slow": 0.05,
        "rope.scaling.yarn_log_multiplier": 1.0,
        "attention.temperature_scale": 0.1,
    }


def build_phi3(s: Sizes, w: RandomWeights, original_context: int) -> Metadata:
    """Return a phi3 model: rotation of three quarters of the head; long and short factors, selected by the
    allocated context."""
    turning = s.head_dim * 3 // 8 * 2
    add_embedding_and_output(w, s)
    w.put("rope_factors_long.weight", np.linspace(1.2, 6, turning // 2))
    w.put("rope_factors_short.weight", np.linspace(1, 1.5, turning // 2))
    for blk in block_names(s):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        w.add_matrix(f"{blk}.attn_qkv", (s.heads + 2 * s.kv_heads) * s.head_dim, s.hidden, gain=1.5)
        w.add_matrix(f"{blk}.attn_output", s.hidden, s.heads * s.head_dim)
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        w.add_matrix(f"{blk}.ffn_up", 2 * s.ffn, s.hidden, gain=1.5)
        w.add_matrix(f"{blk}.ffn_down", s.hidden, s.ffn)
    return head_metadata(s) | {
        "rope.freq_base": 10000.0,
        "rope.dimension_count": turning,
        "rope.scaling.original_context_length": original_context,
        "rope.scaling.attn_factor": 1.19,
        "attention.sliding_window": 0,
    }


def phi3(s: Sizes, w: RandomWeights) -> Metadata:
    return build_phi3(s, w, 4096)


def phi3long(s: Sizes, w: RandomWeights) -> Metadata:
    return build_phi3(s, w, max(1, s.context // 4))


def phi2(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a phi2 model: biases everywhere, merged projections in every second layer, RoPE on half a head."""
    add_embedding_and_output(w, s)
    w.add_normal("output_norm.bias", (s.hidden,), std=0.2)
    w.add_normal("output.bias", (s.vocab,), std=0.2)
    q_out, kv_out = s.heads * s.head_dim, s.kv_heads * s.head_dim
    for layer, blk in enumerate(block_names(s)):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        w.add_normal(f"{blk}.attn_norm.bias", (s.hidden,), std=0.2)
        parts = {"qkv": q_out + 2 * kv_out} if layer % 2 == 0 else {"q": q_out, "k": kv_out, "v": kv_out}
        for name, rows in parts.items():
            w.add_matrix(f"{blk}.attn_{name}", rows, s.hidden, gain=1.5)
            w.add_normal(f"{blk}.attn_{name}.bias", (rows,), std=0.2)
        for name, rows, columns in (
            ("attn_output", s.hidden, q_out),
            ("ffn_up", s.ffn, s.hidden),
            ("ffn_down", s.hidden, s.ffn),
        ):
            w.add_matrix(f"{blk}.{name}", rows, columns)
            w.add_normal(f"{blk}.{name}.bias", (rows,), std=0.2)
    return {"attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": s.head_dim // 2}


def gptoss(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a gpt-oss model: attention sinks, biases everywhere, a window in every second layer, YaRN."""
    add_embedding_and_output(w, s)
    for blk in block_names(s):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        add_attention(w, blk, s, bias=True)
        w.add_normal(f"{blk}.attn_output.bias", (s.hidden,), std=0.2)
        w.add_normal(f"{blk}.attn_sinks.weight", (s.heads,), std=1.0, mean=1.0)
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        add_mixture(w, blk, s)
        w.add_normal(f"{blk}.ffn_gate_inp.bias", (s.experts,), std=0.5)
        for name, rows in (("gate", s.expert_ffn), ("up", s.expert_ffn), ("down", s.hidden)):
            w.add_normal(f"{blk}.ffn_{name}_exps.bias", (s.experts, rows), std=0.5)
    return (
        head_metadata(s)
        | expert_metadata(s)
        | {
            "expert_feed_forward_length": s.expert_ffn,
            "attention.sliding_window": s.window or WINDOW,
            "rope.freq_base": 150000.0,
            "rope.dimension_count": s.head_dim,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": max(1, s.context // 4),
        }
    )


def granite(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a granite model with scaled embeddings, attention, residuals and logits."""
    add_embedding_and_output(w, s)
    add_decoder_layers(w, s)
    return {
        "rope.freq_base": 10000.0,
        "rope.dimension_count": s.head_dim,
        "embedding_scale": 12.0,
        "attention.scale": 0.09,
        "residual_scale": 0.22,
        "logit_scale": 1.6,
    }


def olmo2(s: Sizes, w: RandomWeights) -> Metadata:
    """Return an OLMo 3 model: three of four layers have a window, the others YaRN."""
    add_embedding_and_output(w, s)
    for blk in block_names(s):
        add_attention(w, blk, s)
        w.add_norm(f"{blk}.attn_q_norm", s.heads * s.head_dim)
        w.add_norm(f"{blk}.attn_k_norm", s.kv_heads * s.head_dim)
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        add_dense_ffn(w, blk, s)
        w.add_norm(f"{blk}.post_ffw_norm", s.hidden)
    return {
        "rope.freq_base": 500000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.attn_factor": 1.0,
        "rope.scaling.original_context_length": max(1, s.context // 4),
        "attention.sliding_window": s.window or WINDOW,
    }


def glm4(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a glm4 model: four norms in a layer, biases, half of each head rotated."""
    add_embedding_and_output(w, s)
    for blk in block_names(s):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        add_attention(w, blk, s, bias=True)
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        w.add_matrix(f"{blk}.ffn_up", 2 * s.ffn, s.hidden, gain=1.5)
        w.add_matrix(f"{blk}.ffn_down", s.hidden, s.ffn)
        w.add_norm(f"{blk}.post_ffw_norm", s.hidden)
    return head_metadata(s) | {"rope.freq_base": 10000.0, "rope.dimension_count": s.head_dim // 2}


def smollm3(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a smollm3 model; layer 3 of every four is not rotated."""
    add_embedding_and_output(w, s, tied=True)
    add_decoder_layers(w, s)
    return head_metadata(s) | {"rope.freq_base": 5e6, "rope.dimension_count": s.head_dim}


def seed_oss(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s)
    for blk in block_names(s):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        add_attention(w, blk, s, bias=True)
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        add_dense_ffn(w, blk, s)
    return head_metadata(s) | {"rope.freq_base": 1e7, "rope.dimension_count": s.head_dim}


def ernie4_5(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s, tied=True)
    add_decoder_layers(w, s)
    return head_metadata(s) | {"rope.freq_base": 500000.0, "rope.dimension_count": s.head_dim}


def exaone(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s)
    w.put("rope_freqs.weight", np.geomspace(1, 8, s.head_dim // 2))
    add_decoder_layers(w, s)
    return head_metadata(s) | {"rope.freq_base": 1e6, "rope.dimension_count": s.head_dim}


def olmoe(s: Sizes, w: RandomWeights) -> Metadata:
    """Return an olmoe model. It has as many heads of keys as of queries."""
    s = replace(s, kv_heads=s.heads)
    add_embedding_and_output(w, s)
    for blk in block_names(s):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        add_attention(w, blk, s)
        w.add_norm(f"{blk}.attn_q_norm", s.hidden)
        w.add_norm(f"{blk}.attn_k_norm", s.hidden)
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        add_mixture(w, blk, s, width=s.ffn)
    return {"attention.head_count_kv": s.heads, "rope.freq_base": 10000.0, **expert_metadata(s)}


def granitemoe(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a granitemoe model with a shared expert."""

    def experts(w: RandomWeights, blk: str, s: Sizes) -> None:
        add_mixture(w, blk, s, width=s.ffn)
        add_dense_ffn(w, blk, s, width=s.expert_ffn, suffix="_shexp")

    add_embedding_and_output(w, s)
    add_decoder_layers(w, s, experts)
    return {
        "rope.freq_base": 10000.0,
        "rope.dimension_count": s.head_dim,
        "embedding_scale": 12.0,
        "attention.scale": 0.09,
        "residual_scale": 0.22,
        "logit_scale": 1.6,
        "expert_shared_feed_forward_length": s.expert_ffn,
        **expert_metadata(s),
    }
