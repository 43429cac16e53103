"""Projections: nodes to launches. project.c and projection.h describe the kernels.

    project(graph, capacity, ordering, x, [Part(weight, out), ...])     all projections of one input
    projection(graph, capacity, ordering, x, weight, out)               one

An item is a panel of 16 rows of a weight, with all tokens: the kernel chooses rows or panels by their number. In
canonical-1-q8 the input is quantised once, into a record a token, for all of a node's projections; experts are
sorted by the tokens that chose them, so that each expert's weights are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from zinc_rt.ir.dtypes import row_bytes
from zinc_rt.ir.graph import ABSENT, SYMBOLS, Node, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, SYNC, Launch, Ref, Stride, Sync, Temp
from zinc_rt.kernels.native.task import Task
from zinc_rt.kernels.native.types import type_number, type_refusal
from zinc_rt.kernels.native.vectors import as_f32, vector_refusal
from zinc_rt.kernels.rows.elementwise import swiglu_launch
from zinc_rt.kernels.rows.matvec import expert_gate_launch, expert_sum_launch
from zinc_rt.kernels.rows.norm import norm_launch
from zinc_rt.kernels.rows.operands import Buffer, Count, last_dim
from zinc_rt.kernels.rows.tuning import Tuning

PANEL = 16  # rows of a weight to an item: projection.h
SEGMENT = 1024  # elements to an item of quantise.c
LEAST_BYTES, MOST_BYTES = 128 << 10, 512 << 10  # of weights to a claim
F32_BYTES = 4
IS_COUNT = 1 << 31  # of a constant: the rest is an index of the step's counts

# In canonical-1-q8: elements of an activation block, by the weight's type. Every other type is canonical-1's.
Q8_BLOCKS = {"q8_0": 32, "q4_0": 32, "q4_k": 256, "q5_k": 256, "q6_k": 256}

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
    """Which experts each token goes to: i32 [tokens][choices] by the buffer's name. `own_inputs`: x is
    f32 [tokens][choices][k], one for each choice."""

    ids: Buffer
    choices: int
    own_inputs: bool = False


@dataclass(frozen=True, slots=True)
class Heads:
    """Head h takes k floats from h * x_stride of a token's input, and writes its rows at h * y_stride."""

    heads: int
    x_stride: int
    y_stride: int


def projection(
    graph: OpGraph,
    capacity: Mapping[str, int],
    ordering: str,
    x: Buffer,
    weight: str,
    out: Buffer,
    *,
    bias: str | None = None,
    scale: str | None = None,
    tokens: Count = "tokens",
    x_stride: int = 0,
    y_stride: int = 0,
    row: Buffer | None = None,
    inputs: Count = 0,
    choices: Choices | None = None,
    heads: Heads | None = None,
) -> Launches:
    """`project` of one part."""
    yield from project(
        graph,
        capacity,
        ordering,
        x,
        [Part(weight, out, bias, scale)],
        tokens=tokens,
        x_stride=x_stride,
        y_stride=y_stride,
        row=row,
        inputs=inputs,
        choices=choices,
        heads=heads,
    )


