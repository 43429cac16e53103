"""Split fused nodes into the nodes that they stand for (the inverse of
zinc_rt.ir.passes.fuse, which it does not use)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from zinc_rt.ir.graph import ABSENT, Attrs, BufferSpec, Node, OpGraph, Shape
from zinc_rt.ir.op import OPS, Op


@dataclass
class SplitNode:
    """A node of `graph` while one part is split off: the nodes that replace it and their intermediate values."""

    graph: OpGraph
    node: Node
    part: str = ""  # the name of the part, for messages
    nodes: list[Node] = field(default_factory=list)
    buffers: list[BufferSpec] = field(default_factory=list)

    def operand(self, port: str) -> str:
        """Return the name at an input; ABSENT if there is none."""
        ports = (item.name for item in OPS[self.node.op].inputs)
        return dict(zip(ports, self.node.inputs, strict=True)).get(port, ABSENT)

    def shape(self, name: str) -> Shape:
        known = {spec.name: spec for spec in self.buffers} | dict(self.graph.buffers)
        return known[name].shape

    def add_value(self, shape: Shape) -> str:
        """Declare an intermediate value and return its name."""
        name = f"split.value[{len(self.graph.buffers) + len(self.buffers)}]"
        self.buffers.append(BufferSpec(name, tuple(shape), "f32", "activation"))
        return name

    def add(self, op: Op, inputs: tuple[str, ...], outputs: tuple[str, ...], **attrs: object) -> None:
        inputs = (*inputs, *[ABSENT] * (len(OPS[op].inputs) - len(inputs)))
        given: Attrs = MappingProxyType(dict(attrs))  # type: ignore[arg-type]
        self.nodes.append(Node(op, inputs, outputs, given, self.node.layer, self.node.label))

    def keep(self, node: Node, *absent_attrs: str, **operands: str) -> None:
        """Add the rest of the node, with other operands and without these attributes."""
        ports = zip(OPS[node.op].inputs, node.inputs, strict=True)
        attrs = {name: value for name, value in node.attrs.items() if name not in absent_attrs}
        inputs = tuple(operands.get(port.name, name) for port, name in ports)
        self.nodes.append(replace(node, inputs=inputs, attrs=MappingProxyType(attrs)))

    def add_norm(self, x: str, weight: str, eps: object, size: object = None) -> str:
        normed = self.add_value(self.shape(x))
        self.add(Op.RMS_NORM, (x, weight), (normed,), eps=eps, size=self.shape(x)[-1] if size is None else size)
        return normed

    def add_product(self, x: str, weight: str, bias: str, output: str = "") -> str:
        output = output or self.add_value((*self.shape(x)[:-1], self.shape(weight)[0]))
        self.add(Op.MATMUL, (x, weight, bias), (output,))
        return output


Split = Callable[[SplitNode], bool]  # whether the node has the part


def split_experts(split: SplitNode) -> bool:
    """Split the experts' projections off a router."""
    if not split.operand("expert_gate_w"):
        return False
    node = split.node
    router = dict.fromkeys(("expert_gate_w", "expert_up_w", "gate_scale", "up_scale"), ABSENT)
    split.keep(replace(node, outputs=node.outputs[:3]), "activation", **router)
    weights = ("expert_gate_w", "expert_up_w")
    others = tuple(map(split.operand, ("gate_scale", "up_scale", "norm_w")))
    eps = {"eps": node.attrs["eps"]} if "eps" in node.attrs else {}
    inputs = (split.operand("x"), *map(split.operand, weights), node.outputs[1], *others)
    split.add(Op.MOE_GATE_UP, inputs, node.outputs[3:], activation=node.attrs.get("activation", "silu"), **eps)
    return True


def split_norm(split: SplitNode) -> bool:
    """Split off the norm of the input."""
    weight, x = split.operand("norm_w"), split.operand("x")
    if not weight or split.operand("gate"):
        return False
    eps = split.node.attrs.get("eps", 1e-6)
    split.keep(
        split.node, "eps", "norm_groups", x=split.add_norm(x, weight, eps, split.shape(weight)[0]), norm_w=""
    )
    return True


