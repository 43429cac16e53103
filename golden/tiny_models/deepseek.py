"""Tensors and metadata of deepseek2 files, with multi-head latent attention and in V2-Lite's form."""

from __future__ import annotations

from zinc_rt.golden.tiny_models.parts import (
    Metadata,
    Sizes,
    add_dense_ffn,
    add_embedding_and_output,
    add_experts,
    add_router,
    block_names,
    expert_metadata,
)
from zinc_rt.golden.tiny_models.weights import RandomWeights


def build_deepseek2(s: Sizes, w: RandomWeights, *, mla: bool) -> Metadata:
    """Return a deepseek2 model. With `mla`, it has absorbed projections, a low-rank query, and sigmoid routing in
    groups. Otherwise V2-Lite's form.
    """
    rope, nope, value = max(2, s.head_dim // 2), s.head_dim, s.head_dim
    rank, q_rank = s.hidden // 2, s.hidden * 3 // 4
    q_out = s.heads * (nope + rope)
    add_embedding_and_output(w, s)
    for layer, blk in enumerate(block_names(s)):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        if mla:
            w.add_matrix(f"{blk}.attn_q_a", q_rank, s.hidden)
            w.add_norm(f"{blk}.attn_q_a_norm", q_rank)
            w.add_matrix(f"{blk}.attn_q_b", q_out, q_rank, gain=1.5)
        else:
            w.add_matrix(f"{blk}.attn_q", q_out, s.hidden, gain=1.5)
        w.add_matrix(f"{blk}.attn_kv_a_mqa", rank + rope, s.hidden, gain=1.5)
        w.add_norm(f"{blk}.attn_kv_a_norm", rank)
        if mla:
            w.add_normal(f"{blk}.attn_k_b.weight", (s.heads, rank, nope), std=1 / rank**0.5)
            w.add_matrix(f"{blk}.attn_v_b", value, rank, stack=(s.heads,))
        else:
            w.add_matrix(f"{blk}.attn_kv_b", s.heads * (nope + value), rank)
        w.add_matrix(f"{blk}.attn_output", s.hidden, s.heads * value)
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        if layer == 0:
            add_dense_ffn(w, blk, s)
            continue
        add_router(w, blk, s)
        add_experts(w, blk, s)
        if mla:
            w.add_normal(f"{blk}.exp_probs_b.bias", (s.experts,), std=0.1)
        add_dense_ffn(w, blk, s, width=s.expert_ffn, suffix="_shexp")
    metadata: Metadata = expert_metadata(s) | {
        "rope.freq_base": 10000.0,
        "rope.dimension_count": rope,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_log_multiplier": 0.1 if mla else 0.0707,
        "leading_dense_block_count": 1,
        "expert_feed_forward_length": s.expert_ffn,
        "expert_shared_count": 1,
        "attention.kv_lora_rank": rank,
    }
    if mla:
        groups = 4 if s.experts % 4 == 0 and s.experts >= 8 else 1
        return metadata | {
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": q_rank,
            "attention.key_length": rank + rope,
            "attention.value_length": rank,
            "attention.key_length_mla": nope + rope,
            "attention.value_length_mla": value,
            "expert_gating_func": 2,
            "expert_group_count": groups,
            "expert_group_used_count": -(-groups // 2),
            "expert_weights_scale": 2.5,
            "expert_weights_norm": True,
        }
    return metadata | {
        "attention.head_count_kv": s.heads,
        "attention.q_lora_rank": 0,
        "attention.key_length": nope + rope,
        "attention.value_length": value,
        "expert_gating_func": 1,
        "expert_weights_scale": 1.0,
    }


def deepseek2(s: Sizes, w: RandomWeights) -> Metadata:
    return build_deepseek2(s, w, mla=True)


def deepseek2lite(s: Sizes, w: RandomWeights) -> Metadata:
    return build_deepseek2(s, w, mla=False)
