"""Operations of flash-linear-attention, forward and backward, against torch.

python flash_linear_attention.py [NAME ...]

The reference of every linear attention is one recurrence in float64, a token at a time:

    S = decay * S + beta * k (v - [delta] S^T k)^T,   o = scale * S^T q
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from operations import (
    DEVICE,
    HALF,
    ComparedOperation,
    choose_one_configuration,
    compare_all,
    compute_rms_norm,
    random_tensor,
)

choose_one_configuration()  # before fla is imported

TOKENS, HEADS, WIDTH = 70, 2, 32  # more than a chunk of 64


def compute_recurrence(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    *,
    delta: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Return the output (batch, tokens, heads, width of v). `log_decay` (…, heads) or (…, heads, width of k)."""
    q, k, v = q.double(), k.double(), v.double()
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    state = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1], dtype=torch.float64)
    outputs = []
    for at in range(q.shape[1]):
        if log_decay is not None:
            decay = log_decay[:, at].double().exp()
            state = state * (decay if decay.ndim == 3 else decay[..., None])[..., None]
        written = v[:, at]
        if delta:
            written = written - torch.einsum("bhk,bhkv->bhv", k[:, at], state)
        if beta is not None:
            written = written * beta[:, at].double()[..., None]
        state = state + k[:, at][..., None] * written[..., None, :]
        outputs.append(scale * torch.einsum("bhk,bhkv->bhv", q[:, at], state))
    return torch.stack(outputs, 1).float()


def make_qkv() -> list[torch.Tensor]:
    return [random_tensor(1, TOKENS, HEADS, WIDTH, seed=seed) for seed in (1, 2, 3)]


def make_unit_qkv() -> list[torch.Tensor]:
    """Return q, k, v with keys of length 1, as delta rules need them."""
    q, k, v = make_qkv()
    return [q, F.normalize(k, dim=-1), v]


def make_gate(*shape: int, seed: int = 4) -> torch.Tensor:
    return F.logsigmoid(random_tensor(*shape, seed=seed) + 2)


def make_beta(*shape: int) -> torch.Tensor:
    return torch.sigmoid(random_tensor(*shape, seed=5))


