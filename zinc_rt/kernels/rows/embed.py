"""Embedding rows: nodes to launches of the embed kernels. embed.inc describes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref
from zinc_rt.kernels.rows.matvec import plane_constants, weight_refusal
from zinc_rt.kernels.rows.repack import GROUP, PLAIN_DTYPES, layout
from zinc_rt.kernels.rows.tuning import Tuning


def _embed(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    token_id, table = node.inputs
    spec = graph.buffers[table]
    rows, k = (int(dim) for dim in spec.shape)
    dtype = tuning.stored(spec.dtype)
    planes = layout(dtype, rows, k).planes
    columns = tuning.embed_columns if dtype in PLAIN_DTYPES else GROUP
    yield Launch(
        f"embed_{dtype}",
        (Ref(token_id), Ref(table), Ref(node.outputs[0])),
        (k, planes[0].row_bytes, *plane_constants(planes[1:])),
        (-(-k // columns), "tokens", 1),
    )


def _rejects(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    return weight_refusal(tuning, graph, node.inputs[1])


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (Entry(Op.EMBED, partial(_embed, tuning), tuning.orderings, rejects=partial(_rejects, tuning)),)