def split_gated_norm(split: SplitNode) -> bool:
    weight, gate, x = map(split.operand, ("norm_w", "gate", "x"))
    if not gate:
        return False
    normed = split.add_value(split.shape(x))
    split.add(Op.SSM_GATED_NORM, (x, gate, weight), (normed,), eps=split.node.attrs["eps"])
    split.keep(split.node, "eps", "norm_groups", x=normed, norm_w=ABSENT, gate=ABSENT)
    return True


def split_sum(split: SplitNode) -> bool:
    """Split off the addition of the last of the values that are added to the result."""
    port = next((port for port in ("residual", "hidden") if split.operand(port)), "")
    if not port:
        return False
    total = split.add_value(split.shape(split.node.outputs[0]))
    split.keep(replace(split.node, outputs=(total,)), **{port: ABSENT})
    split.add(Op.ADD, (total, split.operand(port)), split.node.outputs)
    return True


def split_expert_activation(split: SplitNode) -> bool:
    activation = split.node.attrs.get("activation", "none")
    if activation == "none":
        return False
    gate, up = (split.add_value(split.shape(split.node.outputs[0])) for _ in range(2))
    split.keep(replace(split.node, outputs=(gate, up)), "activation")
    split.add(Op.MOE_SWIGLU, (gate, up), split.node.outputs, activation=activation)
    return True


def split_attention_gate(split: SplitNode) -> bool:
    gate = split.operand("gate")
    if not gate:
        return False
    node, shape = split.node, split.shape(split.node.outputs[0])
    ungated, skip = split.add_value(shape), int(node.attrs.get("gate_skip", 0))
    split.keep(replace(node, outputs=(ungated,)), "gate_skip", gate=ABSENT)
    if skip:
        size = int(node.attrs["value_dim"])
        sliced = split.add_value(shape)
        split.add(Op.SLICE, (gate,), (sliced,), group=skip + size, offset=skip, size=size)
        gate = sliced
    split.add(Op.SIGMOID_MUL, (ungated, gate), node.outputs)
    return True


def split_residual_norm(split: SplitNode) -> bool:
    x, residual, weight = split.node.inputs
    hidden, normed = split.node.outputs
    split.add(Op.ADD, (x, residual), (hidden,))
    eps, size = split.node.attrs["eps"], split.shape(hidden)[-1]
    split.add(Op.RMS_NORM, (hidden, weight), (normed,), eps=eps, size=size)
    return True


def split_qkv(split: SplitNode) -> bool:
    x, weight, *others = split.node.inputs
    normed = split.add_norm(x, weight, split.node.attrs["eps"])
    for matrix, bias, output in zip(others[:3], others[3:], split.node.outputs, strict=True):
        split.add_product(normed, matrix, bias, output)
    return True


def split_gate_up(split: SplitNode) -> bool:
    x, weight, *matrices = split.node.inputs
    normed = split.add_norm(x, weight, split.node.attrs["eps"])
    activation = {"silu": Op.SWIGLU, "gelu": Op.GEGLU}.get(str(split.node.attrs.get("activation", "none")))
    if activation is None:
        for matrix, output in zip(matrices, split.node.outputs, strict=True):
            split.add_product(normed, matrix, ABSENT, output)
        return True
    gate, up = (split.add_product(normed, matrix, ABSENT) for matrix in matrices)
    split.add(activation, (gate, up), split.node.outputs)
    return True


def split_rotation(split: SplitNode) -> bool:
    """Split into the norms of the heads, the rotations and the cache write."""
    q, k, v, q_weight, k_weight, cos, sin, position, slot, page_table, cache_k, cache_v = split.node.inputs
    attrs, (turned_q, *caches) = split.node.attrs, split.node.outputs
    size, skip = int(attrs["head_dim"]), int(attrs.get("q_skip", 0))
    if skip:
        sliced = split.add_value(split.shape(turned_q))
        split.add(Op.SLICE, (q,), (sliced,), group=size + skip, offset=0, size=size)
        q = sliced
    q = split.add_norm(q, q_weight, attrs["eps"], size) if q_weight else q
    k = split.add_norm(k, k_weight, attrs["eps"], size) if k_weight else k
    turned_k = split.add_value(split.shape(k))
    for x, turned in ((q, turned_q), (k, turned_k)):
        split.add(Op.ROPE, (x, position, cos, sin), (turned,), head_dim=size, mode=attrs["mode"])
    inputs = (turned_k, v, position, slot, page_table, cache_k, cache_v)
    split.add(Op.KV_WRITE_BATCHED, inputs, tuple(caches), page_tokens=attrs.get("page_tokens", 16))
    return True


