"""Map `general.architecture` to its graph emitter. A plain decoder is one row here; other architectures have
a file in arch/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import Stage
from zinc_rt.ir.op import Op
from zinc_rt.ir.verify import verify_graph
from zinc_rt.model.arch import deepseek2, gemma4, jamba, mamba, phi2, qwen_hybrid
from zinc_rt.model.arch.decoder import DecoderLabels, DecoderSpec, make_decoder
from zinc_rt.model.arch.encoder import EncoderSpec, make_encoder
from zinc_rt.model.builder import DeltaForm, Model, ModelBuilder, Overrides, SequenceLimits
from zinc_rt.model.gguf import GGUFFile

# Facts: llama.cpp src/models/NAME.cpp
ARCHITECTURES: dict[str, Callable[[ModelBuilder], None]] = {
    "llama": make_decoder(  # Llama 1-3, Mistral 7B, Nemo, Mixtral
        DecoderSpec(
            "norm",
            rope_factors=("rope_freqs.weight", "rope_freqs.weight"),
            expert_width="feed_forward_length",
            dense_without_experts=True,
        )
    ),
    "mistral3": make_decoder(  # Ministral 3
        DecoderSpec(
            "norm",
            yarn_betas=True,
            query_temperature=True,
            expert_width="feed_forward_length",
            dense_without_experts=True,
        )
    ),
    "qwen2": make_decoder(DecoderSpec("neox")),
    "qwen2moe": make_decoder(
        DecoderSpec("neox", expert_width="expert_feed_forward_length", renormalise=False, shared="gated")
    ),
    "qwen3": make_decoder(DecoderSpec("neox", head_norms=True)),
    "qwen3moe": make_decoder(DecoderSpec("neox", head_norms=True, expert_width="expert_feed_forward_length")),
    "qwen3next": qwen_hybrid.emit,
    "qwen35": qwen_hybrid.emit,  # Qwen 3.5 and 3.6
    "qwen35moe": qwen_hybrid.emit,
    "gemma": make_decoder(
        DecoderSpec(
            "neox",
            activation=Op.GEGLU,
            scaled_embedding=True,
            labels=DecoderLabels(attended="sa_out"),
        )
    ),
    "gemma2": make_decoder(
        DecoderSpec(
            "neox",
            activation=Op.GEGLU,
            post_norms=True,
            scaled_embedding=True,
            sliding=True,
            sliding_period=2,
            default_window=4096,
            sliding_base="file",
            attention_softcap=50.0,
            logit_softcap=30.0,
            wide_scale_layers=46,  # the 27B
            labels=DecoderLabels(attended="sa_out"),
        )
    ),
    "gemma3": make_decoder(
        DecoderSpec(
            "neox",
            head_norms=True,
            activation=Op.GEGLU,
            post_norms=True,
            scaled_embedding=True,
            sliding=True,
            logit_softcap=0.0,
            wide_scale_layers=62,  # the 27B
            labels=DecoderLabels("cur_pos", "attn_proj", "sa_out"),
        )
    ),
    "gemma4": gemma4.emit,
    "phi2": phi2.emit,
    "phi3": make_decoder(  # Phi 3, 3.5, 4
        DecoderSpec("neox", rope_factors=("rope_factors_short.weight", "rope_factors_long.weight"))
    ),
    "olmo2": make_decoder(  # OLMo 2 and 3
        DecoderSpec(
            "neox",
            projection_norms=True,
            pre_norms=False,
            post_norms=True,
            sliding=True,
            sliding_period=4,
            sliding_base="same",
        )
    ),
    "olmoe": make_decoder(
        DecoderSpec("neox", projection_norms=True, expert_width="feed_forward_length", renormalise=False)
    ),
    "exaone": make_decoder(
        DecoderSpec("neox", rope_factors=("rope_freqs.weight", "rope_freqs.weight"))
    ),  # 3 and 3.5
    "granite": make_decoder(
        DecoderSpec("norm", rope_factors=("rope_freqs.weight", "rope_freqs.weight"), file_scales=True)
    ),
    "granitemoe": make_decoder(
        DecoderSpec(
            "norm",
            rope_factors=("rope_freqs.weight", "rope_freqs.weight"),
            file_scales=True,
            expert_width="feed_forward_length",
            shared="plain",
        )
    ),
    "glm4": make_decoder(DecoderSpec("norm", post_norms=True)),  # GLM 4 0414, Z1
    "smollm3": make_decoder(DecoderSpec("norm", unrotated_step=4)),
    "seed_oss": make_decoder(DecoderSpec("neox", ffn_norm="post_attention_norm")),
    "ernie4_5": make_decoder(DecoderSpec("norm")),
    "gpt-oss": make_decoder(
        DecoderSpec(
            "neox",
            ffn_norm="post_attention_norm",
            expert_width="expert_feed_forward_length",
            clamped_experts=True,
            sliding=True,
            sliding_period=2,
            default_window=None,
            sliding_base="file",
            sliding_scaled=True,
            sinks=True,
        )
    ),
    "deepseek2": deepseek2.emit,
    "mamba": mamba.emit,
    "jamba": jamba.emit,
    "bert": make_encoder(EncoderSpec()),  # BGE, MiniLM, E5
    "nomic-bert": make_encoder(EncoderSpec(rope=True, gated=True)),
}

# MTP layers, which draft tokens.
DRAFTS: dict[str, Callable[[ModelBuilder], None]] = dict.fromkeys(
    ("qwen3next", "qwen35", "qwen35moe"), qwen_hybrid.emit_draft
)

# What the opcodes of this version cannot express, for architectures without a row.
MISSING_FOR = {
    "mamba2": "the Mamba-2 scan, with groups and a scalar decay per head",
}


def build_model(
    gguf: GGUFFile,
    limits: SequenceLimits,
    stage: Stage = "both",
    *,
    delta_form: DeltaForm = "ids",
    overrides: Overrides | None = None,
) -> Model:
    """Build the verified graph of a model file. Raise UnsupportedError for an architecture without a row here,
    InputError for an inconsistent file."""
    require_architecture(gguf)
    emit = ARCHITECTURES[gguf.architecture]
    if limits.mtp and gguf.architecture not in DRAFTS:
        raise UnsupportedError(
            f"{gguf.path}: --speculate mtp: no layers for next-token prediction (MTP) are known for architecture "
            f"{gguf.architecture!r}",
            next="use --speculate ngram, or a model of one of: " + ", ".join(DRAFTS),
        )
    builder = ModelBuilder(gguf, limits, stage, delta_form=delta_form, overrides=overrides)
    emit(builder)
    model = builder.model()
    verify_graph(model.graph)
    if not limits.mtp:
        return model
    draft = build_draft_model(model, overrides)  # whose weights are resident with those of the model
    return replace(
        model, weights={**draft.weights, **model.weights}, constants={**draft.constants, **model.constants}
    )


def build_draft_model(model: Model, overrides: Overrides | None = None) -> Model:
    """Build the verified graph that drafts a token for each sequence of a step by the MTP layer of `model`, which
    has SequenceLimits.mtp. It declares all state as the model does, so that every buffer has the same location."""
    builder = ModelBuilder(model.gguf, model.limits, "decode", overrides=overrides)
    for spec in model.graph.by_role("state"):  # first, because their order decides about locations
        builder.builder.buffer(spec.name, spec.shape, spec.dtype, spec.role)
    DRAFTS[model.architecture](builder)
    draft = builder.model(whole=False)
    verify_graph(draft.graph)
    return draft


def require_architecture(gguf: GGUFFile) -> None:
    """Check that the file's architecture has a row here. Raise UnsupportedError, which names what is missing."""
    if gguf.architecture not in ARCHITECTURES:
        missing = MISSING_FOR.get(gguf.architecture)
        raise UnsupportedError(
            f"{gguf.path}: architecture {gguf.architecture!r} is not supported by this version"
            + (f": it needs {missing}" if missing else ""),
            next="choose a model of one of: " + ", ".join(ARCHITECTURES),
        )
