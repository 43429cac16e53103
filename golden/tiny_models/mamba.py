"""Tensors and metadata of mamba and jamba files."""

from __future__ import annotations

import numpy as np

from zinc_rt.golden.tiny_models.parts import (
    CONV_TAPS,
    Metadata,
    Sizes,
    attention,
    blocks,
    dense,
    ends,
    expert_counts,
    routed,
)
from zinc_rt.golden.tiny_models.weights import RandomWeights


def mamba(s: Sizes, w: RandomWeights) -> Metadata:
    ends(w, s, tied=True)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
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
    ends(w, s)
    attends = [layer % 4 == 1 for layer in range(s.layers)]
    for layer, blk in enumerate(blocks(s)):
        w.norm(f"{blk}.attn_norm", s.hidden)
        if attends[layer]:
            attention(w, blk, s)
        else:
            mamba_mixer(w, blk, s)
            sizes = mamba_sizes(s)
            w.norm(f"{blk}.ssm_dt_norm", sizes["ssm.time_step_rank"])
            w.norm(f"{blk}.ssm_b_norm", sizes["ssm.state_size"])
            w.norm(f"{blk}.ssm_c_norm", sizes["ssm.state_size"])
        w.norm(f"{blk}.ffn_norm", s.hidden)
        if layer % 2:
            routed(w, blk, s, width=s.ffn)
        else:
            dense(w, blk, s)
    kv_heads = [s.kv_heads if here else 0 for here in attends]
    return {"attention.head_count_kv": kv_heads, **mamba_sizes(s), **expert_counts(s)}


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
    w.matrix(f"{blk}.ssm_in", 2 * inner, s.hidden, gain=1.5)
    w.normal(f"{blk}.ssm_conv1d.weight", (inner, CONV_TAPS), std=0.5)
    w.normal(f"{blk}.ssm_conv1d.bias", (inner,), std=0.2)
    w.matrix(f"{blk}.ssm_x", rank + 2 * state, inner, gain=2)
    w.matrix(f"{blk}.ssm_dt", inner, rank)
    w.uniform(f"{blk}.ssm_dt.bias", (inner,), -3, 0.5)
    decay = w.random(f"{blk}.ssm_a").uniform(0.5, 1.5, (inner, state))
    w.put(f"{blk}.ssm_a", -np.arange(1, state + 1) * decay)
    w.normal(f"{blk}.ssm_d", (inner,), mean=1, std=0.2)
    w.matrix(f"{blk}.ssm_out", s.hidden, inner)
