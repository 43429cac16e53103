"""Operations of vLLM's wheel against torch: `python vllm_kernels.py [NAME ...]`.

The wheel is installed without CUDA's libraries. Operations that ask vLLM for its platform (top-k, batch-invariant
products, int8 quantisation, state updates) are not here: it recognises ROCm's GPUs by amdsmi only.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
import triton  # noqa: F401  (installs the simulated chip before vLLM asks for a device)
from operations import DEVICE, HALF, ComparedOperation, compare_all, random_tensor

ROWS = torch.arange(5, dtype=torch.int32)


def _compare_forward(
    function: Callable[..., torch.Tensor],
    exact: Callable[..., torch.Tensor],
    *inputs: torch.Tensor,
    tolerance: float = 2e-4,
) -> ComparedOperation:
    return ComparedOperation(function, exact, inputs, tolerance=tolerance, backward=False)


def _random_integers(limit: int, *shape: int, seed: int = 7) -> torch.Tensor:
    return torch.randint(0, limit, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


def temperature_case() -> ComparedOperation:
    from vllm.v1.worker.gpu.sample.gumbel import apply_temperature

    temperature = torch.tensor([0.5, 0.0, 1.0, 2.0, 0.7])

    def scale(logits):
        apply_temperature(logits, ROWS, temperature)
        return logits

    divisor = torch.where(temperature == 0, 1.0, temperature)
    return _compare_forward(scale, lambda x: x / divisor[:, None], random_tensor(5, 3000))


def min_p_case() -> ComparedOperation:
    from vllm.v1.worker.gpu.sample.min_p import apply_min_p

    least = torch.tensor([0.1, 0.0, 0.5, 0.01, 0.9])

    def mask(logits):
        apply_min_p(logits, ROWS, least)
        return torch.softmax(logits, -1)

    def exact_result(logits):
        chances = torch.softmax(logits, -1)
        kept = chances >= least[:, None] * chances.amax(-1, keepdim=True)
        return torch.softmax(logits.masked_fill(~kept, float("-inf")), -1)

    return _compare_forward(mask, exact_result, random_tensor(5, 3000) * 2)


def token_log_probabilities_case() -> ComparedOperation:
    from vllm.v1.worker.gpu.sample.logprob import compute_token_logprobs

    tokens = _random_integers(3000, 5, 7)
    return _compare_forward(
        lambda x: compute_token_logprobs(x, tokens),
        lambda x: torch.log_softmax(x, -1).gather(1, tokens.long()),
        random_tensor(5, 3000),
    )


def merged_attention_case() -> ComparedOperation:
    from vllm.v1.attention.ops.triton_merge_attn_states import merge_attn_states

    def merge(first, first_sum, second, second_sum):
        output = torch.empty_like(first)
        merge_attn_states(output, first, first_sum, second, second_sum)
        return output

    def exact_result(first, first_sum, second, second_sum):
        share = torch.softmax(torch.stack((first_sum, second_sum)), 0).transpose(1, 2)[..., None]
        return share[0] * first + share[1] * second

    inputs = [random_tensor(9, 4, 80), random_tensor(4, 9, seed=8)]
    inputs += [random_tensor(9, 4, 80, seed=9), random_tensor(4, 9, seed=10)]
    return _compare_forward(merge, exact_result, *inputs)


def prefill_attention_case() -> ComparedOperation:
    from vllm.v1.attention.ops.triton_prefill_attention import context_attention_fwd

    lengths = (37, 64)
    starts, sizes = torch.tensor([0, lengths[0]]), torch.tensor(lengths)

    def attend(q, k, v):
        output = torch.empty_like(q)
        context_attention_fwd(q, k, v, output, starts, sizes, max(lengths))
        return output

    def exact_result(q, k, v):
        parts = []
        for tensors in zip(*(item.split(lengths) for item in (q, k, v)), strict=True):
            query, key, value = (item.transpose(0, 1).float() for item in tensors)
            heads = query.shape[0] // key.shape[0]
            key, value = key.repeat_interleave(heads, 0), value.repeat_interleave(heads, 0)
            parts.append(F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(0, 1))
        return torch.cat(parts)

    inputs = [random_tensor(sum(lengths), heads, 64, seed=heads).bfloat16() for heads in (4, 2, 2)]
    return _compare_forward(attend, exact_result, *inputs, tolerance=HALF)


def _decode_attention(heads: int, kv_heads: int) -> ComparedOperation:
    from vllm.v1.attention.ops.triton_decode_attention import decode_attention_fwd

    page, pages, splits, width = 16, 12, 4, 64
    lengths = torch.tensor([50, 17], dtype=torch.int32)
    table = torch.randperm(pages, generator=torch.Generator().manual_seed(3)).to(torch.int32).reshape(2, 6)

    def attend(q, k, v):
        output, sums = torch.empty_like(q), torch.empty(2, heads)
        partial = torch.empty(2, heads, splits, width + 1)
        decode_attention_fwd(q, k, v, output, sums, table, lengths, partial, splits, width**-0.5, page)
        return output

    def exact_result(q, k, v):
        rows = []
        for index, length in enumerate(lengths.tolist()):
            key, value = (
                item[table[index].long()].reshape(-1, kv_heads, width)[:length].transpose(0, 1).float()
                for item in (k, v)
            )
            key, value = (item.repeat_interleave(heads // kv_heads, 0) for item in (key, value))
            query = q[index, :, None].float()
            rows.append(F.scaled_dot_product_attention(query, key, value)[:, 0])
        return torch.stack(rows)

    shape = (pages, page, kv_heads, width)
    inputs = [random_tensor(2, heads, width), random_tensor(*shape, seed=8), random_tensor(*shape, seed=9)]
    return _compare_forward(attend, exact_result, *(item.half() for item in inputs), tolerance=HALF)


def decode_attention_case() -> ComparedOperation:
    return _decode_attention(4, 4)


def grouped_decode_attention_case() -> ComparedOperation:
    return _decode_attention(8, 2)


def cache_update_case() -> ComparedOperation:
    from vllm.v1.attention.ops.triton_reshape_and_cache_flash import triton_reshape_and_cache_flash

    slots = torch.tensor([5, 0, 31, 17, -1, 40])

    def update(key, value):
        caches = torch.zeros(2, 3, 16, 2, 64)
        one = torch.ones(1)
        triton_reshape_and_cache_flash(key, value, caches[0], caches[1], slots, "auto", one, one)
        return caches

    def exact_result(key, value):
        caches = torch.zeros(2, 48, 2, 64)
        for index, slot in enumerate(slots.tolist()):
            if slot >= 0:
                caches[0, slot], caches[1, slot] = key[index], value[index]
        return caches

    return _compare_forward(update, exact_result, random_tensor(6, 2, 64), random_tensor(6, 2, 64, seed=8))


def packed_sequences_case() -> ComparedOperation:
    from vllm.v1.attention.ops.common import pack_seq_triton, unpack_seq_triton

    lengths = torch.tensor([3, 9, 1])
    return _compare_forward(
        lambda x: unpack_seq_triton(pack_seq_triton(x, lengths), lengths), lambda x: x, random_tensor(13, 70)
    )


def invariant_log_softmax_case() -> ComparedOperation:
    from vllm.model_executor.determinism.batch_invariant import log_softmax

    return _compare_forward(log_softmax, lambda x: torch.log_softmax(x, -1), random_tensor(7, 1500))


def invariant_mean_case() -> ComparedOperation:
    from vllm.model_executor.determinism.batch_invariant import mean_dim

    return _compare_forward(lambda x: mean_dim(x, 1), lambda x: x.mean(1), random_tensor(5, 300, 6))


def invariant_rms_norm_case() -> ComparedOperation:
    from vllm.model_executor.determinism.batch_invariant import rms_norm_batch_invariant

    return _compare_forward(
        lambda x, w: rms_norm_batch_invariant(x, w, 1e-6),
        lambda x, w: F.rms_norm(x, (300,), w, 1e-6),
        random_tensor(9, 300),
        random_tensor(300, seed=8),
    )


def _unpack_awq(packed: torch.Tensor) -> torch.Tensor:
    """Return the 4-bit values of each dword in AWQ's order."""
    shifts = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7]) * 4
    return ((packed[..., None] >> shifts) & 15).flatten(1).float()


