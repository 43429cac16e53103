"""Tables of rows and of page numbers: nodes to launches of table.c."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from zinc_rt.ir.graph import SYMBOLS, Node, OpGraph, maximum_dim
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, Launch, Ref, Temp
from zinc_rt.kernels.rows.operands import Buffer, Count, find_row_bytes
from zinc_rt.kernels.rows.tuning import Tuning


def make_rows_launch(
    kernel: str, source: Buffer, ids: str, target: Buffer, *, row_bytes: int, rows: int, count: Count = "sequences"
) -> Launch:
    """Launch load_rows, target[s] = source[ids[s]], or store_rows, target[ids[s]] = source[s], for each
    s < `count`, the length of `ids`. `rows`: the rows of the side that ids index."""
    size = (row_bytes & 0xFFFFFFFF, row_bytes >> 32)
    return Launch(kernel, (source, Ref(ids), target), (*size, rows), (count, 1, 1))


def table_store(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    """Store table entries. A Temp keeps the old table content until all entries have been validated."""
    entry, value, table = node.inputs
    entries = graph.buffers[entry].shape[0]
    before = Temp("before", 4 * (maximum_dim(entries, capacity) or 0))
    size = prod(int(dim) for dim in graph.buffers[table].shape)
    count = Ref(COUNTS, 4 * SYMBOLS.index(str(entries)))
    yield Launch("table_store", (Ref(entry), Ref(value), Ref(table), before, count), (size,))


def load_request_state(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    table, slot = node.inputs
    (rows, *_), (count,) = graph.buffers[table].shape, graph.buffers[slot].shape
    size = find_row_bytes(graph, table)
    maximum = capacity[rows] if isinstance(rows, str) else rows
    yield make_rows_launch(
        "load_rows", Ref(table), slot, Ref(node.outputs[0]), row_bytes=size, rows=maximum, count=count
    )


def store_request_state(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    value, slot, table = node.inputs
    (rows, *_), (count,) = graph.buffers[table].shape, graph.buffers[slot].shape
    size = find_row_bytes(graph, table)
    yield make_rows_launch("store_rows", Ref(value), slot, Ref(table), row_bytes=size, rows=int(rows), count=count)


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (
        Entry(Op.TABLE_STORE, table_store, tuning.orderings),
        Entry(Op.LOAD_REQUEST_STATE, load_request_state, tuning.orderings),
        Entry(Op.STORE_REQUEST_STATE, store_request_state, tuning.orderings),
    )
