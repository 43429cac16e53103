"""Norms: nodes to launches. norm.inc describes the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.rows.elementwise import make_rowwise_launch
from zinc_rt.kernels.rows.operands import F32, Buffer, Count, row_shape
from zinc_rt.kernels.rows.tuning import Tuning


def make_norm_launch(
    x: Buffer, weight: Buffer | None, y: Buffer, *, rows: Count, columns: int, size: int, eps: float
) -> Launch:
    """Launch y = RMS_NORM of x, f32 [rows, columns], over groups of `size` neighbours; weight f32 [size] or
    none.
    """
    return Launch("rms_norm", (x, weight, y), (size, float(eps), columns), (columns // size, rows, 1))


def make_residual_norm_launch(
    x: Buffer,
    residual: Buffer,
    weight: Buffer,
    hidden: Buffer,
    y: Buffer,
    *,
    rows: Count,
    columns: int,
    eps: float,
) -> Launch:
    """Launch hidden = x + residual, y = RMS_NORM of it; f32 [rows, columns], weight f32 [columns]."""
    return Launch("residual_rms_norm", (x, residual, weight, y, hidden), (columns, float(eps)), (1, rows, 1))


def rms_norm(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    x, weight, residual = node.inputs
    rows, columns = row_shape(graph, x)
    out = Ref(node.outputs[0])
    in_one = residual != ABSENT and "rms_norm_sum" in tuning.own_kernels
    apart = residual != ABSENT and not in_one
    normed = Temp("normed", 4 * columns * (capacity[rows] if isinstance(rows, str) else rows)) if apart else out
    launch = make_norm_launch(
        Ref(x),
        None if weight == ABSENT else Ref(weight),
        normed,
        rows=rows,
        columns=columns,
        size=int(node.attrs["size"]),
        eps=float(node.attrs["eps"]),
    )
    if in_one:
        launch = replace(launch, kernel="rms_norm_sum", buffers=(*launch.buffers, Ref(residual)))
    yield launch
    if apart:
        yield SYNC
        yield make_rowwise_launch(tuning, "add", (Ref(residual), normed, out), rows, columns)


def residual_rms_norm(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, residual, weight = (Ref(name) for name in node.inputs)
    hidden, y = (Ref(name) for name in node.outputs)
    rows, columns = row_shape(graph, node.inputs[0])
    eps = float(node.attrs["eps"])
    yield make_residual_norm_launch(x, residual, weight, hidden, y, rows=rows, columns=columns, eps=eps)


def layer_norm(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, weight, bias = node.inputs
    rows, columns = row_shape(graph, x)
    buffers = (Ref(x), Ref(weight), None if bias == ABSENT else Ref(bias), Ref(node.outputs[0]))
    yield Launch("layer_norm", buffers, (columns, float(node.attrs["eps"])), (1, rows, 1))


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (
        Entry(Op.RMS_NORM, partial(rms_norm, tuning), tuning.orderings, F32),
        Entry(Op.RESIDUAL_RMS_NORM, residual_rms_norm, tuning.orderings, F32),
        Entry(Op.LAYER_NORM, layer_norm, tuning.orderings, F32),
    )