def awq_dequantize_case() -> ComparedOperation:
    from vllm.model_executor.layers.quantization.awq_triton import awq_dequantize_triton

    weight, zeros = (_random_integers(2**31 - 1, rows, 8, seed=rows) for rows in (64, 2))

    def exact_result(scales):
        rows = torch.arange(64) // 32
        return (_unpack_awq(weight) - _unpack_awq(zeros)[rows]) * scales.float()[rows]

    return _compare_forward(
        lambda scales: awq_dequantize_triton(weight, scales, zeros),
        exact_result,
        random_tensor(2, 64).half(),
        tolerance=HALF,
    )


def gated_norm_case() -> ComparedOperation:
    from vllm.model_executor.layers.mamba.ops.layernorm_gated import rms_norm_gated

    return _compare_forward(
        lambda x, w, z: rms_norm_gated(x, w, None, z, eps=1e-6),
        lambda x, w, z: F.rms_norm(x, (160,), w, 1e-6) * F.silu(z),
        random_tensor(11, 160),
        random_tensor(160, seed=8),
        random_tensor(11, 160, seed=9),
    )


def scaled_matmul_case() -> ComparedOperation:
    from vllm.model_executor.layers.quantization.compressed_tensors.triton_scaled_mm import triton_scaled_mm

    a, b = (_random_integers(200, *shape, seed=9).sub(100).to(torch.int8) for shape in ((24, 64), (64, 48)))
    return _compare_forward(
        lambda x, y: triton_scaled_mm(a, b, x, y, torch.float32),
        lambda x, y: (a.float() @ b.float()) * x * y.T,
        random_tensor(24, 1).abs(),
        random_tensor(48, 1, seed=8).abs(),
    )


def expert_sum_case() -> ComparedOperation:
    from vllm.model_executor.layers.fused_moe.moe_fused_mul_sum import moe_fused_mul_sum

    return _compare_forward(
        moe_fused_mul_sum,
        lambda x, w: (x * w[..., None]).sum(1),
        random_tensor(9, 4, 200),
        random_tensor(9, 4, seed=8),
    )


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    print(f"on {DEVICE}")
    compare_all(globals())
