"""Nodes made of projections, for any kernel set: what they compute, in which order, through which temporaries.

A set says how it computes projections of one input, and what its kernels read besides: `ProjectionKernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.rows.elementwise import rowwise
from zinc_rt.kernels.rows.norm import norm_launch
from zinc_rt.kernels.rows.operands import Buffer, Count, last_dim
from zinc_rt.kernels.rows.tuning import Tuning

F32_BYTES = 4
Launches = Iterator[Launch | Sync]


@dataclass(frozen=True, slots=True)
class Part:
    """One projection of an input. `bias` (rows) and `scale` (1 or experts) by name; None or ABSENT: none."""

    weight: str
    out: Buffer
    bias: str | None = None
    scale: str | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """Which experts each token goes to: i32 [tokens][choices]. `own_inputs`: x is f32 [tokens][choices][k], one
    for each choice."""

    ids: Buffer
    choices: int
    own_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Heads:
    """Head h takes k floats from h * x_stride of a token's input, and writes its rows at h * y_stride."""

    heads: int
    x_stride: int
    y_stride: int


@dataclass(frozen=True, slots=True)
class ProjectionInput:
    """What weights are multiplied by: x f32 [tokens][k].

    `x_stride`: floats from one token to the next, 0 for k. With `row` i32 [tokens] it is x[row[token]]. A weight
    is (rows, k), or (k) for one row; with `choices` it is (experts, rows, k) and the result
    [tokens][choices][rows]; with `heads` it is (heads, rows, k). `exact`: a float32 dot in every ordering.
    """

    x: Buffer
    tokens: Count = "tokens"
    row: Buffer | None = None
    choices: Choices | None = None
    heads: Heads | None = None
    x_stride: int = 0
    exact: bool = False


def no_glu(
    graph: OpGraph, capacity: Mapping[str, int], source: ProjectionInput, gate: Part, up: Part
) -> Launch | None:
    return None


@dataclass(frozen=True, slots=True)
class ProjectionKernels:
    """How a kernel set computes projections.

    `project(graph, capacity, input, parts)`: out f32 [tokens][rows] = (dot(x, a row of the weight) * scale) +
    bias, of each part. What x was made by has ended before, and the caller puts a SYNC before what reads out.
    `glu(graph, capacity, input, gate, up)`: silu of gate's result times up's, into `up.out`, in one launch; None
    where that is not possible. `vectors(node, graph, launches)`: the launches, reading the node's vectors as
    float32 whatever type they have.
    """

    tuning: Tuning
    project: Callable[[OpGraph, Mapping[str, int], ProjectionInput, Sequence[Part]], Launches]
    vectors: Callable[[Node, OpGraph, Iterable[Launch | Sync]], Iterable[Launch | Sync]]
    glu: Callable[[OpGraph, Mapping[str, int], ProjectionInput, Part, Part], Launch | None] = no_glu


