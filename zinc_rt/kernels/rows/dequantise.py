"""Dequantise rows of a weight to float32 with the embed kernels."""

from __future__ import annotations

from functools import partial

from zinc_rt.ir.dtypes import INDEX
from zinc_rt.ir.graph import ABSENT, BufferSpec, Node, OpGraph
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref, Temp
from zinc_rt.kernels.rows import vectors
from zinc_rt.kernels.rows.operands import Buffer, Count
from zinc_rt.kernels.rows.repack import GROUP, PLAIN_DTYPES, list_plane_constants, make_layout
from zinc_rt.kernels.rows.tuning import Tuning


def make_rows_launch(
    tuning: Tuning, row: Buffer | None, table: str, spec: BufferSpec, y: Buffer, count: Count
) -> Launch:
    """Launch y f32 [count, k] = rows `row` i32 [count] of a weight (rows, k) or (k); without `row`, its first
    `count` rows."""
    rows, k = vectors.count_rows(spec)
    dtype = tuning.stored_dtype(spec.dtype)
    planes = make_layout(dtype, rows, k).planes
    columns = tuning.embed_columns if dtype in PLAIN_DTYPES else GROUP
    return Launch(
        f"embed_{dtype}",
        (row, Ref(table), y),
        (k, planes[0].row_bytes, *list_plane_constants(planes[1:])),
        (-(-k // columns), count, 1),
    )


def make_dequantise_launch(tuning: Tuning, name: str, spec: BufferSpec, y: Temp) -> Launch:
    """Launch y f32 [rows, k] = the weight."""
    return make_rows_launch(tuning, None, name, spec, y, vectors.count_rows(spec)[0])


def check_vector(tuning: Tuning, graph: OpGraph, name: str) -> str | None:
    """Return why a small weight cannot be read as float32."""
    spec = graph.buffers[name]
    if spec.dtype in ("f32", INDEX):
        return None
    if not tuning.any_vectors:
        return f"{name} is {spec.dtype}, not f32"
    if tuning.stored_dtype(spec.dtype) not in tuning.weight_dtypes:
        return f"{name} is {spec.dtype}, which no kernel supports"
    if len(spec.shape) > 2:
        return f"{name} is {spec.dtype} with {len(spec.shape)} dimensions: kernels support only f32 here"
    return None


def accept_any_vectors(tuning: Tuning, entry: Entry) -> Entry:
    """Extend a row of float32 kernels to small weights of any type."""

    def refusal(node: Node, graph: OpGraph) -> str | None:
        weights = (name for name in node.inputs if name != ABSENT and vectors.is_weight(graph.buffers[name]))
        return next(filter(None, (check_vector(tuning, graph, name) for name in weights)), None)

    return vectors.accept_any_vectors(entry, partial(make_dequantise_launch, tuning), refusal)
