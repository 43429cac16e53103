"""gemma4: per-layer head sizes, shared KV, per-layer embeddings (E2B, E4B), a mixture beside a dense MLP (26B).

Facts: llama.cpp src/models/gemma4.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.errors import InputError
from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import AttentionHeads, Experts, attend, dense_ffn, route, run_experts, write_kv
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import read_scaling, rope_tables


@dataclass(frozen=True, slots=True)
class Attention:
    """One kind of layer, sliding or global: its RoPE tables."""

    head_dim: int
    tables: tuple[str, str]


def emit(e: ModelBuilder) -> None:
    if not e.hyper.is_array("attention.sliding_window_pattern"):
        raise InputError(f"{e.hyper.source}: gemma4.attention.sliding_window_pattern must be an array of flags")
    wide, near = _attention(e, sliding=False), _attention(e, sliding=True)
    own_kv = e.layers - e.hyper.integer("attention.shared_kv_layers", 0)
    ple = e.hyper.integer("embedding_length_per_layer_input", 0)

    x = e.scale(e.embed(), e.width**0.5, "inp_scaled")
    per_layer = per_layer_inputs(e, x, ple) if ple else ""
    caches: dict[int, tuple[str, str]] = {}
    for layer in range(e.layers):
        at = f"blk.{layer}"
        sliding = bool(e.hyper.integer("attention.sliding_window_pattern", layer=layer))
        spec = _heads(e, layer, sliding)
        h = e.norm(x, f"{at}.attn_norm.weight", f"attn_norm-{layer}")
        if layer >= own_kv:
            kind = near if sliding else wide
            source = own_kv - (2 if sliding else 1)
            if source not in caches:
                raise InputError(
                    f"{e.hyper.source}: layer {layer} shares the KV of layer {source}, which has none"
                )
            y = attention(e, h, layer, spec, kind, caches[source])
        else:
            kind = near if sliding else wide
            caches[layer] = keys_values(e, h, layer, spec, kind)
            y = attention(e, h, layer, spec, kind, caches[layer])
        x = e.add(e.norm(y, f"{at}.post_attention_norm.weight", f"attn_post_norm-{layer}"), x, f"attn_out-{layer}")
        y = e.norm(feed_forward(e, x, layer), f"{at}.post_ffw_norm.weight", f"ffn_post_norm-{layer}")
        scaled = e.has_weight(f"{at}.layer_output_scale.weight")
        last = f"unscaled_out-{layer}" if scaled else f"l_out-{layer}"
        x = e.add(y, x, f"pe_in-{layer}" if ple else last)
        if ple:
            x = e.add(per_layer_embedding(e, x, per_layer, layer, ple), x, last)
        if scaled:
            weight = e.weight(f"{at}.layer_output_scale.weight", (1,))
            x = e.scale(x, 1.0, f"l_out-{layer}", weight)
    e.head(x, softcap=e.hyper.real("final_logit_softcapping", 0.0))


def _attention(e: ModelBuilder, *, sliding: bool) -> Attention:
    suffix = "_swa" if sliding else ""
    head_dim = e.hyper.positive(f"attention.key_length{suffix}", e.hyper.positive("attention.key_length"))
    n_rot = e.hyper.positive(f"rope.dimension_count{suffix}", head_dim)
    factors = None if sliding else e.gguf.tensors.get("rope_freqs.weight")
    if factors is not None and factors.shape != (n_rot // 2,):
        raise InputError(f"{e.hyper.source}: rope_freqs.weight has shape {factors.shape}, wanted ({n_rot // 2},)")
    cos, sin = rope_tables(
        ctx=e.limits.ctx,
        n_rot=n_rot,
        base=e.hyper.real(f"rope.freq_base{suffix}", 10000.0),
        scaling=None if sliding else read_scaling(e.hyper),
        factors=None if factors is None else factors.data,
    )
    tables = e.constant(f"rope{suffix}.cos", cos), e.constant(f"rope{suffix}.sin", sin)
    return Attention(head_dim, tables)


def _heads(e: ModelBuilder, layer: int, sliding: bool) -> AttentionHeads:
    suffix = "_swa" if sliding else ""
    heads = e.hyper.positive("attention.head_count", layer=layer)
    head_dim = e.hyper.positive(f"attention.key_length{suffix}", e.hyper.positive("attention.key_length"))
    return AttentionHeads(
        heads=heads,
        kv_heads=e.hyper.positive("attention.head_count_kv", heads, layer=layer),
        head_dim=head_dim,
        value_dim=head_dim,
        scale=e.overrides.gemma4_attn_scale or 1.0,
        window=e.hyper.positive("attention.sliding_window") if sliding else 0,
    )


def keys_values(e: ModelBuilder, h: str, layer: int, spec: AttentionHeads, kind: Attention) -> tuple[str, str]:
    """Keys are normed and rotated; values are normed without a weight. Without attn_v, values are the raw keys."""
    at, hd = f"blk.{layer}", spec.head_dim
    raw = e.linear(h, f"{at}.attn_k", spec.kv_heads * hd, f"Kcur-{layer}")
    k = e.norm(raw, f"{at}.attn_k_norm.weight", f"Kcur_normed-{layer}", size=hd)
    k = e.rope(k, kind.tables, f"Kcur_pos-{layer}", head_dim=hd, mode="neox")
    if e.has_weight(f"{at}.attn_v.weight"):
        raw = e.linear(h, f"{at}.attn_v", spec.kv_heads * hd, f"Vcur-{layer}")
    v = e.norm(raw, None, f"Vcur_normed-{layer}", size=hd)
    return write_kv(e, k, v, layer)


def attention(
    e: ModelBuilder, h: str, layer: int, spec: AttentionHeads, kind: Attention, cache: tuple[str, str]
) -> str:
    at, hd = f"blk.{layer}", spec.head_dim
    q = e.linear(h, f"{at}.attn_q", spec.heads * hd, f"Qcur-{layer}")
    q = e.norm(q, f"{at}.attn_q_norm.weight", f"Qcur_normed-{layer}", size=hd)
    q = e.rope(q, kind.tables, f"Qcur_pos-{layer}", head_dim=hd, mode="neox")
    y = attend(e, q, cache, layer, spec)
    return e.linear(y, f"{at}.attn_output", e.width, f"attn_proj-{layer}")


def feed_forward(e: ModelBuilder, a: str, layer: int) -> str:
    at = f"blk.{layer}"
    h = e.norm(a, f"{at}.ffn_norm.weight", f"ffn_norm-{layer}")
    width = e.hyper.positive("feed_forward_length", layer=layer)
    mixture = e.has_weight(f"{at}.ffn_gate_inp.weight")
    dense = dense_ffn(e, h, layer, width, activation=Op.GEGLU, label="ffn_dense" if mixture else "ffn_out")
    if not mixture:
        return dense
    experts = Experts(
        count=e.hyper.positive("expert_count"),
        used=e.hyper.positive("expert_used_count"),
        width=e.hyper.positive("expert_feed_forward_length"),
        activation="gelu",
    )
    m1 = e.norm(dense, f"{at}.post_ffw_norm_1.weight", f"ffn_mlp-{layer}")
    # The router reads the residual stream itself, normed, scaled per channel and by 1 / sqrt(width).
    router = e.norm(a, f"{at}.ffn_gate_inp.scale", f"ffn_moe_router_norm-{layer}")
    router = e.scale(router, e.width**-0.5, f"ffn_moe_router_in-{layer}")
    ids, weights = route(e, router, layer, experts)
    h = e.norm(a, f"{at}.pre_ffw_norm_2.weight", f"ffn_norm_2-{layer}")
    m2 = run_experts(e, h, ids, weights, layer, experts)
    m2 = e.norm(m2, f"{at}.post_ffw_norm_2.weight", f"ffn_moe-{layer}")
    return e.add(m1, m2, f"ffn_moe_combined-{layer}")


def per_layer_inputs(e: ModelBuilder, x0: str, ple: int) -> str:
    """Once a token: (embedding row * sqrt(P) + normed projection of x0 / sqrt(D)) / sqrt(2), [L * P]."""
    wide = e.layers * ple
    table = e.weight("per_layer_token_embd.weight", (e.vocab, wide))
    a = e.value(Op.EMBED, (e.token_id, table), (wide,), "inp_per_layer_rows")
    a = e.scale(a, ple**0.5, "inp_per_layer_selected")
    b = e.linear(x0, "per_layer_model_proj", wide, "per_layer_model_proj")
    b = e.scale(b, e.width**-0.5, "per_layer_scaled")
    b = e.norm(b, "per_layer_proj_norm.weight", "per_layer_proj", size=ple)
    return e.scale(e.add(b, a, "inp_per_layer_sum"), 2**-0.5, "inp_per_layer")


def per_layer_embedding(e: ModelBuilder, x: str, per_layer: str, layer: int, ple: int) -> str:
    at = f"blk.{layer}"
    gate = e.linear(x, f"{at}.inp_gate", ple, f"per_layer_gate-{layer}")
    mine = e.slice(per_layer, f"inp_per_layer_slice-{layer}", group=e.layers * ple, offset=layer * ple, size=ple)
    y = e.value(Op.GEGLU, (gate, mine), (ple,), f"per_layer_geglu-{layer}")
    y = e.linear(y, f"{at}.proj", e.width, f"per_layer_up-{layer}")
    return e.norm(y, f"{at}.post_norm.weight", f"per_layer_embd_out-{layer}")
