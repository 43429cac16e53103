"""mistral3: Ministral 3. llama with YaRN (betas from the file) and a query temperature that grows with position.

Facts: llama.cpp src/models/mistral3.cpp.
"""

from __future__ import annotations

import numpy as np

from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import attend, dense_ffn, moe_ffn, qkv, read_heads, softmax_experts, write_kv
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import read_scaling, rope_tables


def emit(e: ModelBuilder) -> None:
    scaling = read_scaling(e.hyper, betas=True)
    cos, sin = rope_tables(
        ctx=e.limits.ctx,
        n_rot=e.hyper.positive("rope.dimension_count", read_heads(e, 0).head_dim),
        base=e.hyper.real("rope.freq_base", 10000.0),
        scaling=scaling,
    )
    tables = e.constant("rope.cos", cos), e.constant("rope.sin", sin)
    growth = e.hyper.real("attention.temperature_scale", 0.0)
    steps = np.floor(np.arange(e.limits.ctx, dtype=np.float64) / scaling.original_context) + 1.0
    temperature = e.constant("attention.temperature", (1.0 + growth * np.log(steps)).astype(np.float32))
    experts = softmax_experts(e, width_key="feed_forward_length") if e.hyper.integer("expert_count", 0) else None

    x = e.embed()
    for layer in range(e.layers):
        spec = read_heads(e, layer)
        h = e.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
        q, k, v = qkv(e, h, layer, spec)
        q = e.rope(q, tables, f"Qcur-{layer}", head_dim=spec.head_dim, mode="norm")
        k = e.rope(k, tables, f"Kcur-{layer}", head_dim=spec.head_dim, mode="norm")
        if growth:
            q = e.value(
                Op.ROW_SCALE, (q, e.position, temperature), e.shape(q)[1:], f"Qcur_attn_temp_scaled-{layer}"
            )
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
