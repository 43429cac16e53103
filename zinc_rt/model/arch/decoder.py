"""The plain decoder: attention and a feed-forward in every layer, as described by a DecoderSpec
(model/registry.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.ir.op import Op
from zinc_rt.model.blocks import (
    AttentionHeads,
    add_attention,
    add_dense_ffn,
    add_moe_ffn,
    add_qkv,
    add_rope_constants,
    add_shared_expert,
    find_frequency_factors,
    read_heads,
    read_softmax_experts,
    write_kv,
)
from zinc_rt.model.builder import ModelBuilder
from zinc_rt.model.rope import RopeScaling, read_scaling


@dataclass(frozen=True, slots=True)
class DecoderLabels:
    """llama.cpp's names of a layer's values where architectures differ."""

    rotated: str = "cur"  # of Q and K: after RoPE
    projected: str = "attn_out"  # after the output projection
    attended: str = "ffn_inp"  # with the residual stream added


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """The differences between one architecture's layers and the others."""

    rope: Literal["norm", "neox"]
    """Which elements turn together: neighbours, or those half a head apart."""
    rope_factors: tuple[str, str] = ("", "")
    """Tensors that divide the frequencies, for a context up to the original one and for a longer one."""
    yarn_betas: bool = False
    """The file's YaRN betas count; most architectures ignore them."""
    head_norms: bool = False
    """Queries and keys are normed, head by head, before RoPE."""
    projection_norms: bool = False
    """Queries and keys are normed over all heads at once, before RoPE."""
    pre_norms: bool = True
    """The inputs of attention and feed-forward are normed."""
    ffn_norm: str = "ffn_norm"
    """The tensor that norms the feed-forward's input."""
    unrotated_step: int = 0
    """The last of as many layers has no RoPE; 0: every layer has it."""
    query_temperature: bool = False
    """Queries grow with the logarithm of their position."""
    expert_width: str = ""
    """The key of an expert's width; "" where the feed-forward is always dense."""
    renormalise: bool = True
    """The weights of the selected experts are divided by their sum."""
    clamped_experts: bool = False
    """Router and experts have biases, the activation is clamped, and the weights are the softmax of the selected
    logits."""
    shared: Literal["", "plain", "gated"] = ""
    """An expert that every token uses, added as it is or times its gate."""
    dense_without_experts: bool = False
    """A file that counts no experts is dense; elsewhere it is an error."""
    activation: Op = Op.SWIGLU
    post_norms: bool = False
    """The results of attention and feed-forward are normed before they are added."""
    scaled_embedding: bool = False
    """Embeddings are multiplied by the square root of their width."""
    sliding: bool = False
    """Some layers see only a window."""
    sliding_scaled: bool = False
    """The RoPE of layers with a window is scaled like that of the others."""
    sliding_period: int = 6
    """Of as many layers one has no window, where the file does not say otherwise."""
    default_window: int | None = 0
    """The window, where the file does not define it; None: the file must define it."""
    sliding_base: Literal["own", "file", "same"] = "own"
    """The RoPE base of layers with a window: a separate one, 10000 ("own") or that of the other layers ("file")
    where the file does not define it; or that of the other layers, whatever the file says ("same")."""
    file_scales: bool = False
    """The file's scales of embeddings, attention, residuals and logits count, and whether RoPE is used."""
    attention_softcap: float = 0.0
    """The bound on attention scores, where the file does not define it; 0: the architecture has none."""
    logit_softcap: float | None = None
    """The bound on the logits, where the file does not define it; 0: none. None: the file's does not count."""
    sinks: bool = False
    """The softmax of each head has one more term, whose logit is in the file."""
    wide_scale_layers: int = 0
    """The number of layers of the one size whose query scale is 1 / sqrt(width / heads)."""
    labels: DecoderLabels = DecoderLabels()


def make_decoder(spec: DecoderSpec) -> Callable[[ModelBuilder], None]:
    """Return the function that emits a model of that architecture."""

    def emit(m: ModelBuilder) -> None:
        emit_decoder(m, spec)

    return emit


