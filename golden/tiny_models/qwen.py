"""Tensors and metadata of qwen2, qwen3, both with experts, and the DeltaNet hybrids qwen3next, qwen35 and
qwen35moe."""

from __future__ import annotations

from zinc_rt.golden.tiny_models.parts import (
    CONV_TAPS,
    Metadata,
    Sizes,
    blocks,
    decoder_layers,
    dense,
    ends,
    expert_counts,
    experts,
    routed,
    router,
    wide_heads,
)
from zinc_rt.golden.tiny_models.weights import RandomWeights


def qwen2(s: Sizes, w: RandomWeights) -> Metadata:
    ends(w, s, tied=True)
    decoder_layers(w, s, bias=True)
    return wide_heads(s) | {"rope.freq_base": 1e6}


def qwen2moe(s: Sizes, w: RandomWeights) -> Metadata:
    def feed_forward(w: RandomWeights, blk: str, s: Sizes) -> None:
        routed(w, blk, s)
        shared_expert(w, blk, s)

    ends(w, s)
    decoder_layers(w, s, feed_forward, bias=True)
    widths: Metadata = {
        "expert_feed_forward_length": s.expert_ffn,
        "expert_shared_feed_forward_length": s.expert_ffn,
    }
    return expert_counts(s) | {"rope.freq_base": 1e6} | widths


def shared_expert(w: RandomWeights, blk: str, s: Sizes) -> None:
    """Add a shared expert with its gate."""
    dense(w, blk, s, width=s.expert_ffn, suffix="_shexp")
    w.normal(f"{blk}.ffn_gate_inp_shexp.weight", (s.hidden,), std=2 / s.hidden**0.5)


def qwen3(s: Sizes, w: RandomWeights) -> Metadata:
    ends(w, s)
    decoder_layers(w, s, head_norms=True)
    return wide_heads(s) | {"rope.freq_base": 1e6}


def qwen3moe(s: Sizes, w: RandomWeights) -> Metadata:
    ends(w, s)
    decoder_layers(w, s, routed, head_norms=True)
    return wide_heads(s) | expert_counts(s) | {"rope.freq_base": 1e6, "expert_feed_forward_length": s.expert_ffn}


FULL_ATTENTION_INTERVAL = 4


def delta_net(w: RandomWeights, blk: str, s: Sizes, *, joint_beta_alpha: bool) -> None:
    """Add the tensors of gated DeltaNet, with one width for keys and values."""
    heads, key_heads = s.linear_heads
    inner = heads * delta_width(s)
    channels = inner + 2 * key_heads * delta_width(s)
    w.matrix(f"{blk}.attn_qkv", channels, s.hidden, gain=1.5)
    w.matrix(f"{blk}.attn_gate", inner, s.hidden, gain=1.5)
    w.normal(f"{blk}.ssm_conv1d.weight", (channels, CONV_TAPS), std=0.6)
    w.uniform(f"{blk}.ssm_dt.bias", (heads,), -1, 1)
    w.uniform(f"{blk}.ssm_a", (heads,), -2, -0.1)
    if joint_beta_alpha:
        w.matrix(f"{blk}.ssm_ba", 2 * heads, s.hidden)
    else:
        w.matrix(f"{blk}.ssm_beta", heads, s.hidden)
        w.matrix(f"{blk}.ssm_alpha", heads, s.hidden)
    w.norm(f"{blk}.ssm_norm", delta_width(s))
    w.matrix(f"{blk}.ssm_out", s.hidden, inner)


def delta_width(s: Sizes) -> int:
    return max(8, s.head_dim // 2)


def gated_attention(w: RandomWeights, blk: str, s: Sizes) -> None:
    """Add the tensors of gated attention. Query rows contain [q | gate] per head."""
    w.matrix(f"{blk}.attn_q", 2 * s.heads * s.head_dim, s.hidden, gain=1.5)
    w.matrix(f"{blk}.attn_k", s.kv_heads * s.head_dim, s.hidden, gain=1.5)
    w.matrix(f"{blk}.attn_v", s.kv_heads * s.head_dim, s.hidden)
    w.matrix(f"{blk}.attn_output", s.hidden, s.heads * s.head_dim)
    w.norm(f"{blk}.attn_q_norm", s.head_dim)
    w.norm(f"{blk}.attn_k_norm", s.head_dim)


def hybrid(s: Sizes, w: RandomWeights, *, joint_beta_alpha: bool, moe: bool) -> Metadata:
    ends(w, s)
    for layer, blk in enumerate(blocks(s)):
        w.norm(f"{blk}.attn_norm", s.hidden)
        w.norm(f"{blk}.post_attention_norm", s.hidden)
        if (layer + 1) % FULL_ATTENTION_INTERVAL == 0:
            gated_attention(w, blk, s)
        else:
            delta_net(w, blk, s, joint_beta_alpha=joint_beta_alpha)
        if moe:
            router(w, blk, s)
            experts(w, blk, s, fused=layer % 4 == 1)  # both layouts are in circulation
            shared_expert(w, blk, s)
        else:
            dense(w, blk, s)
    metadata: Metadata = wide_heads(s) | {
        "rope.freq_base": 1e7,
        "rope.dimension_count": rotated(s),
        "ssm.conv_kernel": CONV_TAPS,
        "ssm.inner_size": s.linear_heads[0] * delta_width(s),
        "ssm.state_size": delta_width(s),
        "ssm.time_step_rank": s.linear_heads[0],
        "ssm.group_count": s.linear_heads[1],
        "full_attention_interval": FULL_ATTENTION_INTERVAL,
    }
    if moe:
        metadata |= expert_counts(s) | {
            "expert_feed_forward_length": s.expert_ffn,
            "expert_shared_feed_forward_length": s.expert_ffn,
        }
    return metadata


def rotated(s: Sizes) -> int:
    """Return the rotated width: a quarter of the head."""
    return s.head_dim // 8 * 2


def sections(s: Sizes) -> Metadata:
    """Return the division of rotary pairs among time, height and width, as in real models ([11, 11, 10,
    0])."""
    pairs = rotated(s) // 2
    time = -(-pairs // 3)
    height = -(-(pairs - time) // 2)
    return {"rope.dimension_sections": [time, height, pairs - time - height, 0]}


def qwen3next(s: Sizes, w: RandomWeights) -> Metadata:
    return hybrid(s, w, joint_beta_alpha=True, moe=True)


def qwen35(s: Sizes, w: RandomWeights) -> Metadata:
    return hybrid(s, w, joint_beta_alpha=False, moe=False) | sections(s)


def qwen35moe(s: Sizes, w: RandomWeights) -> Metadata:
    return hybrid(s, w, joint_beta_alpha=False, moe=True) | sections(s)
