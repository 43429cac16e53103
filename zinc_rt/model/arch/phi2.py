"""Phi 2: layer norms, attention and an ungated feed-forward side by side. Facts: llama.cpp src/models/phi2.cpp."""

from __future__ import annotations

from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import add_attention, add_qkv, add_rope_constants, read_heads, write_kv
from zinc_rt.model.builder import ModelBuilder


def emit(m: ModelBuilder) -> None:
    n_rot = m.hyper.read_positive("rope.dimension_count", read_heads(m, 0).head_dim)
    tables = add_rope_constants(m, n_rot)
    x = m.embed()
    for layer in range(m.layers):
        at, heads = f"blk.{layer}", read_heads(m, layer)
        h = m.layer_norm(x, f"{at}.attn_norm", f"attn_norm-{layer}")  # of both branches
        q, k, v = add_qkv(m, h, layer, heads)
        q = m.rope(q, tables, f"Qcur_rope-{layer}", head_dim=heads.head_dim, mode="neox")
        k = m.rope(k, tables, f"Kcur_rope-{layer}", head_dim=heads.head_dim, mode="neox")
        attended = add_attention(m, q, write_kv(m, k, v, layer, heads), layer, heads)
        attended = m.linear(attended, f"{at}.attn_output", m.width, f"attn_out-{layer}")
        width = m.hyper.read_positive("feed_forward_length", layer=layer)
        y = m.linear(h, f"{at}.ffn_up", width, f"ffn_up-{layer}")
        y = m.value(Op.GELU, (y,), (width,), f"ffn_gelu-{layer}")
        y = m.linear(y, f"{at}.ffn_down", m.width, f"ffn_out-{layer}")
        x = m.add(m.add(y, attended, f"branches-{layer}"), x, f"l_out-{layer}")
    m.head(x, layer_norm=True)
