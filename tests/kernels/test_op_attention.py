"""Attention over a paged cache, plain and latent, against plain loops in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from op_cases import (
    ORDERINGS,
    assert_close,
    assert_same,
    dequantise64,
    make_pages,
    make_weight,
    random_floats,
    run_op,
)

from zinc_rt.ir.op import Op

PAGE = 16
Batch = Sequence[tuple[int, int]]  # (slot, position) of each token


class PagedCache:
    """Return each slot's keys and values, and the paged cache that contains them among NaN."""

    def __init__(self, lengths: list[int], widths: tuple[int, int], *, pages: int, scale: float = 1.0) -> None:
        self.keys = [random_floats(10 + s, n, widths[0], scale=scale) for s, n in enumerate(lengths)]
        self.values = [random_floats(20 + s, n, widths[1]) for s, n in enumerate(lengths)]
        self.table, rows = make_pages(7, lengths, page_tokens=PAGE, pages=pages)
        self.k = np.full((rows, widths[0]), np.nan, np.float32)
        self.v = np.full((rows, widths[1]), np.nan, np.float32)
        for slot, length in enumerate(lengths):
            index = np.arange(length, dtype=np.int32)
            where = (index, np.full(length, slot, np.int32), self.table)
            run_op(Op.KV_WRITE_BATCHED, "canonical-1", self.keys[slot], self.values[slot], *where, self.k, self.v)

    def cache_operands(self, batch: Batch) -> tuple[np.ndarray, ...]:
        slot, position = (np.array([token[i] for token in batch], np.int32) for i in (0, 1))
        return self.k, self.v, position, slot, self.table


def attention64(
    q: np.ndarray,
    cache: PagedCache,
    batch: Batch,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
    window: int,
    cap: float = 0.0,
    sinks: np.ndarray | None = None,
) -> np.ndarray:
    rows = []
    for query, (slot, position) in zip(q.astype(np.float64), batch, strict=True):
        first = max(0, position - window + 1) if window else 0
        outs = []
        for head in range(heads):
            index = head // (heads // kv_heads)
            mine = query.reshape(heads, -1)[head]
            k = cache.keys[slot].astype(np.float64).reshape(len(cache.keys[slot]), kv_heads, -1)
            v = cache.values[slot].astype(np.float64).reshape(len(cache.values[slot]), kv_heads, -1)
            scores = [scale * float(mine @ k[j, index]) for j in range(first, position + 1)]
            if cap:
                scores = [math.tanh(score / cap) * cap for score in scores]
            extra = [] if sinks is None else [float(sinks[head])]
            largest = max(scores + extra)
            weights = [math.exp(score - largest) for score in scores]
            total = sum(weights) + sum(math.exp(sink - largest) for sink in extra)
            outs.append(sum(w / total * v[first + i, index] for i, w in enumerate(weights)))
        rows.append(np.concatenate(outs))
    return np.array(rows)


GEOMETRY = [
    {"heads": 1, "kv_heads": 1, "head_dim": 1, "value_dim": 1},
    {"heads": 4, "kv_heads": 1, "head_dim": 9, "value_dim": 5},
    {"heads": 6, "kv_heads": 2, "head_dim": 16, "value_dim": 16},
    {"heads": 3, "kv_heads": 3, "head_dim": 130, "value_dim": 7},
]
BATCHES = {
    "one token": [(0, 0)],
    "decode at a page's last row": [(1, 15)],
    "decode at a page's first row": [(1, 16)],
    "tokens of an encoder, which see their whole sequence": [(1, 20)] * 3 + [(2, 3)] * 2,
    "slots interleaved": [(2, 40), (0, 4), (2, 41), (1, 31), (0, 3), (1, 32), (2, 39)],
}


