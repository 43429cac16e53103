"""BERT encoders: post-norm layers and, in most files, attention without a causal mask. The result is a hidden
state for every token. Facts: llama.cpp src/models/bert.cpp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.host.errors import InputError
from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import (
    add_attention,
    add_dense_ffn,
    add_qkv,
    add_rope_constants,
    read_heads,
    write_kv,
)
from zinc_rt.model.builder import ModelBuilder


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """The differences between encoders. `rope`: queries and keys are rotated; otherwise each position has a
    learned vector. `gated`: the feed-forward is SwiGLU; otherwise GELU without a gate."""

    rope: bool = False
    gated: bool = False


def make_encoder(spec: EncoderSpec) -> Callable[[ModelBuilder], None]:
    """Return the function that emits a model of that architecture."""

    def emit(m: ModelBuilder) -> None:
        emit_encoder(m, spec)

    return emit


def emit_encoder(m: ModelBuilder, spec: EncoderSpec) -> None:
    """Emit an encoder. Raise InputError for a file without learned positions for the whole context."""
    x = m.add(m.embed(), m.embed_rows(m.token_type, "token_types.weight", "type_embd"), "inp_typed")
    tables = None
    if spec.rope:
        tables = add_rope_constants(m, read_heads(m, 0).head_dim)
    else:
        positions = m.gguf.tensors.get("position_embd.weight")
        if positions is not None and positions.shape[0] < m.limits.ctx:
            raise InputError(
                f"{m.gguf.path}: the file has {positions.shape[0]} learned positions, but the context is "
                f"{m.limits.ctx} tokens",
                next=f"use --ctx {positions.shape[0]}",
            )
        x = m.add(x, m.embed_rows(m.position, "position_embd.weight", "pos_embd"), "inp_positioned")
    x = m.layer_norm(x, "token_embd_norm", "inp_norm")
    for layer in range(m.layers):
        at, heads = f"blk.{layer}", read_heads(m, layer)
        q, k, v = add_qkv(m, x, layer, heads)
        if tables is not None:
            q = m.rope(q, tables, f"Qcur_rope-{layer}", head_dim=heads.head_dim, mode="neox")
            k = m.rope(k, tables, f"Kcur_rope-{layer}", head_dim=heads.head_dim, mode="neox")
        y = add_attention(m, q, write_kv(m, k, v, layer, heads), layer, heads)
        y = m.linear(y, f"{at}.attn_output", m.width, f"attn_out-{layer}")
        x = m.layer_norm(m.add(y, x, f"attn_added-{layer}"), f"{at}.attn_output_norm", f"ffn_inp-{layer}")
        width = m.hyper.read_positive("feed_forward_length", layer=layer)
        if spec.gated:
            y = add_dense_ffn(m, x, layer, width)
        else:
            y = m.linear(x, f"{at}.ffn_up", width, f"ffn_up-{layer}")
            y = m.value(Op.GELU, (y,), (width,), f"ffn_gelu-{layer}")
            y = m.linear(y, f"{at}.ffn_down", m.width, f"ffn_out-{layer}")
        x = m.layer_norm(m.add(y, x, f"ffn_added-{layer}"), f"{at}.layer_output_norm", f"l_out-{layer}")
    m.hidden_head(x)