def emit_decoder(m: ModelBuilder, spec: DecoderSpec) -> None:
    scaling = read_scaling(m.hyper, betas=spec.yarn_betas)
    n_rot = m.hyper.read_positive("rope.dimension_count", read_heads(m, 0).head_dim)
    beyond = m.limits.ctx > scaling.original_context  # of the requested context, not of the current position
    m.mark_read(*spec.rope_factors)  # the context decides which
    factors = find_frequency_factors(m, spec.rope_factors[beyond], n_rot)
    everywhere = add_rope_constants(m, n_rot, scaling=scaling, factors=factors)
    within_window = everywhere
    if spec.sliding:
        own = spec.sliding_base == "own" or (spec.sliding_base == "file" and m.hyper.has("rope.freq_base_swa"))
        scaled = scaling if spec.sliding_scaled else None
        within_window = add_rope_constants(m, n_rot, suffix="_swa", own_base=own, scaling=scaled)
    window = m.hyper.read_integer("attention.sliding_window", spec.default_window) if spec.sliding else 0
    temperature = make_query_temperature(m, scaling) if spec.query_temperature else None
    experts = None
    if spec.expert_width and not (spec.dense_without_experts and not m.hyper.read_integer("expert_count", 0)):
        experts = replace(read_softmax_experts(m, width_key=spec.expert_width), renormalise=spec.renormalise)
        if spec.clamped_experts:
            experts = replace(experts, gating="softmax_selected", activation="clamped", biases=True)

    windows = [
        window if window > 0 and is_sliding(m, layer, spec.sliding_period) else 0 for layer in range(m.layers)
    ]
    m.declare_windows(windows)

    cap = m.hyper.read_real("attn_logit_softcapping", spec.attention_softcap) if spec.attention_softcap else 0.0
    if spec.attention_softcap and cap <= 0:
        raise InputError(f"{m.hyper.source}: attn_logit_softcapping is {cap}, expected a positive number")
    scales = read_scales(m) if spec.file_scales else FileScales()
    x = m.embed()
    if spec.scaled_embedding:
        x = m.scale(x, m.width**0.5, "inp_scaled")
    elif scales.embedding != 1.0:
        x = m.scale(x, scales.embedding, "inp_scaled")
    for layer in range(m.layers):
        heads = read_heads(m, layer)
        if m.layers == spec.wide_scale_layers:
            heads = replace(heads, scale=(m.width / heads.heads) ** -0.5)
        heads = replace(heads, window=windows[layer], scale=scales.attention or heads.scale, cap=cap)
        heads = replace(heads, sinks=spec.sinks)
        rotated = scales.rope and not (spec.unrotated_step and (layer + 1) % spec.unrotated_step == 0)
        tables = (within_window if windows[layer] else everywhere) if rotated else None
        h = m.norm(x, f"blk.{layer}.attn_norm.weight", f"attn_norm-{layer}") if spec.pre_norms else x
        y = emit_attention(m, h, layer, spec, heads, tables, temperature)
        if spec.post_norms:
            y = m.norm(y, f"blk.{layer}.post_attention_norm.weight", f"attn_post_norm-{layer}")
        if scales.residual != 1.0:
            y = m.scale(y, scales.residual, f"attn_scaled-{layer}")
        x = m.add(y, x, f"{spec.labels.attended}-{layer}")
        h = m.norm(x, f"blk.{layer}.{spec.ffn_norm}.weight", f"ffn_norm-{layer}") if spec.pre_norms else x
        if experts:
            y = add_moe_ffn(m, h, layer, experts)
            if width := shared_width(m, spec):
                also = add_shared_expert(m, h, layer, width, gated=spec.shared == "gated", label="ffn_shexp")
                y = m.add(y, also, f"ffn_out-{layer}")
        else:
            width = m.hyper.read_positive("feed_forward_length", layer=layer)
            y = add_dense_ffn(m, h, layer, width, activation=spec.activation)
        if spec.post_norms:
            y = m.norm(y, f"blk.{layer}.post_ffw_norm.weight", f"ffn_post_norm-{layer}")
        if scales.residual != 1.0:
            y = m.scale(y, scales.residual, f"ffn_scaled-{layer}")
        x = m.add(y, x, f"l_out-{layer}")
    softcap = 0.0
    if spec.logit_softcap is not None:
        softcap = m.hyper.read_real("final_logit_softcapping", spec.logit_softcap)
    m.head(x, softcap=softcap, scale=1.0 / scales.logit_divisor)


