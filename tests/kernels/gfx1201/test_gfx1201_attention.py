"""gfx1201 RoPE, cache writes and attention bit for bit against the oracle, without any finding.

Rows of the cache that no token was written to hold NaN, and pages that a slot does not have are -1 in its table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from harness import Operand, check_op
from kernels.op_cases import make_weight, random_floats

from zinc_rt.ir.graph import Builder
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.kernels.launch import list_kernel_names
from zinc_rt.lower.lower import choose_entry

EDGES = np.array([0, -0.0, 1e-45, -1e-42, 3e38, -3e38, np.inf, np.nan, 1, -2], np.float32)


@dataclass
class PagedCache:
    """Return each token's slot and position with the required pages, in random order."""

    position: np.ndarray
    slot: np.ndarray
    table: np.ndarray
    page_tokens: int

    @property
    def row_count(self) -> int:
        return self.table.size * self.page_tokens

    def filled_rows(self, columns: int, seed: int) -> np.ndarray:
        """[rows, columns]: values in every row up to each slot's last position, NaN elsewhere."""
        values = np.full((self.row_count, columns), np.nan, np.float32)
        for slot, pages in enumerate(self.table):
            count = self.position[self.slot == slot].max(initial=-1) + 1
            index = np.arange(count)
            rows = pages[index // self.page_tokens] * self.page_tokens + index % self.page_tokens
            values[rows] = random_floats(seed + slot, count, columns)
        return values


def make_cache(tokens: list[tuple[int, int]], page_tokens: int = 16, *, pages: int = 0) -> PagedCache:
    """`tokens` are (slot, position); a slot's table has `pages` entries where that is more than they need."""
    slot, position = (np.array(column, np.int32) for column in zip(*tokens, strict=True))
    table = np.full((slot.max() + 1, max(pages, position.max() // page_tokens + 2)), -1, np.int32)
    free = np.random.default_rng(len(tokens)).permutation(table.size).tolist()
    for index in range(len(table)):
        last = position[slot == index].max(initial=-1)
        for page in range(last // page_tokens + 1):
            table[index, page] = free.pop()
    return PagedCache(position, slot, table, page_tokens)


def check_attention(
    paged: PagedCache,
    *,
    heads: int = 2,
    kv_heads: int = 1,
    head_dim: int = 64,
    value_dim: int = 0,
    window: int = 0,
    q: np.ndarray | None = None,
    keys: np.ndarray | None = None,
    values: np.ndarray | None = None,
    gate: np.ndarray | None = None,
    op: Op = Op.FLASH_ATTN,
    capacity: int = 0,
    **attrs: int,
) -> np.ndarray:
    value_dim = value_dim or head_dim
    operands: tuple[Operand, ...] = (
        random_floats(7, len(paged.position), heads * head_dim) if q is None else q,
        paged.filled_rows(kv_heads * head_dim, 10) if keys is None else keys,
        paged.filled_rows(kv_heads * value_dim, 20) if values is None else values,
        paged.position,
        paged.slot,
        paged.table,
        *([] if gate is None else [gate]),
    )
    (out,) = check_op(
        op,
        *operands,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        scale=head_dim**-0.5,
        window=window,
        page_tokens=paged.page_tokens,
        capacity={"tokens": capacity},
        **attrs,
    )
    return out


@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize(
    ("head_dim", "pairs", "offset"),
    [
        (2, 1, 0),
        (6, 1, 3),
        (7, 3, 1),
        (16, 8, 0),
        (64, 32, 0),
        (64, 10, 5),
        (128, 64, 0),
        (192, 32, 128),
        (256, 33, 0),
    ],
)
def test_rope_matches(mode: str, head_dim: int, pairs: int, offset: int) -> None:
    cos, sin = (make_weight(random_floats(seed, 9, pairs)) for seed in (1, 2))
    x = random_floats(3, 3, 3 * head_dim)
    x[2] = np.resize(EDGES, 3 * head_dim)
    position = np.array([5, 0, 8], np.int32)
    check_op(Op.ROPE, x, position, cos, sin, head_dim=head_dim, mode=mode, offset=offset, capacity={"tokens": 4})


@pytest.mark.parametrize(("k", "v"), [(1, 3), (40, 600), (512, 511), (1030, 64)])
@pytest.mark.parametrize("page_tokens", [1, 2, 16, 64])
def test_keys_and_values_are_written_to_their_page(k: int, v: int, page_tokens: int) -> None:
    paged = make_cache([(0, 0), (2, 15), (2, 16), (1, 70)], page_tokens)
    keys, values = random_floats(1, 4, k), random_floats(2, 4, v)
    keys[0] = np.resize(EDGES, k)
    check_op(
        Op.KV_WRITE_BATCHED,
        keys,
        values,
        paged.position,
        paged.slot,
        paged.table,
        paged.filled_rows(k, 3),
        paged.filled_rows(v, 4),
        page_tokens=page_tokens,
        capacity={"tokens": 6},
    )


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize("normed", ["q", "k", "qk", ""])
@pytest.mark.parametrize(
    ("head_dim", "pairs", "v", "skip"), [(16, 6, 48, 0), (3, 1, 1, 5), (128, 64, 512, 128), (130, 65, 1100, 0)]
)
def test_norm_rope_and_cache_write_as_one_node(
    mode: str, normed: str, head_dim: int, pairs: int, v: int, skip: int
) -> None:
    paged = make_cache([(0, 3), (1, 17), (0, 4)])
    weights = [
        make_weight(random_floats(seed, head_dim)) if which in normed else None for seed, which in enumerate("qk")
    ]
    k = random_floats(2, 3, 2 * head_dim)
    k[1] = np.resize(EDGES, 2 * head_dim)
    check_op(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
        random_floats(1, 3, 3 * (head_dim + skip)),
        k,
        random_floats(3, 3, v),
        *weights,
        make_weight(random_floats(4, 20, pairs)),
        make_weight(random_floats(5, 20, pairs)),
        paged.position,
        paged.slot,
        paged.table,
        paged.filled_rows(2 * head_dim, 6),
        paged.filled_rows(v, 7),
        eps=1e-6,
        head_dim=head_dim,
        mode=mode,
        page_tokens=16,
        q_skip=skip,
        capacity={"tokens": 5},
    )


@pytest.mark.rest
@pytest.mark.parametrize("position", [0, 1, 6, 7, 8, 15, 16, 31, 32, 33, 255, 256, 257, 511, 512, 700])
def test_attention_across_pages_groups_and_chunks_matches(position: int) -> None:
    check_attention(make_cache([(0, position)]), heads=2, kv_heads=2, head_dim=32)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("head_dim", "value_dim"), [(4, 4), (16, 16), (64, 64), (128, 128), (128, 64), (64, 128)])
def test_heads_up_to_128_match(head_dim: int, value_dim: int) -> None:
    check_attention(make_cache([(0, 270)]), head_dim=head_dim, value_dim=value_dim, heads=3)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("head_dim", "value_dim"), [(132, 4), (192, 128), (256, 256), (64, 256), (320, 512), (512, 512), (12, 388)]
)
def test_heads_up_to_512_match(head_dim: int, value_dim: int) -> None:
    check_attention(make_cache([(0, 40)]), head_dim=head_dim, value_dim=value_dim)


@pytest.mark.parametrize("window", [1, 2, 31, 32, 33, 256, 257, 300, 5000])
def test_window_hides_earlier_keys(window: int) -> None:
    check_attention(make_cache([(0, 600), (0, 299), (0, 3)]), window=window)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (8, 1), (6, 3), (5, 5)])
def test_query_heads_share_key_heads(heads: int, kv_heads: int) -> None:
    check_attention(make_cache([(0, 9), (1, 40)]), heads=heads, kv_heads=kv_heads, head_dim=16, capacity=5)


@pytest.mark.parametrize("page_tokens", [8, 16, 32, 128, 512])
def test_pages_of_other_sizes_match(page_tokens: int) -> None:
    check_attention(make_cache([(1, 290), (0, 7)], page_tokens), head_dim=20)


@pytest.mark.parametrize("last", [0, 15, 16, 300])
def test_tokens_that_see_their_whole_sequence_match(last: int) -> None:
    paged = make_cache([(0, last), (1, 39)])
    token = np.array([0, 0, 0, 1, 1])
    whole = PagedCache(paged.position[token], paged.slot[token], paged.table, paged.page_tokens)
    for head_dim in (32, 20):
        check_attention(whole, heads=4, kv_heads=2, head_dim=head_dim, op=Op.FLASH_ATTN_BATCHED, capacity=8)


def test_batch_matches_the_bits_of_single_tokens() -> None:
    paged = make_cache([(0, 0), (0, 1), (1, 257), (0, 2), (2, 16), (1, 256)])
    keys, values, q = paged.filled_rows(32, 1), paged.filled_rows(32, 2), random_floats(3, 6, 64)
    keys_of = {"heads": 2, "kv_heads": 1, "head_dim": 32, "keys": keys, "values": values}
    together = check_attention(paged, q=q, op=Op.FLASH_ATTN_BATCHED, capacity=8, **keys_of)
    for token in range(6):
        one = slice(token, token + 1)
        alone = PagedCache(paged.position[one], paged.slot[one], paged.table, 16)
        got = check_attention(alone, q=q[one], **keys_of)
        assert got.tobytes() == together[one].tobytes()


def test_equal_large_infinite_and_nan_scores_match() -> None:
    paged = make_cache([(0, 300)])
    for change in (0.0, 1e18, 3e38, np.inf, np.nan):
        q, keys = random_floats(1, 1, 64), paged.filled_rows(32, 2)
        q[0, 3] = change
        check_attention(paged, q=q, keys=keys, head_dim=32)
    equal = np.where(np.isnan(paged.filled_rows(32, 2)), np.nan, np.float32(0.25))
    check_attention(paged, q=np.ones((1, 64), np.float32), keys=equal, head_dim=32)


def test_infinite_or_nan_value_propagates() -> None:
    paged = make_cache([(0, 20)])
    values = paged.filled_rows(32, 2)
    row = paged.table[0, 0] * 16
    values[row, :3] = np.inf, np.nan, 1e-45
    out = check_attention(paged, values=values, head_dim=32)
    assert np.isinf(out[0, 0]) and np.isnan(out[0, 1]) and np.isfinite(out[0, 3:32]).all()


def launched_kernels(paged: PagedCache, tokens: int, *, heads: int = 2, window: int = 0) -> list[str]:
    """Return the kernels of attention with that many tokens over the cache's pages."""
    attrs = {"heads": heads, "kv_heads": 1, "head_dim": 4, "value_dim": 4, "scale": 1.0, "window": window}
    builder = Builder("attention")
    names = [builder.buffer(name, ("tokens", 4), "f32", "activation") for name in "abcde"]
    table = builder.buffer("table", paged.table.shape, "i32", "activation")
    out = builder.buffer("out", ("tokens", 4 * heads), "f32", "activation")
    builder.node(Op.FLASH_ATTN, (*names, table), (out,), page_tokens=16, **attrs)
    graph = builder.build()
    entry = next(row for row in KERNELS.entries if row.op is Op.FLASH_ATTN)
    return list(list_kernel_names(entry.code, graph.nodes[0], graph, {"tokens": tokens}))


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("dtype", "heads", "head_dim", "skip", "v"),
    [("q8_0", (3, 2), 16, 5, 48), ("f32", (5, 1), 64, 64, 600), ("q4_k", (1, 1), 128, 0, 1100)],
)
def test_projections_and_their_rotation_match(
    dtype: str, heads: tuple[int, int], head_dim: int, skip: int, v: int
) -> None:
    """One launch, whose last workgroup of a token rotates: fewer and more parts than it has waves."""
    paged = make_cache([(0, 3), (1, 17), (0, 4)])
    x, norm = random_floats(1, 3, 256, scale=3), make_weight(random_floats(2, 256))
    rows = heads[0] * (head_dim + skip), heads[1] * head_dim, v
    weights = [make_weight(random_floats(3 + i, n, 256), dtype) for i, n in enumerate(rows)]
    of_heads = [make_weight(random_floats(6 + i, head_dim)) for i in range(2)]
    tables = [make_weight(random_floats(8 + i, 20, head_dim // 4)) for i in range(2)]
    attrs = {
        "eps": 1e-5,
        "head_eps": 1e-6,
        "head_dim": head_dim,
        "mode": "neox",
        "page_tokens": 16,
        "q_skip": skip,
    }
    for norms in (of_heads, [None, of_heads[1]], [None, None]):
        for tokens, how in ((3, {"capacity": {"tokens": 5}}), (1, {"ordering": "canonical-1-q8"}), (1, {})):
            where = paged.position[:tokens], paged.slot[:tokens], paged.table
            caches = paged.filled_rows(rows[1], 6), paged.filled_rows(v, 7)
            operands = (x[:tokens], norm, *weights, *norms, *tables, *where, *caches)
            check_op(Op.QKV_FUSED_ROPE_KV_WRITE, *operands, **attrs, **how)
    wide = weights[0], weights[1], make_weight(random_floats(9, v, 256), "f16")
    caches = paged.filled_rows(rows[1], 6), paged.filled_rows(v, 7)
    operands = (x, norm, *wide, *of_heads, *tables, paged.position, paged.slot, paged.table, *caches)
    check_op(Op.QKV_FUSED_ROPE_KV_WRITE, *operands, **attrs)


CHUNK = 256
PAGES = 80  # enough for five chunks
PARTS = ["flash_attn_parts_128"]


def test_long_context_with_few_queries_is_split() -> None:
    short, long = make_cache([(0, 4 * CHUNK - 17)]), make_cache([(0, 9)], pages=PAGES)
    assert launched_kernels(short, 1) == ["flash_attn_128"]
    assert launched_kernels(long, 1) == launched_kernels(long, 256) == PARTS
    assert launched_kernels(long, 512) == launched_kernels(long, 2, heads=512) == ["flash_attn_128"]
    assert launched_kernels(long, 1, window=3 * CHUNK + 1) == ["flash_attn_128"]
    assert launched_kernels(long, 1, window=3 * CHUNK + 2) == PARTS


@pytest.mark.rest
@pytest.mark.parametrize("head_dim", [4, 64, 128, 256])
def test_split_context_may_end_next_to_a_chunk_boundary(head_dim: int) -> None:
    """Each of a batch with chunks of its own, one behind the cache's first 32."""
    ends = [0, CHUNK - 2, CHUNK - 1, CHUNK, 3 * CHUNK + 4, *([33 * CHUNK + 5] if head_dim == 4 else [])]
    paged = make_cache([(slot, end) for slot, end in enumerate(ends)], pages=PAGES)
    assert launched_kernels(paged, len(ends)) == PARTS
    check_attention(paged, head_dim=head_dim, capacity=len(ends) + 2)


def test_gate_multiplies_the_result_split_or_not() -> None:
    for paged, any_head in ((make_cache([(0, 9), (1, 20)]), 7), (make_cache([(0, 3 * CHUNK)], pages=PAGES), 40)):
        tokens = len(paged.position)
        for head_dim in (8, any_head):
            check_attention(
                paged, head_dim=head_dim, gate=random_floats(9, tokens, 2 * head_dim, scale=4), capacity=tokens + 2
            )
            gate = random_floats(9, tokens, 2 * (head_dim + 5), scale=4)
            check_attention(paged, head_dim=head_dim, gate=gate, gate_skip=5)


@pytest.mark.rest
def test_window_splits_begin_at_the_window_start() -> None:
    paged = make_cache([(0, 7 * CHUNK + 3), (1, 2 * CHUNK), (0, 9), (1, 5 * CHUNK - 1)])
    for window in (3 * CHUNK + 2, 4 * CHUNK, 4 * CHUNK + 1, 5 * CHUNK + 5):
        assert launched_kernels(paged, 4, window=window) == PARTS
        check_attention(paged, window=window, head_dim=20)


@pytest.mark.rest
def test_nan_or_infinite_partial_results_merge_correctly() -> None:
    paged = make_cache([(0, 3 * CHUNK + 5)], pages=PAGES)
    for index, change in ((0, np.inf), (CHUNK, np.nan), (3 * CHUNK, -np.inf), (2 * CHUNK, 3e38)):
        keys = paged.filled_rows(32, 2)
        keys[paged.table[0, index // 16] * 16, 3] = change
        check_attention(paged, keys=keys, head_dim=32)


@pytest.mark.rest
def test_prefill_matches_the_bits_of_decode() -> None:
    """512 queries fill the device, so each takes its whole context; one alone shares it out."""
    tokens = [(0, 3 * CHUNK - 3 + token) for token in range(6)]
    paged = make_cache(tokens, pages=PAGES)
    keys, values, q = paged.filled_rows(8, 1), paged.filled_rows(8, 2), random_floats(3, 6, 16)
    of = {"heads": 2, "kv_heads": 1, "head_dim": 8, "keys": keys, "values": values}
    prompt = check_attention(paged, q=q, op=Op.FLASH_ATTN_BATCHED, capacity=512, **of)
    for token in range(6):
        one = slice(token, token + 1)
        alone = PagedCache(paged.position[one], paged.slot[one], paged.table, 16)
        assert check_attention(alone, q=q[one], **of).tobytes() == prompt[one].tobytes()


@pytest.mark.rest
@pytest.mark.parametrize("latent", [32, 512])
def test_long_latent_attention_is_split(latent: int) -> None:
    paged = make_cache([(0, 3 * CHUNK + 4), (1, CHUNK)], pages=PAGES)
    pe, heads = 12, 2
    check_op(
        Op.MLA_FLASH_ATTN,
        random_floats(1, 2, heads * (latent + pe)),
        paged.filled_rows(latent, 2),
        paged.filled_rows(pe, 5),
        paged.position,
        paged.slot,
        paged.table,
        make_weight(random_floats(9, heads, 5, latent)),
        heads=heads,
        latent=latent,
        rope=pe,
        value_dim=5,
        scale=0.1,
        page_tokens=16,
    )


@pytest.mark.slow
def test_attention_over_thousands_of_keys_matches() -> None:
    check_attention(make_cache([(0, 5003), (1, 4096)]), head_dim=128, heads=4, kv_heads=2)


ODD_WIDTHS = [(1, 1), (3, 7), (66, 64), (64, 66), (130, 5), (257, 130), (576, 513), (20, 1030)]


@pytest.mark.rest
@pytest.mark.parametrize(("head_dim", "value_dim"), ODD_WIDTHS)
def test_heads_of_any_width_match(head_dim: int, value_dim: int) -> None:
    check_attention(
        make_cache([(0, 40), (1, 290), (0, 3)]), heads=4, kv_heads=2, head_dim=head_dim, value_dim=value_dim
    )


@pytest.mark.parametrize("page_tokens", [1, 2, 4])
def test_attention_with_small_pages_matches(page_tokens: int) -> None:
    check_attention(make_cache([(1, 290), (0, 7)], page_tokens), head_dim=20)


@pytest.mark.parametrize("window", [1, 33, 257, 300])
def test_window_with_odd_heads_matches(window: int) -> None:
    check_attention(make_cache([(0, 600), (0, 299), (0, 3)]), window=window, head_dim=9)


def test_odd_heads_accept_infinite_and_nan_values() -> None:
    paged = make_cache([(0, 300)])
    for change in (3e38, np.inf, -np.inf, np.nan):
        keys, values = paged.filled_rows(9, 2), paged.filled_rows(9, 3)
        keys[paged.table[0, 0] * 16, 3] = change
        values[paged.table[0, 1] * 16, 4] = change
        check_attention(paged, keys=keys, values=values, head_dim=9)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("latent", "pe", "page_tokens"), [(32, 9, 16), (33, 12, 16), (608, 64, 16), (5, 2, 1), (130, 131, 16)]
)
def test_latents_of_any_width_match(latent: int, pe: int, page_tokens: int) -> None:
    paged, heads = make_cache([(0, 300), (1, 17)], page_tokens), 2
    check_op(
        Op.MLA_FLASH_ATTN,
        random_floats(1, 2, heads * (latent + pe)),
        paged.filled_rows(latent, 2),
        paged.filled_rows(pe, 5),
        paged.position,
        paged.slot,
        paged.table,
        make_weight(random_floats(9, heads, 5, latent)),
        heads=heads,
        latent=latent,
        rope=pe,
        value_dim=5,
        scale=0.1,
        page_tokens=page_tokens,
    )


def test_page_sizes_are_powers_of_two() -> None:
    attrs = {"heads": 1, "kv_heads": 1, "head_dim": 64, "value_dim": 64, "scale": 1.0, "page_tokens": 24}
    builder = Builder("refused")
    names = [builder.buffer(name, ("tokens", 64), "f32", "activation") for name in "abcdefg"]
    builder.node(Op.FLASH_ATTN, tuple(names[:6]), (names[6],), **attrs)
    graph = builder.build()
    entries = [row for row in KERNELS.entries if row.op is Op.FLASH_ATTN]
    reason = "page_tokens is 24, expected a power of two"
    assert choose_entry(graph.nodes[0], graph, entries, "canonical-1") == reason
