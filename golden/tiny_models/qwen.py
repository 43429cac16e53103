"""Tensors and metadata of qwen2, qwen3, both with experts, and the DeltaNet hybrids qwen3next, qwen35 and
qwen35moe."""

from __future__ import annotations

from zinc_rt.golden.tiny_models.parts import (
    CONV_TAPS,
    Metadata,
    Sizes,
    add_decoder_layers,
    add_dense_ffn,
    add_embedding_and_output,
    add_experts,
    add_mixture,
    add_router,
    block_names,
    expert_metadata,
    head_metadata,
)
from zinc_rt.golden.tiny_models.weights import RandomWeights


def qwen2(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s, tied=True)
    add_decoder_layers(w, s, bias=True)
    return head_metadata(s) | {"rope.freq_base": 1e6}


def qwen2moe(s: Sizes, w: RandomWeights) -> Metadata:
    def feed_forward(w: RandomWeights, blk: str, s: Sizes) -> None:
        add_mixture(w, blk, s)
        shared_expert(w, blk, s)

    add_embedding_and_output(w, s)
    add_decoder_layers(w, s, feed_forward, bias=True)
    widths: Metadata = {
        "expert_feed_forward_length": s.expert_ffn,
        "expert_shared_feed_forward_length": s.expert_ffn,
    }
    return expert_metadata(s) | {"rope.freq_base": 1e6} | widths


def shared_expert(w: RandomWeights, blk: str, s: Sizes) -> None:
    """Add a shared expert with its gate."""
    add_dense_ffn(w, blk, s, width=s.expert_ffn, suffix="_shexp")
    w.add_normal(f"{blk}.ffn_gate_inp_shexp.weight", (s.hidden,), std=2 / s.hidden**0.5)


def qwen3(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s)
    add_decoder_layers(w, s, head_norms=True)
    return head_metadata(s) | {"rope.freq_base": 1e6}


