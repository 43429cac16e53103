"""Embedding rows on gfx1201: nodes to launches of the embed kernels. embed.inc describes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.gfx1201.matvec_rows import ORDERINGS, PLAIN_DTYPES, plane_constants, weight_refusal
from zinc_rt.kernels.gfx1201.repack import GROUP, layout
from zinc_rt.kernels.launch import Launch, Ref

PLAIN_COLUMNS = 256  # of an unpacked table to a workgroup


def _embed(node: Node, graph: Graph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    token_id, table = node.inputs
    spec = graph.buffers[table]
    rows, k = (int(dim) for dim in spec.shape)
    planes = layout(spec.dtype, rows, k).planes
    columns = PLAIN_COLUMNS if spec.dtype in PLAIN_DTYPES else GROUP
    yield Launch(
        f"embed_{spec.dtype}",
        (Ref(token_id), Ref(table), Ref(node.outputs[0])),
        (k, planes[0].row_bytes, *plane_constants(planes[1:])),
        (-(-k // columns), "tokens", 1),
    )


def _rejects(node: Node, graph: Graph) -> str | None:
    return weight_refusal(graph, node.inputs[1])


ROWS: tuple[Entry, ...] = (Entry(Op.EMBED, _embed, ORDERINGS, rejects=_rejects),)
