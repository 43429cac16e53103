"""Fused forms of nodes: the original's decode graph out of the plain one, where a kernel set runs it.

A fused node is taken where the kernel set answers for it, never by a name. It gives the bits of the nodes that it
stands for, by what an opcode's reference says, in fewer dispatches and with fewer bytes through memory. What lies
between those nodes is gone, so that whoever looks at every value runs the plain graph.

A rule is a function in RULES: from a node of a graph, the nodes that one may stand for and that one, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS, Op

Answers = Callable[[Node, OpGraph], bool]
"""Whether a kernel set runs the node of the graph."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """`node` in the place of node `at`, and without the nodes `instead_of`, which `at` is one of."""

    at: int
    node: Node
    instead_of: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Uses:
    """A graph and who writes and reads each buffer, by node number."""

    graph: OpGraph
    written: dict[str, int]
    read: dict[str, list[int]]

    def node(self, index: int) -> Node:
        return self.graph.nodes[index]

    def maker(self, name: str, op: Op) -> int | None:
        """The node of the opcode that makes an activation which nothing but one node reads."""
        index = self.written.get(name)
        if index is None or self.node(index).op is not op or len(self.read.get(name, ())) != 1:
            return None
        return index if self.graph.buffers[name].role == "activation" else None

    def readers(self, name: str, op: Op) -> Iterator[int]:
        return (index for index in self.read.get(name, ()) if self.node(index).op is op)

    def first_reader(self, name: str) -> int:
        return min(self.read.get(name, ()), default=len(self.graph.nodes))


Rule = Callable[[Uses, int], Fusion | None]


def fuse(graph: OpGraph, answers: Answers) -> OpGraph:
    """The graph in its fused forms, as far as `answers` goes; verified graphs give verified ones."""
    for rule in RULES:
        graph = _applied(graph, rule, answers)
    return graph


def residual_norm(uses: Uses, index: int) -> Fusion | None:
    """hidden = a + b, then its norm over the whole row: both by one node."""
    norm = uses.node(index)
    hidden, weight = norm.inputs[:2] if norm.op is Op.RMS_NORM else (ABSENT, ABSENT)
    at = uses.written.get(hidden)
    if weight == ABSENT or at is None or uses.node(at).op is not Op.ADD:
        return None
    if int(norm.attrs["size"]) != uses.graph.buffers[hidden].shape[-1]:
        return None
    add = uses.node(at)
    fused = Node(
        Op.RESIDUAL_RMS_NORM,
        (*add.inputs, weight),
        (hidden, norm.outputs[0]),
        MappingProxyType({"eps": norm.attrs["eps"]}),
        norm.layer,
        norm.label,
    )
    return Fusion(at, fused, (at, index))


def shared_expert_sum(uses: Uses, index: int) -> Fusion | None:
    """The sum of the chosen experts and the shared one, by the shared one's node."""
    add = uses.node(index)
    if add.op is not Op.ADD:
        return None
    hidden_port = [port.name for port in OPS[Op.SHARED_EXPERT].inputs].index("hidden")
    for shared, other in (add.inputs, add.inputs[::-1]):
        made = uses.maker(shared, Op.SHARED_EXPERT)
        if made is None or uses.node(made).inputs[hidden_port] != ABSENT:
            continue
        node = uses.node(made)
        inputs = (*node.inputs[:hidden_port], other, *node.inputs[hidden_port + 1 :])
        return Fusion(index, replace(node, inputs=inputs, outputs=add.outputs, label=add.label), (made, index))
    return None


def norm_rope_kv_write(uses: Uses, index: int) -> Fusion | None:
    """Norms of heads, where there are any, RoPE of queries and keys, and the cache's write, by one node."""
    write = uses.node(index)
    if write.op is not Op.KV_WRITE_BATCHED:
        return None
    k, v, position, slot, page_table, cache_k, cache_v = write.inputs
    turned_k = uses.maker(k, Op.ROPE)
    if turned_k is None:
        return None
    key_rope = uses.node(turned_k)
    for turned_q in uses.readers(position, Op.ROPE):
        query_rope = uses.node(turned_q)
        if turned_q == turned_k or query_rope.attrs != key_rope.attrs or query_rope.layer != key_rope.layer:
            continue
        if query_rope.inputs[1:] != key_rope.inputs[1:] or uses.first_reader(query_rope.outputs[0]) < index:
            continue
        if int(key_rope.attrs.get("offset", 0)):
            continue
        head_dim = int(key_rope.attrs["head_dim"])
        normed = [_head_norm(uses, rope.inputs[0], head_dim) for rope in (query_rope, key_rope)]
        eps = {float(uses.node(each).attrs["eps"]) for each in normed if each is not None}
        if len(eps) > 1:
            continue
        q_in, k_in = (
            rope.inputs[0] if each is None else uses.node(each).inputs[0]
            for rope, each in zip((query_rope, key_rope), normed, strict=True)
        )
        if uses.written.get(q_in, index) > index:
            continue
        weights = [ABSENT if each is None else uses.node(each).inputs[1] for each in normed]
        _, _, cos, sin = key_rope.inputs
        fused = Node(
            Op.RMS_NORM_FUSED_ROPE_KV_WRITE,
            (q_in, k_in, v, *weights, cos, sin, position, slot, page_table, cache_k, cache_v),
            (query_rope.outputs[0], *write.outputs),
            MappingProxyType(
                {
                    "eps": eps.pop() if eps else 1e-6,  # of no norm
                    "head_dim": head_dim,
                    "mode": key_rope.attrs["mode"],
                    "page_tokens": write.attrs.get("page_tokens", 16),
                }
            ),
            write.layer,
            query_rope.label,
        )
        gone = (turned_q, turned_k, *(each for each in normed if each is not None), index)
        return Fusion(index, fused, gone)
    return None


def _head_norm(uses: Uses, name: str, head_dim: int) -> int | None:
    """The norm of each head, with a weight, that makes a buffer for RoPE alone."""
    index = uses.maker(name, Op.RMS_NORM)
    if index is None:
        return None
    node = uses.node(index)
    return index if node.inputs[1] != ABSENT and int(node.attrs["size"]) == head_dim else None


RULES: tuple[Rule, ...] = (norm_rope_kv_write, shared_expert_sum, residual_norm)


def _applied(graph: OpGraph, rule: Rule, answers: Answers) -> OpGraph:
    """Every place of a rule, as the graph is before it: no two fusions share a node."""
    uses = _uses(graph)
    nodes: list[Node | None] = list(graph.nodes)
    gone: set[int] = set()
    for index in range(len(graph.nodes)):
        found = rule(uses, index)
        if found is None or not gone.isdisjoint(found.instead_of) or not answers(found.node, graph):
            continue
        gone.update(found.instead_of)
        for each in found.instead_of:
            nodes[each] = None
        nodes[found.at] = found.node
    return _with_nodes(graph, tuple(node for node in nodes if node is not None)) if gone else graph


def _uses(graph: OpGraph) -> Uses:
    written: dict[str, int] = {}
    read: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.op is Op.BARRIER:
            continue
        for name in node.inputs:
            read.setdefault(name, []).append(index)
        written.update(dict.fromkeys(node.outputs, index))
    return Uses(graph, written, read)


def _with_nodes(graph: OpGraph, nodes: tuple[Node, ...]) -> OpGraph:
    """Without the activations that no node names any more."""
    named = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    buffers = {name: spec for name, spec in graph.buffers.items() if spec.role != "activation" or name in named}
    return OpGraph(graph.name, graph.stage, MappingProxyType(buffers), nodes)
