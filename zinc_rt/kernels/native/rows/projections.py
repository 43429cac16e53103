"""Projections: nodes to launches. project.c and projection.h describe the kernels.

An item is a panel of 16 rows of a weight, with all tokens: the kernel chooses rows or panels by their number. In
canonical-1-q8 the input is quantised once, into a record a token, for all of a node's projections; experts are
sorted by the tokens that chose them, so that each expert's weights are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod

from zinc_rt.ir.dtypes import CACHE_TYPES, count_row_bytes
from zinc_rt.ir.graph import ABSENT, SYMBOLS, Node, OpGraph
from zinc_rt.ir.op import OPS, WMMA_FORMS, WMMA_ORDERINGS, Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, SYNC, Launch, Ref, Stride, Temp
from zinc_rt.kernels.native.rows.recurrent import check_taps, conv1d
from zinc_rt.kernels.native.rows.rope import norm_rope_kv_write
from zinc_rt.kernels.native.task import Task
from zinc_rt.kernels.native.types import check_type, find_type_number, read_q8_blocks
from zinc_rt.kernels.native.vectors import check_vectors, convert_to_f32, make_dequantise_launch
from zinc_rt.kernels.rows.caches import check_head_blocks
from zinc_rt.kernels.rows.operands import Buffer, Count
from zinc_rt.kernels.rows.projections import (
    CODES,
    F32_BYTES,
    WMMA_CODES,
    Launches,
    Part,
    ProjectionInput,
    ProjectionKernels,
    make_convolution_code,
    make_rotation_code,
)
from zinc_rt.kernels.rows.tuning import Tuning

PANEL = 16  # rows of a weight per item: projection.h
SEGMENT = 1024  # elements per item of quantise.c
LEAST_BYTES, MOST_BYTES = 128 << 10, 512 << 10  # bytes of weights per claim
WMMA_HEADER_BYTES = 16  # gemm_wmma.c
IS_COUNT = 1 << 31  # flag of a constant: the rest is an index into the step's counts


def project(
    ordering: str,
    graph: OpGraph,
    capacity: Mapping[str, int],
    source: ProjectionInput,
    parts: Sequence[Part],
    *,
    y_stride: int = 0,
) -> Launches:
    """Return the launches of projections, as ProjectionKernels defines them. `y_stride`: floats from one token's
    result to the next, if they are not adjacent.

    Weights of the node that are not float32 vectors must pass `check_vectors`, matrices `check_type`.
    """
    ordering = "canonical-1" if source.exact else ordering
    choices, heads = source.choices, source.heads
    shapes = [tuple(int(dim) for dim in graph.buffers[part.weight].shape) for part in parts]
    k = shapes[0][-1]
    fixed = capacity[source.tokens] if isinstance(source.tokens, str) else source.tokens
    blocks = [_find_q8_block(graph, ordering, part.weight) for part in parts]
    prepared: list[Launch] = []
    vectors: dict[str, Temp] = {}
    records: dict[int, Temp] = {}
    for part, block in zip(parts, blocks, strict=True):
        for name in filter(None, (part.bias, part.scale)):
            spec = graph.buffers[name]
            if spec.dtype != "f32" and name not in vectors:
                vectors[name] = Temp(f"f32:{name}", F32_BYTES * prod(int(dim) for dim in spec.shape))
                prepared.append(make_dequantise_launch(name, spec, vectors[name]))
        if block and block not in records:
            records[block], launch = _quantise_launch(graph, source, block, k, fixed)
            prepared.append(launch)
    halves = ordering.partition("wmma-")[2]  # f16, bf16 or none
    if halves:
        rounded, launch = _make_rounding(halves, source, k, fixed)
        prepared.append(launch)
    routes = None
    if choices is not None:
        experts = shapes[0][0]
        routes = Temp("routes", 4 * (1 + experts + 3 * experts + fixed * choices.choices))
        constants = (_make_counted(source.tokens), choices.choices, experts)
        prepared.append(Launch("route", (choices.ids, routes, Ref(COUNTS)), constants))
    yield from prepared
    if prepared:
        yield SYNC
    for part, shape, block in zip(parts, shapes, blocks, strict=True):
        rows = shape[-2] if len(shape) > 1 else 1
        x, x_bytes, head_bytes = (
            source.x,
            F32_BYTES * (source.x_stride or k),
            F32_BYTES * heads.x_stride if heads else 0,
        )
        if block:
            record = count_record_bytes(block, k)
            x, x_bytes, head_bytes = records[block], record * (heads.heads if heads else 1), record
        elif halves:
            own = choices.choices if choices and choices.own_inputs else 1
            x, x_bytes = rounded, rounded.size_bytes // (fixed * own)
        elif choices is not None and choices.own_inputs:
            x_bytes = F32_BYTES * k
        stride = y_stride or rows * (heads.heads if heads else 1)
        panels = -(-rows // PANEL)
        spec = graph.buffers[part.weight]
        panel_bytes = min(PANEL, rows) * count_row_bytes(spec.dtype, k)
        yield Task(
            f"project_wmma_{halves}" if halves else "project_q8" if block else "project_c1",
            (
                x,
                Ref(part.weight),
                Stride(part.weight, 0) if len(shape) > 2 else None,
                Stride(part.weight, -2) if len(shape) > 1 else None,
                part.out,
                _make_vector(part.scale, vectors),
                _make_vector(part.bias, vectors),
                None if block else source.row,
                routes,
                Ref(COUNTS),
            ),
            (
                _make_counted(source.tokens),
                _make_counted(_find_inputs(graph, source)),
                find_type_number(spec.dtype),
                rows,
                k,
                x_bytes,
                head_bytes,
                rows if choices else stride,
                heads.y_stride if heads else 0,
                choices.choices if choices and not choices.own_inputs else 1,
                shape[0] if choices else 1,
            ),
            (panels, choices.choices, source.tokens) if choices else (panels, heads.heads if heads else 1, 1),
            least=max(1, LEAST_BYTES // panel_bytes),
            most=max(1, MOST_BYTES // panel_bytes),
        )


def count_record_bytes(block: int, k: int) -> int:
    """Return the bytes of k quantised floats with their metadata: act32 and act256 of projection.h."""
    return k + k // 8 + k // 8 if block == 32 else k + k // 64 + k // 16 + k // 8


def _quantise_launch(
    graph: OpGraph, source: ProjectionInput, block: int, k: int, fixed: int
) -> tuple[Temp, Launch]:
    """Return the records of an input, and the launch that creates them."""
    x, row, choices = source.x, source.row, source.choices
    number, x_stride, head_stride = 1, source.x_stride or k, 0
    if source.heads:
        number, head_stride = source.heads.heads, source.heads.x_stride
    elif choices and choices.own_inputs:
        number, x_stride, head_stride = choices.choices, k * choices.choices, k
    record = count_record_bytes(block, k)
    of = f"{x.name}+{x.offset_bytes}" if isinstance(x, Ref) and x.offset_bytes else x.name
    gathered = f"[{row.name}]" if row else ""
    temp = Temp(f"q8_{block}:{of}{gathered}", record * fixed * number)
    buffers = (x, temp, row, Ref(COUNTS))
    constants = (k, record, x_stride, head_stride, _make_counted(_find_inputs(graph, source)))
    return temp, Launch(f"quantise{block}", buffers, constants, (-(-k // SEGMENT), number, source.tokens))


def _make_rounding(halves: str, source: ProjectionInput, k: int, fixed: int) -> tuple[Temp, Launch]:
    """Return the rows of an input as halves, f16 or bf16, and the launch that rounds them."""
    assert source.row is None and source.heads is None
    inputs = source.choices.choices if source.choices and source.choices.own_inputs else 1
    record = WMMA_HEADER_BYTES + 8 * (-(-k // 16) * 16)
    temp = Temp(f"{halves}:{source.x.name}", record * fixed * inputs)
    return temp, Launch(f"round_rows_{halves}", (source.x, temp), (k, record), (inputs, source.tokens, 1))


def _find_inputs(graph: OpGraph, source: ProjectionInput) -> Count:
    """Return the number of rows of x that `row` can refer to."""
    count = graph.buffers[source.x.name].shape[0] if source.row is not None else 0
    return count if isinstance(count, str) else int(count)


def _make_vector(name: str | None, temps: Mapping[str, Temp]) -> Buffer | None:
    return temps.get(name) or Ref(name) if name else None


def _find_q8_block(graph: OpGraph, ordering: str, weight: str) -> int:
    return read_q8_blocks().get(graph.buffers[weight].dtype, 0) if ordering == "canonical-1-q8" else 0


def _make_counted(count: Count) -> int:
    return IS_COUNT | SYMBOLS.index(count) if isinstance(count, str) else count


def check_projection(graph: OpGraph, weight: str) -> str | None:
    """Return why no projection by a weight is possible."""
    return check_type(graph.buffers[weight].dtype)


def _check_node(node: Node, graph: OpGraph) -> str | None:
    """Return the refusal functions by port: matrices and vectors must have a supported type."""
    matrices = []
    if node.op is Op.MATMUL_FUSED_CONV1D_IDS:
        if any(name and graph.buffers[name].dtype != "f32" for name in (node.inputs[2], node.inputs[7])):
            return "taps and bias of the convolution must be f32"
        if refusal := check_taps(graph, node.inputs[2]):
            return refusal
    if node.op is Op.QKV_FUSED_ROPE_KV_WRITE and any(
        name and graph.buffers[name].dtype != "f32" for name in node.inputs[5:9]
    ):
        return "norms of heads and tables of angles must be f32"
    if refusal := check_head_blocks(node, graph):
        return refusal
    for port, name in zip(OPS[node.op].inputs, node.inputs, strict=True):
        if port.kind == "weight" and name != ABSENT and (len(port.shape) > 1 or port.name == "gate_inp"):
            matrices.append(name)
            if refusal := check_projection(graph, name):
                return refusal
    return check_vectors(node, graph, *matrices)


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    kernels = {
        ordering: ProjectionKernels(tuning, partial(project, ordering), convert_to_f32, adds_expert_biases=True)
        for ordering in sorted(tuning.orderings)
    }
    others: dict[Op, Callable[..., Launches]] = {
        Op.MATMUL_FUSED_CONV1D_IDS: make_convolution_code(conv1d),
        Op.QKV_FUSED_ROPE_KV_WRITE: make_rotation_code(norm_rope_kv_write),
    }
    products = {
        ordering: ProjectionKernels(tuning, partial(project, ordering), convert_to_f32, adds_expert_biases=True)
        for ordering in WMMA_FORMS
    }
    matrix_cores = tuple(
        Entry(op, partial(code, products[WMMA_ORDERINGS[op]]), tuning.orderings, rejects=_check_node)
        for op, code in WMMA_CODES.items()
    )
    return matrix_cores + tuple(
        Entry(
            op,
            partial(code, kernels[ordering]),
            frozenset({ordering}),
            rejects=_check_node,
            cache_dtypes=frozenset(CACHE_TYPES),
        )
        for op, code in {**CODES, **others}.items()
        for ordering in kernels
    )
