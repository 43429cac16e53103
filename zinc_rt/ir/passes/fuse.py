"""Fuse nodes: derive the original's decode graph from the plain graph, if a kernel set supports the fused
nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS, Op, list_forms

Answers = Callable[[Node, OpGraph], bool]
"""Predicate: a kernel set supports the node of the graph."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """A replacement. `node` takes the position of node `at`; the nodes `instead_of`, which include `at`, are
    removed. `others`: more nodes with their positions."""

    at: int
    node: Node
    instead_of: tuple[int, ...]
    others: tuple[tuple[int, Node], ...] = ()

    @property
    def nodes(self) -> tuple[tuple[int, Node], ...]:
        return (self.at, self.node), *self.others


@dataclass(frozen=True, slots=True)
class Uses:
    """A graph with the writers and readers of each buffer, by node number."""

    graph: OpGraph
    written: dict[str, int]
    read: dict[str, list[int]]

    def node(self, index: int) -> Node:
        return self.graph.nodes[index]

    def find_producer(self, name: str, *ops: Op) -> int | None:
        """Return the node with one of the opcodes that writes an activation which only one node reads."""
        index = self.find_sole_producer(name, *ops)
        return index if len(self.read.get(name, ())) == 1 else None

    def find_sole_producer(self, name: str, *ops: Op) -> int | None:
        """Return the node with one of the opcodes that writes an activation."""
        index = self.written.get(name)
        if index is None or self.node(index).op not in ops:
            return None
        return index if self.graph.buffers[name].role == "activation" else None

    def find_readers(self, name: str, op: Op) -> Iterator[int]:
        return (index for index in self.read.get(name, ()) if self.node(index).op is op)

    def find_first_reader(self, name: str) -> int:
        return min(self.read.get(name, ()), default=len(self.graph.nodes))


Rule = Callable[[Uses, int], Fusion | None]


def fuse_graph(graph: OpGraph, is_supported: Answers) -> OpGraph:
    """Fuse the nodes that `is_supported` supports. A verified graph yields a verified graph.

    Prefill keeps projections separate from norms and sums: kernels for tiles of tokens would each recompute the
    norm of all tokens.
    """
    for rule in RULES:
        if graph.stage != "prefill" or rule not in OF_FEW_TOKENS:
            graph = _apply_rule(graph, rule, is_supported)
    return graph


def projection_sum(uses: Uses, index: int) -> Fusion | None:
    """Fuse a residual addition into the projection whose result it adds."""
    add = uses.node(index)
    if add.op is not Op.ADD:
        return None
    for product, residual in (add.inputs[::-1], add.inputs):
        producer = uses.find_producer(product, Op.MATMUL)
        if producer is None or product == residual or has_operand(uses.node(producer), "bias", "residual"):
            continue
        node = with_operands(uses.node(producer), residual=residual)
        return Fusion(index, replace(node, outputs=add.outputs, label=add.label), (producer, index))
    return None


def gated_norm_projection(uses: Uses, index: int) -> Fusion | None:
    """Fuse a gated norm into the projection that is its only reader."""
    projection = uses.node(index)
    if projection.op is not Op.MATMUL or has_operand(projection, "norm_w", "gate"):
        return None
    producer = uses.find_producer(projection.inputs[0], Op.SSM_GATED_NORM)
    if producer is None:
        return None
    normed = uses.node(producer)
    x, gate, weight = normed.inputs
    groups = int(uses.graph.buffers[x].shape[-1]) // int(uses.graph.buffers[weight].shape[0])
    node = with_operands(projection, x=x, norm_w=weight, gate=gate)
    attrs = MappingProxyType({**node.attrs, "eps": normed.attrs["eps"], "norm_groups": groups})
    return Fusion(index, replace(node, attrs=attrs), (producer, index))


def norm_sum(uses: Uses, index: int) -> Fusion | None:
    """Fuse a residual addition into the norm whose result it adds."""
    add = uses.node(index)
    if add.op is not Op.ADD:
        return None
    for normed, residual in (add.inputs, add.inputs[::-1]):
        producer = uses.find_producer(normed, Op.RMS_NORM)
        if producer is None or normed == residual or has_operand(uses.node(producer), "residual"):
            continue
        node = with_operands(uses.node(producer), residual=residual)
        return Fusion(index, replace(node, outputs=add.outputs, label=add.label), (producer, index))
    return None


def experts_sum(uses: Uses, index: int) -> Fusion | None:
    """Fuse additions into the sum of the selected experts: one before it and one after it."""
    add = uses.node(index)
    if add.op is not Op.ADD:
        return None
    for total, other in (add.inputs, add.inputs[::-1]):
        producer = uses.find_producer(total, *list_forms(Op.MOE_DOWN_ACC))
        if producer is None or total == other:
            continue
        node = uses.node(producer)
        port = next((port for port in ("hidden", "residual") if not has_operand(node, port)), None)
        if port is not None and not has_operand(node, "residual"):
            node = with_operands(node, **{port: other})
            return Fusion(index, replace(node, outputs=add.outputs, label=add.label), (producer, index))
    return None


def experts_gate_up(uses: Uses, index: int) -> Fusion | None:
    """Fuse the gate and up projections of the selected experts with their activation."""
    product = uses.node(index)
    if product.op is not Op.MOE_SWIGLU:
        return None
    producers = [uses.find_producer(name, *list_forms(Op.MOE_GATE_UP)) for name in product.inputs]
    if producers[0] is None or producers[0] != producers[1] or uses.node(producers[0]).outputs != product.inputs:
        return None
    attrs = MappingProxyType({"activation": product.attrs.get("activation", "silu")})
    node = replace(uses.node(producers[0]), outputs=product.outputs, attrs=attrs, label=product.label)
    return Fusion(index, node, (producers[0], index))


def norm_qkv(uses: Uses, index: int) -> Fusion | None:
    """Fuse the norm of a row with the three projections that are its only readers."""
    projections = find_projections(uses, index)
    if len(projections) != 3:
        return None
    norm, nodes = uses.node(index), [uses.node(projection) for projection in projections]
    if any(has_operand(node, "scale", "residual") for node in nodes):
        return None
    fused = Node(
        Op.RMS_NORM_FUSED_QKV,
        (*norm.inputs[:2], *(node.inputs[1] for node in nodes), *(node.inputs[2] for node in nodes)),
        tuple(node.outputs[0] for node in nodes),
        MappingProxyType({"eps": norm.attrs["eps"]}),
        nodes[0].layer,
        nodes[0].label,
    )
    return Fusion(projections[0], fused, (index, *projections))


def norm_mlp_gate_up(uses: Uses, index: int) -> Fusion | None:
    """Fuse the norm of a row with the gate and up projections, its only readers, and their activation."""
    product = uses.node(index)
    activation = {Op.SWIGLU: "silu", Op.GEGLU: "gelu"}.get(product.op)
    if activation is None:
        return None
    producers = [uses.find_producer(name, Op.MATMUL) for name in product.inputs]
    if None in producers:
        return None
    gate, up = (uses.node(producer) for producer in producers if producer is not None)
    norm = uses.find_sole_producer(gate.inputs[0], Op.RMS_NORM)
    if norm is None or sorted(find_projections(uses, norm)) != sorted(
        producer for producer in producers if producer is not None
    ):
        return None
    if any(has_operand(node, "bias", "scale", "residual") for node in (gate, up)):
        return None
    fused = Node(
        Op.RMS_NORM_FUSED_MLP_GATE_UP,
        (*uses.node(norm).inputs[:2], gate.inputs[1], up.inputs[1]),
        product.outputs,
        MappingProxyType({"eps": uses.node(norm).attrs["eps"], "activation": activation}),
        product.layer,
        product.label,
    )
    return Fusion(index, fused, (norm, *(producer for producer in producers if producer is not None), index))


def norm_projections(uses: Uses, index: int) -> Fusion | None:
    """Fuse the norm of a row into each of the projections, if they are its only readers."""
    projections = find_projections(uses, index)
    if not projections:
        return None
    norm = uses.node(index)
    nodes = [(projection, _absorb_norm(uses.node(projection), norm)) for projection in projections]
    return Fusion(*nodes[0], (index, *projections), tuple(nodes[1:]))


def norm_router(uses: Uses, index: int) -> Fusion | None:
    """Fuse the norm of a row into the router as well, which then does not wait for another node's norm."""
    router = uses.node(index)
    if router.op is not Op.MOE_GATE_TOPK or has_operand(router, "norm_w"):
        return None
    producer = uses.find_sole_producer(router.inputs[0], Op.RMS_NORM)
    if producer is None or not _is_row_norm(uses, producer):
        return None
    alone = len(uses.read[router.inputs[0]]) == 1
    return Fusion(index, _absorb_norm(router, uses.node(producer)), (producer, index) if alone else (index,))


