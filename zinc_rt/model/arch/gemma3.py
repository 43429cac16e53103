"""gemma3: four norms a block, GeGLU, sliding-window layers with a RoPE base of their own.

Facts: llama.cpp src/models/gemma3.cpp.
"""

from __future__ import annotations

from dataclasses import replace

from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import attend, dense_ffn, qkv, read_heads, write_kv
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import read_scaling, rope_tables

LAYERS_27B = 62  # the one size whose query scale is 1 / sqrt(width / heads)


def emit(e: ModelBuilder) -> None:
    n_rot = e.hyper.positive("rope.dimension_count", read_heads(e, 0).head_dim)
    wide = rope_tables(
        ctx=e.limits.ctx,
        n_rot=n_rot,
        base=e.hyper.real("rope.freq_base", 10000.0),
        scaling=read_scaling(e.hyper),
    )
    near = rope_tables(ctx=e.limits.ctx, n_rot=n_rot, base=e.hyper.real("rope.freq_base_swa", 10000.0))
    tables_global = e.constant("rope.cos", wide[0]), e.constant("rope.sin", wide[1])
    tables_sliding = e.constant("rope_swa.cos", near[0]), e.constant("rope_swa.sin", near[1])
    window = e.hyper.integer("attention.sliding_window", 0)

    x = e.scale(e.embed(), e.width**0.5, "inp_scaled")
    for layer in range(e.layers):
        at, spec = f"blk.{layer}", read_heads(e, layer)
        if e.layers == LAYERS_27B:
            spec = replace(spec, scale=(e.width / spec.heads) ** -0.5)
        sliding = window > 0 and is_sliding(e, layer)
        if sliding:
            spec = replace(spec, window=window)
        tables = tables_sliding if sliding else tables_global
        h = e.norm(x, f"{at}.attn_norm.weight", f"attn_norm-{layer}")
        q, k, v = qkv(e, h, layer, spec)
        q = e.norm(q, f"{at}.attn_q_norm.weight", f"Qcur_normed-{layer}", size=spec.head_dim)
        k = e.norm(k, f"{at}.attn_k_norm.weight", f"Kcur_normed-{layer}", size=spec.head_dim)
        q = e.rope(q, tables, f"Qcur_pos-{layer}", head_dim=spec.head_dim, mode="neox")
        k = e.rope(k, tables, f"Kcur_pos-{layer}", head_dim=spec.head_dim, mode="neox")
        y = attend(e, q, write_kv(e, k, v, layer), layer, spec)
        y = e.linear(y, f"{at}.attn_output", e.width, f"attn_proj-{layer}")
        y = e.norm(y, f"{at}.post_attention_norm.weight", f"attn_post_norm-{layer}")
        x = e.add(y, x, f"sa_out-{layer}")
        h = e.norm(x, f"{at}.ffn_norm.weight", f"ffn_norm-{layer}")
        y = dense_ffn(e, h, layer, e.hyper.positive("feed_forward_length", layer=layer), activation=Op.GEGLU)
        y = e.norm(y, f"{at}.post_ffw_norm.weight", f"ffn_post_norm-{layer}")
        x = e.add(y, x, f"l_out-{layer}")
    e.head(x, softcap=e.hyper.real("final_logit_softcapping", 0.0))


def is_sliding(e: ModelBuilder, layer: int) -> bool:
    """The pattern key is an array of flags, or a period whose last layer is global."""
    if e.hyper.is_array("attention.sliding_window_pattern"):
        return bool(e.hyper.integer("attention.sliding_window_pattern", layer=layer))
    period = e.hyper.positive("attention.sliding_window_pattern", 6)
    return layer % period < period - 1
