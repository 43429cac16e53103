"""Caches of keys and values in 16 and 8 bits: the bytes of a write, and attention over them in float64."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from op_cases import ORDERINGS, assert_close, assert_same, make_pages, make_weight, random_floats, run_op
from test_op_attention import PagedCache, attention64

from zinc_rt.host.errors import UsageError
from zinc_rt.ir.dtypes import find_array_layout
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import make_cache, parse

PAGE = 16
HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 32, "value_dim": 64}
BATCH = [(0, 4), (1, 40), (1, 39), (1, 17)]


class StoredCache(PagedCache):
    """Keys and values of each slot as the cache stores them, in float32, and the paged cache among garbage."""

    def __init__(self, kv: str, lengths: list[int], widths: tuple[int, int]) -> None:
        keys = [random_floats(10 + s, n, widths[0], scale=2) for s, n in enumerate(lengths)]
        values = [random_floats(20 + s, n, widths[1]) for s, n in enumerate(lengths)]
        self.table, rows = make_pages(7, lengths, page_tokens=PAGE, pages=9)
        self.k, self.v = (make_cache(np.full((rows, width), np.nan, np.float32), kv) for width in widths)
        for slot, length in enumerate(lengths):
            index = np.arange(length, dtype=np.int32)
            where = (index, np.full(length, slot, np.int32), self.table)
            run_op(Op.KV_WRITE_BATCHED, "canonical-1", keys[slot], values[slot], *where, self.k, self.v)
        self.keys = [round_to(kv, item) for item in keys]
        self.values = [round_to(kv, item) for item in values]


def round_to(kv: str, x: np.ndarray) -> np.ndarray:
    """Return x as a cache of the type gives it back, from the definition of the type."""
    if kv == "f16":
        return x.astype(np.float16).astype(np.float32)
    blocks = x.astype(np.float64).reshape(len(x), -1, 32)
    amax = np.abs(blocks).max(axis=-1, keepdims=True)
    factor = np.float64(np.float32(127) / np.maximum(amax, 1e-30).astype(np.float32))
    d = (amax.astype(np.float32) / np.float32(127)).astype(np.float16).astype(np.float64)
    q = np.rint(np.nan_to_num((blocks * factor).astype(np.float32))).astype(np.int64)
    return (q * d).reshape(x.shape).astype(np.float32)


def test_q8_0_rows_are_blocks_of_ggml() -> None:
    x = random_floats(1, 5, 96, scale=3)
    x[2, 32:64] = 0
    cache = make_cache(x, "q8_0")
    assert cache.shape == (5, 3 * 34)
    assert_same(dequantize(cache, GGMLQuantizationType.Q8_0).astype(np.float32), round_to("q8_0", x))
    scales = cache.reshape(5, 3, 34)[..., :2].copy().view(np.float16)[..., 0]
    assert_same(scales, (np.abs(x.reshape(5, 3, 32)).max(axis=-1) / np.float32(127)).astype(np.float16))


def test_f16_rounds_ties_to_even_and_keeps_denormals() -> None:
    ulp = 2.0**-10
    x = np.array(
        [[1 + ulp / 2, 1 + 1.5 * ulp, 65519, 65520, -65520, 2.0**-24, 2.0**-25, 1.5 * 2.0**-24]], np.float32
    )
    stored = make_cache(x, "f16")[0].astype(np.float64)
    assert stored.tolist() == [1, 1 + 2 * ulp, 65504, np.inf, -np.inf, 2.0**-24, 0, 2.0**-23]


def test_block_with_nan_is_not_hidden() -> None:
    x = random_floats(1, 1, 64)
    x[0, 40] = np.inf
    values = dequantize(make_cache(x, "q8_0"), GGMLQuantizationType.Q8_0)
    assert np.isfinite(values[0, :32]).all()
    assert np.isnan(values[0, 32:]).all()


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("kv", ["f16", "q8_0"])
@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (12, 0.0), (0, 2.0)])
def test_attention_is_exact_over_the_stored_values(kv: str, ordering: str, window: int, cap: float) -> None:
    cache = StoredCache(kv, [5, 43], (2 * 32, 2 * 64))
    q = random_floats(1, len(BATCH), 4 * 32)
    want = attention64(q, cache, BATCH, heads=4, kv_heads=2, scale=0.3, window=window, cap=cap)
    attrs = {**HEADS, "scale": 0.3, "window": window, "cap": cap, "page_tokens": PAGE}
    got = run_op(Op.FLASH_ATTN, ordering, q, *cache.cache_operands(BATCH), **attrs)
    assert_close(got, want, 5e-6, relative=False)
    assert_same(run_op(Op.FLASH_ATTN_BATCHED, ordering, q, *cache.cache_operands(BATCH), **attrs), got)


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
def test_fused_write_stores_the_same_bytes(kv: str) -> None:
    lengths, (q, k, v) = [20], (random_floats(seed, 3, width) for seed, width in ((1, 64), (2, 128), (3, 32)))
    table, rows = make_pages(7, lengths, page_tokens=PAGE, pages=2)
    position, slot = np.array([3, 16, 19], np.int32), np.zeros(3, np.int32)
    angles = [make_weight(random_floats(seed, 32, 32)) for seed in (4, 5)]
    stores = [[make_cache(np.zeros((rows, width), np.float32), kv) for width in (128, 32)] for _ in range(2)]
    attrs = {"head_dim": 64, "mode": "neox"}
    where = (position, slot, table)
    run_op(
        Op.RMS_NORM_FUSED_ROPE_KV_WRITE, "canonical-1", q, k, v, None, None, *angles, *where, *stores[0],
        eps=1e-6, page_tokens=PAGE, **attrs,
    )  # fmt: skip
    turned = run_op(Op.ROPE, "canonical-1", k, position, *angles, **attrs)
    run_op(Op.KV_WRITE_BATCHED, "canonical-1", turned, v, *where, *stores[1], page_tokens=PAGE)
    for fused, plain in zip(*stores, strict=True):
        assert fused.any()
        assert_same(fused, plain)


@pytest.mark.parametrize(("kv", "share"), [("f16", 1 / 2), ("q8_0", 34 / 128)])
def test_row_takes_its_share_of_the_bytes(kv: str, share: float) -> None:
    dtype, columns = find_array_layout(kv, (1024,))
    assert dtype.itemsize * np.prod(columns) == share * 4 * 1024


def test_case_may_have_keys_and_values_of_two_types() -> None:
    line = (
        "FLASH_ATTN T=1 ctx=9 slots=1 pages=1 kv_rows=16 heads=1 kv_heads=1 head_dim=32 value_dim=32 scale=0.1 "
        "page_tokens=16 kv=f16+q8_0"
    )
    case = parse(line)
    assert [operand.dtype for operand in case.operands()[1:3]] == [np.float16, np.uint8]
    assert parse(case.text()) == case
    with pytest.raises(UsageError, match="or two of them with"):
        parse(line.replace("q8_0", "q4_0"))
