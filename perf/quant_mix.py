"""Which type each matrix of a quantised file gets, by the mixture's name.

Facts of Q4_0, Q8_0 and Q4_K_M: llama_tensor_get_type_impl and tensor_allows_quantization in llama.cpp
src/llama-quant.cpp, without an importance matrix, for models of other than 8 experts. Q4_K_XL is no rule but each
publisher's own choice; here it is the shape such files share: what every token reads in Q8_0, experts in Q4_K,
their down projections in Q5_K.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zinc_rt.ir.dtypes import block_of

# Names that stay as they are, whatever the mixture.
KEPT = re.compile(r"_norm\.weight$|ffn_gate_inp|per_layer_model_proj|ssm_conv1d|rope_freqs")
# A row that is no multiple of the block: what takes its place.
FALLBACK = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}


@dataclass(frozen=True, slots=True)
class MatrixUse:
    """`number` of `count`: its place among those of its kind that the rule counts."""

    name: str
    columns: int
    head: bool  # the output matrix, or the embedding where that is both
    number: int
    count: int

    @property
    def kind(self) -> str:
        return self.name.removesuffix(".weight").rpartition(".")[2]


def more_bits(number: int, count: int) -> bool:
    """The first and the last eighth, and every third between them."""
    return number < count // 8 or number >= 7 * count // 8 or (number - count // 8) % 3 == 2


def q4_k_m(m: MatrixUse) -> str:
    if m.head:
        return "q6_k"
    if m.kind == "attn_qkv":
        return "q5_k"
    if (m.kind == "attn_v" or m.kind.startswith("ffn_down")) and more_bits(m.number, m.count):
        return "q6_k"
    return "q4_k"


def q4_k_xl(m: MatrixUse) -> str:
    if m.kind == "ffn_down_exps":
        return "q5_k"
    return "q4_k" if m.kind.endswith("_exps") else "q8_0"


MIXES: Mapping[str, Callable[[MatrixUse], str]] = {
    "q8_0": lambda m: "q8_0",
    "q4_0": lambda m: "q6_k" if m.head else "q4_0",
    "q4_k_m": q4_k_m,
    "q4_k_xl": q4_k_xl,
}


def types(shapes: Mapping[str, Sequence[int]], mix: str) -> dict[str, str]:
    """A type for each tensor, by name: `shapes` are (…, out, in) in file order. Vectors and what no mixture
    touches are f32. Raises KeyError for another mixture."""
    rule = MIXES[mix]
    tied = "output.weight" not in shapes
    values = [name for name in shapes if re.search(r"attn_(v|qkv|kv_b)\.weight$", name)]
    seen = 0
    layers = 1 + max((_layer(name) for name in shapes), default=0)
    found = {}
    for name, shape in shapes.items():
        if not quantised(name, shape):
            found[name] = "f32"
            continue
        number, count = _layer(name), layers
        if name.endswith("attn_v.weight"):  # counted among those of its kind, not by layer
            number, count, seen = seen, len(values), seen + 1
        head = name == "output.weight" or (tied and name.endswith("token_embd.weight"))
        dtype = rule(MatrixUse(name, shape[-1], head, number, count))
        if shape[-1] % block_of(dtype)[0]:
            dtype = FALLBACK.get(dtype, dtype)
        found[name] = dtype if shape[-1] % block_of(dtype)[0] == 0 else "f32"
    return found


def quantised(name: str, shape: Sequence[int]) -> bool:
    """Whether a mixture touches it at all."""
    return len(shape) >= 2 and name.endswith(".weight") and not KEPT.search(name)


def _layer(name: str) -> int:
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else -1
