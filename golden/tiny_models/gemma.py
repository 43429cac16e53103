"""Tensors and metadata of gemma, gemma2, gemma3 and gemma4 files, gemma4 dense and with experts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zinc_rt.golden.tiny_models.parts import (
    WINDOW,
    Metadata,
    Sizes,
    add_attention,
    add_decoder_layers,
    add_dense_ffn,
    add_embedding_and_output,
    add_experts,
    add_router_rows,
    block_names,
    expert_metadata,
    head_metadata,
)
from zinc_rt.golden.tiny_models.weights import RandomWeights


def gemma(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s, scaled=True)
    add_decoder_layers(w, s)
    return head_metadata(s) | {"rope.freq_base": 10000.0, "rope.dimension_count": s.head_dim}


def gemma2(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s, scaled=True)
    for blk in block_names(s):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        add_attention(w, blk, s)
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        add_dense_ffn(w, blk, s)
        w.add_norm(f"{blk}.post_ffw_norm", s.hidden)
    return head_metadata(s) | {
        "rope.freq_base": 10000.0,
        "attention.sliding_window": s.window or WINDOW,
        "attn_logit_softcapping": 2.0,  # near the scores of random weights
        "final_logit_softcapping": 10.0,
    }


def gemma3(s: Sizes, w: RandomWeights) -> Metadata:
    add_embedding_and_output(w, s, scaled=True)
    for blk in block_names(s):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        add_attention(w, blk, s, head_norms=True)
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        add_dense_ffn(w, blk, s)
        w.add_norm(f"{blk}.post_ffw_norm", s.hidden)
    return head_metadata(s) | {
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 10000.0,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
        "attention.sliding_window": s.window or WINDOW,
    }


def gemma4_metadata(s: Sizes, sliding: list[bool]) -> Metadata:
    narrow = s.head_dim // 2
    return head_metadata(s) | {
        "attention.key_length_swa": narrow,
        "attention.value_length_swa": narrow,
        "rope.dimension_count": s.head_dim,
        "rope.dimension_count_swa": narrow,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 10000.0,
        "attention.sliding_window": s.window or WINDOW,
        "attention.sliding_window_pattern": sliding,
        "final_logit_softcapping": 30.0,
    }


def add_gemma4_rope(w: RandomWeights, s: Sizes) -> None:
    """Add the rope factors: a quarter of the global head's pairs rotate; a factor of 1e30 disables the
    others."""
    pairs = s.head_dim // 2
    w.put("rope_freqs.weight", np.where(np.arange(pairs) < max(1, pairs // 4), 1.0, 1e30))


def gemma4(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a gemma4 model with per-layer embeddings. With 4 or more layers, the last two reuse keys and
    values of the two before them."""
    shared = 2 if s.layers >= 4 else 0
    own = s.layers - shared
    sliding = [layer not in (own - 1, s.layers - 1) for layer in range(s.layers)]
    per_layer = s.hidden // 4
    widths = [s.ffn if layer < own else 2 * s.ffn for layer in range(s.layers)]
    add_embedding_and_output(w, s, scaled=True)
    add_gemma4_rope(w, s)
    w.add_normal("per_layer_token_embd.weight", (s.vocab, per_layer * s.layers), std=1 / per_layer**0.5)
    w.add_normal("per_layer_model_proj.weight", (per_layer * s.layers, s.hidden), std=1.0)
    w.add_norm("per_layer_proj_norm", per_layer)
    for layer, blk in enumerate(block_names(s)):
        layer_sizes = replace(s, head_dim=s.head_dim // 2) if sliding[layer] else s
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        if layer < own:
            add_attention(w, blk, layer_sizes, head_norms=True, gain=1)
        else:
            q_out = s.heads * layer_sizes.head_dim
            w.add_matrix(f"{blk}.attn_q", q_out, s.hidden)
            w.add_matrix(f"{blk}.attn_output", s.hidden, q_out)
            w.add_norm(f"{blk}.attn_q_norm", layer_sizes.head_dim)
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        add_dense_ffn(w, blk, s, width=widths[layer])
        w.add_norm(f"{blk}.post_ffw_norm", s.hidden)
        w.add_matrix(f"{blk}.inp_gate", per_layer, s.hidden)
        w.add_matrix(f"{blk}.proj", s.hidden, per_layer)
        w.add_norm(f"{blk}.post_norm", s.hidden)
        w.add_uniform(f"{blk}.layer_output_scale.weight", (1,), 0.8, 1.05)
    return gemma4_metadata(s, sliding) | {
        "feed_forward_length": widths,
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": per_layer,
    }


def gemma4moe(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a gemma4moe model. The last layer is global: one kv head, and values from the key projection."""
    sliding = [layer != s.layers - 1 for layer in range(s.layers)]
    kv_heads = [s.kv_heads if slides else 1 for slides in sliding]
    add_embedding_and_output(w, s, scaled=True)
    add_gemma4_rope(w, s)
    for layer, blk in enumerate(block_names(s)):
        layer_sizes = replace(
            s, head_dim=s.head_dim // 2 if sliding[layer] else s.head_dim, kv_heads=kv_heads[layer]
        )
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        add_attention(w, blk, layer_sizes, head_norms=True, gain=1, v=sliding[layer])
        w.add_norm(f"{blk}.post_attention_norm", s.hidden)
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        add_dense_ffn(w, blk, s)
        w.add_norm(f"{blk}.post_ffw_norm_1", s.hidden)
        w.add_norm(f"{blk}.pre_ffw_norm_2", s.hidden)
        add_router_rows(w, blk, s, std=3.0)  # its input is divided by sqrt(hidden)
        w.add_uniform(f"{blk}.ffn_gate_inp.scale", (s.hidden,), 0.5, 1.5)
        add_experts(w, blk, s, fused=True)
        w.add_uniform(f"{blk}.ffn_down_exps.scale", (s.experts,), 0.6, 1.5)
        w.add_norm(f"{blk}.post_ffw_norm_2", s.hidden)
        w.add_norm(f"{blk}.post_ffw_norm", s.hidden)
        w.add_uniform(f"{blk}.layer_output_scale.weight", (1,), 0.8, 1.05)
    return (
        gemma4_metadata(s, sliding)
        | expert_metadata(s)
        | {
            "attention.head_count_kv": kv_heads,
            "attention.shared_kv_layers": 0,
            "embedding_length_per_layer_input": 0,
            "expert_feed_forward_length": s.expert_ffn,
        }
    )