def _first(function: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.Tensor:
    result = function(*args, **kwargs)
    return result[0] if isinstance(result, tuple) else result


def _round_to_bf16(case: ComparedOperation) -> ComparedOperation:
    """Return the case with inputs in bf16; some operations refuse f32."""
    inputs = [item.to(torch.bfloat16) for item in case.inputs]
    return replace(case, inputs=inputs, tolerance=HALF)


def _linear_attention(function: Callable[..., Any]) -> ComparedOperation:
    return ComparedOperation(partial(_first, function, normalize=False), compute_recurrence, make_qkv())


def chunk_linear_attn_case() -> ComparedOperation:
    from fla.ops.linear_attn import chunk_linear_attn

    return _round_to_bf16(_linear_attention(chunk_linear_attn))


def fused_chunk_linear_attn_case() -> ComparedOperation:
    from fla.ops.linear_attn import fused_chunk_linear_attn

    return _round_to_bf16(_linear_attention(fused_chunk_linear_attn))


def fused_recurrent_linear_attn_case() -> ComparedOperation:
    from fla.ops.linear_attn import fused_recurrent_linear_attn

    return _linear_attention(fused_recurrent_linear_attn)


def _retention(function: Callable[..., Any]) -> ComparedOperation:
    decay = (1 - 2.0 ** (-5 - torch.arange(HEADS, dtype=torch.float64))).log().expand(1, TOKENS, HEADS)

    def exact_result(q, k, v):
        return compute_recurrence(q, k, v, decay)

    return ComparedOperation(partial(_first, function), exact_result, make_qkv())


def chunk_retention_case() -> ComparedOperation:
    from fla.ops.retention import chunk_retention

    return _round_to_bf16(_retention(chunk_retention))


def fused_recurrent_retention_case() -> ComparedOperation:
    from fla.ops.retention import fused_recurrent_retention

    return _retention(fused_recurrent_retention)


def parallel_retention_case() -> ComparedOperation:
    from fla.ops.retention import parallel_retention

    return _round_to_bf16(_retention(parallel_retention))


def chunk_gla_case() -> ComparedOperation:
    from fla.ops.gla import chunk_gla

    inputs = [*make_qkv(), make_gate(1, TOKENS, HEADS, WIDTH)]
    return _round_to_bf16(ComparedOperation(partial(_first, chunk_gla), compute_recurrence, inputs))


def fused_recurrent_gla_case() -> ComparedOperation:
    from fla.ops.gla import fused_recurrent_gla

    inputs = [*make_qkv(), make_gate(1, TOKENS, HEADS, WIDTH)]
    return ComparedOperation(partial(_first, fused_recurrent_gla), compute_recurrence, inputs)


def chunk_simple_gla_case() -> ComparedOperation:
    from fla.ops.simple_gla import chunk_simple_gla

    inputs = [*make_qkv(), make_gate(1, TOKENS, HEADS)]
    return _round_to_bf16(ComparedOperation(partial(_first, chunk_simple_gla), compute_recurrence, inputs))


def fused_recurrent_simple_gla_case() -> ComparedOperation:
    from fla.ops.simple_gla import fused_recurrent_simple_gla

    inputs = [*make_qkv(), make_gate(1, TOKENS, HEADS)]
    return ComparedOperation(partial(_first, fused_recurrent_simple_gla), compute_recurrence, inputs)


def parallel_simple_gla_case() -> ComparedOperation:
    from fla.ops.simple_gla import parallel_simple_gla

    inputs = [*make_qkv(), make_gate(1, TOKENS, HEADS)]
    return _round_to_bf16(ComparedOperation(partial(_first, parallel_simple_gla), compute_recurrence, inputs))


def _delta_rule(function: Callable[..., Any], **options: Any) -> ComparedOperation:
    def exact_result(q, k, v, beta):
        return compute_recurrence(q, k, v, None, beta, delta=True)

    inputs = [*make_unit_qkv(), make_beta(1, TOKENS, HEADS)]
    return ComparedOperation(partial(_first, function), exact_result, inputs, **options)


def chunk_delta_rule_case() -> ComparedOperation:
    from fla.ops.delta_rule import chunk_delta_rule

    return _round_to_bf16(_delta_rule(chunk_delta_rule))


def fused_recurrent_delta_rule_case() -> ComparedOperation:
    from fla.ops.delta_rule import fused_recurrent_delta_rule

    return _delta_rule(fused_recurrent_delta_rule)


def _gated_delta_rule(function: Callable[..., Any], *, backward: bool = True) -> ComparedOperation:
    def operation(q, k, v, g, beta):
        return _first(function, q, k, v, g=g, beta=beta)

    def exact_result(q, k, v, g, beta):
        return compute_recurrence(q, k, v, g, beta, delta=True)

    inputs = [*make_unit_qkv(), make_gate(1, TOKENS, HEADS), make_beta(1, TOKENS, HEADS)]
    return ComparedOperation(operation, exact_result, inputs, backward=backward)


def chunk_gated_delta_rule_case() -> ComparedOperation:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    return _round_to_bf16(_gated_delta_rule(chunk_gated_delta_rule))


def fused_recurrent_gated_delta_rule_case() -> ComparedOperation:
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    return _gated_delta_rule(fused_recurrent_gated_delta_rule, backward=False)


def _kimi_delta_attention(function: Callable[..., Any], *, backward: bool) -> ComparedOperation:
    def operation(q, k, v, g, beta):
        return _first(function, q=q, k=k, v=v, g=g, beta=beta)

    def exact_result(q, k, v, g, beta):
        return compute_recurrence(q, k, v, g, beta, delta=True)

    inputs = [*make_unit_qkv(), make_gate(1, TOKENS, HEADS, WIDTH), make_beta(1, TOKENS, HEADS)]
    return ComparedOperation(operation, exact_result, inputs, tolerance=1e-3, backward=backward)


def chunk_kda_case() -> ComparedOperation:
    from fla.ops.kda import chunk_kda

    return _round_to_bf16(_kimi_delta_attention(chunk_kda, backward=False))


def fused_recurrent_kda_case() -> ComparedOperation:
    from fla.ops.kda import fused_recurrent_kda

    return _kimi_delta_attention(fused_recurrent_kda, backward=False)


def _hgrn(function: Callable[..., Any]) -> ComparedOperation:
    def exact_result(x, g):
        state, outputs = torch.zeros(x.shape[0], x.shape[2], dtype=torch.float64), []
        for at in range(x.shape[1]):
            state = g[:, at].double().exp() * state + x[:, at].double()
            outputs.append(state)
        return torch.stack(outputs, 1).float()

    inputs = [random_tensor(2, TOKENS, 40), make_gate(2, TOKENS, 40)]
    return ComparedOperation(partial(_first, function), exact_result, inputs)


def chunk_hgrn_case() -> ComparedOperation:
    from fla.ops.hgrn import chunk_hgrn

    return _hgrn(chunk_hgrn)


def fused_recurrent_hgrn_case() -> ComparedOperation:
    from fla.ops.hgrn import fused_recurrent_hgrn

    return _hgrn(fused_recurrent_hgrn)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    scores = torch.einsum("bthk,bshk->bhts", q.double(), k.double()) * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias
    mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril()
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    return torch.einsum("bhts,bshv->bthv", weights, v.double()).float()


def parallel_attn_case() -> ComparedOperation:
    from fla.ops.attn import parallel_attn

    return _round_to_bf16(ComparedOperation(partial(_first, parallel_attn), _attend, make_qkv()))


def parallel_forgetting_attn_case() -> ComparedOperation:
    from fla.ops.forgetting_attn import parallel_forgetting_attn

    def exact_result(q, k, v, g):
        total = g.double().cumsum(1).transpose(1, 2)
        return _attend(q, k, v, total[..., None] - total[..., None, :])

    inputs = [*make_qkv(), make_gate(1, TOKENS, HEADS)]
    return _round_to_bf16(ComparedOperation(partial(_first, parallel_forgetting_attn), exact_result, inputs))


def matmul_case() -> ComparedOperation:
    from fla.ops.utils.matmul import matmul

    inputs = [random_tensor(70, 48), random_tensor(48, 40, seed=8)]
    return replace(
        _round_to_bf16(ComparedOperation(matmul, lambda a, b: a.float() @ b.float(), inputs)), backward=False
    )


def chunk_local_cumsum_case() -> ComparedOperation:
    from fla.ops.utils import chunk_local_cumsum

    def exact_result(x):
        return torch.cat([part.cumsum(1) for part in x.split(64, 1)], 1)

    inputs = [random_tensor(1, TOKENS, HEADS, WIDTH)]
    return ComparedOperation(partial(chunk_local_cumsum, chunk_size=64), exact_result, inputs, backward=False)


def chunk_global_cumsum_case() -> ComparedOperation:
    from fla.ops.utils import chunk_global_cumsum

    inputs = [random_tensor(1, TOKENS, HEADS)]
    return ComparedOperation(chunk_global_cumsum, lambda x: x.cumsum(1), inputs, backward=False)


def softmax_case() -> ComparedOperation:
    from fla.ops.utils import softmax_fwd

    return ComparedOperation(softmax_fwd, lambda x: x.softmax(-1), [random_tensor(9, 200)], backward=False)


def logsumexp_case() -> ComparedOperation:
    from fla.ops.utils import logsumexp_fwd

    return ComparedOperation(logsumexp_fwd, lambda x: x.logsumexp(-1), [random_tensor(9, 200)], backward=False)


def mean_pooling_case() -> ComparedOperation:
    from fla.ops.utils import mean_pooling

    def exact_result(x):
        return torch.stack([part.mean(1) for part in x.split(32, 1)], 1)

    return ComparedOperation(
        partial(mean_pooling, chunk_size=32), exact_result, [random_tensor(1, TOKENS, HEADS, WIDTH)]
    )


def l2norm_case() -> ComparedOperation:
    from fla.modules.norm.l2norm import l2norm

    return ComparedOperation(
        l2norm, lambda x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6), [random_tensor(9, 64)]
    )


