"""llama: Llama 1-3, Mistral 7B, Nemo, Mixtral. Interleaved RoPE; experts where the file has them.

Facts: llama.cpp src/models/llama.cpp.
"""

from __future__ import annotations

from zinc_rt.model.blocks import attend, dense_ffn, moe_ffn, qkv, read_heads, softmax_experts, write_kv
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import read_scaling, rope_tables


def emit(e: ModelBuilder) -> None:
    heads = read_heads(e, 0)
    factors = e.gguf.tensors.get("rope_freqs.weight")
    cos, sin = rope_tables(
        ctx=e.limits.ctx,
        n_rot=e.hyper.positive("rope.dimension_count", heads.head_dim),
        base=e.hyper.real("rope.freq_base", 10000.0),
        scaling=read_scaling(e.hyper),
        factors=None if factors is None else factors.data,
    )
    tables = e.constant("rope.cos", cos), e.constant("rope.sin", sin)
    experts = softmax_experts(e, width_key="feed_forward_length") if e.hyper.integer("expert_count", 0) else None

    x = e.embed()
    for layer in range(e.layers):
        spec = read_heads(e, layer)
        h = e.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
        q, k, v = qkv(e, h, layer, spec)
        q = e.rope(q, tables, f"Qcur-{layer}", head_dim=spec.head_dim, mode="norm")
        k = e.rope(k, tables, f"Kcur-{layer}", head_dim=spec.head_dim, mode="norm")
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