def emit_attention(
    m: ModelBuilder,
    h: str,
    layer: int,
    spec: DecoderSpec,
    heads: AttentionHeads,
    tables: tuple[str, str] | None,
    temperature: str | None,
) -> str:
    """Emit attention with its projections. Without `tables`, nothing is rotated."""
    at, size = f"blk.{layer}", heads.head_dim
    q, k, v = add_qkv(m, h, layer, heads)
    if spec.head_norms:
        q = m.norm(q, f"{at}.attn_q_norm.weight", f"Qcur_normed-{layer}", size=size)
        k = m.norm(k, f"{at}.attn_k_norm.weight", f"Kcur_normed-{layer}", size=size)
    if spec.projection_norms:
        q = m.norm(q, f"{at}.attn_q_norm.weight", f"Qcur_normed-{layer}")
        k = m.norm(k, f"{at}.attn_k_norm.weight", f"Kcur_normed-{layer}")
    if tables is not None:
        q = m.rope(q, tables, f"Q{spec.labels.rotated}-{layer}", head_dim=size, mode=spec.rope)
        k = m.rope(k, tables, f"K{spec.labels.rotated}-{layer}", head_dim=size, mode=spec.rope)
    if temperature is not None:
        columns = m.shape(q)[1:]
        q = m.value(Op.ROW_SCALE, (q, m.position, temperature), columns, f"Qcur_attn_temp_scaled-{layer}")
    y = add_attention(m, q, write_kv(m, k, v, layer, heads), layer, heads)
    return m.linear(y, f"{at}.attn_output", m.width, f"{spec.labels.projected}-{layer}")


def shared_width(m: ModelBuilder, spec: DecoderSpec) -> int:
    """Return the width of the shared expert, 0 if the model has none."""
    if not spec.shared:
        return 0
    default = m.hyper.read_integer("feed_forward_length") if spec.shared == "gated" else 0
    return m.hyper.read_integer("expert_shared_feed_forward_length", 0) or default


def make_query_temperature(m: ModelBuilder, scaling: RopeScaling) -> str | None:
    """Return the factor of each position's query; None if the file defines no scaling."""
    growth = m.hyper.read_real("attention.temperature_scale", 0.0)
    steps = np.floor(np.arange(m.limits.ctx, dtype=np.float64) / scaling.original_context) + 1.0
    table = m.constant("attention.temperature", (1.0 + growth * np.log(steps)).astype(np.float32))
    return table if growth else None


@dataclass(frozen=True, slots=True)
class FileScales:
    """Factors of a file. `attention`: of the scores, 0 for 1 / sqrt(head_dim); `logit_divisor` divides."""

    embedding: float = 1.0
    attention: float = 0.0
    residual: float = 1.0
    logit_divisor: float = 1.0
    rope: bool = True


def read_scales(m: ModelBuilder) -> FileScales:
    """Read a file's scales. Raise InputError for a missing or zero logit_scale."""
    divisor = m.hyper.read_real("logit_scale")
    if divisor == 0:
        raise InputError(f"{m.hyper.source}: logit_scale is 0, but logits are divided by it")
    return FileScales(
        embedding=m.hyper.read_real("embedding_scale", 1.0) or 1.0,
        attention=m.hyper.read_real("attention.scale", 0.0),
        residual=m.hyper.read_real("residual_scale", 1.0) or 1.0,
        logit_divisor=divisor,
        rope=m.hyper.read_boolean("rope.scaling.finetuned", True),
    )


def is_sliding(m: ModelBuilder, layer: int, default_period: int) -> bool:
    """Return whether a layer uses sliding-window attention. The pattern key is an array of flags, or a period
    whose last layer is global."""
    if m.hyper.is_array("attention.sliding_window_pattern"):
        return bool(m.hyper.read_integer("attention.sliding_window_pattern", layer=layer))
    period = m.hyper.read_positive("attention.sliding_window_pattern", default_period)
    return layer % period < period - 1
