"""deepseek2: DeepSeek V2, V2-Lite, V3, R1, Kimi-K2. Multi-head latent attention, grouped routing, shared experts.

A file with *_mla keys caches latents and absorbs the key projection into the query; a legacy file expands keys
and values. Facts: llama.cpp src/models/deepseek2.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.dtypes import ACTIVATION
from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import (
    AttentionHeads,
    Experts,
    add_attention,
    add_dense_ffn,
    add_moe_ffn,
    add_rope_constants,
    add_shared_expert,
    write_kv,
)
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import RopeScaling, read_scaling

GATING = {1: "softmax", 2: "sigmoid"}  # LLAMA_EXPERT_GATING_FUNC_TYPE_*


@dataclass(frozen=True, slots=True)
class Mla:
    heads: int
    latent: int
    nope: int
    rope: int
    value_dim: int
    absorbed: bool
    scale: float


def emit(m: ModelBuilder) -> None:
    # The converter stores 0.1 * mscale_all_dim.
    scaling = read_scaling(m.hyper, log_multiplier_unit=0.1)
    mla = _read_mla(m, scaling)
    tables = add_rope_constants(m, mla.rope, scaling=scaling, mla=True)
    dense_layers = m.hyper.read_integer("leading_dense_block_count", 0)
    experts = _read_experts(m)
    shared_width = experts.width * m.hyper.read_integer("expert_shared_count", 0)

    x = m.embed()
    for layer in range(m.layers):
        h = m.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
        y = emit_attention(m, h, layer, mla, tables)
        x = m.add(m.linear(y, f"blk.{layer}.attn_output", m.width, f"attn_out-{layer}"), x, f"ffn_inp-{layer}")
        h = m.norm(x, f"blk.{layer}.ffn_norm.weight", f"ffn_norm-{layer}")
        if layer < dense_layers:
            y = add_dense_ffn(m, h, layer, m.hyper.read_positive("feed_forward_length", layer=layer))
        else:
            y = add_moe_ffn(m, h, layer, experts)
            if shared_width:
                shared = add_shared_expert(m, h, layer, shared_width, gated=False, label="ffn_shexp")
                y = m.add(y, shared, f"ffn_out-{layer}")
        x = m.add(y, x, f"l_out-{layer}")
    m.head(x)


def _read_mla(m: ModelBuilder, scaling: RopeScaling) -> Mla:
    rope = m.hyper.read_positive("rope.dimension_count")
    absorbed = m.hyper.has("attention.key_length_mla") and m.hyper.has("attention.value_length_mla")
    suffix = "_mla" if absorbed else ""
    key = m.hyper.read_positive(f"attention.key_length{suffix}")
    factor = math.log(scaling.factor) if scaling.yarn and scaling.factor > 1 else 0.0
    mscale = scaling.compute_magnitude(mla=True) * (1.0 + 0.1 * scaling.log_multiplier * factor)
    return Mla(
        heads=m.hyper.read_positive("attention.head_count"),
        latent=m.hyper.read_positive("attention.kv_lora_rank"),
        nope=key - rope,
        rope=rope,
        value_dim=m.hyper.read_positive(f"attention.value_length{suffix}"),
        absorbed=absorbed,
        scale=mscale * mscale * key**-0.5,
    )


def _read_experts(m: ModelBuilder) -> Experts:
    gating = m.hyper.read_integer("expert_gating_func", 1) or 1
    if gating not in GATING:
        raise UnsupportedError(
            f"{m.hyper.source}: expert_gating_func {gating} is not supported; supported: {GATING}"
        )
    return Experts(
        count=m.hyper.read_positive("expert_count"),
        used=m.hyper.read_positive("expert_used_count"),
        width=m.hyper.read_positive("expert_feed_forward_length"),
        gating=GATING[gating],
        renormalise=m.hyper.read_boolean("expert_weights_norm", False),
        scale=m.hyper.read_real("expert_weights_scale", 1.0) or 1.0,
        groups=m.hyper.read_integer("expert_group_count", 1) or 1,
        groups_used=m.hyper.read_integer("expert_group_used_count", 1) or 1,
    )


def emit_attention(m: ModelBuilder, h: str, layer: int, mla: Mla, tables: tuple[str, str]) -> str:
    at, query_dim = f"blk.{layer}", mla.nope + mla.rope
    if m.has_weight(f"{at}.attn_q_a.weight"):
        q = m.linear(h, f"{at}.attn_q_a", m.hyper.read_positive("attention.q_lora_rank"), f"q_a-{layer}")
        q = m.norm(q, f"{at}.attn_q_a_norm.weight", f"q_a_normed-{layer}")
        q = m.linear(q, f"{at}.attn_q_b", mla.heads * query_dim, f"q-{layer}")
    else:
        q = m.linear(h, f"{at}.attn_q", mla.heads * query_dim, f"q-{layer}")
    roped = "q_roped" if mla.absorbed else "Qcur"
    q = m.rope(q, tables, f"{roped}-{layer}", head_dim=query_dim, mode="norm", offset=mla.nope)
    low, high = (slice(0, mla.latent),), (slice(mla.latent, mla.latent + mla.rope),)
    both = f"{at}.attn_kv_a_mqa"
    latent = m.linear(h, both, mla.latent, f"kv_cmpr_raw-{layer}", take=low, part=f"{at}.attn_kv_a_latent")
    latent = m.norm(latent, f"{at}.attn_kv_a_norm.weight", f"kv_cmpr-{layer}")
    k_pe = m.linear(h, both, mla.rope, f"k_pe_raw-{layer}", take=high, part=f"{at}.attn_kv_a_pe")
    k_pe = m.rope(k_pe, tables, f"k_pe-{layer}", head_dim=mla.rope, mode="norm")
    return (_attend_absorbed if mla.absorbed else _attend_expanded)(m, q, latent, k_pe, layer, mla)


def _attend_absorbed(m: ModelBuilder, q: str, latent: str, k_pe: str, layer: int, mla: Mla) -> str:
    k_b = m.weight(f"blk.{layer}.attn_k_b.weight", (mla.heads, mla.latent, mla.nope))
    v_b = m.weight(f"blk.{layer}.attn_v_b.weight", (mla.heads, mla.value_dim, mla.latent))
    q = m.value(
        Op.MLA_ABSORB,
        (q, k_b),
        (mla.heads * (mla.latent + mla.rope),),
        f"Qcur-{layer}",
        heads=mla.heads,
        nope=mla.nope,
        rope=mla.rope,
        latent=mla.latent,
    )
    heads = AttentionHeads(mla.heads, 1, mla.latent, mla.rope, mla.scale)
    cache = write_kv(m, latent, k_pe, layer, heads, names=("kv_latent", "kv_pe"))
    return m.value(
        Op.MLA_FLASH_ATTN,
        (q, *cache, m.position, m.slot, m.find_page_table(0), v_b),
        (mla.heads * mla.value_dim,),
        f"kqv_out-{layer}",
        heads=mla.heads,
        latent=mla.latent,
        rope=mla.rope,
        value_dim=mla.value_dim,
        scale=mla.scale,
        page_tokens=m.limits.page_tokens,
    )


def _attend_expanded(m: ModelBuilder, q: str, latent: str, k_pe: str, layer: int, mla: Mla) -> str:
    kv = m.linear(latent, f"blk.{layer}.attn_kv_b", mla.heads * (mla.nope + mla.value_dim), f"kv-{layer}")
    key_dim = mla.nope + mla.rope
    k, v = m.values(
        Op.MLA_EXPAND,
        (kv, k_pe),
        (
            (f"Kcur-{layer}", (mla.heads * key_dim,), ACTIVATION),
            (f"Vcur-{layer}", (mla.heads * mla.value_dim,), ACTIVATION),
        ),
        heads=mla.heads,
        nope=mla.nope,
        rope=mla.rope,
        value_dim=mla.value_dim,
    )
    spec = AttentionHeads(mla.heads, mla.heads, key_dim, mla.value_dim, mla.scale)
    return add_attention(m, q, write_kv(m, k, v, layer, spec), layer, spec)
