"""Identify a model file: data that reports show in addition to its digest, so that a small model cannot be
mistaken for a large one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Any

from zinc_rt.model.gguf import GGUFFile

EMBEDDING = "token_embd.weight"


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity. `layers`: run by a plain forward pass; `width`: of the residual stream; `weights`: bytes by
    type, of all tensors. 0 if the file does not define a value."""

    architecture: str
    size_bytes: int
    layers: int
    width: int
    vocab: int
    parameters: int
    weights: dict[str, int]

    @property
    def bits_a_weight(self) -> float:
        return compute_bits_per_weight(self.weights, self.parameters)

    def as_dict(self) -> dict[str, Any]:
        """Return the identity as stored in reports; `quantisation` is text for people."""
        return {
            "architecture": self.architecture,
            "size_bytes": self.size_bytes,
            "layers": self.layers,
            "width": self.width,
            "vocab": self.vocab,
            "parameters": self.parameters,
            "weights": dict(self.weights),
            "quantisation": f"{max(self.weights, key=self.weights.__getitem__, default='nothing')}, "
            f"{self.bits_a_weight:.2f} bits a weight",
        }


def identify_model(gguf: GGUFFile) -> Identity:
    """Identify a file from its header only, without reading weights."""
    architecture = gguf.metadata.get("general.architecture", "")
    weights: Counter[str] = Counter()
    for tensor in gguf.tensors.values():
        weights[tensor.dtype] += tensor.nbytes
    table = gguf.tensors.get(EMBEDDING)
    blocks, extra = (
        _format_count(gguf.metadata.get(f"{architecture}.{key}"))
        for key in ("block_count", "nextn_predict_layers")
    )
    return Identity(
        architecture=str(architecture),
        size_bytes=gguf.file_bytes,
        layers=blocks - extra,
        width=_format_count(gguf.metadata.get(f"{architecture}.embedding_length")),
        vocab=table.shape[0] if table is not None else 0,
        parameters=sum(prod(tensor.shape) for tensor in gguf.tensors.values()),
        weights=dict(sorted(weights.items())),
    )


def compute_bits_per_weight(weights: dict[str, int], parameters: int) -> float:
    return 8 * sum(weights.values()) / parameters if parameters else 0.0


def _format_count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
