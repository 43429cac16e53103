"""Operations of liger-kernel, forward and backward, against torch: `python liger.py [NAME ...]`."""

from functools import partial

import torch
import torch.nn.functional as F
import triton  # noqa: F401  (installs the simulated chip before liger asks for a device)
from operations import DEVICE, ComparedOperation, compare_all, compute_rms_norm, random_tensor


def rms_norm_case() -> ComparedOperation:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction as function

    return ComparedOperation(
        lambda x, w: function.apply(x, w, 1e-6),
        partial(compute_rms_norm, epsilon=1e-6),
        [random_tensor(13, 200), random_tensor(200, seed=8)],
    )


def layer_norm_case() -> ComparedOperation:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction as function

    inputs = [random_tensor(13, 200), random_tensor(200, seed=8), random_tensor(200, seed=9)]
    return ComparedOperation(
        lambda x, w, b: function.apply(x, w, b, 1e-6),
        lambda x, w, b: F.layer_norm(x, (200,), w, b, 1e-6),
        inputs,
    )


def swiglu_case() -> ComparedOperation:
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction as function

    return ComparedOperation(
        lambda a, b: function.apply(a, b),
        lambda a, b: F.silu(a) * b,
        [random_tensor(9, 300), random_tensor(9, 300, seed=8)],
    )


def geglu_case() -> ComparedOperation:
    from liger_kernel.ops.geglu import LigerGELUMulFunction as function

    inputs = [random_tensor(9, 300), random_tensor(9, 300, seed=8)]
    return ComparedOperation(
        lambda a, b: function.apply(a, b), lambda a, b: F.gelu(a, approximate="tanh") * b, inputs
    )


def softmax_case() -> ComparedOperation:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction as function

    return ComparedOperation(lambda x: function.apply(x), lambda x: torch.softmax(x, -1), [random_tensor(17, 250)])


def sparsemax_case() -> ComparedOperation:
    from liger_kernel.ops.sparsemax import LigerSparsemaxFunction as function

    def exact_result(x):
        ordered, _ = torch.sort(x, dim=-1, descending=True)
        sums = ordered.cumsum(-1) - 1
        counts = torch.arange(1, x.shape[-1] + 1)
        size = (ordered * counts > sums).sum(-1, keepdim=True)
        return torch.clamp(x - sums.gather(-1, size - 1) / size, min=0)

    return ComparedOperation(lambda x: function.apply(x, -1), exact_result, [random_tensor(5, 100)])


def cross_entropy_case() -> ComparedOperation:
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction as function

    target = torch.arange(11).to(DEVICE) * 17 % 300

    def apply_loss(x):
        result = function.apply(x, target, None, -100, 0.0, 0.0, "mean", None, False)
        return result[0] if isinstance(result, tuple) else result

    return ComparedOperation(apply_loss, lambda x: F.cross_entropy(x, target), [random_tensor(11, 300)])


def kl_div_case() -> ComparedOperation:
    from liger_kernel.ops.kl_div import LigerKLDivLossFunction as function

    target = torch.softmax(random_tensor(7, 130, seed=8), -1)

    def exact_result(x):
        return F.kl_div(x, target, reduction="batchmean")

    inputs = [torch.log_softmax(random_tensor(7, 130), -1)]
    return ComparedOperation(lambda x: function.apply(x, target, "batchmean", False, 1e-10), exact_result, inputs)


def jsd_case() -> ComparedOperation:
    from liger_kernel.ops.jsd import LigerJSDFunction as function

    target = torch.log_softmax(random_tensor(7, 130, seed=8), -1)

    def exact_result(x):
        middle = torch.log(0.5 * (x.exp() + target.exp()))
        both = 0.5 * (target.exp() * (target - middle)).sum() + 0.5 * (x.exp() * (x - middle)).sum()
        return both / x.shape[0]

    inputs = [torch.log_softmax(random_tensor(7, 130), -1)]
    return ComparedOperation(lambda x: function.apply(x, target, None, 0.5, -100), exact_result, inputs)


def group_norm_case() -> ComparedOperation:
    from liger_kernel.ops.group_norm import LigerGroupNormFunction as function

    inputs = [random_tensor(3, 8, 40), random_tensor(8, seed=8), random_tensor(8, seed=9)]
    return ComparedOperation(
        lambda x, w, b: function.apply(x, w, b, 8, 4, 1e-6),
        lambda x, w, b: F.group_norm(x, 4, w, b, 1e-6),
        inputs,
    )


def tanh_norm_case() -> ComparedOperation:
    from liger_kernel.ops.dyt import LigerDyTFunction as function

    inputs = [
        random_tensor(6, 128),
        random_tensor(1, seed=8),
        random_tensor(128, seed=9),
        random_tensor(128, seed=10),
    ]
    return ComparedOperation(
        lambda x, alpha, gamma, beta: function.apply(x, alpha, gamma, beta),
        lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
        inputs,
    )


compare_all(globals())
