"""qwen3next, qwen35 (Qwen 3.5/3.6 dense), qwen35moe: gated DeltaNet in most layers, gated full attention in some.

A file may have one more layer, which predicts the token after the next one (MTP): it drafts for speculation.

Facts: llama.cpp src/models/{qwen3next,qwen35,qwen35moe,delta-net-base}.cpp; pull request 24025: the hidden state
that MTP reads is that after the final norm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.ir.dtypes import ACTIVATION
from zinc_rt.ir.graph import ABSENT
from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import (
    AttentionHeads,
    add_attention,
    add_dense_ffn,
    add_moe_ffn,
    add_rope_constants,
    add_shared_expert,
    read_heads,
    read_softmax_experts,
    write_kv,
)
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.recurrent import CONV, DELTA, add_recurrent
from zinc_rt.model.rope import read_scaling

PREVIOUS_HIDDEN = "draft.hidden"


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


def emit(m: ModelBuilder) -> None:
    tables = add_rotation(m)
    delta = read_delta_net(m)

    x = embedding = m.embed("model.input_embed")
    for layer in range(m.layers):
        h = m.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
        if is_recurrent(m, layer):
            y = emit_delta_mixer(m, h, layer, delta)
        else:
            y = emit_gated_attention(m, h, layer, read_heads(m, layer), tables)
        x = emit_residual_feed_forward(m, x, y, layer)
    hidden = m.head(x, hidden=m.limits.mtp)
    if m.limits.mtp:
        emit_mtp_cache(m, embedding, hidden, tables)


def emit_draft(m: ModelBuilder) -> None:
    """Emit the MTP layer for one token of each sequence, with the hidden state of the token before it as an input
    of the step, PREVIOUS_HIDDEN f32 [tokens, width]. It predicts the token that follows the one that follows the
    hidden state, and its own hidden state is the input for one more draft."""
    layer = find_mtp_layer(m)
    hidden = m.builder.buffer(PREVIOUS_HIDDEN, ("tokens", m.width), ACTIVATION, "step")
    x = emit_mtp_input(m, m.embed("model.input_embed"), hidden, layer)
    h = m.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
    y = emit_gated_attention(m, h, layer, read_heads(m, layer), add_rotation(m))
    x = emit_residual_feed_forward(m, x, y, layer)
    own = f"blk.{layer}.nextn.shared_head"
    norm, output = (
        name if m.has_weight(f"{name}.weight") else shared
        for name, shared in ((f"{own}_norm", "output_norm"), (f"{own}_head", "output"))
    )
    m.head(x, norm=norm, output=output, hidden=True)


def emit_mtp_cache(m: ModelBuilder, embedding: str, hidden: str, tables: tuple[str, str]) -> None:
    """Emit the keys and values of the MTP layer for the step's tokens, from each token's embedding and the hidden
    state of the token before it. A convolution with the taps 1 and 0 shifts the hidden states by one token, and
    keeps the last one of a step as recurrent state."""
    layer = find_mtp_layer(m)
    taps = m.constant("mtp.shift", np.tile(np.array([1, 0], np.float32), (m.width, 1)))
    before = add_recurrent(
        m,
        CONV,
        (hidden, taps),
        "ssm_hidden",
        (1, m.width),
        (ABSENT,),
        (m.width,),
        f"mtp_hidden-{layer}",
        layer=layer,
        silu=False,
    )
    x = emit_mtp_input(m, embedding, before, layer)
    h = m.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}")
    spec = read_heads(m, layer)
    k, v = emit_keys_and_values(m, h, layer, spec)
    k = m.norm(k, f"blk.{layer}.attn_k_norm.weight", f"Kcur_normed-{layer}", size=spec.head_dim)
    k = m.rope(k, tables, f"Kcur-{layer}", head_dim=spec.head_dim, mode="neox")
    write_kv(m, k, v, layer, spec)


def emit_mtp_input(m: ModelBuilder, embedding: str, hidden: str, layer: int) -> str:
    """Emit the projection of a token's normed embedding and the normed hidden state of the token before it."""
    at = f"blk.{layer}.nextn"
    if m.has_weight(f"{at}.embed_tokens.weight"):
        table = m.weight(f"{at}.embed_tokens.weight", (m.vocab, m.width))
        embedding = m.value(Op.EMBED, (m.token_id, table), (m.width,), f"mtp_embed-{layer}")
    e = m.norm(embedding, f"{at}.enorm.weight", f"mtp_enorm-{layer}")
    h = m.norm(hidden, f"{at}.hnorm.weight", f"mtp_hnorm-{layer}")
    embedded, carried = (
        m.linear(
            x,
            f"{at}.eh_proj",
            m.width,
            f"mtp_{which}_proj-{layer}",
            take=(slice(None), slice(first, first + m.width)),
            part=f"{at}.{which}_proj",
        )
        for which, x, first in (("e", e, 0), ("h", h, m.width))
    )
    return m.add(embedded, carried, f"mtp_eh_proj-{layer}")


