"""Write tiny random-weight GGUF models of every architecture, valid for llama.cpp."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES

from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES, TinyArchitecture
from zinc_rt.golden.tiny_models.parts import Sizes
from zinc_rt.golden.tiny_models.quantize import WRITABLE, find_ggml_type, quantize
from zinc_rt.golden.tiny_models.vocabulary import TinyVocabulary, build_vocabulary
from zinc_rt.golden.tiny_models.weights import RandomWeights
from zinc_rt.host.errors import OutputError, UsageError

# Which type each projection gets under quant="q": the mixture of a usual medium-size download, plus q4_0 and q5_k.
MIXED = {
    "token_embd": "q8_0",
    "per_layer_token_embd": "q8_0",
    "output": "q6_k",
    "attn_q": "q4_k",
    "attn_k": "q8_0",
    "attn_v": "q6_k",
    "attn_qkv": "q4_k",
    "attn_gate": "q5_k",
    "attn_output": "q4_0",
    "attn_q_a": "q4_k",
    "attn_q_b": "q6_k",
    "attn_kv_a_mqa": "q8_0",
    "attn_kv_b": "q8_0",
    "attn_k_b": "q8_0",
    "attn_v_b": "q4_0",
    "ffn_gate": "q4_k",
    "ffn_up": "q4_0",
    "ffn_down": "q6_k",
    "ffn_gate_exps": "q4_k",
    "ffn_up_exps": "q4_0",
    "ffn_gate_up_exps": "q4_k",
    "ffn_down_exps": "q8_0",
    "ffn_gate_shexp": "q8_0",
    "ffn_up_shexp": "q4_k",
    "ffn_down_shexp": "q5_k",
    "inp_gate": "q8_0",
    "proj": "q4_0",
    "eh_proj": "q8_0",
    "ssm_in": "q4_k",
    "ssm_x": "q8_0",
    "ssm_out": "q6_k",
    "ssm_ba": "q8_0",
    "ssm_alpha": "q8_0",
    "ssm_beta": "q8_0",
}
EVERY = "every"


@dataclass(frozen=True, slots=True)
class ModelContent:
    """A model before it is written: metadata without the tokenizer, the vocabulary, float32 tensors (out,
    in)."""

    architecture: str  # general.architecture
    metadata: Mapping[str, object]
    vocabulary: TinyVocabulary
    tensors: Mapping[str, np.ndarray]


def build_tiny(
    architecture: str,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int | None = None,
    vocab: int = 512,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    ffn: int | None = None,
    experts: int = 8,
    experts_used: int = 2,
    context: int = 256,
    router_rows: int | None = None,
    window: int | None = None,
    mtp: int | None = None,
) -> ModelContent:
    """Return a tiny model of one row of ARCHITECTURES. `mtp`: layers for next-token prediction, of the qwen
    hybrids. Raises UsageError for incompatible sizes."""
    if architecture not in ARCHITECTURES:
        raise UsageError(f"unknown tiny model {architecture!r}", next=f"use one of {', '.join(ARCHITECTURES)}")
    row = ARCHITECTURES[architecture]
    sizes = Sizes(
        hidden=hidden,
        layers=row.layers if layers is None else layers,
        vocab=vocab,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim or row.head_factor * hidden // heads,
        ffn=ffn or 2 * hidden,
        experts=experts,
        experts_used=experts_used,
        context=context,
        router_rows=router_rows,
        window=window,
        mtp=mtp,
    )
    sizes.check()
    if sizes.layers < row.fewest_layers:
        raise UsageError(f"{architecture} needs at least {row.fewest_layers} layers, got {sizes.layers}")
    if row.fixed_head_dim and sizes.head_dim * heads != hidden:
        raise UsageError(
            f"{architecture} needs head_dim = hidden / heads, got {sizes.head_dim}, {hidden}, {heads}"
        )
    weights = RandomWeights(seed)
    own = row.build(sizes, weights)
    metadata = make_common_metadata(row, sizes) | own
    return ModelContent(row.architecture, metadata, build_vocabulary(row.vocabulary, vocab), weights.tensors)


def make_common_metadata(row: TinyArchitecture, sizes: Sizes) -> dict[str, object]:
    """Return the metadata common to all architectures, without the architecture prefix."""
    return {
        "context_length": sizes.context,
        "embedding_length": sizes.hidden,
        "block_count": sizes.layers,
        "feed_forward_length": sizes.ffn,
        "attention.head_count": sizes.heads,
        "attention.head_count_kv": sizes.kv_heads,
        "attention.layer_norm_rms_epsilon": row.epsilon,
        "vocab_size": sizes.vocab,
    }


def write_tiny(
    path: str | os.PathLike[str], architecture: str, *, seed: int = 0, quant: str = "f32", **sizes: int
) -> None:
    """Write `build_tiny(architecture, seed=seed, **sizes)` as a GGUF file; the same arguments give the same
    bytes.

    `quant`: a type of quantize.WRITABLE for every projection, "q" for a mixture, or "every" for all types
    in turn. Rows that are not a multiple of a type's block fall back to q8_0, then f32. Norms, biases,
    routers and state-space parameters remain f32.
    """
    if quant not in ("q", EVERY, *WRITABLE):
        raise UsageError(f"unknown type {quant!r}", next=f"use q, {EVERY} or one of {', '.join(WRITABLE)}")
    write_content(
        path, build_tiny(architecture, seed=seed, **sizes), quant=quant, name=f"tiny-{architecture}-{quant}"
    )


def write_content(
    path: str | os.PathLike[str], content: ModelContent, *, quant: str = "f32", name: str = "tiny"
) -> None:
    """Write a model as a GGUF file, as `write_tiny` does. Raises OutputError if `path` cannot be written."""
    writer = gguf.GGUFWriter(None, content.architecture)
    writer.add_string("general.name", name)
    writer.add_uint32("general.quantization_version", 2)
    for key, value in content.metadata.items():
        add_metadata(writer, f"{content.architecture}.{key}", value)
    _add_vocabulary(writer, content.vocabulary)
    for number, (tensor, values) in enumerate(content.tensors.items()):
        dtype = choose_tensor_type(tensor, values, rotate_types(number, values) if quant == EVERY else quant)
        data = quantize(values, dtype)
        writer.add_tensor(tensor, data if dtype == "f32" else data.view(np.uint8), raw_dtype=find_ggml_type(dtype))
    unfinished = Path(f"{path}.{os.getpid()}.part")
    try:
        writer.write_header_to_file(unfinished)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot write the model: {error.strerror}") from error


def rotate_types(number: int, values: np.ndarray) -> str:
    """Return a type for the tensor with this number: all that its rows permit take turns."""
    fitting = [t for t in WRITABLE if values.shape[-1] % GGML_QUANT_SIZES[find_ggml_type(t)][0] == 0]
    return fitting[number % len(fitting)]


def choose_tensor_type(name: str, values: np.ndarray, quant: str) -> str:
    """Return the type of a tensor: the type selected by `quant`, if its rows permit it."""
    projection = name.removesuffix(".weight").split(".")[-1]
    if projection not in MIXED or not name.endswith(".weight"):
        return "f32"
    for dtype in (MIXED[projection] if quant == "q" else quant, "q8_0"):
        if values.shape[-1] % GGML_QUANT_SIZES[find_ggml_type(dtype)][0] == 0:
            return dtype
    return "f32"


def add_metadata(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        assert isinstance(value, list)
        writer.add_array(key, value)


def _add_vocabulary(writer: gguf.GGUFWriter, vocab: TinyVocabulary) -> None:
    add_metadata(writer, "tokenizer.ggml.model", vocab.model)
    if vocab.pre:
        add_metadata(writer, "tokenizer.ggml.pre", vocab.pre)
    add_metadata(writer, "tokenizer.ggml.tokens", vocab.tokens)
    if vocab.scores:
        add_metadata(writer, "tokenizer.ggml.scores", vocab.scores)
    add_metadata(writer, "tokenizer.ggml.token_type", vocab.types)
    if vocab.merges:
        add_metadata(writer, "tokenizer.ggml.merges", vocab.merges)
    for key, value in vocab.extra.items():
        add_metadata(writer, f"tokenizer.{key}", value)
