"""Opcodes that index by position: rotation, scales, writes to the paged cache. Nodes to launches of rope.c, kv.c
and elementwise.c. Positions, slots and pages are data: the blocks hold the tables' sizes, and the kernels check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.dtypes import CACHE_TYPES
from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref
from zinc_rt.kernels.native.vectors import make_matrix_operands
from zinc_rt.kernels.rows.caches import check_head_blocks
from zinc_rt.kernels.rows.operands import F32, Buffer, find_last_dim, row_shape
from zinc_rt.kernels.rows.tuning import Tuning

PAGE_TOKENS = 16  # ir.op's default
MODES = {"neox": 0, "norm": 1}  # rope.h's numbers


def find_page_sizes(graph: OpGraph, node: Node, page_table: str, cache: str) -> tuple[int, int, int, int]:
    """Return the numbers of paging.h: slots, pages per slot, tokens per page, rows of the cache."""
    slots, pages = (int(dim) for dim in graph.buffers[page_table].shape)
    page_tokens = int(node.attrs.get("page_tokens", PAGE_TOKENS))
    return slots, pages, page_tokens, int(graph.buffers[cache].shape[0])


def find_cache_type(graph: OpGraph, cache: str) -> int:
    """Return the number of a cache's element type in kv.h."""
    return CACHE_TYPES.index(graph.buffers[cache].dtype)


def rope(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, position, cos, sin = node.inputs
    tokens, columns = row_shape(graph, x)
    head_dim = int(node.attrs["head_dim"])
    yield Launch(
        "rope",
        (
            Ref(x),
            Ref(position),
            *make_matrix_operands(graph, cos),
            *make_matrix_operands(graph, sin),
            Ref(node.outputs[0]),
        ),
        (
            columns,
            head_dim,
            int(node.attrs.get("offset", 0)),
            find_last_dim(graph, cos),
            MODES[str(node.attrs["mode"])],
            int(graph.buffers[cos].shape[0]),
        ),
        (columns // head_dim, tokens, 1),
    )


def norm_rope_kv_write(
    node: Node,
    graph: OpGraph,
    capacity: Mapping[str, int],
    qkv: tuple[Buffer, Buffer, Buffer] | None = None,
) -> Iterator[Launch]:
    *names, q_weight, k_weight, cos, sin, position, slot, page_table, kv_k, kv_v = node.inputs
    head_dim, skip = int(node.attrs["head_dim"]), int(node.attrs.get("q_skip", 0))
    tokens, columns = row_shape(graph, node.outputs[0])
    heads = columns // head_dim, row_shape(graph, kv_k)[1] // head_dim
    yield Launch(
        "norm_rope_kv",
        (
            *(qkv or (Ref(name) for name in names)),
            *(None if name == ABSENT else Ref(name) for name in (q_weight, k_weight)),
            *make_matrix_operands(graph, cos),
            *make_matrix_operands(graph, sin),
            *(Ref(name) for name in (position, slot, page_table, kv_k, kv_v, node.outputs[0])),
        ),
        (
            head_dim,
            find_last_dim(graph, cos),
            MODES[str(node.attrs["mode"])],
            int(graph.buffers[cos].shape[0]),
            *heads,
            row_shape(graph, kv_v)[1],
            float(node.attrs["eps"]),
            *find_page_sizes(graph, node, page_table, kv_k),
            skip,
            find_cache_type(graph, kv_k),
            find_cache_type(graph, kv_v),
        ),
        (sum(heads) + 1, tokens, 1),
    )


def kv_write(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    k, v, position, slot, page_table, kv_k, kv_v = node.inputs
    tokens, k_columns = row_shape(graph, k)
    yield Launch(
        "kv_write",
        tuple(Ref(name) for name in (k, v, kv_k, kv_v, position, slot, page_table)),
        (
            k_columns,
            row_shape(graph, v)[1],
            *find_page_sizes(graph, node, page_table, kv_k),
            find_cache_type(graph, kv_k),
            find_cache_type(graph, kv_v),
        ),
        (tokens, 1, 1),
    )


def row_scale(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, position, table = node.inputs
    rows, columns = row_shape(graph, x)
    yield Launch(
        "row_scale",
        (Ref(x), Ref(node.outputs[0]), Ref(position), Ref(table)),
        (columns, int(graph.buffers[table].shape[0])),
        (-(-columns // tuning.columns), rows, 1),
    )


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    def scale_rows(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
        return row_scale(tuning, node, graph, capacity)

    return (
        Entry(Op.ROPE, rope, tuning.orderings, F32),
        Entry(
            Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
            norm_rope_kv_write,
            tuning.orderings,
            F32,
            rejects=check_head_blocks,
            cache_dtypes=frozenset(CACHE_TYPES),
        ),
        Entry(Op.KV_WRITE_BATCHED, kv_write, tuning.orderings, cache_dtypes=frozenset(CACHE_TYPES)),
        Entry(Op.ROW_SCALE, scale_rows, tuning.orderings, F32),
    )