@pytest.mark.rest(keep=42)
@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("geometry", GEOMETRY, ids=lambda g: f"{g['heads']}-{g['kv_heads']}x{g['head_dim']}")
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("window", [0, 1, 16, 41])
def test_attention_sees_only_the_past_of_its_slot(
    ordering: str, geometry: dict[str, int], batch: Batch, window: int
) -> None:
    heads, kv_heads = geometry["heads"], geometry["kv_heads"]
    cache = PagedCache([5, 33, 43], (kv_heads * geometry["head_dim"], kv_heads * geometry["value_dim"]), pages=9)
    q = random_floats(1, len(batch), heads * geometry["head_dim"])
    attrs = {**geometry, "scale": 0.3, "window": window, "page_tokens": PAGE}
    want = attention64(q, cache, batch, heads=heads, kv_heads=kv_heads, scale=0.3, window=window)
    got = run_op(Op.FLASH_ATTN, ordering, q, *cache.cache_operands(batch), **attrs)
    assert_close(got, want, 3e-6, relative=False)
    assert_same(run_op(Op.FLASH_ATTN_BATCHED, ordering, q, *cache.cache_operands(batch), **attrs), got)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("position", [255, 256, 257, 300])
def test_attention_across_a_chunk_of_256_keys(ordering: str, position: int) -> None:
    cache = PagedCache([301], (8, 8), pages=20, scale=3)
    q = random_floats(1, 1, 16)
    attrs = {"heads": 2, "kv_heads": 1, "head_dim": 8, "value_dim": 8, "scale": 0.5}
    for window in (0, 2, 46):
        want = attention64(q, cache, [(0, position)], heads=2, kv_heads=1, scale=0.5, window=window)
        got = run_op(Op.FLASH_ATTN, ordering, q, *cache.cache_operands([(0, position)]), **attrs, window=window)
        assert_close(got, want, 5e-6, relative=False)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("cap", [0.25, 2.0, 50.0])
