"""Check the order of reads and writes: a buffer is written before it is read, with a barrier if names do not
show the dependency."""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.ir.violations import Violation, make_node_violation

READ_ONLY = ("weight", "constant", "step")
WITHIN_REPLAY = ("activation", "output")


def check_dataflow(graph: OpGraph) -> Iterator[Violation]:
    written: dict[str, int] = {}  # by the node that wrote it last
    unguarded: dict[str, int] = {}  # written in place, and no barrier since
    for index, node in enumerate(graph.nodes):
        if node.op is Op.BARRIER:
            for name in node.inputs or tuple(unguarded):
                unguarded.pop(name, None)
            continue
        updated = list_in_place_outputs(node)
        yield from _check_aliases(index, node, updated)
        yield from _check_reads(graph, index, node, updated, written, unguarded)
        for name in dict.fromkeys(node.outputs):
            if name not in graph.buffers:
                continue
            role = graph.buffers[name].role
            if role in READ_ONLY:
                yield make_node_violation(index, node, "write-to-read-only", f"writes {name}, a {role} buffer")
            if name in updated:
                unguarded[name] = index
            elif name in written:
                yield make_node_violation(
                    index, node, "second-writer", f"{name} is already written by node {written[name]}"
                )
            written[name] = index
    yield from _check_dangling(graph, written)


def list_in_place_outputs(node: Node) -> dict[str, str]:
    """Return the buffers that a node updates in place, each with its input port."""
    spec = OPS[node.op]
    incoming = {port.name: name for port, name in zip(spec.inputs, node.inputs, strict=False)}
    pairs = zip(spec.outputs, node.outputs, strict=False)
    return {name: port.inplace for port, name in pairs if port.inplace and incoming.get(port.inplace) == name}


def _check_aliases(index: int, node: Node, updated: dict[str, str]) -> Iterator[Violation]:
    for name in dict.fromkeys(node.outputs):
        if name == ABSENT:
            continue
        if node.outputs.count(name) > 1:
            yield make_node_violation(index, node, "aliased-operand", f"{name} is two outputs at once")
        if name not in updated and name in node.inputs:
            yield make_node_violation(
                index, node, "aliased-operand", f"{name} is read and written, and not declared in place"
            )
        if name in updated and node.inputs.count(name) > 1:
            yield make_node_violation(
                index, node, "aliased-operand", f"{name} is updated in place and read by another operand too"
            )


def _check_reads(
    graph: OpGraph,
    index: int,
    node: Node,
    updated: dict[str, str],
    written: dict[str, int],
    unguarded: dict[str, int],
) -> Iterator[Violation]:
    for name in dict.fromkeys(node.inputs):
        if name not in graph.buffers:
            continue
        role = graph.buffers[name].role
        # a ring the host reads starts out as the host left it; every other output is this replay's own
        host_filled = role == "output" and name in updated
        if role in WITHIN_REPLAY and name not in written and not host_filled:
            yield make_node_violation(
                index, node, "read-before-write", f"reads {name}, which nothing wrote before"
            )
    for name in dict.fromkeys((*node.inputs, *node.outputs)):
        if name in unguarded:
            yield make_node_violation(
                index,
                node,
                "missing-barrier",
                f"uses {name}, updated in place by node {unguarded[name]}, and no BARRIER between names it",
            )


def _check_dangling(graph: OpGraph, written: dict[str, int]) -> Iterator[Violation]:
    named = {name for node in graph.nodes for name in (*node.inputs, *node.outputs)}
    for spec in graph.by_role("activation"):
        if spec.name not in named:
            yield Violation("dangling-buffer", "an activation that no node uses", where=spec.name)
    for spec in graph.by_role("output"):
        if spec.name not in written:
            yield Violation("dangling-buffer", "an output that no node writes", where=spec.name)
