"""deepseek2: DeepSeek V2, V2-Lite, V3, R1, Kimi-K2. Multi-head latent attention, grouped routing, shared experts.

A file with *_mla keys caches latents and absorbs the key projection into the query; a legacy file expands keys
and values. Facts: llama.cpp src/models/deepseek2.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from zinc_rt.errors import UnsupportedError
from zinc_rt.ir.dtypes import ACTIVATION
from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import AttentionHeads, Experts, attend, dense_ffn, moe_ffn, shared_expert, write_kv
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import RopeScaling, read_scaling, rope_tables

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


def emit(e: ModelBuilder) -> None:
    # The converter stores 0.1 * mscale_all_dim.
    scaling = read_scaling(e.hyper, log_multiplier_unit=0.1)
    mla = _read_mla(e, scaling)
    cos, sin = rope_tables(
        ctx=e.limits.ctx,
        n_rot=mla.rope,
        base=e.hyper.real("rope.freq_base", 10000.0),
        scaling=scaling,
        mla=True,
    )
    tables = e.constant("rope.cos", cos), e.constant("rope.sin", sin)
    dense_layers = e.hyper.integer("leading_dense_block_count", 0)
    experts = _read_experts(e)
    shared_width = experts.width * e.hyper.integer("expert_shared_count", 0)

    x = e.embed()
    for layer in range(e.layers):
        h = e.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
        y = attention(e, h, layer, mla, tables)
        x = e.add(e.linear(y, f"blk.{layer}.attn_output", e.width, f"attn_out-{layer}"), x, f"ffn_inp-{layer}")
        h = e.norm(x, f"blk.{layer}.ffn_norm.weight", f"ffn_norm-{layer}")
        if layer < dense_layers:
            y = dense_ffn(e, h, layer, e.hyper.positive("feed_forward_length", layer=layer))
        else:
            y = moe_ffn(e, h, layer, experts)
            if shared_width:
                shared = shared_expert(e, h, layer, shared_width, gated=False, label="ffn_shexp")
                y = e.add(y, shared, f"ffn_out-{layer}")
        x = e.add(y, x, f"l_out-{layer}")
    e.head(x)


def _read_mla(e: ModelBuilder, scaling: RopeScaling) -> Mla:
    rope = e.hyper.positive("rope.dimension_count")
    absorbed = e.hyper.has("attention.key_length_mla") and e.hyper.has("attention.value_length_mla")
    suffix = "_mla" if absorbed else ""
    key = e.hyper.positive(f"attention.key_length{suffix}")
    factor = math.log(scaling.factor) if scaling.yarn and scaling.factor > 1 else 0.0
    mscale = scaling.magnitude(mla=True) * (1.0 + 0.1 * scaling.log_multiplier * factor)
    return Mla(
        heads=e.hyper.positive("attention.head_count"),
        latent=e.hyper.positive("attention.kv_lora_rank"),
        nope=key - rope,
        rope=rope,
        value_dim=e.hyper.positive(f"attention.value_length{suffix}"),
        absorbed=absorbed,
        scale=mscale * mscale * key**-0.5,
    )


def _read_experts(e: ModelBuilder) -> Experts:
    gating = e.hyper.integer("expert_gating_func", 1) or 1
    if gating not in GATING:
        raise UnsupportedError(f"{e.hyper.source}: expert_gating_func {gating}; built: {GATING}")
    return Experts(
        count=e.hyper.positive("expert_count"),
        used=e.hyper.positive("expert_used_count"),
        width=e.hyper.positive("expert_feed_forward_length"),
        gating=GATING[gating],
        renormalise=e.hyper.boolean("expert_weights_norm", False),
        scale=e.hyper.real("expert_weights_scale", 1.0) or 1.0,
        groups=e.hyper.integer("expert_group_count", 1) or 1,
        groups_used=e.hyper.integer("expert_group_used_count", 1) or 1,
    )


def attention(e: ModelBuilder, h: str, layer: int, mla: Mla, tables: tuple[str, str]) -> str:
    at, query_dim = f"blk.{layer}", mla.nope + mla.rope
    if e.has_weight(f"{at}.attn_q_a.weight"):
        q = e.linear(h, f"{at}.attn_q_a", e.hyper.positive("attention.q_lora_rank"), f"q_a-{layer}")
        q = e.norm(q, f"{at}.attn_q_a_norm.weight", f"q_a_normed-{layer}")
        q = e.linear(q, f"{at}.attn_q_b", mla.heads * query_dim, f"q-{layer}")
    else:
        q = e.linear(h, f"{at}.attn_q", mla.heads * query_dim, f"q-{layer}")
    roped = "q_roped" if mla.absorbed else "Qcur"
    q = e.rope(q, tables, f"{roped}-{layer}", head_dim=query_dim, mode="norm", offset=mla.nope)
    low, high = (slice(0, mla.latent),), (slice(mla.latent, mla.latent + mla.rope),)
    both = f"{at}.attn_kv_a_mqa"
    latent = e.linear(h, both, mla.latent, f"kv_cmpr_raw-{layer}", take=low, part=f"{at}.attn_kv_a_latent")
    latent = e.norm(latent, f"{at}.attn_kv_a_norm.weight", f"kv_cmpr-{layer}")
    k_pe = e.linear(h, both, mla.rope, f"k_pe_raw-{layer}", take=high, part=f"{at}.attn_kv_a_pe")
    k_pe = e.rope(k_pe, tables, f"k_pe-{layer}", head_dim=mla.rope, mode="norm")
    return (_absorbed if mla.absorbed else _expanded)(e, q, latent, k_pe, layer, mla)


def _absorbed(e: ModelBuilder, q: str, latent: str, k_pe: str, layer: int, mla: Mla) -> str:
    k_b = e.weight(f"blk.{layer}.attn_k_b.weight", (mla.heads, mla.latent, mla.nope))
    v_b = e.weight(f"blk.{layer}.attn_v_b.weight", (mla.heads, mla.value_dim, mla.latent))
    q = e.value(
        Op.MLA_ABSORB,
        (q, k_b),
        (mla.heads * (mla.latent + mla.rope),),
        f"Qcur-{layer}",
        heads=mla.heads,
        nope=mla.nope,
        rope=mla.rope,
        latent=mla.latent,
    )
    cache = write_kv(e, latent, k_pe, layer, names=("kv_latent", "kv_pe"))
    return e.value(
        Op.MLA_FLASH_ATTN,
        (q, *cache, e.position, e.slot, e.page_table, v_b),
        (mla.heads * mla.value_dim,),
        f"kqv_out-{layer}",
        heads=mla.heads,
        latent=mla.latent,
        rope=mla.rope,
        value_dim=mla.value_dim,
        scale=mla.scale,
        page_tokens=e.limits.page_tokens,
    )


def _expanded(e: ModelBuilder, q: str, latent: str, k_pe: str, layer: int, mla: Mla) -> str:
    kv = e.linear(latent, f"blk.{layer}.attn_kv_b", mla.heads * (mla.nope + mla.value_dim), f"kv-{layer}")
    key_dim = mla.nope + mla.rope
    k, v = e.values(
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
    return attend(e, q, write_kv(e, k, v, layer), layer, spec)
