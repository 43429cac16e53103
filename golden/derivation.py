"""Compute a tiny model in float64, without any code of the runtime: a second derivation of what a file means.

The file is read and dequantised by the package gguf. Every sequence is computed anew in one pass, so there are no
pages, no caches and no stages. Structures: plain decoders (llama, mixtral, qwen3, qwen3moe, gemma2), latent
attention (deepseek2) and scans (jamba). Facts: llama.cpp src/models/NAME.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from zinc_rt.host.errors import UnsupportedError

SOURCE = "float64 derivation"
ARCHITECTURES = ("llama", "qwen3", "qwen3moe", "gemma2", "deepseek2", "jamba")
Array = np.ndarray[Any, np.dtype[np.float64]]


def derive_golden(path: Path, tokens: Sequence[int], steps: int) -> dict[str, np.ndarray]:
    """Return a golden's arrays for the prompt and `steps` greedy tokens: logits, layers, and the values inside
    layers that llama.cpp names, as float32 with T rows. Raises UnsupportedError for another architecture.
    """
    model = DerivedModel(path)
    sequence = list(tokens)
    while len(sequence) < len(tokens) + steps:
        sequence.append(int(model.run(sequence)[-1].argmax()))
    logits = model.run(sequence)
    count = len(tokens)
    layers = [model.values.pop(f"l_out-{layer}") for layer in range(model.layers)]
    inside = {name: value[:count] for name, value in model.values.items()}
    arrays: dict[str, np.ndarray] = {
        "ids": np.array(tokens, np.int32),
        "logits": logits[:count],
        "greedy_tokens": np.array(sequence[count:], np.int32),
        "greedy_logits": logits[count:],
        "l_out": np.stack(layers)[:, :count],
        **inside,
    }
    return {name: value if value.dtype == np.int32 else value.astype(np.float32) for name, value in arrays.items()}


def normalise(x: Array, weight: Array, eps: float) -> Array:
    scaled: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight
    return scaled


def silu(x: Array) -> Array:
    result: Array = x / (1 + np.exp(-x))
    return result


def gelu(x: Array) -> Array:
    """Return llama.cpp's GELU, which is the tanh form."""
    result: Array = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
    return result


def softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


