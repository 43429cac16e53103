"""Attention on t_cpu_native: the oracle's bits, from keys that nobody else may look at."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import WAYS, check_op, make_backend
from kernels.native.unkind import assert_rejected, int32_indices
from kernels.op_cases import make_pages, random_floats

from zinc_rt.backends.cpu.one_node import run_node
from zinc_rt.backends.cpu.tasks import TaskSplitting
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.op import Op

FEW_WAYS = ((2, TaskSplitting(least=1)), (1, TaskSplitting(least=2, shuffle=6)))


def check_attention(
    lengths: list[int],
    tokens: list[tuple[int, int]],
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    value_dim: int,
    window: int = 0,
    page_tokens: int = 16,
    pages: int = 40,
    scale: float = 0.3,
    spoil: dict[int, float] | None = None,
    capacity: int = 0,
    thread_counts: tuple[tuple[int, TaskSplitting], ...] = FEW_WAYS,
) -> None:
    """Tokens are (slot, position). Cache rows that are visible to no token are NaN, and such pages are unset;
    `spoil` writes a value to one dim of a visible key and value.
    """
    page_table, cache_rows = make_pages(1, lengths, page_tokens=page_tokens, pages=pages)
    k = np.full((cache_rows, kv_heads * head_dim), np.nan, np.float32)
    v = np.full((cache_rows, kv_heads * value_dim), np.nan, np.float32)
    random = np.random.default_rng(3)
    unseen = np.ones(page_table.shape, bool)
    for slot, position in tokens:
        for key in range(max(0, position - window + 1) if window else 0, position + 1):
            row = page_table[slot, key // page_tokens] * page_tokens + key % page_tokens
            unseen[slot, key // page_tokens] = False
            if np.isnan(k[row]).all():
                k[row], v[row] = random.normal(size=k.shape[1]), random.normal(size=v.shape[1])
                if spoil and key in spoil:
                    k[row, -1] = v[row, 0] = spoil[key]
    page_table[unseen] = -1
    slots, positions = (np.array(column, np.int32) for column in zip(*tokens, strict=True))
    check_op(
        Op.FLASH_ATTN,
        random_floats(2, len(tokens), heads * head_dim, scale=2.0),
        *(k, v, positions, slots, page_table),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        scale=scale,
        window=window,
        page_tokens=page_tokens,
        capacity={"tokens": capacity},
        orderings=("canonical-1",),
        thread_counts=thread_counts,
    )


@pytest.mark.parametrize("position", [0, 1, 15, 31, 32, 255, 256, 511, 600])
def test_token_at_group_and_chunk_boundaries_matches(position: int) -> None:
    check_attention([601], [(0, position)], heads=4, kv_heads=2, head_dim=32, value_dim=32)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "value_dim"),
    [
        (1, 1, 1, 1),
        (2, 1, 15, 17),
        (3, 3, 16, 16),
        (5, 1, 80, 37),
        (2, 2, 128, 64),
        (17, 1, 12, 8),
        (40, 2, 20, 1),
        (24, 24, 4, 4),
    ],
)
def test_heads_of_any_size_and_number_match(heads: int, kv_heads: int, head_dim: int, value_dim: int) -> None:
    check_attention(
        [300, 40],
        [(0, 296), (0, 297), (1, 39), (0, 298)],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
    )


@pytest.mark.parametrize("head_dim", [129, 192, 256, 300])
def test_heads_wider_than_dot_accumulators_match(head_dim: int) -> None:
    check_attention([40], [(0, 38), (0, 39)], heads=3, kv_heads=1, head_dim=head_dim, value_dim=192)


@pytest.mark.parametrize("last", [0, 15, 16, 300])
def test_tokens_that_see_their_whole_sequence_match(last: int) -> None:
    check_attention([301, 40], [(0, last)] * 17 + [(1, 39)] * 3, heads=4, kv_heads=2, head_dim=32, value_dim=32)


@pytest.mark.parametrize("window", [1, 2, 31, 256, 257, 300])
def test_windowed_attention_matches(window: int) -> None:
    check_attention(
        [600, 300],
        [(0, position) for position in range(505, 520)] + [(1, 3), (1, 299), (0, 598)],
        heads=4,
        kv_heads=2,
        head_dim=24,
        value_dim=20,
        window=window,
    )


def test_window_over_several_pages_matches() -> None:
    tokens = [(0, 10), (0, 200), (0, 201), (0, 201), (0, 590), (0, 300)]
    check_attention([600], tokens, heads=4, kv_heads=2, head_dim=8, value_dim=8, window=5)


def test_prompt_of_many_tokens_and_sequences_matches() -> None:
    tokens = [(0, position) for position in range(33)] + [(1, position) for position in range(260, 290)] + [(2, 0)]
    check_attention(
        [40, 290, 1],
        tokens,
        heads=6,
        kv_heads=3,
        head_dim=16,
        value_dim=16,
        page_tokens=5,
        pages=60,
        thread_counts=WAYS,
    )


def test_capacity_beyond_stored_partial_results_matches() -> None:
    tokens = [(0, position) for position in range(250, 300)]
    for capacity in (0, 300_000):
        check_attention([400], tokens, heads=2, kv_heads=1, head_dim=4, value_dim=3, capacity=capacity)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e-41, -0.0, 3e38])
def test_pathological_values_match(value: float) -> None:
    check_attention(
        [300],
        [(0, position) for position in range(250, 264)],
        heads=4,
        kv_heads=2,
        head_dim=16,
        value_dim=16,
        spoil={5: value, 256: value, 260: value},
    )


@pytest.mark.parametrize("position", [255, 256, 300])
def test_infinite_key_does_not_affect_queries_that_cannot_see_it(position: int) -> None:
    """In one step, tokens before `position` do not see what those from there on see."""
    check_attention(
        [400],
        [(0, index) for index in range(position - 5, position + 6)],
        heads=4,
        kv_heads=2,
        head_dim=16,
        value_dim=16,
        spoil={position: np.inf, position + 2: np.nan},
    )


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ({"position": 64}, "a position is outside the context"),
        ({"position": -1}, "a position is outside the context"),
        ({"position": 2**31 - 1}, "a position is outside the context"),
        ({"slot": 2}, "a slot is outside its table"),
        ({"slot": -1}, "a slot is outside its table"),
        ({"page": -1}, "a page outside the cache"),
        ({"page": 4}, "a page outside the cache"),
        ({"page": 2**31 - 1}, "a page outside the cache"),
    ],
)
@pytest.mark.parametrize("pages", [4, 40])
def test_out_of_range_ids_are_rejected(ids: dict[str, int], sentence: str, pages: int) -> None:
    page_table = np.zeros((2, pages), np.int32)
    page_table[1, 2] = ids.get("page", 0)
    position = ids.get("position", 40)
    if position == 64:
        position = 16 * pages
    assert_rejected(
        sentence,
        Op.FLASH_ATTN,
        random_floats(1, 2, 16),
        *(random_floats(2, 64, 8), random_floats(3, 64, 8)),
        *(int32_indices(3, position), int32_indices(0, ids.get("slot", 1)), page_table),
        outputs=(random_floats(1, 2, 16),),
        heads=2,
        kv_heads=1,
        head_dim=8,
        value_dim=8,
        scale=1.0,
    )


def test_oversized_heads_are_rejected() -> None:
    q = random_floats(1, 1, 2049)
    with pytest.raises(UnsupportedError, match="head_dim is 2049, expected 1 to 2048"):
        run_node(
            make_backend("canonical-1", 1, TaskSplitting()),
            Op.FLASH_ATTN,
            (q, q, q, int32_indices(0), int32_indices(0), np.zeros((1, 1), np.int32)),
            (q,),
            heads=1,
            kv_heads=1,
            head_dim=2049,
            value_dim=2049,
            scale=1.0,
        )
