"""Triton operations of amd-aiter, forward and some backward, against torch: `python aiter.py [NAME ...]`.

Only aiter.ops.triton is imported: the package's own start-up compiles HIP code.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import triton  # noqa: F401  (installs the simulated chip)

sys.path.remove(str(Path(__file__).parent))  # this file has the package's name
_PACKAGE = importlib.util.find_spec("aiter")
assert _PACKAGE is not None and _PACKAGE.submodule_search_locations
sys.modules["aiter"] = types.ModuleType("aiter")
sys.modules["aiter"].__path__ = list(_PACKAGE.submodule_search_locations)
sys.path.insert(0, str(Path(__file__).parent))

from operations import (  # noqa: E402
    DEVICE,
    HALF,
    ComparedOperation,
    compare_all,
    compute_rms_norm,
    random_tensor,
    run_in_both_orders,
)

TILES = {
    "BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 2,
    "waves_per_eu": 2, "matrix_instr_nonkdim": 16, "kpack": 1,
}  # fmt: skip
GEMM = {**TILES, "cache_modifier": "", "NUM_KSPLIT": 1}
NEOX, GPTJ = 0, 1  # rotations of halves, and of neighbours


def softmax_case() -> ComparedOperation:
    from aiter.ops.triton.softmax import softmax

    return ComparedOperation(softmax, lambda x: x.softmax(-1), [random_tensor(9, 300)], backward=False)


def rms_norm_case() -> ComparedOperation:
    from aiter.ops.triton.rmsnorm import rms_norm

    inputs = [random_tensor(9, 200), random_tensor(200, seed=8)]
    return ComparedOperation(partial(rms_norm, epsilon=1e-5), compute_rms_norm, inputs)


def rms_norm_with_add_case() -> ComparedOperation:
    from aiter.ops.triton.rmsnorm import rmsnorm2d_fwd_with_add

    def operation(x, residual, weight):
        out, total = torch.empty_like(x), torch.empty_like(x)
        rmsnorm2d_fwd_with_add(out, x, residual, total, weight, 1e-5)
        return torch.stack([out, total])

    def exact_result(x, residual, weight):
        return torch.stack([compute_rms_norm(x + residual, weight), x + residual])

    inputs = [random_tensor(9, 200), random_tensor(9, 200, seed=8), random_tensor(200, seed=9)]
    return ComparedOperation(operation, exact_result, inputs, backward=False)


def rms_norm_with_quantisation_case() -> ComparedOperation:
    from aiter.ops.triton.rmsnorm import rmsnorm2d_fwd_with_dynamicquant

    def operation(x, weight):
        out, scale = torch.empty(x.shape, dtype=torch.int8), torch.empty(x.shape[0], 1)
        rmsnorm2d_fwd_with_dynamicquant(out, x, scale, weight, 1e-5)
        return out.float() * scale

    inputs = [random_tensor(9, 200), random_tensor(200, seed=8)]
    return ComparedOperation(operation, compute_rms_norm, inputs, tolerance=1.01 / 127, backward=False)


def fused_add_rms_norm_case() -> ComparedOperation:
    from aiter.ops.triton.fused_add_rmsnorm_pad import fused_add_rmsnorm_pad

    def operation(x, weight, residual):
        return torch.stack(fused_add_rmsnorm_pad(x, weight, 1e-5, residual))

    def exact_result(x, weight, residual):
        return torch.stack([compute_rms_norm(x + residual, weight), x + residual])

    inputs = [random_tensor(9, 200), random_tensor(200, seed=8), random_tensor(9, 200, seed=9)]
    return ComparedOperation(operation, exact_result, inputs, backward=False)


def layer_norm_case() -> ComparedOperation:
    from aiter.ops.triton.norm import layer_norm

    inputs = [random_tensor(9, 200), random_tensor(200, seed=8), random_tensor(200, seed=9)]
    return ComparedOperation(layer_norm, lambda x, w, b: F.layer_norm(x, (200,), w, b), inputs)


def layer_norm_with_add_case() -> ComparedOperation:
    from aiter.ops.triton.norm import layernorm2d_fwd_with_add

    def operation(x, residual, weight, bias):
        out, total = torch.empty_like(x), torch.empty_like(x)
        layernorm2d_fwd_with_add(out, x, residual, total, weight, bias, 1e-5)
        return torch.stack([out, total])

    def exact_result(x, residual, weight, bias):
        return torch.stack([F.layer_norm(x + residual, (200,), weight, bias), x + residual])

    inputs = [random_tensor(9, 200), *[random_tensor(*shape, seed=8) for shape in ((9, 200), (200,), (200,))]]
    return ComparedOperation(operation, exact_result, inputs, backward=False)


def _make_topk_case(count: int, width: int) -> ComparedOperation:
    from aiter.ops.triton.topk import topk

    def exact_result(x):
        return torch.topk(x, count, dim=-1).values

    return ComparedOperation(lambda x: topk(x, count)[0], exact_result, [random_tensor(5, width)], backward=False)


def topk_case() -> ComparedOperation:
    return _make_topk_case(8, 128)


def two_stage_topk_case() -> ComparedOperation:
    return _make_topk_case(4, 3000)


def fused_mul_add_case() -> ComparedOperation:
    from aiter.ops.triton.fused_mul_add import fused_mul_add

    inputs = [random_tensor(7, 100), random_tensor(7, 100, seed=8), random_tensor(1, seed=9)]
    return ComparedOperation(fused_mul_add, lambda x, a, b: x * a + b, inputs, backward=False)


def fused_qk_concat_case() -> ComparedOperation:
    from aiter.ops.triton.fused_qk_concat import fused_qk_cat

    inputs = [random_tensor(5, heads, width, seed=width) for heads in (4, 2) for width in (64, 32)]

    def flatten(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.cat([q.flatten(), k.flatten()])

    def exact_result(q1, q2, k1, k2):
        return flatten(torch.cat([q1, q2], -1), torch.cat([k1, k2], -1))

    return ComparedOperation(lambda *parts: flatten(*fused_qk_cat(*parts)), exact_result, inputs, backward=False)


def split_qkv_case() -> ComparedOperation:
    from aiter.ops.triton.split_qkv import split_qkv

    def operation(qkv):
        return torch.cat([part.reshape(5, -1) for part in split_qkv(qkv, 256, 128)], -1)

    return ComparedOperation(operation, lambda qkv: qkv, [random_tensor(5, 512)], backward=False)


def _make_half(*shape: int, seed: int = 7) -> torch.Tensor:
    return random_tensor(*shape, seed=seed).to(torch.bfloat16)


def gemm_bf16_case() -> ComparedOperation:
    from aiter.ops.triton.gemm_a16w16 import gemm_a16w16

    inputs = [_make_half(40, 128), _make_half(48, 128, seed=8), _make_half(48, seed=9)]

    def exact_result(x, w, bias):
        return x.float() @ w.float().T + bias.float()

    return ComparedOperation(
        partial(gemm_a16w16, config={**GEMM, "SPLITK_BLOCK_SIZE": 128}),
        exact_result,
        inputs,
        tolerance=HALF,
        backward=False,
    )


def split_gemm_bf16_case() -> ComparedOperation:
    from aiter.ops.triton.gemm_a16w16 import gemm_a16w16

    config = {**GEMM, "NUM_KSPLIT": 2, "SPLITK_BLOCK_SIZE": 128}
    inputs = [_make_half(40, 256), _make_half(48, 256, seed=8)]
    function = partial(run_in_both_orders, partial(gemm_a16w16, config=config))
    return ComparedOperation(
        function, lambda x, w: x.float() @ w.float().T, inputs, tolerance=HALF, backward=False
    )


def atomic_gemm_bf16_case() -> ComparedOperation:
    from aiter.ops.triton.gemm_a16w16_atomic import gemm_a16w16_atomic

    inputs = [_make_half(40, 256), _make_half(48, 256, seed=8)]

    def operation(x, w):
        result = torch.zeros(40, 48, dtype=torch.float32)
        return gemm_a16w16_atomic(x, w, torch.float32, result, config={**GEMM, "NUM_KSPLIT": 2})

    return ComparedOperation(
        operation, lambda x, w: x.float() @ w.float().T, inputs, tolerance=HALF, backward=False
    )


def batched_gemm_bf16_case() -> ComparedOperation:
    from aiter.ops.triton.batched_gemm_bf16 import batched_gemm_bf16

    inputs = [_make_half(2, 40, 128), _make_half(2, 48, 128, seed=8)]

    def exact_result(x, w):
        return torch.bmm(x.float(), w.float().transpose(1, 2))

    function = partial(batched_gemm_bf16, config=dict(TILES))
    return ComparedOperation(function, exact_result, inputs, tolerance=HALF, backward=False)


def _make_integers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randint(-127, 128, shape, generator=torch.Generator().manual_seed(seed)).to(torch.int8)


def gemm_i8_case() -> ComparedOperation:
    from aiter.ops.triton.gemm_a8w8 import gemm_a8w8

    inputs = [
        _make_integers(40, 128, seed=1), _make_integers(48, 128, seed=2), random_tensor(40, 1).abs(),
        random_tensor(1, 48, seed=8).abs(),
    ]  # fmt: skip

    def exact_result(x, w, x_scale, w_scale):
        return (x.double() @ w.double().T).float() * x_scale * w_scale

    function = partial(gemm_a8w8, config=dict(TILES))
    return ComparedOperation(function, exact_result, inputs, tolerance=HALF, backward=False)


def _make_quantisation_case(*, per_token: bool) -> ComparedOperation:
    from aiter.ops.triton import quant

    def operation(x):
        scale = torch.zeros(x.shape[0] if per_token else 1)
        out = torch.empty(x.shape, dtype=torch.int8)
        function = quant.dynamic_per_token_quant_fp8_i8 if per_token else quant.dynamic_per_tensor_quant_fp8_i8
        function(out, x, scale)
        return out.float() * (scale[:, None] if per_token else scale)

    return ComparedOperation(operation, lambda x: x, [random_tensor(9, 200)], tolerance=1.01 / 127, backward=False)


def quantisation_per_tensor_case() -> ComparedOperation:
    return _make_quantisation_case(per_token=False)


def quantisation_per_token_case() -> ComparedOperation:
    return _make_quantisation_case(per_token=True)


def prefill_attention_case() -> ComparedOperation:
    from aiter.ops.triton.prefill_attention import context_attention_fwd

    lengths = [20, 33]

    def operation(q, k, v):
        out = torch.zeros_like(q)
        starts = torch.tensor([0, lengths[0]], dtype=torch.int32)
        context_attention_fwd(q, k, v, out, starts, torch.tensor(lengths, dtype=torch.int32), max(lengths))
        return out

    def exact_result(q, k, v):
        parts = []
        for one, two, three in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True):
            heads = [part.float().transpose(0, 1) for part in (one, two, three)]
            parts.append(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(0, 1))
        return torch.cat(parts)

    inputs = [_make_half(sum(lengths), 2, 64, seed=seed) for seed in (1, 2, 3)]
    return ComparedOperation(operation, exact_result, inputs, tolerance=HALF, backward=False)


def _rotate(x: torch.Tensor, freqs: torch.Tensor, style: int) -> torch.Tensor:
    """Rotate x (tokens, batch, heads, width) by freqs (tokens, 1, 1, half of the width)."""
    cos, sin = freqs.cos(), freqs.sin()
    one, two = x.chunk(2, -1) if style == NEOX else (x[..., ::2], x[..., 1::2])
    turned = [one * cos - two * sin, two * cos + one * sin]
    return torch.cat(turned, -1) if style == NEOX else torch.stack(turned, -1).flatten(-2)


def _make_rope_case(name: str, style: int, **options: Any) -> ComparedOperation:
    from aiter.ops.triton import rope

    freqs = random_tensor(20, 1, 1, 32, seed=9)
    inputs = [random_tensor(20, 2, 4, 64)]

    def operation(x):
        if name == "rope_fwd":
            return rope.rope_fwd(x, freqs, style, True, False)
        cos, sin = freqs.cos(), freqs.sin()
        if name == "rope_cached_fwd":
            return rope.rope_cached_fwd(x, cos, sin, style, True, False)
        positions = torch.arange(19, -1, -1)[:, None].expand(20, 2).contiguous()
        return rope.rope_cached_positions_fwd(x, cos, sin, positions, style, True, False)

    def exact_result(x):
        order = torch.arange(19, -1, -1) if name == "rope_cached_positions_fwd" else torch.arange(20)
        return _rotate(x, freqs[order], style)

    return ComparedOperation(operation, exact_result, inputs, backward=False, **options)


def rope_case() -> ComparedOperation:
    return _make_rope_case("rope_fwd", NEOX)


def rope_of_neighbours_case() -> ComparedOperation:
    return _make_rope_case("rope_fwd", GPTJ)


def cached_rope_case() -> ComparedOperation:
    return _make_rope_case("rope_cached_fwd", NEOX)


def cached_rope_at_positions_case() -> ComparedOperation:
    return _make_rope_case("rope_cached_positions_fwd", NEOX)


def moe_align_block_size_case() -> ComparedOperation:
    from aiter.ops.triton.moe_align_block_size import moe_align_block_size_triton

    chosen = torch.randint(0, 8, (24, 2), generator=torch.Generator().manual_seed(1), dtype=torch.int32).to(DEVICE)

    def operation(unused):
        size = chosen.numel() + 8 * 15
        tokens = torch.full((size,), chosen.numel(), dtype=torch.int32)
        experts, padded = torch.zeros(-(-size // 16), dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        moe_align_block_size_triton(chosen, 8, 16, tokens, experts, padded)
        return torch.cat([tokens[: int(padded)].reshape(-1, 16).sort().values.flatten(), padded]).float()

    def exact_result(unused):
        blocks = []
        for expert in range(8):
            own = (chosen.flatten() == expert).nonzero().flatten().tolist()
            own += [chosen.numel()] * (-len(own) % 16)
            blocks += [sorted(own[index : index + 16]) for index in range(0, len(own), 16)]
        flat = [token for block in blocks for token in block]
        return torch.tensor([*flat, len(flat)]).float()

    return ComparedOperation(operation, exact_result, [random_tensor(1)], backward=False)


compare_all(globals())