def norm_experts(uses: Uses, index: int) -> Fusion | None:
    """Fuse the norm of a row into the selected and the shared experts, if they are its only readers."""
    norm = uses.node(index)
    if norm.op is not Op.RMS_NORM or not _is_row_norm(uses, index):
        return None
    (normed,) = norm.outputs
    readers = uses.read.get(normed, [])
    experts = all(
        uses.node(reader).op in (Op.MOE_GATE_UP, Op.SHARED_EXPERT)
        and uses.node(reader).inputs[0] == normed
        and not has_operand(uses.node(reader), "norm_w")
        for reader in readers
    )
    if not readers or not experts or len(set(readers)) < len(readers):
        return None
    if uses.graph.buffers[normed].role != "activation":
        return None
    nodes = [(reader, _absorb_norm(uses.node(reader), norm)) for reader in readers]
    return Fusion(*nodes[0], (index, *readers), tuple(nodes[1:]))


def router_experts(uses: Uses, index: int) -> Fusion | None:
    """Fuse the router with the gate and up projections of the experts that it selects, if both read one input."""
    experts = uses.node(index)
    if experts.op is not Op.MOE_GATE_UP or experts.attrs.get("activation", "none") not in ("silu", "gelu"):
        return None
    if has_operand(experts, "gate_bias", "up_bias"):
        return None
    x, gate_w, up_w, ids, gate_scale, up_scale, norm_w = experts.inputs[:7]
    producer = uses.find_sole_producer(ids, Op.MOE_GATE_TOPK)
    if producer is None:
        return None
    router = uses.node(producer)
    if router.inputs[0] != x or router.inputs[3] != norm_w or has_operand(router, "expert_gate_w"):
        return None
    if norm_w != ABSENT and router.attrs.get("eps") != experts.attrs.get("eps"):
        return None
    if router.outputs[1] != ids or any(uses.find_first_reader(name) < index for name in router.outputs):
        return None
    node = with_operands(router, expert_gate_w=gate_w, expert_up_w=up_w, gate_scale=gate_scale, up_scale=up_scale)
    attrs = MappingProxyType({**router.attrs, "activation": experts.attrs["activation"]})
    outputs = (*router.outputs, *experts.outputs)
    return Fusion(index, replace(node, outputs=outputs, attrs=attrs, label=experts.label), (producer, index))


