"""Rewrite graphs: replace a value by a host-written one, or keep only the nodes that some results need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from zinc_rt.host.errors import UsageError
from zinc_rt.ir.graph import ABSENT, BufferSpec, Node, OpGraph
from zinc_rt.ir.op import Op


def find_label(graph: OpGraph, label: str) -> Node:
    """Return the node with the label. Raise UsageError with the existing labels if there is none."""
    for node in graph.nodes:
        if node.label == label:
            return node
    kin = sorted({node.label for node in graph.nodes if node.label.split("-")[0] == label.split("-")[0]})
    known = f"there are {', '.join(kin)}" if kin else "list them with: zinc-rt inspect --graph"
    raise UsageError(f"no node in {graph.name} has the label {label!r}", next=known)


def make_injected_name(label: str) -> str:
    stem, _, layer = label.lower().partition("-")
    return f"inject.{stem.replace('.', '_')}" + (f"[{layer}]" if layer else "")


def inject_inputs(graph: OpGraph, labels: Iterable[str]) -> OpGraph:
    """For each label, make consumers read the host-written buffer `make_injected_name(label)` instead of the
    node's result.

    The node itself still runs, so its own result can be compared with the replacement.
    """
    buffers = dict(graph.buffers)
    renamed: dict[str, str] = {}
    for label in labels:
        value = graph.buffers[find_label(graph, label).outputs[0]]
        name = make_injected_name(label)
        buffers[name] = replace(value, name=name, role="step")
        renamed[value.name] = name
    nodes = tuple(
        replace(node, inputs=tuple(renamed.get(name, name) for name in node.inputs)) for node in graph.nodes
    )
    return OpGraph(graph.name, graph.stage, MappingProxyType(buffers), nodes)


def keep_outputs(graph: OpGraph, labels: Iterable[str]) -> OpGraph:
    """Keep only the nodes that the buffers `labels` depend on, and the buffers that those use.

    A requested activation becomes an output, because it may have no readers left.
    """
    labels = set(labels)
    needed = set(labels)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op is Op.BARRIER:
            nodes.append(node)
        elif needed.intersection(node.outputs):
            needed.update(name for name in node.inputs if name != ABSENT)
            nodes.append(node)
    touched = {name for node in nodes if node.op is not Op.BARRIER for name in (*node.inputs, *node.outputs)}
    touched |= labels | {spec.name for spec in graph.by_role("step")}
    kept = tuple(node for node in reversed(nodes) if node.op is not Op.BARRIER or touched.issuperset(node.inputs))
    return OpGraph(graph.name, graph.stage, _select_outputs(graph.buffers, touched, labels), kept)


def _select_outputs(
    buffers: Mapping[str, BufferSpec], touched: set[str], labels: set[str]
) -> MappingProxyType[str, BufferSpec]:
    kept = {name: spec for name, spec in buffers.items() if name in touched}
    for name in labels:
        if kept[name].role == "activation":
            kept[name] = replace(kept[name], role="output")
    return MappingProxyType(kept)
