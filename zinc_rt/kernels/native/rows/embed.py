"""Embedding rows: nodes to launches of embed.c. A token's row is one item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref, Stride
from zinc_rt.kernels.native.types import check_type, find_type_number
from zinc_rt.kernels.rows.tuning import Tuning


def embed(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    token_id, table = node.inputs
    spec = graph.buffers[table]
    rows, k = (int(dim) for dim in spec.shape)
    yield Launch(
        "embed",
        (Ref(token_id), Ref(table), Ref(node.outputs[0]), Stride(table, -2)),
        (find_type_number(spec.dtype), k, rows),
        ("tokens", 1, 1),
    )


def _check_node(node: Node, graph: OpGraph) -> str | None:
    return check_type(graph.buffers[node.inputs[1]].dtype)


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (Entry(Op.EMBED, embed, tuning.orderings, rejects=_check_node),)
