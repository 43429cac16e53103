"""Tensors and metadata of mamba files."""

from __future__ import annotations

import numpy as np

from zinc_rt.golden.tiny_models.parts import (
    CONV_TAPS,
    Metadata,
    Sizes,
    blocks,
    ends,
)
from zinc_rt.golden.tiny_models.weights import RandomWeights


def mamba(s: Sizes, w: RandomWeights) -> Metadata:
    inner, state, rank = 2 * s.hidden, 16, max(1, s.hidden // 16)
    ends(w, s, tied=True)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
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
    return {
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "ssm.conv_kernel": CONV_TAPS,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
        "ssm.dt_b_c_rms": False,
    }