def split_qkv_rotation(split: SplitNode) -> bool:
    """Split the norm and the projections from the rotation and the cache write."""
    x, weight, *others = split.node.inputs
    projected, *outputs = split.node.outputs
    values = (
        projected,
        *(split.add_value((*split.shape(x)[:-1], split.shape(matrix)[0])) for matrix in others[1:3]),
    )
    attrs = {name: value for name, value in split.node.attrs.items() if name != "head_eps"}
    split.add(Op.RMS_NORM_FUSED_QKV, (x, weight, *others[:3]), values, eps=attrs.pop("eps"))
    rest = {**attrs, "eps": split.node.attrs["head_eps"]}
    split.add(Op.RMS_NORM_FUSED_ROPE_KV_WRITE, (*values, *others[3:]), tuple(outputs), **rest)
    return True


def split_convolution(split: SplitNode) -> bool:
    """Split the projection from the convolution over time."""
    x, matrix, *others, weight = split.node.inputs
    projected = split.add_value((*split.shape(x)[:-1], split.shape(matrix)[0]))
    attrs = dict(split.node.attrs)
    eps = {"eps": attrs.pop("eps")} if "eps" in attrs else {}
    split.add(Op.MATMUL, (x, matrix, ABSENT, ABSENT, weight), (projected,), **(eps if weight else {}))
    split.add(Op.SSM_CONV1D_UPDATE_IDS, (projected, *others), split.node.outputs, **attrs)
    return True


# the parts of each opcode, in the order in which they are split off, by their names in messages
PARTS: Mapping[Op, Mapping[str, Split]] = {
    Op.MATMUL: {"gated norm": split_gated_norm, "residual sum": split_sum, "norm": split_norm},
    Op.RMS_NORM: {"residual sum": split_sum},
    Op.RESIDUAL_RMS_NORM: {"residual sum": split_residual_norm},
    Op.RMS_NORM_FUSED_QKV: {"norm": split_qkv},
    Op.RMS_NORM_FUSED_MLP_GATE_UP: {"norm and activation": split_gate_up},
    Op.RMS_NORM_FUSED_ROPE_KV_WRITE: {"head norms, rotation and cache write": split_rotation},
    Op.QKV_FUSED_ROPE_KV_WRITE: {"norm and projections": split_qkv_rotation},
    Op.MATMUL_FUSED_CONV1D_IDS: {"projection": split_convolution},
    Op.FLASH_ATTN: {"gate": split_attention_gate},
    Op.MOE_GATE_TOPK: {"experts": split_experts, "norm": split_norm},
    Op.MOE_GATE_UP: {"activation": split_expert_activation, "norm": split_norm},
    Op.MOE_DOWN_ACC: {"sum": split_sum},
    Op.SHARED_EXPERT: {"norm": split_norm},
}


def split_part(node: Node, graph: OpGraph) -> SplitNode | None:
    """Split one part off a fused node. Return None for a plain node."""
    for part, split in PARTS.get(node.op, {}).items():
        result = SplitNode(graph, node, part)
        if split(result):
            return result
    return None


def replace_node(graph: OpGraph, index: int, split: SplitNode) -> OpGraph:
    """Return the graph with the nodes of `split` instead of node `index`."""
    buffers = dict(graph.buffers) | {spec.name: spec for spec in split.buffers}
    nodes = (*graph.nodes[:index], *split.nodes, *graph.nodes[index + 1 :])
    return OpGraph(graph.name, graph.stage, MappingProxyType(buffers), nodes)


def split_graph(graph: OpGraph) -> OpGraph:
    """Return the graph with all fused nodes split into plain ones."""
    index = 0
    while index < len(graph.nodes):
        split = split_part(graph.nodes[index], graph)
        if split is None:
            index += 1
        else:
            graph = replace_node(graph, index, split)
    return graph