def layer_norm_case() -> ComparedOperation:
    from fla.modules.norm.layernorm import layer_norm

    inputs = [random_tensor(9, 100), random_tensor(100, seed=8), random_tensor(100, seed=9)]
    return ComparedOperation(layer_norm, lambda x, w, b: F.layer_norm(x, (100,), w, b, 1e-5), inputs)


def rms_norm_case() -> ComparedOperation:
    from fla.modules.norm.layernorm import rms_norm

    inputs = [random_tensor(9, 100), random_tensor(100, seed=8)]
    return ComparedOperation(lambda x, w: rms_norm(x, w, None), compute_rms_norm, inputs)


def swiglu_case() -> ComparedOperation:
    from fla.modules.activations import swiglu

    return ComparedOperation(
        swiglu, lambda x, y: F.silu(x) * y, [random_tensor(9, 100), random_tensor(9, 100, seed=8)]
    )


def logsigmoid_case() -> ComparedOperation:
    from fla.modules.activations import logsigmoid

    return ComparedOperation(logsigmoid, F.logsigmoid, [random_tensor(9, 100)])


def rotary_case() -> ComparedOperation:
    from fla.modules.rotary import rotary_embedding

    angle = torch.arange(TOKENS).float()[:, None] * 10000 ** (-torch.arange(16) / 16)
    cos, sin = angle.cos().to(DEVICE), angle.sin().to(DEVICE)

    def exact_result(x):
        one, two = x.chunk(2, -1)
        c, s = cos[None, :, None], sin[None, :, None]
        return torch.cat([one * c - two * s, two * c + one * s], -1)

    return ComparedOperation(
        lambda x: rotary_embedding(x, cos, sin), exact_result, [random_tensor(1, TOKENS, HEADS, 32)]
    )


def token_shift_case() -> ComparedOperation:
    from fla.modules.token_shift import token_shift

    return ComparedOperation(token_shift, lambda x: F.pad(x, (0, 0, 1, -1)) - x, [random_tensor(2, TOKENS, 40)])


def causal_conv1d_case() -> ComparedOperation:
    from fla.modules.causal_conv1d import causal_conv1d

    def exact_result(x, w):
        padded = F.pad(x.transpose(1, 2), (3, 0))
        return F.conv1d(padded, w[:, None], groups=x.shape[2]).transpose(1, 2)

    inputs = [random_tensor(1, TOKENS, 40), random_tensor(40, 4, seed=8)]
    return ComparedOperation(lambda x, w: _first(causal_conv1d, x, w), exact_result, inputs)


compare_all(globals())
