"""MATMUL_WMMA_F16, MATMUL_WMMA_Q4K: refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch
from zinc_rt.kernels.rows.tuning import Tuning


def _launches(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    raise AssertionError(f"{node!r} is not supported")


def _refusal(node: Node, graph: OpGraph) -> str:
    return f"{node.op.name} sums in the order of a chip's matrix instruction, not canonical-1: use MATMUL"


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return tuple(
        Entry(op, _launches, tuning.orderings, rejects=_refusal) for op in (Op.MATMUL_WMMA_F16, Op.MATMUL_WMMA_Q4K)
    )