class DerivedModel:
    """A model file and, after `run`, the values of its pass by label."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        self.arch = str(self.fields["general.architecture"])
        if self.arch not in ARCHITECTURES:
            raise UnsupportedError(
                f"{path.name}: no float64 derivation of {self.arch}", next=f"one of {', '.join(ARCHITECTURES)}"
            )
        self.tensors: dict[str, Array] = {
            item.name: gguf.quants.dequantize(item.data, item.tensor_type).astype(np.float64)
            for item in reader.tensors
        }
        self.layers = int(self.read("block_count"))
        self.eps = float(self.read("attention.layer_norm_rms_epsilon"))
        self.gemma = self.arch == "gemma2"
        self.heads = int(self.read("attention.head_count"))
        self.values: dict[str, np.ndarray] = {}

    def read(self, key: str, default: Any = None) -> Any:
        return self.fields.get(f"{self.arch}.{key}", default)

    def run(self, tokens: Sequence[int]) -> Array:
        """Return logits [T, V]."""
        self.values = {}
        x = self.tensors["token_embd.weight"][list(tokens)]
        if self.gemma:
            x = x * np.sqrt(x.shape[-1])
        for layer in range(self.layers):
            x = self._run_layer(layer, x)
        x = self.keep("result_norm", normalise(x, self.tensors["output_norm.weight"], self.eps))
        head = self.tensors.get("output.weight", self.tensors["token_embd.weight"])
        cap = self.read("final_logit_softcapping", 0.0)
        logits: Array = x @ head.T
        return cap * np.tanh(logits / cap) if cap else logits

    def keep(self, label: str, value: Array) -> Array:
        self.values[label] = value.reshape(len(value), -1)
        return value

    def linear(self, name: str, x: Array, layer: int) -> Array:
        bias = self.tensors.get(f"blk.{layer}.{name}.bias", np.zeros(1))
        result: Array = x @ self.tensors[f"blk.{layer}.{name}.weight"].T + bias
        return result

    def norm(self, name: str, x: Array, layer: int) -> Array:
        return normalise(x, self.tensors[f"blk.{layer}.{name}.weight"], self.eps)

    def has(self, name: str, layer: int) -> bool:
        return f"blk.{layer}.{name}.weight" in self.tensors

    def _run_layer(self, layer: int, x: Array) -> Array:
        h = self.keep(f"attn_norm-{layer}", self.norm("attn_norm", x, layer))
        if self.has("ssm_in", layer):
            y = self._scan(layer, h)
        elif self.has("attn_kv_a_mqa", layer):
            y = self._latent_attention(layer, h)
        else:
            y = self._attention(layer, h)
        if self.gemma:
            y = self.norm("post_attention_norm", y, layer)
        x = self.keep(f"ffn_inp-{layer}" if not self.gemma else f"sa_out-{layer}", x + y)
        h = self.keep(f"ffn_norm-{layer}", self.norm("ffn_norm", x, layer))
        y = self._experts(layer, h) if self.has("ffn_gate_inp", layer) else self._dense(layer, h)
        if self.gemma:
            y = self.norm("post_ffw_norm", y, layer)
        return self.keep(f"l_out-{layer}", x + y)

    def _dense(self, layer: int, h: Array, suffix: str = "") -> Array:
        act = gelu if self.gemma else silu
        gated = act(self.linear(f"ffn_gate{suffix}", h, layer)) * self.linear(f"ffn_up{suffix}", h, layer)
        return self.linear(f"ffn_down{suffix}", gated, layer)

    # --- attention

    def _turn(self, x: Array, width: int, *, pairs: bool, yarn: bool = False) -> Array:
        """Rotate the last `width` elements of heads [T, H, D]: neighbouring `pairs`, or halves."""
        base = float(self.read("rope.freq_base", 10000.0))
        index = np.arange(width // 2)
        speed = base ** (-2.0 * index / width)
        if "rope_freqs.weight" in self.tensors:
            speed = speed / self.tensors["rope_freqs.weight"]
        if yarn:
            factor, context = self.read("rope.scaling.factor"), self.read("rope.scaling.original_context_length")
            low, high = (width * np.log(context / (beta * 2 * np.pi)) / (2 * np.log(base)) for beta in (32.0, 1.0))
            low, high = max(0.0, np.floor(low)), min(width - 1.0, np.ceil(high))
            own = 1 - np.clip((index - low) / max(0.001, high - low), 0, 1)  # the share that keeps its speed
            speed = speed * own + speed / factor * (1 - own)
        angle = np.arange(len(x))[:, None, None] * speed
        cos, sin = np.cos(angle), np.sin(angle)
        still, part = x[..., : x.shape[-1] - width], x[..., x.shape[-1] - width :]
        a, b = (part[..., 0::2], part[..., 1::2]) if pairs else np.split(part, 2, axis=-1)
        first, second = a * cos - b * sin, a * sin + b * cos
        turned = (
            np.stack([first, second], -1).reshape(part.shape) if pairs else np.concatenate([first, second], -1)
        )
        return np.concatenate([still, turned], -1)

    def _weigh(self, layer: int, q: Array, k: Array, v: Array, scale: float) -> Array:
        """Return attention [T, H·D] of queries [T, H, K] over keys [T, G, K] and values [T, G, D], causal."""
        group = q.shape[1] // k.shape[1]
        scores: Array = np.einsum("thd,shd->hts", q, np.repeat(k, group, axis=1)) * scale
        if cap := self.read("attn_logit_softcapping", 0.0):
            scores = cap * np.tanh(scores / cap)
        back = np.arange(len(q))[:, None] - np.arange(len(q))
        window = int(self.read("attention.sliding_window", 0) or 0) if self.gemma and layer % 2 == 0 else 0
        hidden = (back < 0) | ((back >= window) if window else False)
        weights = softmax(np.where(hidden, -np.inf, scores))
        result: Array = np.einsum("hts,shd->thd", weights, np.repeat(v, group, axis=1))
        return self.keep(f"kqv_out-{layer}", result.reshape(len(q), -1))

    def _attention(self, layer: int, h: Array) -> Array:
        groups = self.read("attention.head_count_kv")
        groups = int(groups[layer] if isinstance(groups, list) else groups)
        q, k, v = (
            self.linear(f"attn_{name}", h, layer).reshape(len(h), count, -1)
            for name, count in (("q", self.heads), ("k", groups), ("v", groups))
        )
        if self.has("attn_q_norm", layer):
            q, k = self.norm("attn_q_norm", q, layer), self.norm("attn_k_norm", k, layer)
        if self.arch != "jamba":  # whose attention knows no positions
            q, k = (self._turn(x, x.shape[-1], pairs=self.arch == "llama") for x in (q, k))
        for name, value in (("Qcur", q), ("Kcur", k), ("Vcur", v)):
            self.keep(f"{name}-{layer}", value)
        return self.linear("attn_output", self._weigh(layer, q, k, v, q.shape[-1] ** -0.5), layer)

    def _latent_attention(self, layer: int, h: Array) -> Array:
        """Return multi-head latent attention, with keys and values expanded for each head."""
        turning = int(self.read("rope.dimension_count"))
        low = self.norm("attn_q_a_norm", self.linear("attn_q_a", h, layer), layer)
        q = self.linear("attn_q_b", low, layer).reshape(len(h), self.heads, -1)
        both = self.linear("attn_kv_a_mqa", h, layer)
        latent = self.norm("attn_kv_a_norm", both[:, :-turning], layer)
        shared = self._turn(both[:, None, -turning:], turning, pairs=True, yarn=True)
        plain = np.einsum("tr,hrn->thn", latent, self.tensors[f"blk.{layer}.attn_k_b.weight"])
        k = np.concatenate([plain, np.repeat(shared, self.heads, axis=1)], -1)
        v = np.einsum("tr,hnr->thn", latent, self.tensors[f"blk.{layer}.attn_v_b.weight"])
        q = self._turn(q, turning, pairs=True, yarn=True)
        multiplier = self.read("rope.scaling.yarn_log_multiplier") * np.log(self.read("rope.scaling.factor"))
        scale = (1 + multiplier) ** 2 / np.sqrt(q.shape[-1])
        return self.linear("attn_output", self._weigh(layer, q, k, v, scale), layer)

    # --- experts and scans

    def _experts(self, layer: int, h: Array) -> Array:
        logits = self.linear("ffn_gate_inp", h, layer)
        count = int(self.read("expert_used_count"))
        sigmoid = self.read("expert_gating_func", 1) == 2
        likely = 1 / (1 + np.exp(-logits)) if sigmoid else softmax(logits)
        score = likely + self.tensors.get(f"blk.{layer}.exp_probs_b.bias", np.zeros(1))
        if (groups := int(self.read("expert_group_count", 1))) > 1:
            by_group = np.sort(score.reshape(len(h), groups, -1), axis=-1)[..., -2:].sum(-1)
            kept = np.argsort(-by_group, axis=-1, kind="stable")[:, : self.read("expert_group_used_count")]
            open_ = np.zeros((len(h), groups), bool)
            np.put_along_axis(open_, kept, True, axis=-1)
            score = np.where(np.repeat(open_, score.shape[-1] // groups, axis=-1), score, -np.inf)
        chosen = np.argsort(-score, axis=-1, kind="stable")[:, :count]
        self.values[f"ffn_moe_topk-{layer}"] = chosen.astype(np.int32)
        weights = np.take_along_axis(likely, chosen, axis=-1)
        if self.arch != "jamba":
            weights = weights / weights.sum(-1, keepdims=True)
        weights = weights * self.read("expert_weights_scale", 1.0)
        gate, up, down = (self.tensors[f"blk.{layer}.ffn_{name}_exps.weight"] for name in ("gate", "up", "down"))
        result = np.zeros_like(h)
        for token, experts in enumerate(chosen):
            for expert, weight in zip(experts, weights[token], strict=True):
                gated = silu(gate[expert] @ h[token]) * (up[expert] @ h[token])
                result[token] += weight * (down[expert] @ gated)
        return result + self._dense(layer, h, "_shexp") if self.has("ffn_gate_shexp", layer) else result

    def _scan(self, layer: int, h: Array) -> Array:
        """Return a Mamba mixer: short convolution, then a scan over the tokens with a state [inner, N]."""
        u, z = np.split(self.linear("ssm_in", h, layer), 2, axis=-1)
        taps = self.tensors[f"blk.{layer}.ssm_conv1d.weight"]
        padded = np.concatenate([np.zeros((taps.shape[1] - 1, u.shape[1])), u])
        windows = np.stack([padded[i : i + len(u)] for i in range(taps.shape[1])], -1)
        u = silu((windows * taps).sum(-1) + self.tensors[f"blk.{layer}.ssm_conv1d.bias"])
        rank, width = int(self.read("ssm.time_step_rank")), int(self.read("ssm.state_size"))
        dt, b, c = np.split(self.linear("ssm_x", u, layer), [rank, rank + width], axis=-1)
        dt, b, c = (self.norm(f"ssm_{n}_norm", x, layer) for n, x in (("dt", dt), ("b", b), ("c", c)))
        dt = np.logaddexp(0, self.linear("ssm_dt", dt, layer))
        decay, skip = self.tensors[f"blk.{layer}.ssm_a"], self.tensors[f"blk.{layer}.ssm_d"]
        state, out = np.zeros((u.shape[1], width)), np.zeros_like(u)
        for t in range(len(u)):
            state = state * np.exp(dt[t][:, None] * decay) + (dt[t] * u[t])[:, None] * b[t]
            out[t] = state @ c[t] + skip * u[t]
        return self.linear("ssm_out", out * silu(z), layer)


# --- tokenizers

# llama.cpp src/llama-vocab.cpp, for ASCII: words with a leading character, up to three digits, punctuation, space
WORDS = re.compile(
    r"(?:'[sStTmMdD]|'[rR][eE]|'[vV][eE]|'[lL][lL])|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}"
    r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = (
    "1 23 456 7890 and 1234567",
    "Numbers such as 1, 23, 456 and 7890 are read.",
    'print(i, "hello world") isn\'t asleep',
    "zzz QQ qx  two   spaces\n\nlines\t~~~",
    "for i in range(10):\n    print(i)",
)


def derive_texts(path: Path) -> list[dict[str, object]]:
    """Return texts with the tokens that the file's tokenizer gives, as a golden's metadata has them; none for a
    pre-tokenizer without a derivation. Every merge is searched anew, in the whole list of merges or scores.
    """
    fields = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    kind, pre = fields["tokenizer.ggml.model"], fields.get("tokenizer.ggml.pre", "")
    ids = {text: number for number, text in reversed(list(enumerate(fields["tokenizer.ggml.tokens"])))}
    if kind == "llama":
        return [{"text": text, "plain": _merge_by_score(text, fields, ids)} for text in (*TEXTS, "naïve ☃")]
    if (kind, pre) != ("gpt2", "llama-bpe"):
        return []
    ranks = {tuple(pair.split(" ")): rank for rank, pair in enumerate(fields["tokenizer.ggml.merges"])}
    return [{"text": text, "plain": [ids[piece] for piece in _merge_by_rank(text, ranks)]} for text in TEXTS]


def _merge_by_rank(text: str, ranks: dict[tuple[str, ...], int]) -> Iterator[str]:
    # printable ASCII stands for itself, space and control characters for U+0100 and up (openai/gpt-2, encoder.py)
    for word in WORDS.findall(text):
        pieces = [char if char > " " else chr(256 + ord(char)) for char in word]
        while pairs := [pair for pair in pairwise(pieces) if pair in ranks]:
            first = min(pairs, key=ranks.__getitem__)
            pieces = _join(pieces, {index for index, pair in enumerate(pairwise(pieces)) if pair == first})
        yield from pieces


def _merge_by_score(text: str, fields: dict[str, Any], ids: dict[str, int]) -> list[int]:
    prefix = " " if fields.get("tokenizer.ggml.add_space_prefix", True) else ""
    pieces = list((prefix + text).replace(" ", "▁"))
    scores = fields["tokenizer.ggml.scores"]
    while joined := [
        (-scores[ids[left + right]], index)
        for index, (left, right) in enumerate(pairwise(pieces))
        if left + right in ids
    ]:
        pieces = _join(pieces, {min(joined)[1]})
    return [
        token
        for piece in pieces
        for token in ([ids[piece]] if piece in ids else [ids[f"<0x{byte:02X}>"] for byte in piece.encode()])
    ]


def _join(pieces: list[str], at: set[int]) -> list[str]:
    """Join each piece whose index is in `at` with the next one, from the left."""
    joined, index = [], 0
    while index < len(pieces):
        step = 2 if index in at else 1
        joined.append("".join(pieces[index : index + step]))
        index += step
    return joined
