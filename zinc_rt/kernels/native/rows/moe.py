"""The router: its projection, then probabilities and the selected experts. moe.c describes the algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref, Sync, Temp
from zinc_rt.kernels.native.rows.projections import check_projection, project
from zinc_rt.kernels.native.vectors import check_vectors, convert_to_f32
from zinc_rt.kernels.rows.projections import GATINGS, ProjectionKernels, route
from zinc_rt.kernels.rows.tuning import Tuning


def gate_topk(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    gate_w, bias = node.inputs[1:3]
    logits, ids, weights = (Ref(name) for name in node.outputs[:3])
    experts = int(graph.buffers[gate_w].shape[0])
    room = Temp("routing", 4 * 4 * experts * capacity["tokens"])
    topk = Launch(
        "moe_topk",
        (logits, None if bias == ABSENT else Ref(bias), ids, weights, room),
        (
            experts,
            int(node.attrs["k"]),
            GATINGS.index(str(node.attrs.get("gating", "softmax"))),
            int(node.attrs.get("renormalise", True)),
            float(node.attrs.get("scale", 1.0)) or 1.0,  # 0 switches it off, as 1 does
            int(node.attrs.get("groups", 1)),
            int(node.attrs.get("groups_used", 1)),
        ),
        ("tokens", 1, 1),
    )
    yield from convert_to_f32(node, graph, route(kernels, node, graph, capacity, topk))


def _check_node(node: Node, graph: OpGraph) -> str | None:
    matrices = [node.inputs[index] for index in (1, 4, 5) if node.inputs[index] != ABSENT]
    refusals = (check_projection(graph, name) for name in matrices)
    return next(filter(None, refusals), None) or check_vectors(node, graph, *matrices)


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return tuple(
        Entry(Op.MOE_GATE_TOPK, partial(gate_topk, kernels), frozenset({ordering}), rejects=_check_node)
        for ordering in sorted(tuning.orderings)
        for kernels in (
            ProjectionKernels(tuning, partial(project, ordering), convert_to_f32, adds_expert_biases=True),
        )
    )
