"""Projections: nodes to launches. matvec.inc and matmul.inc describe the kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, Launch, Ref
from zinc_rt.kernels.rows.operands import Buffer
from zinc_rt.kernels.rows.projections import CODES, Launches, Part, ProjectionInput, ProjectionKernels
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


def _project(
    tuning: Tuning, graph: OpGraph, capacity: Mapping[str, int], source: ProjectionInput, parts: Sequence[Part]
) -> Launches:
    """Each part by the kernel that suits it: tiles of tokens where a step may have many."""
    choices, tokens = source.choices, capacity["tokens"]
    for part in parts:
        shape = tuple(int(dim) for dim in graph.buffers[part.weight].shape)
        rows, k = shape[-2] if len(shape) > 1 else 1, shape[-1]
        one_by_one = choices is not None or source.row is not None or source.exact
        if not one_by_one and tokens >= tuning.matmul_capacity:
            yield tiled_projection(
                tuning,
                graph,
                source.x,
                part.weight,
                part.out,
                rows=rows,
                k=k,
                capacity=tokens,
                bias=part.bias,
                scale=part.scale,
            )
            continue
        yield projection(
            tuning,
            graph,
            source.x,
            part.weight,
            part.out,
            rows=rows,
            k=k,
            tokens=source.tokens,
            bias=part.bias,
            scale=part.scale,
            ids=choices.ids if choices else None,
            choices=choices.choices if choices else 1,
            x_by_choice=choices.own_inputs if choices else False,
            row=source.row,
        )


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


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    kernels = ProjectionKernels(tuning, partial(_project, tuning), lambda node, graph, launches: launches)
    rejects = partial(_rejects, tuning)
    return tuple(
        Entry(op, partial(code, kernels), tuning.orderings, rejects=rejects) for op, code in CODES.items()
    )
