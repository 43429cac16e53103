"""qwen2, qwen3, qwen3moe: half-split RoPE, biased projections (2) or per-head query and key norms (3).

Facts: llama.cpp src/models/{qwen2,qwen3,qwen3moe}.cpp.
"""

from __future__ import annotations

from zinc_rt.model.blocks import attend, dense_ffn, moe_ffn, qkv, read_heads, softmax_experts, write_kv
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import read_scaling, rope_tables


def emit(e: ModelBuilder) -> None:
    cos, sin = rope_tables(
        ctx=e.limits.ctx,
        n_rot=e.hyper.positive("rope.dimension_count", read_heads(e, 0).head_dim),
        base=e.hyper.real("rope.freq_base", 10000.0),
        scaling=read_scaling(e.hyper),
    )
    tables = e.constant("rope.cos", cos), e.constant("rope.sin", sin)
    experts = softmax_experts(e) if e.hyper.architecture == "qwen3moe" else None
    head_norms = e.hyper.architecture != "qwen2"

    x = e.embed()
    for layer in range(e.layers):
        spec = read_heads(e, layer)
        h = e.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
        q, k, v = qkv(e, h, layer, spec)
        if head_norms:
            q = e.norm(q, f"blk.{layer}.attn_q_norm.weight", f"Qcur_normed-{layer}", size=spec.head_dim)
            k = e.norm(k, f"blk.{layer}.attn_k_norm.weight", f"Kcur_normed-{layer}", size=spec.head_dim)
        q = e.rope(q, tables, f"Qcur-{layer}", head_dim=spec.head_dim, mode="neox")
        k = e.rope(k, tables, f"Kcur-{layer}", head_dim=spec.head_dim, mode="neox")
        attention = attend(e, q, write_kv(e, k, v, layer), layer, spec)
        attention = e.linear(attention, f"blk.{layer}.attn_output", e.width, f"attn_out-{layer}")
        x = e.add(attention, x, f"ffn_inp-{layer}")
        h = e.norm(x, f"blk.{layer}.ffn_norm.weight", f"ffn_norm-{layer}")
        if experts:
            y = moe_ffn(e, h, layer, experts)
        else:
            y = dense_ffn(e, h, layer, e.hyper.positive("feed_forward_length", layer=layer))
        x = e.add(y, x, f"l_out-{layer}")
    e.head(x)
