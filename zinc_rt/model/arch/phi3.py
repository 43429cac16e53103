"""phi3: Phi 3, 3.5, 4. Merged projections, partial half-split RoPE, long and short frequency factors.

Facts: llama.cpp src/models/phi3.cpp.
"""

from __future__ import annotations

from zinc_rt.errors import InputError
from zinc_rt.model.blocks import attend, dense_ffn, qkv, read_heads, write_kv
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import read_scaling, rope_tables


def emit(e: ModelBuilder) -> None:
    scaling = read_scaling(e.hyper)
    n_rot = e.hyper.positive("rope.dimension_count", read_heads(e, 0).head_dim)
    # By the size of the context asked for, not by the position reached.
    which = "long" if e.limits.ctx > scaling.original_context else "short"
    factors = e.gguf.tensors.get(f"rope_factors_{which}.weight")
    if factors is not None and factors.shape != (n_rot // 2,):
        raise InputError(f"{e.hyper.source}: {factors.name} has shape {factors.shape}, wanted ({n_rot // 2},)")
    cos, sin = rope_tables(
        ctx=e.limits.ctx,
        n_rot=n_rot,
        base=e.hyper.real("rope.freq_base", 10000.0),
        scaling=scaling,
        factors=None if factors is None else factors.data,
    )
    tables = e.constant("rope.cos", cos), e.constant("rope.sin", sin)

    x = e.embed()
    for layer in range(e.layers):
        spec = read_heads(e, layer)
        h = e.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
        q, k, v = qkv(e, h, layer, spec)
        q = e.rope(q, tables, f"Qcur-{layer}", head_dim=spec.head_dim, mode="neox")
        k = e.rope(k, tables, f"Kcur-{layer}", head_dim=spec.head_dim, mode="neox")
        y = attend(e, q, write_kv(e, k, v, layer), layer, spec)
        y = e.linear(y, f"blk.{layer}.attn_output", e.width, f"attn_out-{layer}")
        x = e.add(y, x, f"ffn_inp-{layer}")
        h = e.norm(x, f"blk.{layer}.ffn_norm.weight", f"ffn_norm-{layer}")
        y = dense_ffn(e, h, layer, e.hyper.positive("feed_forward_length", layer=layer))
        x = e.add(y, x, f"l_out-{layer}")
    e.head(x)
