"""Select products on matrix cores, in an ordering of WMMA_FORMS, for graphs whose tokens are all of prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import OPS, WMMA_FORMS, Op

X_MULTIPLE = 4  # elements: rows of other widths cannot be loaded as vectors
OPERANDS = 4  # that the forms of MATMUL share with it
PRODUCTS = {  # the opcodes that are replaced, with their matrices
    Op.MATMUL: ("w",),
    Op.MOE_GATE_UP: ("gate_w", "up_w"),
    Op.MOE_DOWN_ACC: ("down_w",),
    Op.SHARED_EXPERT: ("gate_w", "up_w", "down_w"),
}
REPLACEMENTS = frozenset(form for forms in WMMA_FORMS.values() for form in forms.values())


def use_matrix_cores(graph: OpGraph, ordering: str) -> OpGraph:
    """Replace each node of PRODUCTS without a `find_product_refusal` by its form in an ordering of WMMA_FORMS. The
    choice depends only on the model, never on a kernel set or a number of tokens, so every tier computes the same
    bits."""
    forms = WMMA_FORMS[ordering]
    return replace(graph, nodes=tuple(_replace_product(node, graph, forms) for node in graph.nodes))


def _replace_product(node: Node, graph: OpGraph, forms: Mapping[Op, Op]) -> Node:
    if node.op not in PRODUCTS or find_product_refusal(node, graph):
        return node
    node = replace(node, op=forms[node.op])
    if node.op is not forms[Op.MATMUL]:
        return node
    return replace(node, inputs=node.inputs[:OPERANDS], attrs=MappingProxyType({}))


def find_product_refusal(node: Node, graph: OpGraph) -> str:
    """Return why a node of PRODUCTS keeps the ordering of other projections; "" if it can use matrix cores."""
    operands = {
        port.name: graph.buffers[name]
        for port, name in zip(OPS[node.op].inputs, node.inputs, strict=False)
        if name
    }
    if any(int(operands[name].shape[-1]) % X_MULTIPLE for name in PRODUCTS[node.op]):
        return f"rows that are not a multiple of {X_MULTIPLE} elements"
    vectors = (spec for name, spec in operands.items() if name.endswith(("bias", "scale")))
    if types := sorted({spec.dtype for spec in vectors} - {"f32"}):
        return f"a bias or scale of type {types[0]}"
    return "operands of a fused node" if node.op is Op.MATMUL and any(node.inputs[OPERANDS:]) else ""


@dataclass(frozen=True, slots=True)
class ProductGroup:
    """Products with a weight that have one label in all layers. `refusal`: why they keep the ordering of other
    tokens, "" if they use matrix cores."""

    label: str
    op: str
    count: int
    refusal: str


def list_products(graph: OpGraph) -> list[ProductGroup]:
    """Return the products of a model's graph with matrices of weights, in graph order."""
    groups: Counter[tuple[str, str, str]] = Counter()
    for node in graph.nodes:
        if node.op in (Op.EMBED, Op.SSM_CONV1D_UPDATE_IDS) or not any(
            _is_matrix(graph, name) for name in node.inputs
        ):
            continue
        no_form = f"{node.op.name} has no form in this ordering"
        refusal = find_product_refusal(node, graph) if node.op in PRODUCTS else no_form
        groups[node.label.rpartition("-")[0] or node.label, node.op.name, refusal] += 1
    return [ProductGroup(label, op, count, refusal) for (label, op, refusal), count in groups.items()]


def _is_matrix(graph: OpGraph, name: str) -> bool:
    spec = graph.buffers.get(name)
    return spec is not None and spec.role == "weight" and len(spec.shape) > 1


def count_products(graph: OpGraph) -> dict[str, int]:
    """Return the number of nodes of PRODUCTS of a graph by `find_product_refusal`."""
    return dict(Counter(find_product_refusal(node, graph) for node in graph.nodes if node.op in PRODUCTS))
