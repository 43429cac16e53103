"""Mamba's selective scan: a node to its launch. The state is read and written as rows of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, Launch, Ref
from zinc_rt.kernels.rows.operands import F32, find_last_dim, row_shape
from zinc_rt.kernels.rows.tuning import Tuning


def scan(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch]:
    u, dt, b, c, a, d, state, sequence = map(Ref, node.inputs)
    y, new_state = map(Ref, node.outputs)
    channels, states = row_shape(graph, u.name)[1], find_last_dim(graph, a.name)
    in_registers = states <= tuning.scan_states_maximum
    yield Launch(
        "ssm_scan" if in_registers else "ssm_scan_any",
        (u, dt, b, c, a, d, state, new_state, sequence, y, Ref(COUNTS)),
        (channels, states),
        (-(-channels // tuning.scan_channels) if in_registers else channels, "sequences", 1),
    )


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    return (Entry(Op.SSM_SCAN, partial(scan, tuning), tuning.orderings, F32),)
