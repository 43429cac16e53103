"""gemma4: per-layer head sizes, shared KV, per-layer embeddings (E2B, E4B), a mixture of experts in addition to a
dense MLP (26B).

Facts: llama.cpp src/models/gemma4.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.host.errors import InputError
from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import (
    AttentionHeads,
    Experts,
    add_attention,
    add_dense_ffn,
    add_experts,
    add_rope_constants,
    add_router,
    find_frequency_factors,
    write_kv,
)
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import read_scaling


@dataclass(frozen=True, slots=True)
class Attention:
    """One kind of layer, sliding or global: its RoPE tables."""

    head_dim: int
    tables: tuple[str, str]


def emit(m: ModelBuilder) -> None:
    if not m.hyper.is_array("attention.sliding_window_pattern"):
        raise InputError(f"{m.hyper.source}: gemma4.attention.sliding_window_pattern must be an array of flags")
    wide, near = _read_attention(m, sliding=False), _read_attention(m, sliding=True)
    own_kv = m.layers - m.hyper.read_integer("attention.shared_kv_layers", 0)
    ple = m.hyper.read_integer("embedding_length_per_layer_input", 0)

    x = m.scale(m.embed(), m.width**0.5, "inp_scaled")
    per_layer = emit_per_layer_inputs(m, x, ple) if ple else ""
    caches: dict[int, tuple[str, str]] = {}
    sliding_layers = [
        bool(m.hyper.read_integer("attention.sliding_window_pattern", layer=layer)) for layer in range(m.layers)
    ]
    specs = [_read_heads(m, layer, sliding) for layer, sliding in enumerate(sliding_layers)]
    m.declare_windows(spec.window for spec in specs[:own_kv])
    for layer, (sliding, spec) in enumerate(zip(sliding_layers, specs, strict=True)):
        at = f"blk.{layer}"
        h = m.norm(x, f"{at}.attn_norm.weight", f"attn_norm-{layer}")
        if layer >= own_kv:
            kind = near if sliding else wide
            source = own_kv - (2 if sliding else 1)
            if source not in caches:
                raise InputError(
                    f"{m.hyper.source}: layer {layer} shares the KV of layer {source}, which has no KV"
                )
            if specs[source].window != spec.window:
                raise InputError(
                    f"{m.hyper.source}: layer {layer} shares the KV of layer {source}, which has a different "
                    f"window: {specs[source].window}, not {spec.window}"
                )
            y = emit_attention(m, h, layer, spec, kind, caches[source])
        else:
            kind = near if sliding else wide
            caches[layer] = emit_keys_values(m, h, layer, spec, kind)
            y = emit_attention(m, h, layer, spec, kind, caches[layer])
        x = m.add(m.norm(y, f"{at}.post_attention_norm.weight", f"attn_post_norm-{layer}"), x, f"attn_out-{layer}")
        y = m.norm(emit_feed_forward(m, x, layer), f"{at}.post_ffw_norm.weight", f"ffn_post_norm-{layer}")
        scaled = m.has_weight(f"{at}.layer_output_scale.weight")
        last = f"unscaled_out-{layer}" if scaled else f"l_out-{layer}"
        x = m.add(y, x, f"pe_in-{layer}" if ple else last)
        if ple:
            x = m.add(emit_per_layer_embedding(m, x, per_layer, layer, ple), x, last)
        if scaled:
            weight = m.weight(f"{at}.layer_output_scale.weight", (1,))
            x = m.scale(x, 1.0, f"l_out-{layer}", weight)
    m.head(x, softcap=m.hyper.read_real("final_logit_softcapping", 0.0))


def _read_attention(m: ModelBuilder, *, sliding: bool) -> Attention:
    suffix = "_swa" if sliding else ""
    head_dim = m.hyper.read_positive(
        f"attention.key_length{suffix}", m.hyper.read_positive("attention.key_length")
    )
    n_rot = m.hyper.read_positive(f"rope.dimension_count{suffix}", head_dim)
    if sliding:
        return Attention(head_dim, add_rope_constants(m, n_rot, suffix=suffix))
    factors = find_frequency_factors(m, "rope_freqs.weight", n_rot)
    return Attention(head_dim, add_rope_constants(m, n_rot, scaling=read_scaling(m.hyper), factors=factors))


def _read_heads(m: ModelBuilder, layer: int, sliding: bool) -> AttentionHeads:
    suffix = "_swa" if sliding else ""
    heads = m.hyper.read_positive("attention.head_count", layer=layer)
    head_dim = m.hyper.read_positive(
        f"attention.key_length{suffix}", m.hyper.read_positive("attention.key_length")
    )
    return AttentionHeads(
        heads=heads,
        kv_heads=m.hyper.read_positive("attention.head_count_kv", heads, layer=layer),
        head_dim=head_dim,
        value_dim=head_dim,
        scale=m.overrides.gemma4_attn_scale or 1.0,
        window=m.hyper.read_positive("attention.sliding_window") if sliding else 0,
    )


def emit_keys_values(
    m: ModelBuilder, h: str, layer: int, spec: AttentionHeads, kind: Attention
) -> tuple[str, str]:
    """Compute keys and values. Keys are normed and rotated; values are normed without a weight. Without attn_v,
    values are the raw keys."""
    at, hd = f"blk.{layer}", spec.head_dim
    raw = m.linear(h, f"{at}.attn_k", spec.kv_heads * hd, f"Kcur-{layer}")
    k = m.norm(raw, f"{at}.attn_k_norm.weight", f"Kcur_normed-{layer}", size=hd)
    k = m.rope(k, kind.tables, f"Kcur_pos-{layer}", head_dim=hd, mode="neox")
    if m.has_weight(f"{at}.attn_v.weight"):
        raw = m.linear(h, f"{at}.attn_v", spec.kv_heads * hd, f"Vcur-{layer}")
    v = m.norm(raw, None, f"Vcur_normed-{layer}", size=hd)
    return write_kv(m, k, v, layer, spec)


def emit_attention(
    m: ModelBuilder, h: str, layer: int, spec: AttentionHeads, kind: Attention, cache: tuple[str, str]
) -> str:
    at, hd = f"blk.{layer}", spec.head_dim
    q = m.linear(h, f"{at}.attn_q", spec.heads * hd, f"Qcur-{layer}")
    q = m.norm(q, f"{at}.attn_q_norm.weight", f"Qcur_normed-{layer}", size=hd)
    q = m.rope(q, kind.tables, f"Qcur_pos-{layer}", head_dim=hd, mode="neox")
    y = add_attention(m, q, cache, layer, spec)
    return m.linear(y, f"{at}.attn_output", m.width, f"attn_proj-{layer}")


def emit_feed_forward(m: ModelBuilder, a: str, layer: int) -> str:
    at = f"blk.{layer}"
    h = m.norm(a, f"{at}.ffn_norm.weight", f"ffn_norm-{layer}")
    width = m.hyper.read_positive("feed_forward_length", layer=layer)
    mixture = m.has_weight(f"{at}.ffn_gate_inp.weight")
    dense = add_dense_ffn(m, h, layer, width, activation=Op.GEGLU, label="ffn_dense" if mixture else "ffn_out")
    if not mixture:
        return dense
    experts = Experts(
        count=m.hyper.read_positive("expert_count"),
        used=m.hyper.read_positive("expert_used_count"),
        width=m.hyper.read_positive("expert_feed_forward_length"),
        activation="gelu",
    )
    m1 = m.norm(dense, f"{at}.post_ffw_norm_1.weight", f"ffn_mlp-{layer}")
    # The router reads the residual stream itself, normed, scaled per channel and by 1 / sqrt(width).
    router = m.norm(a, f"{at}.ffn_gate_inp.scale", f"ffn_moe_router_norm-{layer}")
    router = m.scale(router, m.width**-0.5, f"ffn_moe_router_in-{layer}")
    ids, weights = add_router(m, router, layer, experts)
    h = m.norm(a, f"{at}.pre_ffw_norm_2.weight", f"ffn_norm_2-{layer}")
    m2 = add_experts(m, h, ids, weights, layer, experts)
    m2 = m.norm(m2, f"{at}.post_ffw_norm_2.weight", f"ffn_moe-{layer}")
    return m.add(m1, m2, f"ffn_moe_combined-{layer}")


def emit_per_layer_inputs(m: ModelBuilder, x0: str, ple: int) -> str:
    """Compute the per-layer inputs once per token: (embedding row * sqrt(P) + normed projection of x0 / sqrt(D)) /
    sqrt(2), [L * P]."""
    wide = m.layers * ple
    table = m.weight("per_layer_token_embd.weight", (m.vocab, wide))
    a = m.value(Op.EMBED, (m.token_id, table), (wide,), "inp_per_layer_rows")
    a = m.scale(a, ple**0.5, "inp_per_layer_selected")
    b = m.linear(x0, "per_layer_model_proj", wide, "per_layer_model_proj")
    b = m.scale(b, m.width**-0.5, "per_layer_scaled")
    b = m.norm(b, "per_layer_proj_norm.weight", "per_layer_proj", size=ple)
    return m.scale(m.add(b, a, "inp_per_layer_sum"), 2**-0.5, "inp_per_layer")


def emit_per_layer_embedding(m: ModelBuilder, x: str, per_layer: str, layer: int, ple: int) -> str:
    at = f"blk.{layer}"
    gate = m.linear(x, f"{at}.inp_gate", ple, f"per_layer_gate-{layer}")
    mine = m.slice(per_layer, f"inp_per_layer_slice-{layer}", group=m.layers * ple, offset=layer * ple, size=ple)
    y = m.value(Op.GEGLU, (gate, mine), (ple,), f"per_layer_geglu-{layer}")
    y = m.linear(y, f"{at}.proj", m.width, f"per_layer_up-{layer}")
    return m.norm(y, f"{at}.post_norm.weight", f"per_layer_embd_out-{layer}")