def attention_gate(uses: Uses, index: int) -> Fusion | None:
    """Fuse the gate of an attention's result into the attention."""
    product = uses.node(index)
    if product.op is not Op.SIGMOID_MUL or product.inputs[0] == product.inputs[1]:
        return None
    producer = uses.find_producer(product.inputs[0], Op.FLASH_ATTN)
    if producer is None or has_operand(uses.node(producer), "gate"):
        return None
    node = with_operands(uses.node(producer), gate=product.inputs[1])
    return Fusion(index, replace(node, outputs=product.outputs, label=product.label), (producer, index))


def projection_conv1d(uses: Uses, index: int) -> Fusion | None:
    """Fuse a projection into the convolution over time that is its only reader."""
    conv = uses.node(index)
    if conv.op is not Op.SSM_CONV1D_UPDATE_IDS:
        return None
    producer = uses.find_producer(conv.inputs[0], Op.MATMUL)
    if producer is None or has_operand(uses.node(producer), "bias", "scale", "residual", "gate"):
        return None
    projection = uses.node(producer)
    if int(projection.attrs.get("norm_groups", 1)) != 1:
        return None
    x, w, _, _, norm_w, *_ = projection.inputs
    eps = {"eps": projection.attrs["eps"]} if "eps" in projection.attrs else {}
    attrs = MappingProxyType({**conv.attrs, **eps})
    fused = Node(
        Op.MATMUL_FUSED_CONV1D_IDS, (x, w, *conv.inputs[1:], norm_w), conv.outputs, attrs, conv.layer, conv.label
    )
    return Fusion(index, fused, (producer, index))


def query_slice(uses: Uses, index: int) -> Fusion | None:
    """Fuse the slice of heads, each followed by other columns, into the node that norms and rotates them."""
    node = uses.node(index)
    if node.op is not Op.RMS_NORM_FUSED_ROPE_KV_WRITE or int(node.attrs.get("q_skip", 0)):
        return None
    producer = uses.find_producer(node.inputs[0], Op.SLICE)
    if producer is None:
        return None
    group, offset, size = _find_slice(uses.node(producer))
    if offset or size != int(node.attrs["head_dim"]):
        return None
    fused = with_operands(node, q=uses.node(producer).inputs[0])
    attrs = MappingProxyType({**node.attrs, "q_skip": group - size})
    return Fusion(index, replace(fused, attrs=attrs), (producer, index))


