"""Building blocks shared by several architectures: RoPE, attention over the paged cache, feed-forwards,
experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.ir.dtypes import ACTIVATION, INDEX
from zinc_rt.ir.graph import ABSENT
from zinc_rt.ir.op import Op
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import RopeScaling, make_rope_tables


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """Attention geometry of one layer."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    scale: float
    window: int = 0
    cap: float = 0.0  # bound of the scores; 0: none
    sinks: bool = False  # the file has a logit of each head that takes part in the softmax


def read_heads(m: ModelBuilder, layer: int) -> AttentionHeads:
    """Read the usual keys: head_count, head_count_kv, key_length, value_length; scale 1 / sqrt(head_dim)."""
    heads = m.hyper.read_positive("attention.head_count", layer=layer)
    head_dim = m.hyper.read_positive("attention.key_length", m.width // heads)
    return AttentionHeads(
        heads=heads,
        kv_heads=m.hyper.read_positive("attention.head_count_kv", heads, layer=layer),
        head_dim=head_dim,
        value_dim=m.hyper.read_positive("attention.value_length", head_dim),
        scale=head_dim**-0.5,
    )


def find_frequency_factors(m: ModelBuilder, name: str, n_rot: int) -> np.ndarray | None:
    """Return the tensor that divides RoPE's frequencies, f32 [n_rot // 2]; None if the file has none of that
    name.
    """
    m.mark_read(name)
    tensor = m.gguf.tensors.get(name)
    if tensor is None:
        return None
    if tensor.shape != (n_rot // 2,):
        raise InputError(f"{m.hyper.source}: {name} has shape {tensor.shape}, expected ({n_rot // 2},)")
    return tensor.data


def add_rope_constants(
    m: ModelBuilder,
    n_rot: int,
    *,
    suffix: str = "",
    own_base: bool = True,
    scaling: RopeScaling | None = None,
    factors: np.ndarray | None = None,
    sections: list[int] | None = None,
    mla: bool = False,
) -> tuple[str, str]:
    """Add the cosines and sines of every position, with the base from the file's key, with `suffix` if it is a
    separate one (`own_base`); see rope_tables."""
    cos, sin = make_rope_tables(
        ctx=m.limits.ctx,
        n_rot=n_rot,
        base=m.hyper.read_real(f"rope.freq_base{suffix if own_base else ''}", 10000.0),
        scaling=scaling,
        factors=factors,
        sections=sections,
        mla=mla,
    )
    return m.constant(f"rope{suffix}.cos", cos), m.constant(f"rope{suffix}.sin", sin)


def add_qkv(m: ModelBuilder, h: str, layer: int, spec: AttentionHeads) -> tuple[str, str, str]:
    """Add query, key and value projections, from three tensors or one merged attn_qkv."""
    at = f"blk.{layer}"
    sizes = {
        "q": spec.heads * spec.head_dim,
        "k": spec.kv_heads * spec.head_dim,
        "v": spec.kv_heads * spec.value_dim,
    }
    merged = m.has_weight(f"{at}.attn_qkv.weight")
    results, start = [], 0
    for which, size in sizes.items():
        label, alone = f"{which.upper()}cur-{layer}", f"{at}.attn_{which}"
        if merged:
            rows = (slice(start, start + size),)
            results.append(m.linear(h, f"{at}.attn_qkv", size, label, take=rows, part=alone))
        else:
            results.append(m.linear(h, alone, size, label))
        start += size
    return results[0], results[1], results[2]


def write_kv(
    m: ModelBuilder,
    k: str,
    v: str,
    layer: int,
    spec: AttentionHeads,
    *,
    names: tuple[str, str] = ("kv_k", "kv_v"),
) -> tuple[str, str]:
    """Write this step's keys and values to layer `layer`'s cache, and add a barrier before its readers."""
    window = spec.window
    rows = m.limits.group_pages(m.find_page_group(window), window) * m.limits.page_tokens
    cache_k, cache_v = (
        m.cache(name, layer, rows, m.shape(value)[-1], head_dim=dim)
        for name, value, dim in zip(names, (k, v), (spec.head_dim, spec.value_dim), strict=True)
    )
    m.node(
        Op.KV_WRITE_BATCHED,
        (k, v, m.position, m.slot, m.find_page_table(window), cache_k, cache_v),
        (cache_k, cache_v),
        f"kv_write-{layer}",
        page_tokens=m.limits.page_tokens,
    )
    m.barrier(cache_k, cache_v, layer=layer)
    return cache_k, cache_v


def add_attention(
    m: ModelBuilder, q: str, cache: tuple[str, str], layer: int, spec: AttentionHeads, label: str = "kqv_out"
) -> str:
    gate = (ABSENT,) if m.stage == "decode" else ()
    sinks = (*gate, m.weight(f"blk.{layer}.attn_sinks.weight", (spec.heads,))) if spec.sinks else ()
    bound: dict[str, Any] = {"cap": spec.cap} if spec.cap else {}
    return m.value(
        Op.FLASH_ATTN if m.stage == "decode" else Op.FLASH_ATTN_BATCHED,
        (q, *cache, m.last_seen_position, m.slot, m.find_page_table(spec.window), *sinks),
        (spec.heads * spec.value_dim,),
        f"{label}-{layer}",
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        value_dim=spec.value_dim,
        scale=spec.scale,
        window=spec.window,
        page_tokens=m.limits.page_tokens,
        **bound,
    )


def add_dense_ffn(
    m: ModelBuilder, h: str, layer: int, width: int, *, activation: Op = Op.SWIGLU, label: str = "ffn_out"
) -> str:
    """Emit down(activation(gate h) * up h). A file without ffn_gate has [gate | up] merged in ffn_up."""
    at = f"blk.{layer}"
    if m.has_weight(f"{at}.ffn_gate.weight"):
        gate = m.linear(h, f"{at}.ffn_gate", width, f"ffn_gate-{layer}")
        up = m.linear(h, f"{at}.ffn_up", width, f"ffn_up-{layer}")
    else:
        halves = (slice(0, width),), (slice(width, 2 * width),)
        gate = m.linear(h, f"{at}.ffn_up", width, f"ffn_gate-{layer}", take=halves[0], part=f"{at}.ffn_gate")
        up = m.linear(h, f"{at}.ffn_up", width, f"ffn_up-{layer}", take=halves[1], part=f"{at}.ffn_up")
    name = "ffn_swiglu" if activation is Op.SWIGLU else "ffn_geglu"
    y = m.value(activation, (gate, up), (width,), f"{name}-{layer}")
    return m.linear(y, f"{at}.ffn_down", m.width, f"{label}-{layer}")


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts as described by the metadata."""

    count: int
    used: int
    width: int
    gating: str = "softmax"
    renormalise: bool = True
    scale: float = 1.0
    groups: int = 1
    groups_used: int = 1
    activation: str = "silu"
    biases: bool = False  # of the router and of all projections


def add_router(m: ModelBuilder, h: str, layer: int, experts: Experts) -> tuple[str, str]:
    """Emit the router. Return the ids and weights of the selected experts."""
    gate = m.weight(f"blk.{layer}.ffn_gate_inp.weight", (experts.count, m.width))
    bias = m.weight(f"blk.{layer}.ffn_gate_inp.bias", (experts.count,)) if experts.biases else ABSENT
    select_bias = m.weight(f"blk.{layer}.exp_probs_b.bias", (experts.count,), optional=True)
    _, ids, weights = m.values(
        Op.MOE_GATE_TOPK,
        (h, gate, select_bias, *[ABSENT] * 5, bias),
        (
            (f"ffn_moe_logits-{layer}", (experts.count,), ACTIVATION),
            (f"ffn_moe_topk-{layer}", (experts.used,), INDEX),
            (f"{_find_weights_label(experts)}-{layer}", (experts.used,), ACTIVATION),
        ),
        k=experts.used,
        gating=experts.gating,
        renormalise=experts.renormalise,
        scale=experts.scale,
        groups=experts.groups,
        groups_used=experts.groups_used,
    )
    return ids, weights


def _find_weights_label(experts: Experts) -> str:
    """Return llama.cpp's name for the weights after their last processing step."""
    if experts.scale not in (0.0, 1.0):
        return "ffn_moe_weights_scaled"
    return "ffn_moe_weights_norm" if experts.renormalise else "ffn_moe_weights"


def add_experts(
    m: ModelBuilder, h: str, ids: str, weights: str, layer: int, experts: Experts, *, label: str = "ffn_moe_out"
) -> str:
    """Emit the weighted sum of the selected experts' outputs. A merged ffn_gate_up_exps has rows [gate | up]."""
    at, f, n = f"blk.{layer}", experts.width, experts.count
    if m.has_weight(f"{at}.ffn_gate_up_exps.weight"):
        merged, all_experts = f"{at}.ffn_gate_up_exps.weight", slice(None)
        gate_w = m.weight(
            merged, (n, f, m.width), take=(all_experts, slice(0, f)), part=f"{at}.ffn_gate_exps.weight"
        )
        up_w = m.weight(
            merged, (n, f, m.width), take=(all_experts, slice(f, 2 * f)), part=f"{at}.ffn_up_exps.weight"
        )
    else:
        gate_w = m.weight(f"{at}.ffn_gate_exps.weight", (n, f, m.width))
        up_w = m.weight(f"{at}.ffn_up_exps.weight", (n, f, m.width))
    gate_scale, up_scale = (
        m.weight(f"{at}.ffn_{which}_exps.scale", (n,), optional=True) for which in ("gate", "up")
    )
    gate_bias, up_bias, down_bias = (
        m.weight(f"{at}.ffn_{which}_exps.bias", (n, rows)) if experts.biases else ABSENT
        for which, rows in (("gate", f), ("up", f), ("down", m.width))
    )
    gate, up = m.values(
        Op.MOE_GATE_UP,
        (h, gate_w, up_w, ids, gate_scale, up_scale, ABSENT, gate_bias, up_bias),
        (
            (f"ffn_moe_gate-{layer}", (experts.used, f), ACTIVATION),
            (f"ffn_moe_up-{layer}", (experts.used, f), ACTIVATION),
        ),
    )
    name = "ffn_moe_geglu" if experts.activation == "gelu" else "ffn_moe_swiglu"
    y = m.value(Op.MOE_SWIGLU, (gate, up), (experts.used, f), f"{name}-{layer}", activation=experts.activation)
    down_w = m.weight(f"{at}.ffn_down_exps.weight", (n, m.width, f))
    down_scale = m.weight(f"{at}.ffn_down_exps.scale", (n,), optional=True)
    operands = (y, down_w, ids, weights, down_scale, ABSENT, ABSENT, down_bias)
    return m.value(Op.MOE_DOWN_ACC, operands, (m.width,), f"{label}-{layer}")


def add_moe_ffn(m: ModelBuilder, h: str, layer: int, experts: Experts, *, label: str = "ffn_moe_out") -> str:
    return add_experts(m, h, *add_router(m, h, layer, experts), layer, experts, label=label)


def add_shared_expert(m: ModelBuilder, h: str, layer: int, width: int, *, gated: bool, label: str) -> str:
    at = f"blk.{layer}"
    gate_inp = m.weight(f"{at}.ffn_gate_inp_shexp.weight", (m.width,)) if gated else ABSENT
    return m.value(
        Op.SHARED_EXPERT,
        (
            h,
            m.weight(f"{at}.ffn_gate_shexp.weight", (width, m.width)),
            m.weight(f"{at}.ffn_up_shexp.weight", (width, m.width)),
            m.weight(f"{at}.ffn_down_shexp.weight", (m.width, width)),
            gate_inp,
            ABSENT,
            *(m.weight(f"{at}.ffn_{which}_shexp.scale", (1,), optional=True) for which in ("gate", "up", "down")),
        ),
        (m.width,),
        f"{label}-{layer}",
    )


def read_softmax_experts(m: ModelBuilder, *, width_key: str = "expert_feed_forward_length") -> Experts:
    """Return experts with softmax gating, renormalised: the qwen family and Mixtral."""
    used = m.hyper.read_positive("expert_used_count")
    ffn = m.hyper.read_integer("feed_forward_length", 0)
    return Experts(
        count=m.hyper.read_positive("expert_count"),
        used=used,
        width=m.hyper.read_positive(width_key, max(ffn // used, 1)),
    )
