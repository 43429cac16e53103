"""MATMUL_WMMA_F16, MATMUL_WMMA_Q4K: refused, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import Launch
from zinc_rt.kernels.rows.tuning import Tuning


def _make_launches(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    raise AssertionError(f"{node!r} is not supported")


def _check_node(node: Node, graph: OpGraph) -> str:
    return f"{node.op.name} sums in the order of a chip's matrix instruction, not canonical-1: use MATMUL"


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return tuple(
        Entry(op, _make_launches, tuning.orderings, rejects=_check_node)
        for op in (Op.MATMUL_WMMA_F16, Op.MATMUL_WMMA_Q4K)
    )
