"""MATMUL_WMMA_F16, MATMUL_WMMA_Q4K: projections in wmma-f16 (docs/wmma-f16.md), by sets with `matmul_wmma`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, SYNC, Launch, Ref, Temp
from zinc_rt.kernels.rows.matvec import check_weight
from zinc_rt.kernels.rows.projections import F32_BYTES, Launches
from zinc_rt.kernels.rows.repack import PAIR, list_plane_constants, make_layout
from zinc_rt.kernels.rows.tuning import Tuning

TOKENS, ROWS = 128, 64  # of a workgroup's tile: matmul_wmma.s
HALF_BYTES = 2
X_MULTIPLE = 4  # elements that a work-item loads at once


def _make_launches(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    """Round the input's rows once, then multiply tiles of tokens and rows."""
    x, weight, bias, scale = (*node.inputs, ABSENT, ABSENT)[:4]
    rows, k = (int(dim) for dim in graph.buffers[weight].shape)
    tokens, padded = capacity["tokens"], -(-k // PAIR) * PAIR
    halves, factors = Temp("halves", HALF_BYTES * padded * tokens), Temp("factors", F32_BYTES * tokens)
    yield Launch("round_rows", (Ref(x), halves, factors), (k, padded), ("tokens", 1, 1))
    yield SYNC
    dtype = tuning.stored_dtype(graph.buffers[weight].dtype)
    first, *others = make_layout(dtype, rows, k).planes
    yield Launch(
        f"matmul_wmma_{dtype}",
        (
            halves,
            Ref(weight),
            Ref(node.outputs[0]),
            factors,
            *(Ref(name) if name else None for name in (scale, bias)),
            Ref(COUNTS),
        ),
        (rows, k, first.row_bytes, *list_plane_constants(tuple(others)), HALF_BYTES * padded),
        (-(-tokens // TOKENS), -(-rows // ROWS), 1),
    )


def _check_node(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    if "matmul_wmma" not in tuning.own_kernels:
        return f"{node.op.name} sums in the order of a chip's matrix instruction, not canonical-1: use MATMUL"
    k = int(graph.buffers[node.inputs[1]].shape[-1])
    if k % X_MULTIPLE:
        return f"{node.op.name} needs rows of a multiple of {X_MULTIPLE} elements, not {k}: use MATMUL"
    for name in filter(None, node.inputs[2:]):
        if graph.buffers[name].dtype != "f32":
            return f"{name} is {graph.buffers[name].dtype}; bias and scale of {node.op.name} are f32: use MATMUL"
    return check_weight(tuning, graph, node.inputs[1])


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return tuple(
        Entry(op, partial(_make_launches, tuning), tuning.orderings, rejects=partial(_check_node, tuning))
        for op in (Op.MATMUL_WMMA_F16, Op.MATMUL_WMMA_Q4K)
    )
