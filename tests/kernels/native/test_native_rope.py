"""Rotation and the paged cache's writes on t_cpu_native: the oracle's bits, ids checked."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check
from kernels.native.unkind import indices, refused, unkind
from kernels.op_cases import floats, paged, weight

from zinc_rt.ir.op import Op
from zinc_rt.kernels.weight import Weight

ONE = ("canonical-1",)


@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize(
    ("head_dim", "pairs", "offset"), [(2, 1, 0), (16, 8, 0), (40, 17, 3), (64, 32, 0), (80, 7, 9), (20, 9, 1)]
)
def test_rope(mode: str, head_dim: int, pairs: int, offset: int) -> None:
    check(
        Op.ROPE,
        unkind(1, 3, 2 * head_dim),
        indices(8, 0, 3),
        weight(floats(2, 9, pairs)),
        weight(floats(3, 9, pairs)),
        head_dim=head_dim,
        mode=mode,
        offset=offset,
        capacity={"tokens": 5},
        orderings=ONE,
    )


def test_rope_reads_tables_that_are_parts_of_larger_ones() -> None:
    both = floats(2, 9, 2, 8)
    cos, sin = (Weight("f32", (9, 8), both[:, part]) for part in (0, 1))
    check(Op.ROPE, floats(1, 3, 16), indices(8, 0, 3), cos, sin, head_dim=16, mode="neox", orderings=ONE)


@pytest.mark.parametrize("position", [-1, 9, -(2**31)])
def test_rope_rejects_positions_outside_its_tables(position: int) -> None:
    x, table = floats(1, 2, 16), weight(floats(2, 9, 8))
    refused(
        "a position is outside",
        Op.ROPE,
        *(x, indices(3, position), table, table),
        fresh=(x,),
        head_dim=16,
        mode="norm",
    )


def fused(
    *,
    norms: str = "f32",
    page_tokens: int = 4,
    head_dim: int = 20,
    position: int = 9,
    slot: int = 1,
    page: int = -1,
) -> tuple[tuple[np.ndarray | Weight | None, ...], dict[str, object]]:
    """Operands of three tokens, the second at (slot, position); `page` is the third page of its slot."""
    page_table, cache_rows = paged(1, [12, 12], page_tokens=page_tokens, pages=-(-12 // page_tokens) + 1)
    if page >= 0:
        page_table[1, 2] = page
    norm = weight(floats(7, head_dim), norms) if norms else None
    operands = (
        unkind(1, 3, 4 * head_dim),
        unkind(2, 3, 2 * head_dim),
        unkind(3, 3, 21),
        norm,
        norm,
        weight(floats(4, 40, head_dim // 2 - 1)),
        weight(floats(5, 40, head_dim // 2 - 1)),
        indices(0, position, 3),
        indices(0, slot, 1),
        page_table,
        floats(8, cache_rows, 2 * head_dim),
        floats(9, cache_rows, 21),
    )
    return operands, {"eps": 1e-6, "head_dim": head_dim, "mode": "neox", "page_tokens": page_tokens}


@pytest.mark.parametrize("page_tokens", [1, 3, 4, 16])
@pytest.mark.parametrize("norms", ["", "f32", "f16"])
def test_fused_norm_rotation_and_cache_write(norms: str, page_tokens: int) -> None:
    operands, attrs = fused(norms=norms, page_tokens=page_tokens)
    check(Op.RMS_NORM_FUSED_ROPE_KV_WRITE, *operands, capacity={"tokens": 5}, orderings=ONE, **attrs)


@pytest.mark.parametrize("page_tokens", [1, 3, 16])
def test_cache_write(page_tokens: int) -> None:
    operands, attrs = fused(page_tokens=page_tokens)
    check(
        Op.KV_WRITE_BATCHED,
        *operands[1:3],
        *operands[7:],
        page_tokens=attrs["page_tokens"],
        capacity={"tokens": 5},
        orderings=ONE,
    )


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"position": 16}, "a position is outside the context"),
        ({"position": 40}, "a position is outside the context"),
        ({"position": -1}, "a position is outside the context"),
        ({"position": 12}, "a page outside the cache"),  # its page is unset
        ({"slot": 2}, "a slot is outside its table"),
        ({"slot": -1}, "a slot is outside its table"),
        ({"page": 8}, "a page outside the cache"),
    ],
)
def test_out_of_range_ids(wrong: dict[str, int], sentence: str) -> None:
    operands, attrs = fused(**wrong)  # type: ignore[arg-type]
    q = operands[0]
    assert isinstance(q, np.ndarray)
    refused(sentence, Op.RMS_NORM_FUSED_ROPE_KV_WRITE, *operands, fresh=(q,), **attrs)
    refused(sentence, Op.KV_WRITE_BATCHED, *operands[1:3], *operands[7:], page_tokens=4)