def qkv_rope_kv_write(uses: Uses, index: int) -> Fusion | None:
    """Fuse the norm and projections of queries, keys and values into the node that rotates and caches them."""
    node = uses.node(index)
    if node.op is not Op.RMS_NORM_FUSED_ROPE_KV_WRITE:
        return None
    q, k, v, *others = node.inputs
    producer = uses.find_sole_producer(q, Op.RMS_NORM_FUSED_QKV)
    if producer is None or any(uses.find_producer(name, Op.RMS_NORM_FUSED_QKV) != producer for name in (k, v)):
        return None
    projected = uses.node(producer)
    if projected.outputs != (q, k, v) or any(projected.inputs[5:]) or uses.find_first_reader(q) < index:
        return None
    attrs = {**node.attrs, "eps": projected.attrs["eps"], "head_eps": node.attrs["eps"]}
    inputs, outputs = (*projected.inputs[:5], *others), (q, *node.outputs)
    fused = Node(Op.QKV_FUSED_ROPE_KV_WRITE, inputs, outputs, MappingProxyType(attrs), node.layer, node.label)
    return Fusion(index, fused, (producer, index))


def gate_slice(uses: Uses, index: int) -> Fusion | None:
    """Fuse the slice of gates, each preceded by other columns, into the attention whose result they gate."""
    node = uses.node(index)
    if node.op is not Op.FLASH_ATTN or not has_operand(node, "gate") or int(node.attrs.get("gate_skip", 0)):
        return None
    producer = uses.find_producer(node.inputs[6], Op.SLICE)
    if producer is None:
        return None
    group, offset, size = _find_slice(uses.node(producer))
    if offset + size != group or size != int(node.attrs["value_dim"]):
        return None
    fused = with_operands(node, gate=uses.node(producer).inputs[0])
    attrs = MappingProxyType({**node.attrs, "gate_skip": offset})
    return Fusion(index, replace(fused, attrs=attrs), (producer, index))


def _find_slice(node: Node) -> tuple[int, int, int]:
    """Return the group, offset and size of a SLICE."""
    group, offset, size = (int(node.attrs[name]) for name in ("group", "offset", "size"))
    return group, offset, size


def find_projections(uses: Uses, index: int) -> tuple[int, ...]:
    """Return the projections that read a norm of whole rows, in order; none if another node reads it too."""
    norm = uses.node(index)
    if norm.op is not Op.RMS_NORM or not _is_row_norm(uses, index):
        return ()
    (normed,) = norm.outputs
    readers = uses.read.get(normed, [])
    plain = all(
        uses.node(reader).op is Op.MATMUL
        and uses.node(reader).inputs[0] == normed
        and not has_operand(uses.node(reader), "norm_w")
        for reader in readers
    )
    return tuple(readers) if plain and uses.graph.buffers[normed].role == "activation" else ()


def _is_row_norm(uses: Uses, index: int) -> bool:
    """Return whether a norm is over whole rows, with a weight and without an addition."""
    norm = uses.node(index)
    x, weight, residual = norm.inputs
    return weight != ABSENT and residual == ABSENT and int(norm.attrs["size"]) == uses.graph.buffers[x].shape[-1]


def _absorb_norm(node: Node, norm: Node) -> Node:
    """Return a node that reads the norm's input and computes the norm itself."""
    x, weight, _ = norm.inputs
    node = with_operands(node, x=x, norm_w=weight)
    return replace(node, attrs=MappingProxyType({**node.attrs, "eps": norm.attrs["eps"]}))


def has_operand(node: Node, *ports: str) -> bool:
    """Return whether a node has one of these operands."""
    inputs = zip(OPS[node.op].inputs, node.inputs, strict=True)
    return any(name != ABSENT and port.name in ports for port, name in inputs)


def with_operands(node: Node, **operands: str) -> Node:
    """Return a node with other names at these ports."""
    inputs = zip(OPS[node.op].inputs, node.inputs, strict=True)
    return replace(node, inputs=tuple(operands.get(port.name, name) for port, name in inputs))


def residual_norm(uses: Uses, index: int) -> Fusion | None:
    """Fuse hidden = a + b and its norm over the whole row into one node."""
    norm = uses.node(index)
    if norm.op is not Op.RMS_NORM or not _is_row_norm(uses, index):
        return None
    hidden, weight, _ = norm.inputs
    position = uses.written.get(hidden)
    if position is None or uses.node(position).op is not Op.ADD:
        return None
    add = uses.node(position)
    fused = Node(
        Op.RESIDUAL_RMS_NORM,
        (*add.inputs, weight),
        (hidden, norm.outputs[0]),
        MappingProxyType({"eps": norm.attrs["eps"]}),
        norm.layer,
        norm.label,
    )
    return Fusion(position, fused, (position, index))