def qwen3rank(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a qwen3 model with the head of Qwen3-Reranker: the rows of "yes" and "no" of the output matrix."""
    metadata = qwen3(s, w)
    w.add_matrix("cls.output", 2, s.hidden, gain=2)
    return metadata | {"pooling_type": 4, "classifier.output_labels": ["yes", "no"]}


def qwen3moe(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s)
    add_decoder_layers(w, s, add_mixture, head_norms=True)
    return (
        head_metadata(s) | expert_metadata(s) | {"rope.freq_base": 1e6, "expert_feed_forward_length": s.expert_ffn}
    )


FULL_ATTENTION_INTERVAL = 4


def add_delta_net(w: RandomWeights, blk: str, s: Sizes, *, joint_beta_alpha: bool) -> None:
    """Add the tensors of gated DeltaNet, with one width for keys and values."""
    heads, key_heads = s.linear_heads
    inner = heads * choose_delta_width(s)
    channels = inner + 2 * key_heads * choose_delta_width(s)
    w.add_matrix(f"{blk}.attn_qkv", channels, s.hidden, gain=1.5)
    w.add_matrix(f"{blk}.attn_gate", inner, s.hidden, gain=1.5)
    w.add_normal(f"{blk}.ssm_conv1d.weight", (channels, CONV_TAPS), std=0.6)
    w.add_uniform(f"{blk}.ssm_dt.bias", (heads,), -1, 1)
    w.add_uniform(f"{blk}.ssm_a", (heads,), -2, -0.1)
    if joint_beta_alpha:
        w.add_matrix(f"{blk}.ssm_ba", 2 * heads, s.hidden)
    else:
        w.add_matrix(f"{blk}.ssm_beta", heads, s.hidden)
        w.add_matrix(f"{blk}.ssm_alpha", heads, s.hidden)
    w.add_norm(f"{blk}.ssm_norm", choose_delta_width(s))
    w.add_matrix(f"{blk}.ssm_out", s.hidden, inner)


def choose_delta_width(s: Sizes) -> int:
    return max(8, s.head_dim // 2)


def add_gated_attention(w: RandomWeights, blk: str, s: Sizes) -> None:
    """Add the tensors of gated attention. Query rows contain [q | gate] per head."""
    w.add_matrix(f"{blk}.attn_q", 2 * s.heads * s.head_dim, s.hidden, gain=1.5)
    w.add_matrix(f"{blk}.attn_k", s.kv_heads * s.head_dim, s.hidden, gain=1.5)
    w.add_matrix(f"{blk}.attn_v", s.kv_heads * s.head_dim, s.hidden)
    w.add_matrix(f"{blk}.attn_output", s.hidden, s.heads * s.head_dim)
    w.add_norm(f"{blk}.attn_q_norm", s.head_dim)
    w.add_norm(f"{blk}.attn_k_norm", s.head_dim)


def build_hybrid(s: Sizes, w: RandomWeights, *, joint_beta_alpha: bool, moe: bool) -> Metadata:
    add_embedding_and_output(w, s)
    for layer, blk in enumerate(block_names(s)):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        if (layer + 1) % FULL_ATTENTION_INTERVAL == 0:
            add_gated_attention(w, blk, s)
        else:
            add_delta_net(w, blk, s, joint_beta_alpha=joint_beta_alpha)
        add_hybrid_feed_forward(w, blk, s, layer, moe=moe)
    metadata: Metadata = head_metadata(s)
    if s.mtp:
        metadata |= {"block_count": s.layers + s.mtp, "nextn_predict_layers": s.mtp}
    for layer in range(s.layers, s.layers + (s.mtp or 0)):
        blk = f"blk.{layer}"
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        add_gated_attention(w, blk, s)
        add_hybrid_feed_forward(w, blk, s, layer, moe=moe)
        w.add_matrix(f"{blk}.nextn.eh_proj", s.hidden, 2 * s.hidden)
        for name in ("enorm", "hnorm", "shared_head_norm"):
            w.add_norm(f"{blk}.nextn.{name}", s.hidden)
    metadata |= {
        "rope.freq_base": 1e7,
        "rope.dimension_count": count_rotated(s),
        "ssm.conv_kernel": CONV_TAPS,
        "ssm.inner_size": s.linear_heads[0] * choose_delta_width(s),
        "ssm.state_size": choose_delta_width(s),
        "ssm.time_step_rank": s.linear_heads[0],
        "ssm.group_count": s.linear_heads[1],
        "full_attention_interval": FULL_ATTENTION_INTERVAL,
    }
    if moe:
        metadata |= expert_metadata(s) | {
            "expert_feed_forward_length": s.expert_ffn,
            "expert_shared_feed_forward_length": s.expert_ffn,
        }
    return metadata


def add_hybrid_feed_forward(w: RandomWeights, blk: str, s: Sizes, layer: int, *, moe: bool) -> None:
    if moe:
        add_router(w, blk, s)
        add_experts(w, blk, s, fused=layer % 4 == 1)  # both layouts are in circulation
        shared_expert(w, blk, s)
    else:
        add_dense_ffn(w, blk, s)


def count_rotated(s: Sizes) -> int:
    """Return the rotated width: a quarter of the head."""
    return s.head_dim // 8 * 2


def rope_sections(s: Sizes) -> Metadata:
    """Return the division of rotary pairs among time, height and width, as in real models ([11, 11, 10,
    0])."""
    pairs = count_rotated(s) // 2
    time = -(-pairs // 3)
    height = -(-(pairs - time) // 2)
    return {"rope.dimension_sections": [time, height, pairs - time - height, 0]}


def qwen3next(s: Sizes, w: RandomWeights) -> Metadata:
    return build_hybrid(s, w, joint_beta_alpha=True, moe=True)


def qwen35(s: Sizes, w: RandomWeights) -> Metadata:
    return build_hybrid(s, w, joint_beta_alpha=False, moe=False) | rope_sections(s)


def qwen35moe(s: Sizes, w: RandomWeights) -> Metadata:
    return build_hybrid(s, w, joint_beta_alpha=False, moe=True) | rope_sections(s)
