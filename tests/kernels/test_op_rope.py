"""Rotation, and the fused norm + rotation + cache write against its parts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from op_cases import ORDERINGS, assert_close, assert_same, make_pages, make_weight, random_floats, run_op

from zinc_rt.ir.op import Op

CTX = 50


def make_tables(pairs: int, *, magnitude: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin [ctx, pairs] of the plain frequencies, rounded once; the last pair does not turn."""
    angle = np.array([[p * 10000.0 ** (-2 * j / max(2 * pairs, 1)) for j in range(pairs)] for p in range(CTX)])
    angle[:, -1] = 0
    return (np.cos(angle) * magnitude).astype(np.float32), (np.sin(angle) * magnitude).astype(np.float32)


def rope64(
    x: np.ndarray, position: np.ndarray, cos: np.ndarray, sin: np.ndarray, head_dim: int, mode: str, offset: int
) -> np.ndarray:
    y = x.astype(np.float64)
    pairs = cos.shape[1]
    for t, p in enumerate(position):
        for start in range(offset, x.shape[1], head_dim):
            for j in range(pairs):
                first, second = (2 * j, 2 * j + 1) if mode == "norm" else (j, j + pairs)
                a, b = float(x[t, start + first]), float(x[t, start + second])
                c, s = float(cos[p, j]), float(sin[p, j])
                y[t, start + first], y[t, start + second] = a * c - b * s, a * s + b * c
    return y


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize(
    ("tokens", "heads", "head_dim", "pairs", "offset"),
    [(1, 1, 2, 1, 0), (3, 2, 16, 8, 0), (2, 3, 18, 4, 0), (4, 2, 24, 4, 16), (2, 1, 9, 3, 2)],
)
def test_rope_rotates_only_its_pairs(
    ordering: str, mode: str, tokens: int, heads: int, head_dim: int, pairs: int, offset: int
) -> None:
    cos, sin = make_tables(pairs, magnitude=1.19)
    x = random_floats(1, tokens, heads * head_dim, scale=100)
    x[0, 0] = 1e-41
    position = np.array([CTX - 1, 0, 17, 17], np.int32)[:tokens]
    attrs = {"head_dim": head_dim, "mode": mode, "offset": offset}
    before = x.copy()
    got = run_op(Op.ROPE, ordering, x, position, make_weight(cos), make_weight(sin), **attrs)
    want = rope64(x, position, cos, sin, head_dim, mode, offset)
    assert_close(got, want, 3e-7 * 400, relative=False)
    passing = [c for c in range(heads * head_dim) if not offset <= c % head_dim < offset + 2 * pairs]
    assert np.array_equal(got[:, passing], x[:, passing])
    assert np.array_equal(x, before), "the operand stays as it was"
    assert not np.array_equal(got, x)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("mode", ["norm", "neox"])
def test_rotated_products_depend_only_on_distance(ordering: str, mode: str) -> None:
    angle = np.outer(np.arange(CTX), 0.7 ** np.arange(4))
    cos, sin = make_weight(np.cos(angle)), make_weight(np.sin(angle))
    q, k = random_floats(1, 1, 8), random_floats(2, 1, 8)

    def rotated_product(index: int, distance: int) -> float:
        turned = [
            run_op(Op.ROPE, ordering, x, np.array([p], np.int32), cos, sin, head_dim=8, mode=mode)
            for x, p in ((q, index), (k, index - distance))
        ]
        return float(turned[0][0].astype(np.float64) @ turned[1][0])

    scores = [rotated_product(index, 6) for index in range(6, CTX)]
    assert max(scores) - min(scores) < 1e-5
    assert abs(scores[0] - rotated_product(6, 0)) > 1e-2


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize("normed", ["both", "keys only", "none"])
def test_fused_form_matches_norm_rope_and_cache_write_bit_for_bit(ordering: str, mode: str, normed: str) -> None:
    lengths, head_dim = [20, 3, 33], 12
    table, rows = make_pages(3, lengths, page_tokens=16, pages=4)
    slot = np.array([2, 0, 2, 1, 0], np.int32)
    position = np.array([32, 19, 15, 2, 16], np.int32)
    q, k, v = random_floats(1, 5, 4 * head_dim), random_floats(2, 5, 2 * head_dim), random_floats(3, 5, 10)
    cos, sin = (make_weight(t) for t in make_tables(4))
    q_w = make_weight(random_floats(4, head_dim)) if normed == "both" else None
    k_w = make_weight(random_floats(5, head_dim)) if normed != "none" else None
    untouched = np.float32(np.nan)
    kv_k, kv_v = np.full((rows, 2 * head_dim), untouched), np.full((rows, 10), untouched)
    where = (position, slot, table)
    got = run_op(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE, ordering, q, k, v, q_w, k_w, cos, sin, *where, kv_k, kv_v,
        eps=1e-6, head_dim=head_dim, mode=mode, page_tokens=16,
    )  # fmt: skip

    def norm_and_rotate(x: np.ndarray, w: object) -> np.ndarray:
        if w is not None:
            x = run_op(Op.RMS_NORM, ordering, x, w, eps=1e-6, size=head_dim)
        return run_op(Op.ROPE, ordering, x, position, cos, sin, head_dim=head_dim, mode=mode)

    assert_same(got, norm_and_rotate(q, q_w))
    want_k, want_v = np.full_like(kv_k, untouched), np.full_like(kv_v, untouched)
    run_op(Op.KV_WRITE_BATCHED, ordering, norm_and_rotate(k, k_w), v, *where, want_k, want_v, page_tokens=16)
    assert kv_k.tobytes() == want_k.tobytes() and kv_v.tobytes() == want_v.tobytes()
    assert np.isfinite(kv_k).all(axis=1).sum() == 5
    spread = np.concatenate([q.reshape(5, 4, head_dim), random_floats(6, 5, 4, 7)], axis=-1).reshape(5, -1)
    skipping = run_op(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE, ordering, spread, k, v, q_w, k_w, cos, sin, *where, kv_k, kv_v,
        eps=1e-6, head_dim=head_dim, mode=mode, page_tokens=16, q_skip=7,
    )  # fmt: skip
    assert_same(skipping, got)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("skip", [0, 5])
