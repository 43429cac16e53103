"""Select products on matrix cores, in the ordering wmma-f16, for graphs whose tokens are all those of prompts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import MappingProxyType

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op

PREFILL_ORDERING = "wmma-f16"  # of the products selected here
X_MULTIPLE = 4  # elements: rows of other widths cannot be loaded as vectors
OPERANDS = 4  # that MATMUL_WMMA_F16 shares with MATMUL


def use_matrix_cores(graph: OpGraph) -> OpGraph:
    """Replace each MATMUL without a `find_product_refusal` by MATMUL_WMMA_F16. The choice depends only on the
    model, never on a kernel set or a number of tokens, so every tier computes the same bits."""
    return replace(graph, nodes=tuple(_replace_product(node, graph) for node in graph.nodes))


def _replace_product(node: Node, graph: OpGraph) -> Node:
    if node.op is not Op.MATMUL or find_product_refusal(node, graph):
        return node
    return replace(node, op=Op.MATMUL_WMMA_F16, inputs=node.inputs[:OPERANDS], attrs=MappingProxyType({}))


def find_product_refusal(node: Node, graph: OpGraph) -> str:
    """Return why a MATMUL keeps the ordering of other projections; "" if it can use matrix cores."""
    _, weight, *vectors = node.inputs[:OPERANDS]
    if int(graph.buffers[weight].shape[-1]) % X_MULTIPLE:
        return f"rows that are not a multiple of {X_MULTIPLE} elements"
    if types := sorted({graph.buffers[name].dtype for name in vectors if name} - {"f32"}):
        return f"a bias or scale of type {types[0]}"
    return "operands of a fused node" if any(node.inputs[OPERANDS:]) else ""


def count_products(graph: OpGraph) -> dict[str, int]:
    """Return the number of MATMULs of a graph by `find_product_refusal`."""
    return dict(Counter(find_product_refusal(node, graph) for node in graph.nodes if node.op is Op.MATMUL))