def norm_rope_kv_write(uses: Uses, index: int) -> Fusion | None:
    """Fuse norms of heads, if any, RoPE of queries and keys, and the cache write into one node."""
    write = uses.node(index)
    if write.op is not Op.KV_WRITE_BATCHED:
        return None
    k, v, position, slot, page_table, cache_k, cache_v = write.inputs
    turned_k = uses.find_producer(k, Op.ROPE)
    if turned_k is None:
        return None
    key_rope = uses.node(turned_k)
    for turned_q in uses.find_readers(position, Op.ROPE):
        query_rope = uses.node(turned_q)
        if turned_q == turned_k or query_rope.attrs != key_rope.attrs or query_rope.layer != key_rope.layer:
            continue
        if query_rope.inputs[1:] != key_rope.inputs[1:] or uses.find_first_reader(query_rope.outputs[0]) < index:
            continue
        if int(key_rope.attrs.get("offset", 0)):
            continue
        head_dim = int(key_rope.attrs["head_dim"])
        normed = [_find_head_norm(uses, rope.inputs[0], head_dim) for rope in (query_rope, key_rope)]
        eps = {float(uses.node(item).attrs["eps"]) for item in normed if item is not None}
        if len(eps) > 1:
            continue
        q_in, k_in = (
            rope.inputs[0] if item is None else uses.node(item).inputs[0]
            for rope, item in zip((query_rope, key_rope), normed, strict=True)
        )
        if uses.written.get(q_in, index) > index:
            continue
        weights = [ABSENT if item is None else uses.node(item).inputs[1] for item in normed]
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
        gone = (turned_q, turned_k, *(item for item in normed if item is not None), index)
        return Fusion(index, fused, gone)
    return None


def _find_head_norm(uses: Uses, name: str, head_dim: int) -> int | None:
    """Return the norm of each head, with a weight, whose result is only read by RoPE."""
    index = uses.find_producer(name, Op.RMS_NORM)
    if index is None:
        return None
    node = uses.node(index)
    weight, residual = node.inputs[1:]
    return index if weight != ABSENT and residual == ABSENT and int(node.attrs["size"]) == head_dim else None


RULES: tuple[Rule, ...] = (
    experts_gate_up,
    experts_sum,
    experts_sum,
    attention_gate,
    projection_sum,
    gated_norm_projection,
    norm_sum,
    residual_norm,  # where nothing before takes the sum
    norm_qkv,
    norm_rope_kv_write,  # once queries, keys and values come from one node, whatever their order was
    query_slice,
    gate_slice,
    qkv_rope_kv_write,
    norm_mlp_gate_up,
    norm_projections,
    projection_conv1d,  # once the projection has its norm
    norm_router,
    norm_experts,  # once the router does not read the norm
    router_experts,
)
OF_FEW_TOKENS = frozenset(
    {
        projection_sum,
        gated_norm_projection,
        norm_qkv,
        norm_mlp_gate_up,
        norm_projections,
        projection_conv1d,
        qkv_rope_kv_write,
        norm_router,
        norm_experts,
        router_experts,
    }
)


def _apply_rule(graph: OpGraph, rule: Rule, is_supported: Answers) -> OpGraph:
    """Return all matches of a rule in the unmodified graph. No two fusions share a node."""
    uses = _count_uses(graph)
    nodes: list[Node | None] = list(graph.nodes)
    gone: set[int] = set()
    for index in range(len(graph.nodes)):
        replacement = rule(uses, index)
        if replacement is None or not gone.isdisjoint(replacement.instead_of):
            continue
        if not all(is_supported(node, graph) for _, node in replacement.nodes):
            continue
        gone.update(replacement.instead_of)
        for item in replacement.instead_of:
            nodes[item] = None
        for at, node in replacement.nodes:
            nodes[at] = node
    return _with_nodes(graph, tuple(node for node in nodes if node is not None)) if gone else graph


def _count_uses(graph: OpGraph) -> Uses:
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
    """Return the graph with these nodes, without activations that are no longer used."""
    named = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    buffers = {name: spec for name, spec in graph.buffers.items() if spec.role != "activation" or name in named}
    return OpGraph(graph.name, graph.stage, MappingProxyType(buffers), nodes)
