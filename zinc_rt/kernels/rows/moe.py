"""The router: its projection, then probabilities and the selected experts. moe_topk.s describes the
algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref, Sync
from zinc_rt.kernels.rows.matvec import check_projection_weights, make_projection_entries
from zinc_rt.kernels.rows.projections import GATINGS, ProjectionKernels, route
from zinc_rt.kernels.rows.tuning import Tuning


def gate_topk(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    gate_w, bias = node.inputs[1:3]
    logits, ids, weights = (Ref(name) for name in node.outputs[:3])
    experts = int(graph.buffers[gate_w].shape[0])
    scale = float(node.attrs.get("scale", 1.0)) or 1.0  # 0 switches it off, as 1 does
    constants = (
        experts,
        int(node.attrs["k"]),
        int(node.attrs.get("renormalise", True)),
        scale,
        GATINGS.index(str(node.attrs.get("gating", "softmax"))),
        int(node.attrs.get("groups", 1)),
        int(node.attrs.get("groups_used", 1)),
    )
    buffers = (logits, None if bias == ABSENT else Ref(bias), ids, weights)
    yield from route(kernels, node, graph, capacity, Launch("moe_topk", buffers, constants, ("tokens", 1, 1)))


def _check_node(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    gate_w, bias = node.inputs[1:3]
    experts, k = int(graph.buffers[gate_w].shape[0]), int(node.attrs["k"])
    maximum, of = tuning.choices_maximum, tuning.experts_maximum
    if experts > of or k > maximum:
        return f"{k} of {experts} experts; the kernel supports at most {maximum} of {of}"
    if bias != ABSENT and graph.buffers[bias].dtype != "f32":
        return f"{bias} is {graph.buffers[bias].dtype}, not f32"
    return check_projection_weights(tuning, node, graph, "select_bias")


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return make_projection_entries(tuning, {Op.MOE_GATE_TOPK: gate_topk}, partial(_check_node, tuning))