def find_mtp_layer(m: ModelBuilder) -> int:
    """Return the number of the file's MTP layer. Raise UnsupportedError unless the file has one."""
    count = m.hyper.read_integer("nextn_predict_layers", 0)
    if count != 1:
        raise UnsupportedError(
            f"{m.hyper.source}: the file has {count or 'no'} layers for next-token prediction (MTP), but "
            "--speculate mtp needs one",
            next="use a file converted with its MTP layer, or --speculate ngram",
        )
    return m.layers


def add_rotation(m: ModelBuilder) -> tuple[str, str]:
    """Add the tables of RoPE. Raise InputError without the sections that the architecture needs."""
    heads = read_heads(m, 0)
    n_rot = m.hyper.read_positive("rope.dimension_count", heads.head_dim)
    sections = m.hyper.array("rope.dimension_sections")
    if sections is None and m.hyper.architecture != "qwen3next":
        raise InputError(f"{m.hyper.source}: {m.hyper.architecture}.rope.dimension_sections is missing")
    turning = None if m.hyper.architecture == "qwen3next" else sections
    return add_rope_constants(m, n_rot, scaling=read_scaling(m.hyper), sections=turning)


def is_recurrent(m: ModelBuilder, layer: int) -> bool:
    listed = m.hyper.array("attention.recurrent_layers")
    if listed is not None:
        return bool(listed[layer])
    return (layer + 1) % m.hyper.read_positive("full_attention_interval", 4) != 0


def read_delta_net(m: ModelBuilder) -> DeltaNet:
    delta = DeltaNet(
        conv_kernel=m.hyper.read_positive("ssm.conv_kernel"),
        head_dim=m.hyper.read_positive("ssm.state_size"),
        k_heads=m.hyper.read_positive("ssm.group_count"),
        v_heads=m.hyper.read_positive("ssm.time_step_rank"),
    )
    inner = m.hyper.read_positive("ssm.inner_size")
    if inner != delta.value_width or delta.v_heads % delta.k_heads:
        sizes = (inner, delta.v_heads, delta.head_dim, delta.k_heads)
        raise InputError(
            f"{m.hyper.source}: ssm inner_size, time_step_rank, state_size, group_count are {sizes}; "
            "expected inner = rank x state and rank to be a multiple of the groups"
        )
    return delta


def emit_gated_attention(
    m: ModelBuilder, h: str, layer: int, spec: AttentionHeads, tables: tuple[str, str]
) -> str:
    """Emit full attention whose query projection also yields an output gate, head by head [q | gate]."""
    at, hd = f"blk.{layer}", spec.head_dim
    both = m.linear(h, f"{at}.attn_q", spec.heads * 2 * hd, f"Qcur_full-{layer}")
    q = m.slice(both, f"Qcur_reshaped-{layer}", group=2 * hd, offset=0, size=hd)
    gate = m.slice(both, f"gate_reshaped-{layer}", group=2 * hd, offset=hd, size=hd)
    k, v = emit_keys_and_values(m, h, layer, spec)
    q = m.norm(q, f"{at}.attn_q_norm.weight", f"Qcur_normed-{layer}", size=hd)
    k = m.norm(k, f"{at}.attn_k_norm.weight", f"Kcur_normed-{layer}", size=hd)
    q = m.rope(q, tables, f"Qcur-{layer}", head_dim=hd, mode="neox")
    k = m.rope(k, tables, f"Kcur-{layer}", head_dim=hd, mode="neox")
    y = add_attention(m, q, write_kv(m, k, v, layer, spec), layer, spec, label="attn_pregate")
    y = m.value(Op.SIGMOID_MUL, (y, gate), m.shape(y)[1:], f"attn_gated-{layer}")
    return m.linear(y, f"{at}.attn_output", m.width, f"attn_output-{layer}")


