"""Projections: nodes to launches. matvec.inc and matmul.inc describe the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.rows.elementwise import swiglu_launch
from zinc_rt.kernels.rows.norm import norm_launch
from zinc_rt.kernels.rows.operands import Buffer, last_dim
from zinc_rt.kernels.rows.repack import PLAIN_DTYPES, Plane, layout
from zinc_rt.kernels.rows.tuning import Tuning

PLANES = 3
_BIAS_SHIFT, _X_BY_CHOICE = 2, 1 << 4


def projection(
    tuning: Tuning,
    graph: OpGraph,
    x: Buffer,
    weight: str,
    out: Buffer,
    *,
    rows: int,
    k: int,
    tokens: int | str,
    bias: str | None = None,
    scale: str | None = None,
    ids: Buffer | None = None,
    choices: int = 1,
    x_by_choice: bool = False,
    row: Buffer | None = None,
) -> Launch:
    """out f32 [tokens][choices][rows] = (dot(x, weight's row) * scale[e]) + bias[row of the weight].

    x is f32 [tokens][k], or [tokens][choices][k] where `x_by_choice`; with `row` i32 [tokens] it is x[row[token]].
    `weight` (rows, k) or (experts, rows, k) by name; with `ids` i32 [tokens][choices] the expert e is
    ids[token][choice], else 0. `bias` (rows) and `scale` (experts or 1) by name, ABSENT or None to leave out.
    Whoever calls it for a node refuses what `weight_refusal` and `plain_refusal` refuse.
    """
    spec = graph.buffers[weight]
    shape = tuple(int(dim) for dim in spec.shape)
    planes = layout(spec.dtype, prod(shape[:-1]), k).planes
    flags = _plain_types(graph, scale, bias) | (_X_BY_CHOICE if x_by_choice else 0)
    return Launch(
        f"matvec_{spec.dtype}",
        (x, Ref(weight), out, Ref(scale) if scale else None, Ref(bias) if bias else None, ids, row),
        (rows, k, planes[0].row_bytes, *plane_constants(planes[1:]), choices, flags, 0),
        (tokens, -(-rows // tuning.matvec_rows), choices),
    )


def tiled_projection(
    tuning: Tuning,
    graph: OpGraph,
    x: Buffer,
    weight: str,
    out: Buffer,
    *,
    rows: int,
    k: int,
    capacity: int,
    bias: str | None = None,
    scale: str | None = None,
) -> Launch:
    """`projection` of all tokens of a step of at most `capacity`, four at a time; the same bits."""
    spec = graph.buffers[weight]
    planes = layout(spec.dtype, rows, k).planes
    return Launch(
        f"matmul_{spec.dtype}",
        (x, Ref(weight), out, Ref(scale) if scale else None, Ref(bias) if bias else None, Ref(COUNTS)),
        (rows, k, planes[0].row_bytes, *plane_constants(planes[1:]), _plain_types(graph, scale, bias)),
        (-(-capacity // tuning.matmul_tokens), -(-rows // tuning.matmul_rows), 1),
    )


def _plain_types(graph: OpGraph, scale: str | None, bias: str | None) -> int:
    """The flags' part that tells of what types scale and bias are."""
    flags = PLAIN_DTYPES.index(graph.buffers[scale].dtype) if scale else 0
    return flags | (PLAIN_DTYPES.index(graph.buffers[bias].dtype) if bias else 0) << _BIAS_SHIFT


def plane_constants(planes: tuple[Plane, ...]) -> tuple[int, ...]:
    """(offset, bytes a row) of each plane behind the first, zeros for those a type does not have."""
    missing = PLANES - 1 - len(planes)
    return (*(value for plane in planes for value in (plane.offset_bytes, plane.row_bytes)), *(0, 0) * missing)


def weight_refusal(tuning: Tuning, graph: OpGraph, name: str) -> str | None:
    """Why no projection by weight `name` is possible."""
    spec = graph.buffers[name]
    if spec.dtype not in tuning.weight_dtypes:
        return f"{name} is {spec.dtype}; projections take {', '.join(tuning.weight_dtypes)}"
    shape = tuple(int(dim) for dim in spec.shape)
    place = layout(spec.dtype, prod(shape[:-1]), shape[-1])
    if place.planes[-1].offset_bytes >= 1 << 32:
        return f"{name} has {place.size_bytes} bytes; a plane must begin below 4 GiB"
    rows_maximum = tuning.grid_rows * min(tuning.matvec_rows, tuning.matmul_rows)
    if len(shape) > 1 and shape[-2] > rows_maximum:
        return f"{name} has {shape[-2]} rows, more than the {rows_maximum} that a grid holds"
    return None


def plain_refusal(graph: OpGraph, name: str) -> str | None:
    """Why bias or scale `name` cannot be read; ABSENT can."""
    if name == ABSENT or graph.buffers[name].dtype in PLAIN_DTYPES:
        return None
    return f"{name} is {graph.buffers[name].dtype}; biases and scales are {', '.join(PLAIN_DTYPES)}"


def _matmul(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    x, w, bias, scale = node.inputs
    yield _of_tokens(tuning, graph, capacity, Ref(x), w, Ref(node.outputs[0]), bias=bias, scale=scale)


def _lm_head(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    x, w, row, bias = node.inputs
    yield _plain(tuning, graph, Ref(x), w, Ref(node.outputs[0]), tokens="rows", bias=bias, row=Ref(row))


def _norm(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> tuple[Launch, Temp]:
    """The norm at the head of a fused node, and where its result lies."""
    x, weight = node.inputs[:2]
    k = last_dim(graph, x)
    normed = Temp("normed", 4 * capacity["tokens"] * k)
    eps = float(node.attrs["eps"])
    return norm_launch(Ref(x), Ref(weight), normed, rows="tokens", columns=k, size=k, eps=eps), normed


def _fused_qkv(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    norm, normed = _norm(node, graph, capacity)
    yield norm
    yield SYNC
    for w, bias, out in zip(node.inputs[2:5], node.inputs[5:8], node.outputs, strict=True):
        yield _of_tokens(tuning, graph, capacity, normed, w, Ref(out), bias=bias)


def _fused_gate_up(
    tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    norm, normed = _norm(node, graph, capacity)
    yield norm
    yield SYNC
    for w, out in zip(node.inputs[2:4], node.outputs, strict=True):
        yield _of_tokens(tuning, graph, capacity, normed, w, Ref(out))


def _moe_gate_up(
    tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    x, gate_w, up_w, ids, gate_scale, up_scale = node.inputs
    choices = last_dim(graph, ids)
    for w, scale, out in zip((gate_w, up_w), (gate_scale, up_scale), node.outputs, strict=True):
        yield _plain(tuning, graph, Ref(x), w, Ref(out), scale=scale, ids=Ref(ids), choices=choices)


def _moe_down_acc(
    tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    x, down_w, ids, weights, expert_scale, hidden = node.inputs
    choices, width = last_dim(graph, ids), int(graph.buffers[down_w].shape[1])
    down = Temp("down", 4 * capacity["tokens"] * choices * width)
    yield _plain(
        tuning, graph, Ref(x), down_w, down, scale=expert_scale, ids=Ref(ids), choices=choices, x_by_choice=True
    )
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
    tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    x, gate_w, up_w, down_w, gate_inp, hidden, gate_scale, up_scale, down_scale = node.inputs
    tokens = capacity["tokens"]
    inner, width = (int(graph.buffers[w].shape[0]) for w in (gate_w, down_w))
    gate, up, act = (Temp(name, 4 * tokens * inner) for name in ("gate", "up", "act"))
    out, score = Ref(node.outputs[0]), Temp("score", 4 * tokens)
    down = Temp("down", 4 * tokens * width) if gate_inp or hidden else out
    yield _of_tokens(tuning, graph, capacity, Ref(x), gate_w, gate, scale=gate_scale)
    yield _of_tokens(tuning, graph, capacity, Ref(x), up_w, up, scale=up_scale)
    if gate_inp:
        yield _plain(tuning, graph, Ref(x), gate_inp, score)
    yield SYNC
    yield swiglu_launch(tuning, gate, up, act, rows="tokens", columns=inner)
    yield SYNC
    yield _of_tokens(tuning, graph, capacity, act, down_w, down, scale=down_scale)
    if isinstance(down, Temp):
        yield SYNC
        yield expert_gate_launch(
            tuning, down, score if gate_inp else None, Ref(hidden) if hidden else None, out, columns=width
        )


def expert_sum_launch(
    tuning: Tuning, down: Buffer, weights: Buffer, hidden: Buffer | None, y: Buffer, *, columns: int, choices: int
) -> Launch:
    """y = hidden + the sum of down f32 [tokens][choices][columns] by weights f32 [tokens][choices]."""
    return Launch(
        "expert_sum",
        (down, weights, hidden, y),
        (columns, choices),
        (-(-columns // tuning.expert_columns), "tokens", 1),
    )


def expert_gate_launch(
    tuning: Tuning, down: Buffer, score: Buffer | None, hidden: Buffer | None, y: Buffer, *, columns: int
) -> Launch:
    """y = hidden + down * sigmoid(score) over f32 [tokens, columns]; score f32 [tokens]. Each may be left out."""
    return Launch(
        "expert_gate",
        (down, score, hidden, y),
        (columns,),
        (-(-columns // tuning.expert_columns), "tokens", 1),
    )


def _plain(
    tuning: Tuning,
    graph: OpGraph,
    x: Buffer,
    weight: str,
    out: Buffer,
    *,
    tokens: int | str = "tokens",
    **more: Any,
) -> Launch:
    """`projection` by all of a weight: (rows, k), (experts, rows, k), or (k,) for one row."""
    shape = tuple(int(dim) for dim in graph.buffers[weight].shape)
    rows = shape[-2] if len(shape) > 1 else 1
    return projection(tuning, graph, x, weight, out, rows=rows, k=shape[-1], tokens=tokens, **more)


def _of_tokens(
    tuning: Tuning,
    graph: OpGraph,
    capacity: Mapping[str, int],
    x: Buffer,
    weight: str,
    out: Buffer,
    *,
    bias: str | None = None,
    scale: str | None = None,
) -> Launch:
    """All of a weight (rows, k) for every token, by the kernel that suits the capacity."""
    rows, k = (int(dim) for dim in graph.buffers[weight].shape)
    tokens = capacity["tokens"]
    if tokens < tuning.matmul_capacity:
        return projection(tuning, graph, x, weight, out, rows=rows, k=k, tokens="tokens", bias=bias, scale=scale)
    return tiled_projection(tuning, graph, x, weight, out, rows=rows, k=k, capacity=tokens, bias=bias, scale=scale)


def _rejects(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    """By port: matrices must be of a type with a kernel, biases and scales plain."""
    for port, name in zip(OPS[node.op].inputs, node.inputs, strict=True):
        if port.kind != "weight" or name == ABSENT:
            continue
        if port.name == "norm_w":
            reason = (
                None if graph.buffers[name].dtype == "f32" else f"{name} is {graph.buffers[name].dtype}, not f32"
            )
        elif len(port.shape) > 1 or port.name == "gate_inp":
            reason = weight_refusal(tuning, graph, name)
        else:
            reason = plain_refusal(graph, name)
        if reason:
            return reason
    return None


CODES: dict[Op, Callable[..., Iterator[Launch | Sync]]] = {
    Op.MATMUL: _matmul,
    Op.LM_HEAD: _lm_head,
    Op.RMS_NORM_FUSED_QKV: _fused_qkv,
    Op.RMS_NORM_FUSED_MLP_GATE_UP: _fused_gate_up,
    Op.MOE_GATE_UP: _moe_gate_up,
    Op.MOE_DOWN_ACC: _moe_down_acc,
    Op.SHARED_EXPERT: _shared_expert,
}


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    rejects = partial(_rejects, tuning)
    return tuple(Entry(op, partial(code, tuning), tuning.orderings, rejects=rejects) for op, code in CODES.items())