def test_fused_projections_match_their_parts_bit_for_bit(ordering: str, skip: int) -> None:
    head_dim, width = 12, 64
    table, rows = make_pages(3, [20, 3, 33], page_tokens=16, pages=4)
    slot, position = np.array([2, 0, 1], np.int32), np.array([32, 19, 2], np.int32)
    x, norm_w = random_floats(1, 3, width), make_weight(random_floats(2, width))
    sizes = 4 * (head_dim + skip), 2 * head_dim, 10
    weights = [make_weight(random_floats(3 + index, size, width), "q8_0") for index, size in enumerate(sizes)]
    of_heads = [make_weight(random_floats(seed, head_dim)) for seed in (6, 7)]
    cos, sin = (make_weight(t) for t in make_tables(4))
    caches = [[np.zeros((rows, size), np.float32) for size in sizes[1:]] for _ in range(2)]
    rest = (*of_heads, cos, sin, position, slot, table)
    how = {"head_dim": head_dim, "mode": "neox", "page_tokens": 16, "q_skip": skip}
    qkv = run_op(Op.RMS_NORM_FUSED_QKV, ordering, x, norm_w, *weights, None, None, None, eps=1e-5)
    want = run_op(Op.RMS_NORM_FUSED_ROPE_KV_WRITE, ordering, *qkv, *rest, *caches[0], eps=1e-6, **how)
    q, rotated = run_op(
        Op.QKV_FUSED_ROPE_KV_WRITE,
        ordering,
        x,
        norm_w,
        *weights,
        *rest,
        *caches[1],
        eps=1e-5,
        head_eps=1e-6,
        **how,
    )
    for got, expected in ((q, qkv[0]), (rotated, want), *zip(caches[1], caches[0], strict=True)):
        assert_same(got, expected)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_fused_form_matches_the_formula(ordering: str) -> None:
    table, rows = make_pages(1, [9], page_tokens=16, pages=1)
    q, k, v = random_floats(1, 1, 8), random_floats(2, 1, 8, scale=1e3), random_floats(3, 1, 8)
    cos, sin = make_tables(2)
    q_w, k_w = random_floats(4, 8), random_floats(5, 8)
    kv_k, kv_v = np.zeros((rows, 8), np.float32), np.zeros((rows, 8), np.float32)
    got = run_op(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE, ordering, q, k, v, make_weight(q_w), make_weight(k_w),
        make_weight(cos), make_weight(sin),
        np.array([8], np.int32), np.array([0], np.int32), table, kv_k, kv_v,
        eps=1e-6, head_dim=8, mode="neox", page_tokens=16,
    )  # fmt: skip

    def expected_rows(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        x64 = x.astype(np.float64)
        normed = x64 / math.sqrt(float((x64 * x64).mean()) + 1e-6) * w
        return rope64(normed, np.array([8]), cos, sin, 8, "neox", 0)

    row = table[0, 0] * 16 + 8
    assert_close(got, expected_rows(q, q_w), 2e-6, relative=False)
    assert_close(kv_k[row : row + 1], expected_rows(k, k_w), 2e-6, relative=False)
    assert_same(kv_v[row], v[0])