def emit_keys_and_values(m: ModelBuilder, h: str, layer: int, spec: AttentionHeads) -> tuple[str, str]:
    at = f"blk.{layer}"
    k = m.linear(h, f"{at}.attn_k", spec.kv_heads * spec.head_dim, f"Kcur_raw-{layer}")
    return k, m.linear(h, f"{at}.attn_v", spec.kv_heads * spec.value_dim, f"Vcur-{layer}")


def emit_delta_mixer(m: ModelBuilder, h: str, layer: int, delta: DeltaNet) -> str:
    at, hv = f"blk.{layer}", delta.v_heads
    u = m.linear(h, f"{at}.attn_qkv", delta.channels, f"linear_attn_qkv_mixed-{layer}")
    z = m.linear(h, f"{at}.attn_gate", delta.value_width, f"z-{layer}")
    if m.has_weight(f"{at}.ssm_ba.weight"):  # per k head: its v heads' betas, then their alphas
        item = hv // delta.k_heads
        both = m.linear(h, f"{at}.ssm_ba", 2 * hv, f"mixed_ba-{layer}")
        beta = m.slice(both, f"beta-{layer}", group=2 * item, offset=0, size=item)
        alpha = m.slice(both, f"alpha-{layer}", group=2 * item, offset=item, size=item)
    else:
        beta = m.linear(h, f"{at}.ssm_beta", hv, f"beta-{layer}")
        alpha = m.linear(h, f"{at}.ssm_alpha", hv, f"alpha-{layer}")
    conv_w = m.weight(f"{at}.ssm_conv1d.weight", (delta.channels, delta.conv_kernel))
    c = add_recurrent(
        m,
        CONV,
        (u, conv_w),
        "ssm_conv",
        (delta.conv_kernel - 1, delta.channels),
        (ABSENT,),
        (delta.channels,),
        f"conv_output_silu-{layer}",
        layer=layer,
        silu=True,
    )
    dt_bias = m.weight(f"{at}.ssm_dt.bias", (hv,))
    a = m.weight(f"{at}.ssm_a", (hv,))
    o = add_recurrent(
        m,
        DELTA,
        (c, beta, alpha, dt_bias, a),
        "ssm_delta",
        (hv, delta.head_dim, delta.head_dim),
        (),
        (delta.value_width,),
        f"attn_output-{layer}",
        layer=layer,
        k_heads=delta.k_heads,
        v_heads=hv,
        head_dim=delta.head_dim,
        eps=m.eps,
        grouping="grouped" if m.hyper.architecture == "qwen3next" else "tiled",
    )
    norm_w = m.weight(f"{at}.ssm_norm.weight", (delta.head_dim,))
    y = m.value(Op.SSM_GATED_NORM, (o, z, norm_w), (delta.value_width,), f"final_output-{layer}", eps=m.eps)
    return m.linear(y, f"{at}.ssm_out", m.width, f"linear_attn_out-{layer}")


def emit_residual_feed_forward(m: ModelBuilder, x: str, y: str, layer: int) -> str:
    """Emit the sum of the residual stream and the mixer's result, and the feed-forward of it."""
    x = m.add(y, x, f"attn_residual-{layer}")
    h = m.norm(x, f"blk.{layer}.post_attention_norm.weight", f"attn_post_norm-{layer}")
    return m.add(emit_feed_forward(m, h, layer), x, f"l_out-{layer}")


def emit_feed_forward(m: ModelBuilder, h: str, layer: int) -> str:
    if m.hyper.architecture == "qwen35":
        return add_dense_ffn(m, h, layer, m.hyper.read_positive("feed_forward_length", layer=layer))
    experts = read_softmax_experts(m)
    if m.stage == "decode" and 0 < m.overrides.decode_topk < experts.used:
        experts = replace(experts, used=m.overrides.decode_topk)
    y = add_moe_ffn(m, h, layer, experts)
    width = m.hyper.read_positive("expert_shared_feed_forward_length")
    shared = add_shared_expert(m, h, layer, width, gated=True, label="ffn_shexp_gated")
    return m.add(y, shared, f"ffn_out-{layer}")
