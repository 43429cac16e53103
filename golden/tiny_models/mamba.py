"""Tensors and metadata of mamba and jamba files."""

from __future__ import annotations

import numpy as np

from zinc_rt.golden.tiny_models.parts import (
    CONV_TAPS,
    Metadata,
    Sizes,
    add_attention,
    add_dense_ffn,
    add_embedding_and_output,
    add_mixture,
    block_names,
    expert_metadata,
)
from zinc_rt.golden.tiny_models.weights import RandomWeights


def mamba(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s, tied=True)
    for blk in block_names(s):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        mamba_mixer(w, blk, s)
    return {
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "ssm.dt_b_c_rms": False,
        **mamba_sizes(s),
    }


def jamba(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a jamba model: attention in layer 1 of every four, experts in odd layers."""
    add_embedding_and_output(w, s)
    attends = [layer % 4 == 1 for layer in range(s.layers)]
    for layer, blk in enumerate(block_names(s)):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        if attends[layer]:
            add_attention(w, blk, s)
        else:
            mamba_mixer(w, blk, s)
            sizes = mamba_sizes(s)
            w.add_norm(f"{blk}.ssm_dt_norm", sizes["ssm.time_step_rank"])
            w.add_norm(f"{blk}.ssm_b_norm", sizes["ssm.state_size"])
            w.add_norm(f"{blk}.ssm_c_norm", sizes["ssm.state_size"])
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        if layer % 2:
            add_mixture(w, blk, s, width=s.ffn)
        else:
            add_dense_ffn(w, blk, s)
    kv_heads = [s.kv_heads if here else 0 for here in attends]
    return {"attention.head_count_kv": kv_heads, **mamba_sizes(s), **expert_metadata(s)}


def mamba_sizes(s: Sizes) -> dict[str, int]:
    return {
        "ssm.conv_kernel": CONV_TAPS,
        "ssm.inner_size": 2 * s.hidden,
        "ssm.state_size": 16,
        "ssm.time_step_rank": max(1, s.hidden // 16),
    }


def mamba_mixer(w: RandomWeights, blk: str, s: Sizes) -> None:
    sizes = mamba_sizes(s)
    inner, state, rank = (sizes[f"ssm.{name}"] for name in ("inner_size", "state_size", "time_step_rank"))
    w.add_matrix(f"{blk}.ssm_in", 2 * inner, s.hidden, gain=1.5)
    w.add_normal(f"{blk}.ssm_conv1d.weight", (inner, CONV_TAPS), std=0.5)
    w.add_normal(f"{blk}.ssm_conv1d.bias", (inner,), std=0.2)
    w.add_matrix(f"{blk}.ssm_x", rank + 2 * state, inner, gain=2)
    w.add_matrix(f"{blk}.ssm_dt", inner, rank)
    w.add_uniform(f"{blk}.ssm_dt.bias", (inner,), -3, 0.5)
    decay = w.random(f"{blk}.ssm_a").uniform(0.5, 1.5, (inner, state))
    w.put(f"{blk}.ssm_a", -np.arange(1, state + 1) * decay)
    w.add_normal(f"{blk}.ssm_d", (inner,), mean=1, std=0.2)
    w.add_matrix(f"{blk}.ssm_out", s.hidden, inner)
