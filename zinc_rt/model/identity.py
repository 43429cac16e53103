"""What a model file is: what a report says of it beside its digest, so that a small model cannot pass for a large
one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Any

from zinc_rt.model.gguf import GGUFFile

EMBEDDING = "token_embd.weight"


@dataclass(frozen=True, slots=True)
class Identity:
    """`layers` that a plain forward pass runs; `width` of the residual stream; `weights`: bytes by type, of all
    tensors. 0 where the file does not say."""

    architecture: str
    size_bytes: int
    layers: int
    width: int
    vocab: int
    parameters: int
    weights: dict[str, int]

    @property
    def bits_a_weight(self) -> float:
        return bits_a_weight(self.weights, self.parameters)

    def as_dict(self) -> dict[str, Any]:
        """The identity as reports have it; `quantisation` in words, for people."""
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


def identity(gguf: GGUFFile) -> Identity:
    """What a file is, from its header alone: no weight is read."""
    architecture = gguf.metadata.get("general.architecture", "")
    weights: Counter[str] = Counter()
    for tensor in gguf.tensors.values():
        weights[tensor.dtype] += tensor.nbytes
    table = gguf.tensors.get(EMBEDDING)
    blocks, extra = (
        _count(gguf.metadata.get(f"{architecture}.{key}")) for key in ("block_count", "nextn_predict_layers")
    )
    return Identity(
        architecture=str(architecture),
        size_bytes=gguf.file_bytes,
        layers=blocks - extra,
        width=_count(gguf.metadata.get(f"{architecture}.embedding_length")),
        vocab=table.shape[0] if table is not None else 0,
        parameters=sum(prod(tensor.shape) for tensor in gguf.tensors.values()),
        weights=dict(sorted(weights.items())),
    )


def bits_a_weight(weights: dict[str, int], parameters: int) -> float:
    return 8 * sum(weights.values()) / parameters if parameters else 0.0


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