def project(
    graph: OpGraph,
    capacity: Mapping[str, int],
    ordering: str,
    x: Buffer,
    parts: Sequence[Part],
    *,
    tokens: Count = "tokens",
    x_stride: int = 0,
    y_stride: int = 0,
    row: Buffer | None = None,
    inputs: Count = 0,
    choices: Choices | None = None,
    heads: Heads | None = None,
) -> Launches:
    """out f32 [tokens][rows] = (dot(x, a row of the weight) * scale) + bias, of each part.

    x is f32 [tokens][k], or with strides in floats from one token to the next; with `row` i32 [tokens] it is
    x[row[token]], which must be below `inputs`. A weight is (rows, k), or (k) for one row. With `choices` it is
    (experts, rows, k) and out [tokens][choices][rows]; with `heads` it is (heads, rows, k).

    What x was made by has ended before, and the caller puts a SYNC before what reads out. Weights of the node that
    are not float32 vectors must pass `vector_refusal`, matrices `type_refusal`.
    """
    shapes = [tuple(int(dim) for dim in graph.buffers[part.weight].shape) for part in parts]
    k = shapes[0][-1]
    x_stride = x_stride or k
    fixed = _fixed(capacity, tokens)
    prepared: list[Launch] = []
    vectors: dict[str, Temp] = {}
    records: dict[int, Temp] = {}
    for part in parts:
        for name in filter(None, (part.bias, part.scale)):
            if graph.buffers[name].dtype != "f32" and name not in vectors:
                vectors[name], launch = _dequantised(graph, name)
                prepared.append(launch)
        block = _q8_block(graph, ordering, part.weight)
        if block and block not in records:
            records[block], launch = _quantised(
                x, block, k, tokens, fixed, x_stride=x_stride, row=row, inputs=inputs, choices=choices, heads=heads
            )
            prepared.append(launch)
    routes = None
    if choices is not None:
        experts = shapes[0][0]
        routes = Temp("routes", 4 * (1 + experts + 3 * experts + fixed * choices.choices))
        constants = (_counted(tokens), choices.choices, experts)
        prepared.append(Launch("route", (choices.ids, routes, Ref(COUNTS)), constants))
    yield from prepared
    if prepared:
        yield SYNC
    for part, shape in zip(parts, shapes, strict=True):
        block = _q8_block(graph, ordering, part.weight)
        rows = shape[-2] if len(shape) > 1 else 1
        source, x_bytes, head_bytes = x, F32_BYTES * x_stride, F32_BYTES * heads.x_stride if heads else 0
        if block:
            record = record_bytes(block, k)
            source, x_bytes, head_bytes = records[block], record * (heads.heads if heads else 1), record
        elif choices is not None and choices.own_inputs:
            x_bytes = F32_BYTES * k
        stride = y_stride or rows * (heads.heads if heads else 1)
        panels = -(-rows // PANEL)
        spec = graph.buffers[part.weight]
        panel_bytes = min(PANEL, rows) * row_bytes(spec.dtype, k)
        yield Task(
            "project_q8" if block else "project_c1",
            (
                source,
                Ref(part.weight),
                Stride(part.weight, 0) if len(shape) > 2 else None,
                Stride(part.weight, -2) if len(shape) > 1 else None,
                part.out,
                _vector(part.scale, vectors),
                _vector(part.bias, vectors),
                None if block else row,
                routes,
                Ref(COUNTS),
            ),
            (
                _counted(tokens),
                _counted(inputs),
                type_number(spec.dtype),
                rows,
                k,
                x_bytes,
                head_bytes,
                rows if choices else stride,
                heads.y_stride if heads else 0,
                choices.choices if choices and not choices.own_inputs else 1,
                shape[0] if choices else 1,
            ),
            (panels, choices.choices, tokens) if choices else (panels, heads.heads if heads else 1, 1),
            least=max(1, LEAST_BYTES // panel_bytes),
            most=max(1, MOST_BYTES // panel_bytes),
        )


def record_bytes(block: int, k: int) -> int:
    """Of k floats in 8 bits with what belongs to them: projection.h's act32 and act256."""
    return k + k // 8 + k // 8 if block == 32 else k + k // 64 + k // 16 + k // 8


def _quantised(
    x: Buffer,
    block: int,
    k: int,
    tokens: Count,
    fixed: int,
    *,
    x_stride: int,
    row: Buffer | None,
    inputs: Count,
    choices: Choices | None,
    heads: Heads | None,
) -> tuple[Temp, Launch]:
    """The records of an input, and the launch that makes them."""
    number, head_stride = 1, 0
    if heads:
        number, head_stride = heads.heads, heads.x_stride
    elif choices and choices.own_inputs:
        number, x_stride, head_stride = choices.choices, k * choices.choices, k
    record = record_bytes(block, k)
    of = f"{x.name}+{x.offset_bytes}" if isinstance(x, Ref) and x.offset_bytes else x.name
    gathered = f"[{row.name}]" if row else ""
    temp = Temp(f"q8_{block}:{of}{gathered}", record * fixed * number)
    buffers = (x, temp, row, Ref(COUNTS))
    constants = (k, record, x_stride, head_stride, _counted(inputs))
    return temp, Launch(f"quantise{block}", buffers, constants, (-(-k // SEGMENT), number, tokens))


def _dequantised(graph: OpGraph, name: str) -> tuple[Temp, Launch]:
    """A bias or a scale as float32, and the launch that makes it."""
    spec = graph.buffers[name]
    (k,) = (int(dim) for dim in spec.shape)
    temp = Temp(f"f32:{name}", F32_BYTES * k)
    return temp, Launch("dequantise", (Ref(name), temp, None), (type_number(spec.dtype), k))


def _vector(name: str | None, made: Mapping[str, Temp]) -> Buffer | None:
    return made.get(name) or Ref(name) if name else None


def _q8_block(graph: OpGraph, ordering: str, weight: str) -> int:
    return Q8_BLOCKS.get(graph.buffers[weight].dtype, 0) if ordering == "canonical-1-q8" else 0


def _counted(count: Count) -> int:
    return IS_COUNT | SYMBOLS.index(count) if isinstance(count, str) else count


def _fixed(capacity: Mapping[str, int], count: Count) -> int:
    return capacity[count] if isinstance(count, str) else count


Code = Callable[[str, Tuning, Node, OpGraph, Mapping[str, int]], Launches]


def _matmul(ordering: str, tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    x, w, bias, scale = node.inputs
    yield from projection(graph, capacity, ordering, Ref(x), w, Ref(node.outputs[0]), bias=bias, scale=scale)


def _wmma(ordering: str, tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    a, b = node.inputs
    yield from projection(graph, capacity, ordering, Ref(a), b, Ref(node.outputs[0]))


def _lm_head(ordering: str, tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    x, w, row, bias = node.inputs
    inputs = graph.buffers[x].shape[0]
    out = Ref(node.outputs[0])
    yield from projection(
        graph, capacity, ordering, Ref(x), w, out, bias=bias, tokens="rows", row=Ref(row), inputs=inputs
    )


def _norm(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> tuple[Launches, Temp]:
    """The norm at the head of a fused node, and where its result lies."""
    x, weight = node.inputs[:2]
    k = last_dim(graph, x)
    normed = Temp("normed", F32_BYTES * capacity["tokens"] * k)
    eps = float(node.attrs["eps"])
    launch = norm_launch(Ref(x), Ref(weight), normed, rows="tokens", columns=k, size=k, eps=eps)
    return as_f32(node, graph, (launch, SYNC)), normed


def _fused_qkv(ordering: str, tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    norm, normed = _norm(node, graph, capacity)
    yield from norm
    parts = [
        Part(w, Ref(out), bias)
        for w, bias, out in zip(node.inputs[2:5], node.inputs[5:8], node.outputs, strict=True)
    ]
    yield from project(graph, capacity, ordering, normed, parts)


def _fused_gate_up(
    ordering: str, tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Launches:
    norm, normed = _norm(node, graph, capacity)
    yield from norm
    parts = [Part(w, Ref(out)) for w, out in zip(node.inputs[2:4], node.outputs, strict=True)]
    yield from project(graph, capacity, ordering, normed, parts)


def _moe_gate_up(
    ordering: str, tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Launches:
    x, gate_w, up_w, ids, gate_scale, up_scale = node.inputs
    gate, up = (Ref(name) for name in node.outputs)
    parts = [Part(gate_w, gate, scale=gate_scale), Part(up_w, up, scale=up_scale)]
    yield from project(graph, capacity, ordering, Ref(x), parts, choices=Choices(Ref(ids), last_dim(graph, ids)))


def _moe_down_acc(
    ordering: str, tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Launches:
    x, down_w, ids, weights, expert_scale, hidden = node.inputs
    choices, width = last_dim(graph, ids), int(graph.buffers[down_w].shape[1])
    down = Temp("down", F32_BYTES * capacity["tokens"] * choices * width)
    chosen = Choices(Ref(ids), choices, own_inputs=True)
    yield from projection(graph, capacity, ordering, Ref(x), down_w, down, scale=expert_scale, choices=chosen)
    yield SYNC
    yield expert_sum_launch(
        tuning,
        down,
        Ref(weights),
        Ref(hidden) if hidden else None,
        Ref(node.outputs[0]),
        columns=width,
        choices=choices,
    )


def _shared_expert(
    ordering: str, tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Launches:
    x, gate_w, up_w, down_w, gate_inp, hidden, gate_scale, up_scale, down_scale = node.inputs
    tokens = capacity["tokens"]
    inner, width = (int(graph.buffers[w].shape[0]) for w in (gate_w, down_w))
    gate, up, act = (Temp(name, F32_BYTES * tokens * inner) for name in ("gate", "up", "act"))
    out, score = Ref(node.outputs[0]), Temp("score", F32_BYTES * tokens)
    down = Temp("down", F32_BYTES * tokens * width) if gate_inp or hidden else out
    parts = [Part(gate_w, gate, scale=gate_scale), Part(up_w, up, scale=up_scale)]
    yield from project(graph, capacity, ordering, Ref(x), parts)
    if gate_inp:  # a dot in every ordering
        yield from projection(graph, capacity, "canonical-1", Ref(x), gate_inp, score)
    yield SYNC
    yield swiglu_launch(tuning, gate, up, act, rows="tokens", columns=inner)
    yield SYNC
    yield from projection(graph, capacity, ordering, act, down_w, down, scale=down_scale)
    if isinstance(down, Temp):
        yield SYNC
        yield expert_gate_launch(
            tuning, down, score if gate_inp else None, Ref(hidden) if hidden else None, out, columns=width
        )


def projection_refusal(graph: OpGraph, weight: str) -> str | None:
    """Why no projection by a weight is possible."""
    return type_refusal(graph.buffers[weight].dtype)


def _rejects(node: Node, graph: OpGraph) -> str | None:
    """By port: matrices of a type that is read, and vectors likewise."""
    matrices = []
    for port, name in zip(OPS[node.op].inputs, node.inputs, strict=True):
        if port.kind == "weight" and name != ABSENT and (len(port.shape) > 1 or port.name == "gate_inp"):
            matrices.append(name)
            if refusal := projection_refusal(graph, name):
                return refusal
    return vector_refusal(node, graph, *matrices)


CODES: dict[Op, Code] = {
    Op.MATMUL: _matmul,
    Op.MATMUL_WMMA_F16: _wmma,
    Op.MATMUL_WMMA_Q4K: _wmma,
    Op.LM_HEAD: _lm_head,
    Op.RMS_NORM_FUSED_QKV: _fused_qkv,
    Op.RMS_NORM_FUSED_MLP_GATE_UP: _fused_gate_up,
    Op.MOE_GATE_UP: _moe_gate_up,
    Op.MOE_DOWN_ACC: _moe_down_acc,
    Op.SHARED_EXPERT: _shared_expert,
}


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return tuple(
        Entry(op, partial(code, ordering, tuning), frozenset({ordering}), rejects=_rejects)
        for op, code in CODES.items()
        for ordering in sorted(tuning.orderings)
    )
