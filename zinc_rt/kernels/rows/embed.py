"""Embedding rows: nodes to launches of the embed kernels. embed.inc describes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref
from zinc_rt.kernels.rows.dequantise import make_rows_launch
from zinc_rt.kernels.rows.matvec import check_weight
from zinc_rt.kernels.rows.tuning import Tuning


def _embed(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    token_id, table = node.inputs
    yield make_rows_launch(tuning, Ref(token_id), table, graph.buffers[table], Ref(node.outputs[0]), "tokens")


def _check_node(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    return check_weight(tuning, graph, node.inputs[1])


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (Entry(Op.EMBED, partial(_embed, tuning), tuning.orderings, rejects=partial(_check_node, tuning)),)
