"""What each architecture's GGUF file holds: metadata keys and tensors, one function and one row each.

Names and shapes follow llama.cpp's loaders (src/models/*.cpp); sizes follow from `Sizes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from zinc_rt.errors import UsageError
from zinc_rt.golden.tiny_weights import Weights

Metadata = dict[str, object]


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

    def check(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, at least 1 is needed")
        if self.heads % self.kv_heads:
            raise UsageError(f"{self.heads} heads cannot share {self.kv_heads} kv heads evenly")
        if self.head_dim % 8 or self.hidden % 8:
            raise UsageError(f"hidden {self.hidden} and head_dim {self.head_dim} must be multiples of 8")
        if self.experts_used > self.experts:
            raise UsageError(f"{self.experts_used} of {self.experts} experts cannot be used")

    @property
    def expert_ffn(self) -> int:
        return self.ffn // 2


# --- parts ---


def ends(w: Weights, s: Sizes, *, tied: bool = False, scaled: bool = False) -> None:
    """Embedding and output. `scaled`: the model multiplies the embedding by sqrt(hidden), so it starts small."""
    spread = 1.0 if scaled else 1.2 if tied else s.hidden**0.5
    w.normal("token_embd.weight", (s.vocab, s.hidden), std=spread / s.hidden**0.5)
    w.norm("output_norm", s.hidden)
    if not tied and not scaled:
        w.matrix("output", s.vocab, s.hidden, gain=2)


def attention(
    w: Weights,
    blk: str,
    s: Sizes,
    *,
    bias: bool = False,
    head_norms: bool = False,
    gain: float = 1.5,
    v: bool = True,
) -> None:
    q_out, kv_out = s.heads * s.head_dim, s.kv_heads * s.head_dim
    w.matrix(f"{blk}.attn_q", q_out, s.hidden, gain=gain)
    w.matrix(f"{blk}.attn_k", kv_out, s.hidden, gain=gain)
    if v:
        w.matrix(f"{blk}.attn_v", kv_out, s.hidden)
    w.matrix(f"{blk}.attn_output", s.hidden, q_out)
    if bias:
        for name, size in (("q", q_out), ("k", kv_out), ("v", kv_out)):
            w.normal(f"{blk}.attn_{name}.bias", (size,), std=0.2)
    if head_norms:
        w.norm(f"{blk}.attn_q_norm", s.head_dim)
        w.norm(f"{blk}.attn_k_norm", s.head_dim)


def dense(w: Weights, blk: str, s: Sizes, *, width: int | None = None, suffix: str = "") -> None:
    width = width or s.ffn
    w.matrix(f"{blk}.ffn_gate{suffix}", width, s.hidden, gain=1.5)
    w.matrix(f"{blk}.ffn_up{suffix}", width, s.hidden, gain=1.5)
    w.matrix(f"{blk}.ffn_down{suffix}", s.hidden, width)


def experts(w: Weights, blk: str, s: Sizes, *, width: int | None = None, fused: bool = False) -> None:
    width = width or s.expert_ffn
    if fused:
        w.matrix(f"{blk}.ffn_gate_up_exps", 2 * width, s.hidden, gain=1.5, stack=(s.experts,))
    else:
        w.matrix(f"{blk}.ffn_gate_exps", width, s.hidden, gain=1.5, stack=(s.experts,))
        w.matrix(f"{blk}.ffn_up_exps", width, s.hidden, gain=1.5, stack=(s.experts,))
    w.matrix(f"{blk}.ffn_down_exps", s.hidden, width, stack=(s.experts,))


def router(w: Weights, blk: str, s: Sizes) -> None:
    w.matrix(f"{blk}.ffn_gate_inp", s.experts, s.hidden, gain=3)


def wide_heads(s: Sizes) -> Metadata:
    return {"attention.key_length": s.head_dim, "attention.value_length": s.head_dim}


def expert_counts(s: Sizes) -> Metadata:
    return {"expert_count": s.experts, "expert_used_count": s.experts_used}


def blocks(s: Sizes) -> list[str]:
    return [f"blk.{layer}" for layer in range(s.layers)]


# --- architectures ---


def llama(s: Sizes, w: Weights) -> Metadata:
    """With Llama 3's rope frequency factors."""
    ends(w, s)
    w.put("rope_freqs.weight", np.geomspace(1, 8, s.head_dim // 2))
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        attention(w, blk, s)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        dense(w, blk, s)
    return wide_heads(s) | {"rope.freq_base": 500000.0, "rope.dimension_count": s.head_dim}


def mistral(s: Sizes, w: Weights) -> Metadata:
    """Heads wider than hidden / heads, and linear rope scaling."""
    ends(w, s)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        attention(w, blk, s)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        dense(w, blk, s)
    return wide_heads(s) | {
        "rope.freq_base": 1e6,
        "rope.dimension_count": s.head_dim,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 2.0,
    }


def mixtral(s: Sizes, w: Weights) -> Metadata:
    ends(w, s)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        attention(w, blk, s)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        router(w, blk, s)
        experts(w, blk, s, width=s.ffn)
    rope: Metadata = {"rope.freq_base": 1e6, "rope.dimension_count": s.head_dim}
    return wide_heads(s) | expert_counts(s) | rope


def mistral3(s: Sizes, w: Weights) -> Metadata:
    """YaRN with its betas, and queries that grow with the position past a quarter of the context."""
    ends(w, s)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        attention(w, blk, s)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        dense(w, blk, s)
    return wide_heads(s) | {
        "rope.freq_base": 10000.0,
        "rope.dimension_count": s.head_dim,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": max(1, s.context // 16),
        "rope.scaling.yarn_beta_fast": 4.0,
        "rope.scaling.yarn_beta_slow": 0.05,
        "rope.scaling.yarn_log_multiplier": 1.0,
        "attention.temperature_scale": 0.1,
    }


def qwen2(s: Sizes, w: Weights) -> Metadata:
    ends(w, s, tied=True)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        attention(w, blk, s, bias=True)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        dense(w, blk, s)
    return wide_heads(s) | {"rope.freq_base": 1e6}


def qwen3(s: Sizes, w: Weights) -> Metadata:
    ends(w, s)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        attention(w, blk, s, head_norms=True)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        dense(w, blk, s)
    return wide_heads(s) | {"rope.freq_base": 1e6}


def qwen3moe(s: Sizes, w: Weights) -> Metadata:
    ends(w, s)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        attention(w, blk, s, head_norms=True)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        router(w, blk, s)
        experts(w, blk, s)
    return wide_heads(s) | expert_counts(s) | {"rope.freq_base": 1e6, "expert_feed_forward_length": s.expert_ffn}


FULL_ATTENTION_INTERVAL = 4
CONV_TAPS = 4


def delta_net(w: Weights, blk: str, s: Sizes, *, joint_beta_alpha: bool) -> None:
    """Gated DeltaNet: `heads` value heads, `kv_heads` key heads, one width for keys and values."""
    inner = s.heads * delta_width(s)
    channels = inner + 2 * s.kv_heads * delta_width(s)
    w.matrix(f"{blk}.attn_qkv", channels, s.hidden, gain=1.5)
    w.matrix(f"{blk}.attn_gate", inner, s.hidden, gain=1.5)
    w.normal(f"{blk}.ssm_conv1d.weight", (channels, CONV_TAPS), std=0.6)
    w.uniform(f"{blk}.ssm_dt.bias", (s.heads,), -1, 1)
    w.uniform(f"{blk}.ssm_a", (s.heads,), -2, -0.1)
    if joint_beta_alpha:
        w.matrix(f"{blk}.ssm_ba", 2 * s.heads, s.hidden)
    else:
        w.matrix(f"{blk}.ssm_beta", s.heads, s.hidden)
        w.matrix(f"{blk}.ssm_alpha", s.heads, s.hidden)
    w.norm(f"{blk}.ssm_norm", delta_width(s))
    w.matrix(f"{blk}.ssm_out", s.hidden, inner)


def delta_width(s: Sizes) -> int:
    return max(8, s.head_dim // 2)


def gated_attention(w: Weights, blk: str, s: Sizes) -> None:
    """Query rows hold [q | gate] per head."""
    w.matrix(f"{blk}.attn_q", 2 * s.heads * s.head_dim, s.hidden, gain=1.5)
    w.matrix(f"{blk}.attn_k", s.kv_heads * s.head_dim, s.hidden, gain=1.5)
    w.matrix(f"{blk}.attn_v", s.kv_heads * s.head_dim, s.hidden)
    w.matrix(f"{blk}.attn_output", s.hidden, s.heads * s.head_dim)
    w.norm(f"{blk}.attn_q_norm", s.head_dim)
    w.norm(f"{blk}.attn_k_norm", s.head_dim)


def hybrid(s: Sizes, w: Weights, *, joint_beta_alpha: bool, moe: bool) -> Metadata:
    ends(w, s)
    for layer, blk in enumerate(blocks(s)):
        w.norm(f"{blk}.attn_norm", s.hidden)
        w.norm(f"{blk}.post_attention_norm", s.hidden)
        if (layer + 1) % FULL_ATTENTION_INTERVAL == 0:
            gated_attention(w, blk, s)
        else:
            delta_net(w, blk, s, joint_beta_alpha=joint_beta_alpha)
        if moe:
            router(w, blk, s)
            experts(w, blk, s, fused=layer % 4 == 1)  # both layouts are in circulation
            dense(w, blk, s, width=s.expert_ffn, suffix="_shexp")
            w.normal(f"{blk}.ffn_gate_inp_shexp.weight", (s.hidden,), std=2 / s.hidden**0.5)
        else:
            dense(w, blk, s)
    metadata: Metadata = wide_heads(s) | {
        "rope.freq_base": 1e7,
        "rope.dimension_count": rotated(s),
        "ssm.conv_kernel": CONV_TAPS,
        "ssm.inner_size": s.heads * delta_width(s),
        "ssm.state_size": delta_width(s),
        "ssm.time_step_rank": s.heads,
        "ssm.group_count": s.kv_heads,
        "full_attention_interval": FULL_ATTENTION_INTERVAL,
    }
    if moe:
        metadata |= expert_counts(s) | {
            "expert_feed_forward_length": s.expert_ffn,
            "expert_shared_feed_forward_length": s.expert_ffn,
        }
    return metadata


def rotated(s: Sizes) -> int:
    """A quarter of the head."""
    return s.head_dim // 8 * 2


def sections(s: Sizes) -> Metadata:
    """Rotary pairs shared out over time, height and width, as in real models ([11, 11, 10, 0])."""
    pairs = rotated(s) // 2
    time = -(-pairs // 3)
    height = -(-(pairs - time) // 2)
    return {"rope.dimension_sections": [time, height, pairs - time - height, 0]}


def qwen3next(s: Sizes, w: Weights) -> Metadata:
    return hybrid(s, w, joint_beta_alpha=True, moe=True)


def qwen35(s: Sizes, w: Weights) -> Metadata:
    return hybrid(s, w, joint_beta_alpha=False, moe=False) | sections(s)


def qwen35moe(s: Sizes, w: Weights) -> Metadata:
    return hybrid(s, w, joint_beta_alpha=False, moe=True) | sections(s)


WINDOW = 8


def gemma3(s: Sizes, w: Weights) -> Metadata:
    ends(w, s, scaled=True)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        attention(w, blk, s, head_norms=True)
        w.norm(f"{blk}.post_attention_norm", s.hidden)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        dense(w, blk, s)
        w.norm(f"{blk}.post_ffw_norm", s.hidden)
    return wide_heads(s) | {
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 10000.0,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
        "attention.sliding_window": WINDOW,
    }


def gemma4_metadata(s: Sizes, sliding: list[bool]) -> Metadata:
    narrow = s.head_dim // 2
    return wide_heads(s) | {
        "attention.key_length_swa": narrow,
        "attention.value_length_swa": narrow,
        "rope.dimension_count": s.head_dim,
        "rope.dimension_count_swa": narrow,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 10000.0,
        "attention.sliding_window": WINDOW,
        "attention.sliding_window_pattern": sliding,
        "final_logit_softcapping": 30.0,
    }


def gemma4_rope(w: Weights, s: Sizes) -> None:
    """A quarter of the global head's pairs turn; a factor of 1e30 stops the others."""
    pairs = s.head_dim // 2
    w.put("rope_freqs.weight", np.where(np.arange(pairs) < max(1, pairs // 4), 1.0, 1e30))


def gemma4(s: Sizes, w: Weights) -> Metadata:
    """Per-layer embeddings; from 4 layers on, the last two reuse keys and values of the two before them."""
    shared = 2 if s.layers >= 4 else 0
    own = s.layers - shared
    sliding = [layer not in (own - 1, s.layers - 1) for layer in range(s.layers)]
    per_layer = s.hidden // 4
    widths = [s.ffn if layer < own else 2 * s.ffn for layer in range(s.layers)]
    ends(w, s, scaled=True)
    gemma4_rope(w, s)
    w.normal("per_layer_token_embd.weight", (s.vocab, per_layer * s.layers), std=1 / per_layer**0.5)
    w.normal("per_layer_model_proj.weight", (per_layer * s.layers, s.hidden), std=1.0)
    w.norm("per_layer_proj_norm", per_layer)
    for layer, blk in enumerate(blocks(s)):
        layer_sizes = replace(s, head_dim=s.head_dim // 2) if sliding[layer] else s
        w.norm(f"{blk}.attn_norm", s.hidden)
        if layer < own:
            attention(w, blk, layer_sizes, head_norms=True, gain=1)
        else:
            q_out = s.heads * layer_sizes.head_dim
            w.matrix(f"{blk}.attn_q", q_out, s.hidden)
            w.matrix(f"{blk}.attn_output", s.hidden, q_out)
            w.norm(f"{blk}.attn_q_norm", layer_sizes.head_dim)
        w.norm(f"{blk}.post_attention_norm", s.hidden)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        dense(w, blk, s, width=widths[layer])
        w.norm(f"{blk}.post_ffw_norm", s.hidden)
        w.matrix(f"{blk}.inp_gate", per_layer, s.hidden)
        w.matrix(f"{blk}.proj", s.hidden, per_layer)
        w.norm(f"{blk}.post_norm", s.hidden)
        w.uniform(f"{blk}.layer_output_scale.weight", (1,), 0.8, 1.05)
    return gemma4_metadata(s, sliding) | {
        "feed_forward_length": widths,
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": per_layer,
    }


def gemma4moe(s: Sizes, w: Weights) -> Metadata:
    """The last layer is global: one kv head, and values from the key projection."""
    sliding = [layer != s.layers - 1 for layer in range(s.layers)]
    kv_heads = [s.kv_heads if slides else 1 for slides in sliding]
    ends(w, s, scaled=True)
    gemma4_rope(w, s)
    for layer, blk in enumerate(blocks(s)):
        layer_sizes = replace(
            s, head_dim=s.head_dim // 2 if sliding[layer] else s.head_dim, kv_heads=kv_heads[layer]
        )
        w.norm(f"{blk}.attn_norm", s.hidden)
        attention(w, blk, layer_sizes, head_norms=True, gain=1, v=sliding[layer])
        w.norm(f"{blk}.post_attention_norm", s.hidden)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        dense(w, blk, s)
        w.norm(f"{blk}.post_ffw_norm_1", s.hidden)
        w.norm(f"{blk}.pre_ffw_norm_2", s.hidden)
        w.normal(
            f"{blk}.ffn_gate_inp.weight", (s.experts, s.hidden), std=3.0
        )  # its input is divided by sqrt(hidden)
        w.uniform(f"{blk}.ffn_gate_inp.scale", (s.hidden,), 0.5, 1.5)
        experts(w, blk, s, fused=True)
        w.uniform(f"{blk}.ffn_down_exps.scale", (s.experts,), 0.6, 1.5)
        w.norm(f"{blk}.post_ffw_norm_2", s.hidden)
        w.norm(f"{blk}.post_ffw_norm", s.hidden)
        w.uniform(f"{blk}.layer_output_scale.weight", (1,), 0.8, 1.05)
    return (
        gemma4_metadata(s, sliding)
        | expert_counts(s)
        | {
            "attention.head_count_kv": kv_heads,
            "attention.shared_kv_layers": 0,
            "embedding_length_per_layer_input": 0,
            "expert_feed_forward_length": s.expert_ffn,
        }
    )


def phi3_with(s: Sizes, w: Weights, original_context: int) -> Metadata:
    """Rotation of three quarters of the head; long and short factors, chosen by the allocated context."""
    turning = s.head_dim * 3 // 8 * 2
    ends(w, s)
    w.put("rope_factors_long.weight", np.linspace(1.2, 6, turning // 2))
    w.put("rope_factors_short.weight", np.linspace(1, 1.5, turning // 2))
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        w.matrix(f"{blk}.attn_qkv", (s.heads + 2 * s.kv_heads) * s.head_dim, s.hidden, gain=1.5)
        w.matrix(f"{blk}.attn_output", s.hidden, s.heads * s.head_dim)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        w.matrix(f"{blk}.ffn_up", 2 * s.ffn, s.hidden, gain=1.5)
        w.matrix(f"{blk}.ffn_down", s.hidden, s.ffn)
    return wide_heads(s) | {
        "rope.freq_base": 10000.0,
        "rope.dimension_count": turning,
        "rope.scaling.original_context_length": original_context,
        "rope.scaling.attn_factor": 1.19,
        "attention.sliding_window": 0,
    }


def phi3(s: Sizes, w: Weights) -> Metadata:
    return phi3_with(s, w, 4096)


def phi3long(s: Sizes, w: Weights) -> Metadata:
    return phi3_with(s, w, max(1, s.context // 4))


def deepseek2_with(s: Sizes, w: Weights, *, mla: bool) -> Metadata:
    """`mla`: absorbed projections, a low-rank query, sigmoid routing in groups. Else V2-Lite's form."""
    rope, nope, value = max(2, s.head_dim // 2), s.head_dim, s.head_dim
    rank, q_rank = s.hidden // 2, s.hidden * 3 // 4
    q_out = s.heads * (nope + rope)
    ends(w, s)
    for layer, blk in enumerate(blocks(s)):
        w.norm(f"{blk}.attn_norm", s.hidden)
        if mla:
            w.matrix(f"{blk}.attn_q_a", q_rank, s.hidden)
            w.norm(f"{blk}.attn_q_a_norm", q_rank)
            w.matrix(f"{blk}.attn_q_b", q_out, q_rank, gain=1.5)
        else:
            w.matrix(f"{blk}.attn_q", q_out, s.hidden, gain=1.5)
        w.matrix(f"{blk}.attn_kv_a_mqa", rank + rope, s.hidden, gain=1.5)
        w.norm(f"{blk}.attn_kv_a_norm", rank)
        if mla:
            w.normal(f"{blk}.attn_k_b.weight", (s.heads, rank, nope), std=1 / rank**0.5)
            w.matrix(f"{blk}.attn_v_b", value, rank, stack=(s.heads,))
        else:
            w.matrix(f"{blk}.attn_kv_b", s.heads * (nope + value), rank)
        w.matrix(f"{blk}.attn_output", s.hidden, s.heads * value)
        w.norm(f"{blk}.ffn_norm", s.hidden)
        if layer == 0:
            dense(w, blk, s)
            continue
        router(w, blk, s)
        experts(w, blk, s)
        if mla:
            w.normal(f"{blk}.exp_probs_b.bias", (s.experts,), std=0.1)
        dense(w, blk, s, width=s.expert_ffn, suffix="_shexp")
    metadata: Metadata = expert_counts(s) | {
        "rope.freq_base": 10000.0,
        "rope.dimension_count": rope,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_log_multiplier": 0.1 if mla else 0.0707,
        "leading_dense_block_count": 1,
        "expert_feed_forward_length": s.expert_ffn,
        "expert_shared_count": 1,
        "attention.kv_lora_rank": rank,
    }
    if mla:
        groups = 4 if s.experts % 4 == 0 and s.experts >= 8 else 1
        return metadata | {
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": q_rank,
            "attention.key_length": rank + rope,
            "attention.value_length": rank,
            "attention.key_length_mla": nope + rope,
            "attention.value_length_mla": value,
            "expert_gating_func": 2,
            "expert_group_count": groups,
            "expert_group_used_count": -(-groups // 2),
            "expert_weights_scale": 2.5,
            "expert_weights_norm": True,
        }
    return metadata | {
        "attention.head_count_kv": s.heads,
        "attention.q_lora_rank": 0,
        "attention.key_length": nope + rope,
        "attention.value_length": value,
        "expert_gating_func": 1,
        "expert_weights_scale": 1.0,
    }


def deepseek2(s: Sizes, w: Weights) -> Metadata:
    return deepseek2_with(s, w, mla=True)


def deepseek2lite(s: Sizes, w: Weights) -> Metadata:
    return deepseek2_with(s, w, mla=False)


def mamba(s: Sizes, w: Weights) -> Metadata:
    inner, state, rank = 2 * s.hidden, 16, max(1, s.hidden // 16)
    ends(w, s, tied=True)
    for blk in blocks(s):
        w.norm(f"{blk}.attn_norm", s.hidden)
        w.matrix(f"{blk}.ssm_in", 2 * inner, s.hidden, gain=1.5)
        w.normal(f"{blk}.ssm_conv1d.weight", (inner, CONV_TAPS), std=0.5)
        w.normal(f"{blk}.ssm_conv1d.bias", (inner,), std=0.2)
        w.matrix(f"{blk}.ssm_x", rank + 2 * state, inner, gain=2)
        w.matrix(f"{blk}.ssm_dt", inner, rank)
        w.uniform(f"{blk}.ssm_dt.bias", (inner,), -3, 0.5)
        decay = w.random(f"{blk}.ssm_a").uniform(0.5, 1.5, (inner, state))
        w.put(f"{blk}.ssm_a", -np.arange(1, state + 1) * decay)
        w.normal(f"{blk}.ssm_d", (inner,), mean=1, std=0.2)
        w.matrix(f"{blk}.ssm_out", s.hidden, inner)
    return {
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "ssm.conv_kernel": CONV_TAPS,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
        "ssm.dt_b_c_rms": False,
    }


@dataclass(frozen=True, slots=True)
class Row:
    architecture: str  # general.architecture
    vocabulary: str  # a row of tiny_vocab.VOCABULARIES
    build: Callable[[Sizes, Weights], Metadata]
    layers: int  # unless asked otherwise: enough to meet every kind of layer
    head_factor: int = 1  # head width as a multiple of hidden / heads
    epsilon: float = 1e-6


ARCHITECTURES = {
    "llama": Row("llama", "llama-bpe", llama, 3, epsilon=1e-5),
    "mistral": Row("llama", "llama", mistral, 2, head_factor=2, epsilon=1e-5),
    "mixtral": Row("llama", "llama", mixtral, 2, epsilon=1e-5),
    "mistral3": Row("mistral3", "tekken", mistral3, 3, epsilon=1e-5),
    "qwen2": Row("qwen2", "qwen2", qwen2, 3),
    "qwen3": Row("qwen3", "qwen2", qwen3, 3, head_factor=2),
    "qwen3moe": Row("qwen3moe", "qwen2", qwen3moe, 2, head_factor=2),
    "qwen3next": Row("qwen3next", "qwen2", qwen3next, 4, head_factor=2),
    "qwen35": Row("qwen35", "qwen35", qwen35, 4, head_factor=2),
    "qwen35moe": Row("qwen35moe", "qwen35", qwen35moe, 4, head_factor=2),
    "gemma3": Row("gemma3", "gemma", gemma3, 7, head_factor=2),
    "gemma4": Row("gemma4", "gemma4", gemma4, 6, head_factor=2),
    "gemma4moe": Row("gemma4", "gemma4", gemma4moe, 3, head_factor=2),
    "phi3": Row("phi3", "llama", phi3, 3, epsilon=1e-5),
    "phi3long": Row("phi3", "llama", phi3long, 3, epsilon=1e-5),
    "deepseek2": Row("deepseek2", "deepseek-v3", deepseek2, 3),
    "deepseek2lite": Row("deepseek2", "deepseek-v3", deepseek2lite, 3),
    "mamba": Row("mamba", "gpt-2", mamba, 3, epsilon=1e-5),
}
