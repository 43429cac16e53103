"""Recurrences: nodes to launches of convolution.c, delta_net.c and scan.c, in every form of the state.

Plain forms read one buffer and write another. In-place forms have one buffer, whose row s belongs to sequence s.
With ids, sequence s reads row source[s] and writes row target[s]. All rows are read before any is written, so
several sequences need a temporary unless the node guarantees that its rows are disjoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.native.rows.table_store import make_rows_launch
from zinc_rt.kernels.native.vectors import make_matrix_operands
from zinc_rt.kernels.rows.operands import F32, Buffer, find_last_dim, row_shape
from zinc_rt.kernels.rows.tuning import Tuning

CONV_CHANNELS = 256  # per item: convolution.c
TAPS = 32  # maximum: convolution.c
SCAN_CHANNELS = 16  # scan.c's
VALUES = 16  # rows of a head's state per item: delta_net.c

Launches = Iterator[Launch | Sync]


@dataclass(frozen=True, slots=True)
class _States:
    """`states` of recurrent.h. `scatter`: the copy from the temporary to the target rows that follows."""

    buffers: tuple[Buffer | None, ...]
    sizes: tuple[int, int]
    scatter: Launch | None = None


def _make_states(
    node: Node, graph: OpGraph, capacity: Mapping[str, int], state: str, sequence: str, *ids: str
) -> _States:
    out = node.outputs[1]
    rows, row_elements = _rows(graph, capacity, state), row_shape(graph, state)[1]
    steps = Ref(sequence), Ref(COUNTS)
    if not ids:
        made_rows = _rows(graph, capacity, out)
        return _States((Ref(state), Ref(out), None, None, *steps), (rows, made_rows))
    source, target = ids
    sequences = capacity["sequences"]
    if sequences == 1 or node.attrs.get("disjoint", False):
        return _States((Ref(state), Ref(out), Ref(source), Ref(target), *steps), (rows, rows))
    temp = Temp("state", 4 * sequences * row_elements)
    return _States(
        (Ref(state), temp, Ref(source), None, *steps),
        (rows, sequences),
        make_rows_launch("store_rows", temp, target, Ref(out), row_bytes=4 * row_elements, rows=rows),
    )


def _rows(graph: OpGraph, capacity: Mapping[str, int], state: str) -> int:
    rows = row_shape(graph, state)[0]
    return capacity[rows] if isinstance(rows, str) else rows


def _scatter_launches(states: _States) -> Launches:
    if states.scatter is not None:
        yield SYNC
        yield states.scatter


def conv1d(node: Node, graph: OpGraph, capacity: Mapping[str, int], x: Buffer | None = None) -> Launches:
    _, weight, state, sequence, *ids, bias = node.inputs
    channels, taps = (int(dim) for dim in graph.buffers[weight].shape)
    states = _make_states(node, graph, capacity, state, sequence, *ids)
    launch = Launch(
        "conv1d",
        (
            x or Ref(node.inputs[0]),
            *make_matrix_operands(graph, weight),
            None if bias == ABSENT else Ref(bias),
            Ref(node.outputs[0]),
            *states.buffers,
        ),
        (*states.sizes, channels, taps, int(node.attrs.get("silu", True))),
        (-(-channels // CONV_CHANNELS), "sequences", 1),
    )
    yield launch
    yield from _scatter_launches(states)


def delta_net(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    conv_out, beta, alpha, dt_bias, a, state, sequence, *ids = node.inputs
    k_heads, v_heads, d = (int(node.attrs[name]) for name in ("k_heads", "v_heads", "head_dim"))
    tokens, columns = capacity["tokens"], row_shape(graph, conv_out)[1]
    unit = Temp("unit", 4 * tokens * 2 * k_heads * d)
    gates = Temp("gates", 8 * tokens * v_heads)
    states = _make_states(node, graph, capacity, state, sequence, *ids)
    eps = float(node.attrs["eps"])
    grouped = v_heads // k_heads if node.attrs["grouping"] == "grouped" else 0
    steps = (
        Launch("delta_unit", (Ref(conv_out), unit), (d, columns, 2 * k_heads, eps), (2 * k_heads, "tokens", 1)),
        Launch("delta_gates", (Ref(beta), Ref(alpha), Ref(dt_bias), Ref(a), gates), (v_heads,), ("tokens", 1, 1)),
        SYNC,
        Launch(
            "delta_net",
            (Ref(conv_out), unit, gates, Ref(node.outputs[0]), *states.buffers),
            (*states.sizes, d, columns, k_heads, v_heads, grouped, 1.0 / sqrt(d)),
            (-(-d // VALUES), v_heads, "sequences"),
        ),
    )
    yield from steps
    yield from _scatter_launches(states)


def gated_norm(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    x, z, weight = node.inputs
    rows, columns = row_shape(graph, x)
    size = find_last_dim(graph, weight)
    launch = Launch(
        "gated_norm",
        (Ref(x), Ref(z), Ref(weight), Ref(node.outputs[0])),
        (size, float(node.attrs["eps"])),
        (columns // size, rows, 1),
    )
    yield launch


def scan(node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Launches:
    u, dt, b, c, a, d, state, sequence = node.inputs
    channels, n = (int(dim) for dim in graph.buffers[a].shape)
    states = _make_states(node, graph, capacity, state, sequence)
    launch = Launch(
        "scan",
        (
            *(Ref(name) for name in (u, dt, b, c)),
            *make_matrix_operands(graph, a),
            Ref(d),
            Ref(node.outputs[0]),
            *states.buffers,
        ),
        (*states.sizes, channels, n),
        (-(-channels // SCAN_CHANNELS), "sequences", 1),
    )
    yield launch


def _check_conv(node: Node, graph: OpGraph) -> str | None:
    return check_taps(graph, node.inputs[1])


def check_taps(graph: OpGraph, weight: str) -> str | None:
    """Return why no convolution with a weight is possible."""
    taps = find_last_dim(graph, weight)
    if taps > TAPS:
        return f"a convolution with {taps} taps; the kernel supports at most {TAPS}"
    return None


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    conv = (Op.SSM_CONV1D, Op.SSM_CONV1D_UPDATE, Op.SSM_CONV1D_UPDATE_IDS)
    delta = (Op.SSM_DELTA_NET, Op.SSM_DELTA_NET_INPLACE, Op.SSM_DELTA_NET_INPLACE_IDS)
    return (
        *(Entry(op, conv1d, tuning.orderings, F32, rejects=_check_conv) for op in conv),
        *(Entry(op, delta_net, tuning.orderings, F32) for op in delta),
        Entry(Op.SSM_GATED_NORM, gated_norm, tuning.orderings, F32),
        Entry(Op.SSM_SCAN, scan, tuning.orderings, F32),
    )
