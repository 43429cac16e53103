"""Rotation and the paged cache's writes on t_cpu_native: the oracle's bits, ids checked."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check_op
from kernels.native.unkind import assert_rejected, edge_values, int32_indices
from kernels.op_cases import make_pages, make_weight, random_floats

from zinc_rt.ir.op import Op
from zinc_rt.kernels.weight import Weight

ONE = ("canonical-1",)


@pytest.mark.parametrize("mode", ["norm", "neox"])
@pytest.mark.parametrize(
    ("head_dim", "pairs", "offset"), [(2, 1, 0), (16, 8, 0), (40, 17, 3), (64, 32, 0), (80, 7, 9), (20, 9, 1)]
)
def test_rope_matches(mode: str, head_dim: int, pairs: int, offset: int) -> None:
    check_op(
        Op.ROPE,
        edge_values(1, 3, 2 * head_dim),
        int32_indices(8, 0, 3),
        make_weight(random_floats(2, 9, pairs)),
        make_weight(random_floats(3, 9, pairs)),
        head_dim=head_dim,
        mode=mode,
        offset=offset,
        capacity={"tokens": 5},
        orderings=ONE,
    )


def test_rope_reads_tables_inside_larger_tables() -> None:
    both = random_floats(2, 9, 2, 8)
    cos, sin = (Weight("f32", (9, 8), both[:, part]) for part in (0, 1))
    check_op(
        Op.ROPE, random_floats(1, 3, 16), int32_indices(8, 0, 3), cos, sin, head_dim=16, mode="neox", orderings=ONE
    )


@pytest.mark.parametrize("position", [-1, 9, -(2**31)])
def test_rope_rejects_positions_outside_its_tables(position: int) -> None:
    x, table = random_floats(1, 2, 16), make_weight(random_floats(2, 9, 8))
    assert_rejected(
        "a position is outside",
        Op.ROPE,
        *(x, int32_indices(3, position), table, table),
        outputs=(x,),
        head_dim=16,
        mode="norm",
    )


def make_operands(
    *,
    norms: str = "f32",
    page_tokens: int = 4,
    head_dim: int = 20,
    position: int = 9,
    slot: int = 1,
    page: int = -1,
    skip: int = 0,
) -> tuple[tuple[np.ndarray | Weight | None, ...], dict[str, object]]:
    """Operands of three tokens, the second at (slot, position); `page` is the third page of its slot."""
    page_table, cache_rows = make_pages(1, [12, 12], page_tokens=page_tokens, pages=-(-12 // page_tokens) + 1)
    if page >= 0:
        page_table[1, 2] = page
    norm = make_weight(random_floats(7, head_dim), norms) if norms else None
    operands = (
        edge_values(1, 3, 4 * (head_dim + skip)),
        edge_values(2, 3, 2 * head_dim),
        edge_values(3, 3, 21),
        norm,
        norm,
        make_weight(random_floats(4, 40, head_dim // 2 - 1)),
        make_weight(random_floats(5, 40, head_dim // 2 - 1)),
        int32_indices(0, position, 3),
        int32_indices(0, slot, 1),
        page_table,
        random_floats(8, cache_rows, 2 * head_dim),
        random_floats(9, cache_rows, 21),
    )
    attrs = {"eps": 1e-6, "head_dim": head_dim, "mode": "neox", "page_tokens": page_tokens, "q_skip": skip}
    return operands, attrs


@pytest.mark.parametrize("page_tokens", [1, 3, 4, 16])
@pytest.mark.parametrize("norms", ["", "f32", "f16"])
def test_fused_norm_rotation_and_cache_write_match(norms: str, page_tokens: int) -> None:
    operands, attrs = make_operands(norms=norms, page_tokens=page_tokens, skip=3 if page_tokens == 4 else 0)
    check_op(Op.RMS_NORM_FUSED_ROPE_KV_WRITE, *operands, capacity={"tokens": 5}, orderings=ONE, **attrs)


@pytest.mark.parametrize("page_tokens", [1, 3, 16])
def test_cache_write_matches(page_tokens: int) -> None:
    operands, attrs = make_operands(page_tokens=page_tokens)
    check_op(
        Op.KV_WRITE_BATCHED,
        *operands[1:3],
        *operands[7:],
        page_tokens=attrs["page_tokens"],
        capacity={"tokens": 5},
        orderings=ONE,
    )


@pytest.mark.parametrize(
    ("ids", "sentence"),
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
def test_out_of_range_ids_are_rejected(ids: dict[str, int], sentence: str) -> None:
    operands, attrs = make_operands(**ids)  # type: ignore[arg-type]
    q = operands[0]
    assert isinstance(q, np.ndarray)
    assert_rejected(sentence, Op.RMS_NORM_FUSED_ROPE_KV_WRITE, *operands, outputs=(q,), **attrs)
    assert_rejected(sentence, Op.KV_WRITE_BATCHED, *operands[1:3], *operands[7:], page_tokens=4)
