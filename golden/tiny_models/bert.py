"""Tensors and metadata of encoders: bert, nomicbert, and bertrank, a reranker as BGE's."""

from __future__ import annotations

from dataclasses import replace

from zinc_rt.golden.tiny_models.parts import Metadata, Sizes, add_attention, add_dense_ffn, block_names
from zinc_rt.golden.tiny_models.weights import RandomWeights

TOKEN_TYPES = 2


def bert(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a bert model with learned positions, biases, and the first token's hidden state as embedding."""
    _add_embedding(w, s, positions=True)
    for blk in block_names(s):
        add_attention(w, blk, replace(s, kv_heads=s.heads), bias=True)
        _add_bias(w, f"{blk}.attn_output", s.hidden)
        _add_layer_norm(w, f"{blk}.attn_output_norm", s.hidden)
        w.add_matrix(f"{blk}.ffn_up", s.ffn, s.hidden, gain=1.5)
        _add_bias(w, f"{blk}.ffn_up", s.ffn)
        w.add_matrix(f"{blk}.ffn_down", s.hidden, s.ffn)
        _add_bias(w, f"{blk}.ffn_down", s.hidden)
        _add_layer_norm(w, f"{blk}.layer_output_norm", s.hidden)
    return _list_metadata(s, pooling=2)


def bertrank(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a bert model with a classification head: two layers, one score."""
    metadata = bert(s, w)
    w.add_matrix("cls", s.hidden, s.hidden)
    _add_bias(w, "cls", s.hidden)
    w.add_matrix("cls.output", 1, s.hidden, gain=2)
    _add_bias(w, "cls.output", 1)
    return metadata | {"pooling_type": 4}


def nomicbert(s: Sizes, w: RandomWeights) -> Metadata:
    """Return a nomic-bert model: RoPE, merged projections without biases, SwiGLU, mean pooling."""
    _add_embedding(w, s, positions=False)
    for blk in block_names(s):
        w.add_matrix(f"{blk}.attn_qkv", 3 * s.hidden, s.hidden, gain=1.5)
        w.add_matrix(f"{blk}.attn_output", s.hidden, s.hidden)
        _add_layer_norm(w, f"{blk}.attn_output_norm", s.hidden)
        add_dense_ffn(w, blk, s)
        _add_layer_norm(w, f"{blk}.layer_output_norm", s.hidden)
    return _list_metadata(s, pooling=1) | {"rope.freq_base": 1000.0}


def _list_metadata(s: Sizes, *, pooling: int) -> Metadata:
    return {
        "attention.head_count_kv": s.heads,
        "attention.layer_norm_epsilon": 1e-12,
        "attention.causal": False,
        "pooling_type": pooling,
    }


def _add_embedding(w: RandomWeights, s: Sizes, *, positions: bool) -> None:
    w.add_normal("token_embd.weight", (s.vocab, s.hidden), std=1)
    w.add_normal("token_types.weight", (TOKEN_TYPES, s.hidden), std=0.5)
    if positions:
        w.add_normal("position_embd.weight", (s.context, s.hidden), std=0.5)
    _add_layer_norm(w, "token_embd_norm", s.hidden)


def _add_layer_norm(w: RandomWeights, name: str, size: int) -> None:
    w.add_norm(name, size)
    _add_bias(w, name, size)


def _add_bias(w: RandomWeights, name: str, size: int) -> None:
    w.add_normal(f"{name}.bias", (size,), std=0.2)
