"""jamba: Mamba layers with norms of time step, B and C; attention layers without positions; a mixture of experts
in the layers that have a router.

Facts: llama.cpp src/models/jamba.cpp.
"""

from __future__ import annotations

from zinc_rt.host.errors import InputError
from zinc_rt.model.arch.mamba import mixer, read_shape
from zinc_rt.model.blocks import Experts, add_attention, add_dense_ffn, add_moe_ffn, add_qkv, read_heads, write_kv
from zinc_rt.model.builder import ModelBuilder


def emit(m: ModelBuilder) -> None:
    if not m.hyper.is_array("attention.head_count_kv"):
        raise InputError(f"{m.hyper.source}: jamba.attention.head_count_kv must be an array, 0 for a Mamba layer")
    shape = read_shape(m)
    width = m.hyper.read_positive("feed_forward_length")
    x = m.embed()
    for layer in range(m.layers):
        at = f"blk.{layer}"
        h = m.norm(x, f"{at}.attn_norm.weight", f"attn_norm-{layer}")
        if m.hyper.read_integer("attention.head_count_kv", layer=layer):
            y = attention(m, h, layer)
        else:
            y = mixer(m, h, layer, shape, _norm)
        x = m.add(y, x, f"ffn_inp-{layer}")
        h = m.norm(x, f"{at}.ffn_norm.weight", f"ffn_norm-{layer}")
        if m.has_weight(f"{at}.ffn_gate_inp.weight"):
            y = add_moe_ffn(m, h, layer, _experts(m, width))
        else:
            y = add_dense_ffn(m, h, layer, width)
        x = m.add(y, x, f"l_out-{layer}")
    m.head(x)


def attention(m: ModelBuilder, h: str, layer: int) -> str:
    heads = read_heads(m, layer)
    q, k, v = add_qkv(m, h, layer, heads)
    y = add_attention(m, q, write_kv(m, k, v, layer, heads), layer, heads)
    return m.linear(y, f"blk.{layer}.attn_output", m.width, f"attn_out-{layer}")


def _experts(m: ModelBuilder, width: int) -> Experts:
    return Experts(
        count=m.hyper.read_positive("expert_count"),
        used=m.hyper.read_positive("expert_used_count"),
        width=width,
        renormalise=False,
    )


def _norm(m: ModelBuilder, x: str, name: str, layer: int) -> str:
    return m.norm(x, f"blk.{layer}.ssm_{name}_norm.weight", f"{name}_normed-{layer}")
