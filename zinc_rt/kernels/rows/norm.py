"""RMS norms: nodes to launches. norm.inc describes the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch, Ref
from zinc_rt.kernels.rows.operands import F32, Buffer, Count, row_shape
from zinc_rt.kernels.rows.tuning import Tuning


def norm_launch(
    x: Buffer, weight: Buffer | None, y: Buffer, *, rows: Count, columns: int, size: int, eps: float
) -> Launch:
    """y = RMS_NORM of x, f32 [rows, columns], over groups of `size` neighbours; weight f32 [size] or none."""
    return Launch("rms_norm", (x, weight, y), (size, float(eps), columns), (columns // size, rows, 1))


def residual_norm_launch(
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
    """hidden = x + residual, y = RMS_NORM of it; f32 [rows, columns], weight f32 [columns]."""
    return Launch("residual_rms_norm", (x, residual, weight, y, hidden), (columns, float(eps)), (1, rows, 1))


def rms_norm(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, weight = node.inputs
    rows, columns = row_shape(graph, x)
    yield norm_launch(
        Ref(x),
        None if weight == ABSENT else Ref(weight),
        Ref(node.outputs[0]),
        rows=rows,
        columns=columns,
        size=int(node.attrs["size"]),
        eps=float(node.attrs["eps"]),
    )


def residual_rms_norm(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    x, residual, weight = (Ref(name) for name in node.inputs)
    hidden, y = (Ref(name) for name in node.outputs)
    rows, columns = row_shape(graph, node.inputs[0])
    eps = float(node.attrs["eps"])
    yield residual_norm_launch(x, residual, weight, hidden, y, rows=rows, columns=columns, eps=eps)


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (
        Entry(Op.RMS_NORM, rms_norm, tuning.orderings, F32),
        Entry(Op.RESIDUAL_RMS_NORM, residual_rms_norm, tuning.orderings, F32),
    )