def test_cap_bounds_the_scores_before_softmax(ordering: str, cap: float) -> None:
    cache, batch = PagedCache([301, 40], (16, 16), pages=20, scale=3), [(0, 300), (1, 7), (0, 255)]
    q = random_floats(1, 3, 32)
    attrs = {"heads": 4, "kv_heads": 2, "head_dim": 8, "value_dim": 8, "scale": 0.5}
    plain = attention64(q, cache, batch, heads=4, kv_heads=2, scale=0.5, window=0)
    for window in (0, 46):
        want = attention64(q, cache, batch, heads=4, kv_heads=2, scale=0.5, window=window, cap=cap)
        got = run_op(Op.FLASH_ATTN, ordering, q, *cache.cache_operands(batch), **attrs, window=window, cap=cap)
        assert_close(got, want, 5e-6, relative=False)
    assert np.abs(want - plain).max() > 0.01


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("window", [0, 46])
def test_sinks_take_a_share_of_the_softmax_without_a_value(ordering: str, window: int) -> None:
    cache, batch = PagedCache([601, 40], (16, 16), pages=42, scale=3), [(0, 600), (1, 7), (0, 255)]
    q, sinks = random_floats(1, 3, 32), np.array([-60.0, 0.0, 3.0, 60.0], np.float32)
    attrs = {"heads": 4, "kv_heads": 2, "head_dim": 8, "value_dim": 8, "scale": 0.5, "window": window, "cap": 30.0}
    sizes = {"heads": 4, "kv_heads": 2, "scale": 0.5, "window": window, "cap": 30.0}
    operands = cache.cache_operands(batch)
    want = attention64(q, cache, batch, **sizes, sinks=sinks)
    got = run_op(Op.FLASH_ATTN, ordering, q, *operands, None, make_weight(sinks), **attrs)
    assert_close(got, want, 5e-6, relative=False)
    assert np.abs(want - attention64(q, cache, batch, **sizes)).max() > 0.1
    assert_same(run_op(Op.FLASH_ATTN_BATCHED, ordering, q, *operands, make_weight(sinks), **attrs), got)
    gate = random_floats(2, 3, 32)
    gated = run_op(Op.FLASH_ATTN, ordering, q, *operands, gate, make_weight(sinks), **attrs)
    assert_same(gated, run_op(Op.SIGMOID_MUL, ordering, got, gate))


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("garbage", [np.nan, np.inf, -3e38])
def test_hidden_rows_and_unset_pages_do_not_affect_the_result(ordering: str, garbage: float) -> None:
    cache = PagedCache([5, 33, 43], (8, 8), pages=9)
    q, batch = random_floats(1, 3, 16), [(2, 42), (0, 4), (2, 28)]
    attrs = {"heads": 2, "kv_heads": 1, "head_dim": 8, "value_dim": 8, "scale": 1.0, "window": 12}
    want = run_op(Op.FLASH_ATTN, ordering, q, *cache.cache_operands(batch), **attrs)
    seen = {
        cache.table[s, p // PAGE] * PAGE + p % PAGE for s, top in batch for p in range(max(0, top - 11), top + 1)
    }
    hidden = [row for row in range(len(cache.k)) if row not in seen]
    cache.k[hidden], cache.v[hidden] = garbage, garbage
    cache.table[2, 0] = -1  # the window has left this page, and it may be gone
    assert_same(run_op(Op.FLASH_ATTN, ordering, q, *cache.cache_operands(batch), **attrs), want)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_distant_scores_select_the_largest_and_ties_share(ordering: str) -> None:
    cache = PagedCache([4], (1, 1), pages=1)
    cache.k[cache.table[0, 0] * PAGE : cache.table[0, 0] * PAGE + 4, 0] = [3000, -3000, 3000, 2000]
    cache.v[cache.table[0, 0] * PAGE : cache.table[0, 0] * PAGE + 4, 0] = [1, 50, 3, 70]
    attrs = {"heads": 1, "kv_heads": 1, "head_dim": 1, "value_dim": 1, "scale": 1.0}
    got = run_op(Op.FLASH_ATTN, ordering, np.array([[1.0]], np.float32), *cache.cache_operands([(0, 3)]), **attrs)
    assert got == 2


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_kv_write_puts_each_token_in_its_row_and_touches_no_other(ordering: str) -> None:
    table, rows = make_pages(2, [17, 40, 16], page_tokens=PAGE, pages=5)
    slot = np.array([1, 0, 2, 1, 0, 1], np.int32)
    position = np.array([31, 16, 15, 32, 0, 39], np.int32)
    k, v = random_floats(1, 6, 6), random_floats(2, 6, 4)
    k[3, 2], v[0, 0] = np.nan, -np.inf  # copied as they are
    kv_k, kv_v = random_floats(3, rows, 6), random_floats(4, rows, 4)
    want_k, want_v = kv_k.copy(), kv_v.copy()
    for t in range(6):
        row = int(table[slot[t], position[t] // PAGE]) * PAGE + int(position[t]) % PAGE
        want_k[row], want_v[row] = k[t], v[t]
    assert run_op(Op.KV_WRITE_BATCHED, ordering, k, v, position, slot, table, kv_k, kv_v, page_tokens=PAGE) is None
    assert kv_k.tobytes() == want_k.tobytes() and kv_v.tobytes() == want_v.tobytes()


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("page_tokens", [1, 7, 256])
def test_pages_may_have_any_size(ordering: str, page_tokens: int) -> None:
    table, rows = make_pages(2, [30], page_tokens=page_tokens, pages=30)
    k, v, q = random_floats(1, 30, 8), random_floats(2, 30, 8), random_floats(3, 30, 8)
    kv = np.full((2, rows, 8), np.nan, np.float32)
    where = (np.arange(30, dtype=np.int32), np.zeros(30, np.int32), table)
    run_op(Op.KV_WRITE_BATCHED, ordering, k, v, *where, *kv, page_tokens=page_tokens)
    attrs = {"heads": 1, "kv_heads": 1, "head_dim": 8, "value_dim": 8, "scale": 1.0}
    got = run_op(Op.FLASH_ATTN_BATCHED, ordering, q, *kv, *where, **attrs, page_tokens=page_tokens)
    score = np.tril(np.exp(q.astype(np.float64) @ k.T.astype(np.float64)))
    assert_close(got, score @ v / score.sum(axis=1, keepdims=True), 3e-6, relative=False)


# --- latent attention ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_mla_absorb_maps_the_query_into_the_latent_space(ordering: str, dtype: str, tokens: int) -> None:
    heads, nope, rope, latent = 3, 32, 5, 7
    q, k_b = (
        random_floats(1, tokens, heads * (nope + rope)),
        make_weight(random_floats(2, heads, latent, nope), dtype),
    )
    got = run_op(Op.MLA_ABSORB, ordering, q, k_b, heads=heads, nope=nope, rope=rope, latent=latent)
    want = np.empty((tokens, heads, latent + rope))
    for t in range(tokens):
        for h in range(heads):
            mine = q[t].reshape(heads, -1)[h].astype(np.float64)
            want[t, h] = [*(dequantise64(k_b)[h] @ mine[:nope]), *mine[nope:]]
    loose = 0.3 if (ordering, dtype) == ("canonical-1-q8", "q8_0") else 2e-5
    assert_close(got, want.reshape(tokens, -1), loose, relative=False)
    passed = got.reshape(tokens, heads, -1)[..., latent:]
    assert_same(np.ascontiguousarray(passed), np.ascontiguousarray(q.reshape(tokens, heads, -1)[..., nope:]))


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("tokens", [1, 4])
def test_mla_expand_shares_one_rotated_key_among_all_heads(ordering: str, tokens: int) -> None:
    heads, nope, rope, value = 3, 4, 2, 5
    kv, pe = random_floats(1, tokens, heads * (nope + value)), random_floats(2, tokens, rope)
    k, v = run_op(Op.MLA_EXPAND, ordering, kv, pe, heads=heads, nope=nope, rope=rope, value_dim=value)
    want_k, want_v = [], []
    for t in range(tokens):
        per_head = kv[t].reshape(heads, nope + value)
        want_k.append(np.concatenate([np.concatenate([head[:nope], pe[t]]) for head in per_head]))
        want_v.append(np.concatenate([head[nope:] for head in per_head]))
    assert_same(np.ascontiguousarray(k), np.array(want_k))
    assert_same(np.ascontiguousarray(v), np.array(want_v))


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("batch", [[(0, 0)], [(1, 16), (0, 19), (1, 35), (0, 5)]])
def test_latent_attention_matches_the_expanded_attention(ordering: str, batch: Batch) -> None:
    heads, nope, rope, latent, value = 3, 8, 4, 12, 6
    cache = PagedCache([20, 36], (latent, rope), pages=4)  # keys: latents, values: the shared rotated keys
    q = random_floats(1, len(batch), heads * (nope + rope))
    k_b, v_b = random_floats(2, heads, latent, nope), random_floats(3, heads, value, latent)
    sizes = {"heads": heads, "rope": rope, "latent": latent}
    absorbed = run_op(Op.MLA_ABSORB, ordering, q, make_weight(k_b), **sizes, nope=nope)
    got = run_op(
        Op.MLA_FLASH_ATTN, ordering, absorbed, *cache.cache_operands(batch), make_weight(v_b),
        **sizes, value_dim=value, scale=0.21, page_tokens=PAGE,
    )  # fmt: skip

    want = np.empty((len(batch), heads, value))
    for t, (slot, position) in enumerate(batch):
        c = cache.keys[slot][: position + 1].astype(np.float64)
        pe = cache.values[slot][: position + 1].astype(np.float64)
        for h in range(heads):
            mine = q[t].reshape(heads, -1)[h].astype(np.float64)
            k = np.concatenate([c @ k_b[h].astype(np.float64), pe], axis=1)
            p = np.exp(0.21 * (k @ mine))
            want[t, h] = (p / p.sum()) @ (c @ v_b[h].T.astype(np.float64))
    assert_close(got, want.reshape(len(batch), -1), 1e-5, relative=False)

    # The same through the legacy opcodes: expand to plain keys and values, then plain attention.
    plain = PagedCache([20, 36], (heads * (nope + rope), heads * value), pages=4)
    for slot in range(2):
        kv = np.concatenate([np.concatenate([k_b[h].T, v_b[h]]) for h in range(heads)])
        expanded = run_op(Op.MATMUL, ordering, cache.keys[slot], make_weight(kv), None, None)
        k, v = run_op(
            Op.MLA_EXPAND, ordering, expanded, cache.values[slot],
            heads=heads, nope=nope, rope=rope, value_dim=value,
        )  # fmt: skip
        index = np.arange(len(k), dtype=np.int32)
        run_op(
            Op.KV_WRITE_BATCHED,
            ordering,
            k,
            v,
            index,
            np.full(len(k), slot, np.int32),
            plain.table,
            plain.k,
            plain.v,
        )
    legacy = run_op(
        Op.FLASH_ATTN, ordering, q, *plain.cache_operands(batch),
        heads=heads, kv_heads=heads, head_dim=nope + rope, value_dim=value, scale=0.21, page_tokens=PAGE,
    )  # fmt: skip
    assert_close(legacy, got.astype(np.float64), 2e-5, relative=False)
