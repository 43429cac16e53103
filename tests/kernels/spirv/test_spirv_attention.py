"""Attention on Vulkan: what its cases alone do not show."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.op_cases import make_pages, make_weight, random_floats

from zinc_rt.ir.op import Op
from zinc_rt.kernels.spirv.table import ENTRIES
from zinc_rt.lower.lower import find_refusal
from zinc_rt.lower.one_node import OneNode, build_one_node
from zinc_rt.validate.kernel_test.bench import CaseBench

HEADS, KV_HEADS, WIDTH, PAGE = 4, 2, 36, 16


def attention_node(tokens: list[tuple[int, int]], op: Op = Op.FLASH_ATTN_BATCHED, **change: int) -> OneNode:
    """Queries of `tokens` (slot, position); a token has the same query whatever its neighbours."""
    attrs = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": WIDTH, "value_dim": WIDTH, "scale": 0.17, **change}
    attrs = {"page_tokens": PAGE, **attrs}
    slot, position = (np.array(column, np.int32) for column in zip(*tokens, strict=True))
    table, rows = make_pages(1, [520, 300], page_tokens=attrs["page_tokens"], pages=521)
    q = np.concatenate([random_floats(1000 * s + p, 1, HEADS * attrs["head_dim"]) for s, p in tokens])
    keys, values = (
        random_floats(1, rows, KV_HEADS * attrs["head_dim"]),
        random_floats(2, rows, KV_HEADS * attrs["value_dim"]),
    )
    out = np.empty((len(tokens), HEADS * attrs["value_dim"]), np.float32)
    return build_one_node(op, (q, keys, values, position, slot, table), [out], **attrs)


def latent_node(**change: int) -> OneNode:
    attrs = {"heads": 3, "latent": 20, "rope": 5, "value_dim": 7, "page_tokens": PAGE, **change}
    heads, latent, rope, value_dim = (attrs[name] for name in ("heads", "latent", "rope", "value_dim"))
    position, slot = np.array([40, 3], np.int32), np.array([0, 1], np.int32)
    table, rows = make_pages(1, [41, 4], page_tokens=PAGE, pages=4)
    q, out = random_floats(1, 2, heads * (latent + rope)), np.empty((2, heads * value_dim), np.float32)
    caches, v_b = (
        (random_floats(2, rows, latent), random_floats(3, rows, rope)),
        make_weight(random_floats(4, heads, value_dim, latent)),
    )
    return build_one_node(Op.MLA_FLASH_ATTN, (q, *caches, position, slot, table, v_b), [out], scale=0.2, **attrs)


def rejection_of(case: OneNode) -> str | None:
    return find_refusal(case.node, case.graph, ENTRIES, "canonical-1")


@pytest.mark.rest
def test_batch_matches_the_bits_of_single_tokens(bench: CaseBench) -> None:
    """Chunks are absolute and queries independent: prefill is stepwise decode."""
    tokens = [(0, 0), (0, 1), (1, 257), (0, 519), (1, 16), (1, 256)]
    together = bench.results(attention_node(tokens))["out"]
    assert np.isfinite(together).all() and together.any()
    for number, token in enumerate(tokens):
        out = bench.results(attention_node([token], Op.FLASH_ATTN))["out"]
        assert out[0].tobytes() == together[number].tobytes()


@pytest.mark.rest
def test_masked_value_changes_nothing(bench: CaseBench) -> None:
    """Not even one that is NaN, just outside the window or behind the last key."""
    seen = attention_node([(0, 300)], window=45)
    table = seen.operands["page_table"]
    blind = {position: table[0, position // PAGE] * PAGE + position % PAGE for position in (255, 301)}
    before = bench.results(seen)["out"]
    for row in blind.values():
        seen.operands["kv_k"][row] = seen.operands["kv_v"][row] = np.nan
    assert bench.results(seen)["out"].tobytes() == before.tobytes()
    seen.operands["kv_v"][table[0, 256 // PAGE] * PAGE + 256 % PAGE] = np.nan  # the first that it sees
    assert np.isnan(bench.results(seen)["out"]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 2048, "value_dim": 1}, None),
        ({"head_dim": 2049}, "head_dim 2049, value_dim 36: expected 1 to 2048"),
        ({"page_tokens": 24}, "page_tokens is 24, expected a power of two"),
        ({"page_tokens": 1}, None),
    ],
)
def test_unsupported_attention_is_rejected_by_reason(change: dict[str, int], message: str | None) -> None:
    assert rejection_of(attention_node([(0, 3)], **change)) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latent": 2048, "rope": 3000}, None),
        ({"latent": 2049}, "2049 latents: expected at most 2048"),
        ({"page_tokens": 12}, "page_tokens is 12, expected a power of two"),
    ],
)
def test_unsupported_latent_attention_is_rejected_by_reason(change: dict[str, int], message: str | None) -> None:
    assert rejection_of(latent_node(**change)) == message
