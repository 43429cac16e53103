"""The sizes of a tiny model, and tensors shared by several architectures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zinc_rt.golden.tiny_models.weights import RandomWeights
from zinc_rt.host.errors import UsageError

Metadata = dict[str, object]
WINDOW = 8  # of sliding attention
CONV_TAPS = 4  # of the short convolution in state-space layers


@dataclass(frozen=True, slots=True)
class Sizes:
    hidden: int
    layers: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    experts: int
    experts_used: int
    context: int
    delta_heads: int | None = None  # of linear attention, where they are not `heads` and `kv_heads`
    delta_kv_heads: int | None = None
    router_rows: int | None = None  # distinct ones: experts this far apart tie exactly, in every token
    window: int | None = None  # of sliding attention, where it is not WINDOW
    mtp: int | None = None  # layers for next-token prediction, after the others

    def check(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if self.heads % self.kv_heads:
            raise UsageError(f"{self.heads} heads cannot be divided evenly among {self.kv_heads} kv heads")
        if self.head_dim % 8 or self.hidden % 8:
            raise UsageError(f"hidden {self.hidden} and head_dim {self.head_dim} must be multiples of 8")
        if self.experts_used > self.experts:
            raise UsageError(f"cannot use {self.experts_used} of {self.experts} experts")

    @property
    def expert_ffn(self) -> int:
        return self.ffn // 2

    @property
    def linear_heads(self) -> tuple[int, int]:
        """Return the numbers of value heads and key heads of linear attention."""
        return self.delta_heads or self.heads, self.delta_kv_heads or self.kv_heads


def add_embedding_and_output(w: RandomWeights, s: Sizes, *, tied: bool = False, scaled: bool = False) -> None:
    """Add embedding and output. `scaled`: the model multiplies the embedding by sqrt(hidden), so its
    values are small."""
    spread = 1.0 if scaled else 1.2 if tied else s.hidden**0.5
    w.add_normal("token_embd.weight", (s.vocab, s.hidden), std=spread / s.hidden**0.5)
    w.add_norm("output_norm", s.hidden)
    if not tied and not scaled:
        w.add_matrix("output", s.vocab, s.hidden, gain=2)


def add_attention(
    w: RandomWeights,
    blk: str,
    s: Sizes,
    *,
    bias: bool = False,
    head_norms: bool = False,
    gain: float = 1.5,
    v: bool = True,
) -> None:
    q_out, kv_out = s.heads * s.head_dim, s.kv_heads * s.head_dim
    w.add_matrix(f"{blk}.attn_q", q_out, s.hidden, gain=gain)
    w.add_matrix(f"{blk}.attn_k", kv_out, s.hidden, gain=gain)
    if v:
        w.add_matrix(f"{blk}.attn_v", kv_out, s.hidden)
    w.add_matrix(f"{blk}.attn_output", s.hidden, q_out)
    if bias:
        for name, size in (("q", q_out), ("k", kv_out), ("v", kv_out)):
            w.add_normal(f"{blk}.attn_{name}.bias", (size,), std=0.2)
    if head_norms:
        w.add_norm(f"{blk}.attn_q_norm", s.head_dim)
        w.add_norm(f"{blk}.attn_k_norm", s.head_dim)


def add_dense_ffn(w: RandomWeights, blk: str, s: Sizes, *, width: int | None = None, suffix: str = "") -> None:
    width = width or s.ffn
    w.add_matrix(f"{blk}.ffn_gate{suffix}", width, s.hidden, gain=1.5)
    w.add_matrix(f"{blk}.ffn_up{suffix}", width, s.hidden, gain=1.5)
    w.add_matrix(f"{blk}.ffn_down{suffix}", s.hidden, width)


def add_experts(w: RandomWeights, blk: str, s: Sizes, *, width: int | None = None, fused: bool = False) -> None:
    width = width or s.expert_ffn
    if fused:
        w.add_matrix(f"{blk}.ffn_gate_up_exps", 2 * width, s.hidden, gain=1.5, stack=(s.experts,))
    else:
        w.add_matrix(f"{blk}.ffn_gate_exps", width, s.hidden, gain=1.5, stack=(s.experts,))
        w.add_matrix(f"{blk}.ffn_up_exps", width, s.hidden, gain=1.5, stack=(s.experts,))
    w.add_matrix(f"{blk}.ffn_down_exps", s.hidden, width, stack=(s.experts,))


def add_router(w: RandomWeights, blk: str, s: Sizes) -> None:
    add_router_rows(w, blk, s, std=3 / s.hidden**0.5)


def add_mixture(w: RandomWeights, blk: str, s: Sizes, *, width: int | None = None) -> None:
    """Add a mixture of experts: the router and the experts."""
    add_router(w, blk, s)
    add_experts(w, blk, s, width=width)


def add_decoder_layers(
    w: RandomWeights,
    s: Sizes,
    feed_forward: Callable[[RandomWeights, str, Sizes], None] = add_dense_ffn,
    *,
    bias: bool = False,
    head_norms: bool = False,
) -> None:
    """Add every layer of a plain decoder: a norm and attention, a norm and the feed-forward part."""
    for blk in block_names(s):
        w.add_norm(f"{blk}.attn_norm", s.hidden)
        add_attention(w, blk, s, bias=bias, head_norms=head_norms)
        w.add_norm(f"{blk}.ffn_norm", s.hidden)
        feed_forward(w, blk, s)


def add_router_rows(w: RandomWeights, blk: str, s: Sizes, *, std: float) -> None:
    distinct = min(s.router_rows or s.experts, s.experts)
    name = f"{blk}.ffn_gate_inp.weight"
    rows = std * w.random(name).standard_normal((distinct, s.hidden))
    w.put(name, np.resize(rows, (s.experts, s.hidden)))


def head_metadata(s: Sizes) -> Metadata:
    return {"attention.key_length": s.head_dim, "attention.value_length": s.head_dim}


def expert_metadata(s: Sizes) -> Metadata:
    return {"expert_count": s.experts, "expert_used_count": s.experts_used}


def block_names(s: Sizes) -> list[str]:
    return [f"blk.{layer}" for layer in range(s.layers)]
