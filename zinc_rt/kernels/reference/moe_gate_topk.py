"""MOE_GATE_TOPK: router logits, probabilities, the k experts selected for each token, their first projections."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.moe_gate_up import moe_gate_up
from zinc_rt.kernels.reference.rms_norm import rms_norm
from zinc_rt.kernels.weight import Weight

SUM_FLOOR = np.float32(6.103515625e-5)  # the smallest normal half: the minimum divisor of renormalisation


def moe_gate_topk(
    math: Arithmetic,
    x: np.ndarray,
    gate_w: Weight,
    select_bias: Weight | None,
    norm_w: Weight | None = None,
    expert_gate_w: Weight | None = None,
    expert_up_w: Weight | None = None,
    gate_scale: Weight | None = None,
    up_scale: Weight | None = None,
    bias: Weight | None = None,
    *,
    k: int,
    gating: str = "softmax",
    renormalise: bool = True,
    scale: float = 1.0,
    groups: int = 1,
    groups_used: int = 1,
    eps: float = 1e-6,
    activation: str = "silu",
) -> tuple[np.ndarray, ...]:
    """Route x [T, D] with gate_w (E, D) -> logits [T, E], ids i32 [T, k] by falling score, weights [T, k].

    bias (E,) is added to the logits. With the gating softmax_selected, the scores are the logits, and a weight is
    exp(logit - the first selected logit) before it is renormalised. select_bias (E,) affects the selection only,
    never the weights. With groups > 1 only experts of the groups_used best groups are eligible, a group's score
    being the sum of its two best experts. Ties go to the lower index.
    With norm_w (D,), x is replaced by its RMS_NORM. With expert_gate_w and expert_up_w (E, F, D), also return
    MOE_GATE_UP of x, them, the ids and the scales with `activation`, [T, k, F].
    """
    if norm_w is not None:
        x = rms_norm(math, x, norm_w, eps=eps, size=x.shape[-1])
    logits = math.linear(x, gate_w)
    if bias is not None:
        logits = logits + math.dequantise(bias)
    if gating == "softmax":
        e = math.exp(logits - logits.max(axis=-1, keepdims=True))
        probability = e / math.dot(e, np.ones_like(e))[:, None]
    elif gating == "sigmoid":
        probability = math.sigmoid(logits)
    else:
        probability = logits
    score = probability if select_bias is None else probability + math.dequantise(select_bias)
    if groups > 1:
        score = _only_best_groups(score, groups, groups_used)
    ids = _top(score, k)
    weights = np.take_along_axis(probability, ids, axis=-1)
    if gating == "softmax_selected":
        weights = math.exp(weights - weights[:, :1])
    if renormalise:
        total = math.dot(weights, np.ones_like(weights))
        weights = weights / np.maximum(total, SUM_FLOOR)[:, None]
    if scale not in (0.0, 1.0):
        weights = weights * np.float32(scale)
    routed = logits, ids.astype(np.int32), weights
    if expert_gate_w is None or expert_up_w is None:
        return routed
    return routed + moe_gate_up(
        math, x, expert_gate_w, expert_up_w, routed[1], gate_scale, up_scale, activation=activation
    )


def _top(score: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-score, axis=-1, kind="stable")[:, :k]


def _only_best_groups(score: np.ndarray, groups: int, used: int) -> np.ndarray:
    by_group = score.reshape(len(score), groups, -1)
    best = np.sort(by_group, axis=-1)[..., ::-1]
    group_score = best[..., 0] + best[..., 1] if best.shape[-1] > 1 else best[..., 0]
    eligible = np.zeros(group_score.shape, bool)
    np.put_along_axis(eligible, _top(group_score, used), True, axis=-1)
    return np.where(eligible[..., None], by_group, np.float32(-np.inf)).reshape(score.shape)