def _matmul(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    x, w, *vectors = node.inputs
    yield from kernels.project(graph, capacity, ProjectionInput(Ref(x)), [Part(w, Ref(node.outputs[0]), *vectors)])


def _lm_head(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    x, w, row, bias = node.inputs
    source = ProjectionInput(Ref(x), tokens="rows", row=Ref(row))
    yield from kernels.project(graph, capacity, source, [Part(w, Ref(node.outputs[0]), bias)])


def _normed(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int], parts: Sequence[Part]
) -> Launches:
    """The norm at the head of a fused node, and projections of its result."""
    x, weight = node.inputs[:2]
    k = last_dim(graph, x)
    normed = Temp("normed", F32_BYTES * capacity["tokens"] * k)
    eps = float(node.attrs["eps"])
    norm = norm_launch(Ref(x), Ref(weight), normed, rows="tokens", columns=k, size=k, eps=eps)
    yield from kernels.vectors(node, graph, (norm, SYNC))
    yield from kernels.project(graph, capacity, ProjectionInput(normed), parts)


def _fused_qkv(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    weights = zip(node.inputs[2:5], node.outputs, node.inputs[5:8], strict=True)
    parts = [Part(w, Ref(out), bias) for w, out, bias in weights]
    yield from _normed(kernels, node, graph, capacity, parts)


def _fused_gate_up(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Launches:
    parts = [Part(w, Ref(out)) for w, out in zip(node.inputs[2:4], node.outputs, strict=True)]
    yield from _normed(kernels, node, graph, capacity, parts)


def _moe_gate_up(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    x, gate_w, up_w, ids, gate_scale, up_scale = node.inputs
    gate, up = (Ref(name) for name in node.outputs)
    parts = [Part(gate_w, gate, scale=gate_scale), Part(up_w, up, scale=up_scale)]
    source = ProjectionInput(Ref(x), choices=Choices(Ref(ids), last_dim(graph, ids)))
    yield from kernels.project(graph, capacity, source, parts)


def _moe_down_acc(kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    x, down_w, ids, weights, expert_scale, hidden = node.inputs
    choices, width = last_dim(graph, ids), int(graph.buffers[down_w].shape[1])
    down = Temp("down", F32_BYTES * capacity["tokens"] * choices * width)
    source = ProjectionInput(Ref(x), choices=Choices(Ref(ids), choices, own_inputs=True))
    yield from kernels.project(graph, capacity, source, [Part(down_w, down, scale=expert_scale)])
    yield SYNC
    yield Launch(  # hidden + the sum of down f32 [tokens][choices][width] by weights f32 [tokens][choices]
        "expert_sum",
        (down, Ref(weights), Ref(hidden) if hidden else None, Ref(node.outputs[0])),
        (width, choices),
        (-(-width // kernels.tuning.expert_columns), "tokens", 1),
    )


def _shared_expert(
    kernels: ProjectionKernels, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Launches:
    x, gate_w, up_w, down_w, gate_inp, hidden, gate_scale, up_scale, down_scale = node.inputs
    tokens, tuning = capacity["tokens"], kernels.tuning
    inner, width = (int(graph.buffers[w].shape[0]) for w in (gate_w, down_w))
    gate, up, act = (Temp(name, F32_BYTES * tokens * inner) for name in ("gate", "up", "act"))
    out, score = Ref(node.outputs[0]), Temp("score", F32_BYTES * tokens)
    down = Temp("down", F32_BYTES * tokens * width) if gate_inp or hidden else out
    with_dot = (
        bool(gate_inp)
        and "expert_gate_dot" in tuning.own_kernels
        and tuning.stored(graph.buffers[gate_inp].dtype) == "f32"
    )
    source = ProjectionInput(Ref(x))
    parts = Part(gate_w, gate, scale=gate_scale), Part(up_w, up, scale=up_scale)
    glu = kernels.glu(graph, capacity, source, parts[0], replace(parts[1], out=act))
    if glu is not None:
        yield glu
    else:
        yield from kernels.project(graph, capacity, source, parts)
    if gate_inp and not with_dot:
        yield from kernels.project(graph, capacity, replace(source, exact=True), [Part(gate_inp, score)])
    yield SYNC
    if glu is None:
        yield rowwise(tuning, "swiglu", (gate, up, act), "tokens", inner)
        yield SYNC
    yield from kernels.project(graph, capacity, ProjectionInput(act), [Part(down_w, down, scale=down_scale)])
    if not isinstance(down, Temp):
        return
    yield SYNC
    grid = (-(-width // tuning.expert_columns), "tokens", 1)
    residual = Ref(hidden) if hidden else None
    if with_dot:  # hidden + down * sigmoid(dot(x, gate_inp))
        k = last_dim(graph, x)
        yield Launch("expert_gate_dot", (down, Ref(x), Ref(gate_inp), residual, out), (width, k), grid)
    else:  # hidden + down * sigmoid(score), score f32 [tokens]; each may be left out
        yield Launch("expert_gate", (down, score if gate_inp else None, residual, out), (width,), grid)


CODES: dict[Op, Callable[[ProjectionKernels, Node, OpGraph, Mapping[str, int]], Launches]] = {
    Op.MATMUL: _matmul,
    Op.LM_HEAD: _lm_head,
    Op.RMS_NORM_FUSED_QKV: _fused_qkv,
    Op.RMS_NORM_FUSED_MLP_GATE_UP: _fused_gate_up,
    Op.MOE_GATE_UP: _moe_gate_up,
    Op.MOE_DOWN_ACC: _moe_down_acc,
    Op.SHARED_EXPERT: _shared_expert,
}
