"""qwen3next, qwen35 (Qwen 3.5/3.6 dense), qwen35moe: gated DeltaNet in most layers, gated full attention in some.

Facts: llama.cpp src/models/{qwen3next,qwen35,qwen35moe,delta-net-base}.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zinc_rt.errors import InputError
from zinc_rt.ir.graph import ABSENT
from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import (
    AttentionHeads,
    attend,
    dense_ffn,
    moe_ffn,
    read_heads,
    shared_expert,
    softmax_experts,
    write_kv,
)
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.recurrent import CONV, DELTA, recurrent
from zinc_rt.model.rope import read_scaling, rope_tables


@dataclass(frozen=True, slots=True)
class DeltaNet:
    conv_kernel: int
    head_dim: int
    k_heads: int
    v_heads: int

    @property
    def value_width(self) -> int:
        return self.v_heads * self.head_dim

    @property
    def channels(self) -> int:
        return 2 * self.k_heads * self.head_dim + self.value_width


def emit(e: ModelBuilder) -> None:
    heads = read_heads(e, 0)
    n_rot = e.hyper.positive("rope.dimension_count", heads.head_dim)
    sections = e.hyper.array("rope.dimension_sections")
    if sections is None and e.hyper.architecture != "qwen3next":
        raise InputError(f"{e.hyper.source}: {e.hyper.architecture}.rope.dimension_sections is missing")
    cos, sin = rope_tables(
        ctx=e.limits.ctx,
        n_rot=n_rot,
        base=e.hyper.real("rope.freq_base", 10000.0),
        scaling=read_scaling(e.hyper),
        sections=None if e.hyper.architecture == "qwen3next" else sections,
    )
    tables = e.constant("rope.cos", cos), e.constant("rope.sin", sin)
    delta = read_delta_net(e)

    x = e.embed("model.input_embed")
    for layer in range(e.layers):
        h = e.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
        if is_recurrent(e, layer):
            y = delta_mixer(e, h, layer, delta)
        else:
            y = gated_attention(e, h, layer, read_heads(e, layer), tables)
        x = e.add(y, x, f"attn_residual-{layer}")
        h = e.norm(x, f"blk.{layer}.post_attention_norm.weight", f"attn_post_norm-{layer}")
        x = e.add(feed_forward(e, h, layer), x, f"l_out-{layer}")
    e.head(x)


def is_recurrent(e: ModelBuilder, layer: int) -> bool:
    listed = e.hyper.array("attention.recurrent_layers")
    if listed is not None:
        return bool(listed[layer])
    return (layer + 1) % e.hyper.positive("full_attention_interval", 4) != 0


def read_delta_net(e: ModelBuilder) -> DeltaNet:
    delta = DeltaNet(
        conv_kernel=e.hyper.positive("ssm.conv_kernel"),
        head_dim=e.hyper.positive("ssm.state_size"),
        k_heads=e.hyper.positive("ssm.group_count"),
        v_heads=e.hyper.positive("ssm.time_step_rank"),
    )
    inner = e.hyper.positive("ssm.inner_size")
    if inner != delta.value_width or delta.v_heads % delta.k_heads:
        sizes = (inner, delta.v_heads, delta.head_dim, delta.k_heads)
        raise InputError(
            f"{e.hyper.source}: ssm inner_size, time_step_rank, state_size, group_count are {sizes}; "
            "wanted inner = rank x state, and whole groups in rank"
        )
    return delta


def gated_attention(e: ModelBuilder, h: str, layer: int, spec: AttentionHeads, tables: tuple[str, str]) -> str:
    """Full attention whose query projection also yields an output gate, head by head [q | gate]."""
    at, hd = f"blk.{layer}", spec.head_dim
    both = e.linear(h, f"{at}.attn_q", spec.heads * 2 * hd, f"Qcur_full-{layer}")
    q = e.slice(both, f"Qcur_reshaped-{layer}", group=2 * hd, offset=0, size=hd)
    gate = e.slice(both, f"gate_reshaped-{layer}", group=2 * hd, offset=hd, size=hd)
    k = e.linear(h, f"{at}.attn_k", spec.kv_heads * hd, f"Kcur_raw-{layer}")
    v = e.linear(h, f"{at}.attn_v", spec.kv_heads * spec.value_dim, f"Vcur-{layer}")
    q = e.norm(q, f"{at}.attn_q_norm.weight", f"Qcur_normed-{layer}", size=hd)
    k = e.norm(k, f"{at}.attn_k_norm.weight", f"Kcur_normed-{layer}", size=hd)
    q = e.rope(q, tables, f"Qcur-{layer}", head_dim=hd, mode="neox")
    k = e.rope(k, tables, f"Kcur-{layer}", head_dim=hd, mode="neox")
    y = attend(e, q, write_kv(e, k, v, layer), layer, spec, label="attn_pregate")
    y = e.value(Op.SIGMOID_MUL, (y, gate), e.shape(y)[1:], f"attn_gated-{layer}")
    return e.linear(y, f"{at}.attn_output", e.width, f"attn_output-{layer}")


def delta_mixer(e: ModelBuilder, h: str, layer: int, delta: DeltaNet) -> str:
    at, hv = f"blk.{layer}", delta.v_heads
    u = e.linear(h, f"{at}.attn_qkv", delta.channels, f"linear_attn_qkv_mixed-{layer}")
    z = e.linear(h, f"{at}.attn_gate", delta.value_width, f"z-{layer}")
    if e.has_weight(f"{at}.ssm_ba.weight"):  # per k head: its v heads' betas, then their alphas
        each = hv // delta.k_heads
        both = e.linear(h, f"{at}.ssm_ba", 2 * hv, f"mixed_ba-{layer}")
        beta = e.slice(both, f"beta-{layer}", group=2 * each, offset=0, size=each)
        alpha = e.slice(both, f"alpha-{layer}", group=2 * each, offset=each, size=each)
    else:
        beta = e.linear(h, f"{at}.ssm_beta", hv, f"beta-{layer}")
        alpha = e.linear(h, f"{at}.ssm_alpha", hv, f"alpha-{layer}")
    conv_w = e.weight(f"{at}.ssm_conv1d.weight", (delta.channels, delta.conv_kernel))
    conv_state = e.state("ssm_conv", layer, (e.limits.slots, delta.conv_kernel - 1, delta.channels))
    c = recurrent(
        e, CONV, (u, conv_w), conv_state, (ABSENT,), (delta.channels,), f"conv_output_silu-{layer}", silu=True
    )
    dt_bias = e.weight(f"{at}.ssm_dt.bias", (hv,))
    a = e.weight(f"{at}.ssm_a", (hv,))
    ssm_state = e.state("ssm_delta", layer, (e.limits.slots, hv, delta.head_dim, delta.head_dim))
    o = recurrent(
        e,
        DELTA,
        (c, beta, alpha, dt_bias, a),
        ssm_state,
        (),
        (delta.value_width,),
        f"attn_output-{layer}",
        k_heads=delta.k_heads,
        v_heads=hv,
        head_dim=delta.head_dim,
        eps=e.eps,
        grouping="grouped" if e.hyper.architecture == "qwen3next" else "tiled",
    )
    norm_w = e.weight(f"{at}.ssm_norm.weight", (delta.head_dim,))
    y = e.value(Op.SSM_GATED_NORM, (o, z, norm_w), (delta.value_width,), f"final_output-{layer}", eps=e.eps)
    return e.linear(y, f"{at}.ssm_out", e.width, f"linear_attn_out-{layer}")


def feed_forward(e: ModelBuilder, h: str, layer: int) -> str:
    if e.hyper.architecture == "qwen35":
        return dense_ffn(e, h, layer, e.hyper.positive("feed_forward_length", layer=layer))
    experts = softmax_experts(e)
    if e.stage == "decode" and 0 < e.overrides.decode_topk < experts.used:
        experts = replace(experts, used=e.overrides.decode_topk)
    y = moe_ffn(e, h, layer, experts)
    width = e.hyper.positive("expert_shared_feed_forward_length")
    shared = shared_expert(e, h, layer, width, gated=True, label="ffn_shexp_gated")
    return e.add(y, shared, f"ffn_out-{layer}")
