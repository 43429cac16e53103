"""Convolution and the gated delta rule: nodes to launches, in every form of the recurrent state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod, sqrt

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.launch import COUNTS, SYNC, Launch, Ref, Sync, Temp
from zinc_rt.kernels.rows.elementwise import make_rowwise_launch
from zinc_rt.kernels.rows.matvec import check_projection_weights, make_projection_entries
from zinc_rt.kernels.rows.norm import make_norm_launch
from zinc_rt.kernels.rows.operands import F32, Buffer, Count, find_row_bytes, row_shape
from zinc_rt.kernels.rows.projections import make_convolution_code
from zinc_rt.kernels.rows.tuning import Tuning


@dataclass(frozen=True, slots=True)
class _State:
    """The location of a recurrence's state: buffers of rows to read and to write, and each sequence's row in
    them.
    """

    old: Buffer
    new: Buffer
    source: Buffer | None
    target: Buffer | None
    scatter: Launch | None = None  # afterwards, from a temporary to the rows of `target`


def _make_state(
    tuning: Tuning,
    node: Node,
    graph: OpGraph,
    capacity: Mapping[str, int],
    state: str,
    source: str = "",
    target: str = "",
) -> _State:
    """Return the state's location. With ids, all rows are read before any is written; if rows may overlap, a
    temporary is used for several sequences.
    """
    out = Ref(node.outputs[1])
    if not source:
        return _State(Ref(state), out, None, None)
    sequences = capacity["sequences"]
    if sequences == 1 or node.attrs.get("disjoint", False):
        return _State(Ref(state), out, Ref(source), Ref(target))
    elements = prod(int(dim) for dim in graph.buffers[state].shape[1:])
    temp = Temp("state", 4 * sequences * elements)
    return _State(
        Ref(state), temp, Ref(source), None, make_rows_launch(tuning, "store_rows", temp, target, out, elements)
    )


def make_rows_launch(
    tuning: Tuning, kernel: str, a: Buffer, ids: str, b: Buffer, dwords: int, count: Count = "sequences"
) -> Launch:
    """Launch load_rows, b[s] = a[ids[s]], or store_rows, b[ids[s]] = a[s], with rows of `dwords` dwords, for each
    s < `count`, the length of `ids`."""
    return Launch(kernel, (a, Ref(ids), b), (dwords,), (-(-dwords // tuning.state_columns), count, 1))


def conv1d(
    tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int], x: Buffer | None = None
) -> Iterator[Launch | Sync]:
    """Return the launches of a convolution, of `x` instead of the node's first operand if it is given."""
    _, weight, state, sequence, *ids, bias = node.inputs
    channels, taps = (int(dim) for dim in graph.buffers[weight].shape)
    location = _make_state(tuning, node, graph, capacity, state, *ids)
    usual = taps == tuning.conv_taps
    constants = (channels, int(node.attrs.get("silu", True)))
    yield Launch(
        "conv1d" if usual else "conv1d_any",
        (
            x or Ref(node.inputs[0]),
            Ref(weight),
            location.old,
            location.new,
            Ref(sequence),
            location.source,
            location.target,
            None if bias == ABSENT else Ref(bias),
            Ref(node.outputs[0]),
            Ref(COUNTS),
        ),
        constants if usual else (*constants, taps),
        (-(-channels // tuning.state_columns), "sequences", 1),
    )
    if location.scatter is not None:
        yield SYNC
        yield location.scatter


def delta_net(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    conv_out, beta, alpha, dt_bias, a, state, sequence, *ids = node.inputs
    k_heads, v_heads, d = (int(node.attrs[name]) for name in ("k_heads", "v_heads", "head_dim"))
    tokens, row = capacity["tokens"], row_shape(graph, conv_out)[1]
    location = _make_state(tuning, node, graph, capacity, state, *ids)
    states = location.old, location.new, Ref(sequence), location.source, location.target
    grouped = v_heads // k_heads if node.attrs["grouping"] == "grouped" else 0
    in_registers = _is_register_sized(tuning, d)
    constants = (d, row, k_heads, v_heads, grouped, 1.0 / sqrt(d))
    grid = (-(-d // tuning.delta_values) if in_registers else d, v_heads, "sequences")
    if "delta_step" in tuning.own_kernels and in_registers and tokens <= tuning.fused_tokens:
        inputs = Ref(conv_out), Ref(beta), Ref(alpha), *states
        outputs = Ref(node.outputs[0]), Ref(COUNTS)
        vectors = Ref(dt_bias), Ref(a)
        yield Launch("delta_step", (*inputs, *outputs, *vectors), (*constants, float(node.attrs["eps"])), grid)
        if location.scatter is not None:
            yield SYNC
            yield location.scatter
        return
    unit = Temp("unit", 4 * tokens * 2 * k_heads * d)
    gates = Temp("gates", 8 * tokens * v_heads)
    heads, any_unit = 2 * k_heads, "delta_unit_any" in tuning.own_kernels and not in_registers
    yield Launch(
        "delta_unit_any" if any_unit else "delta_unit",
        (Ref(conv_out), unit),
        (d, row, heads, float(node.attrs["eps"])),
        (heads, "tokens", 1),
    )
    yield Launch(
        "delta_gates",
        (Ref(beta), Ref(alpha), Ref(dt_bias), Ref(a), gates),
        (v_heads,),
        (-(-v_heads // tuning.gate_heads), "tokens", 1),
    )
    yield SYNC
    yield Launch(
        "delta_net" if in_registers else "delta_net_any",
        (Ref(conv_out), unit, gates, *states, Ref(node.outputs[0]), Ref(COUNTS)),
        constants,
        grid,
    )
    if location.scatter is not None:
        yield SYNC
        yield location.scatter


def gated_norm(tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]) -> Iterator[Launch | Sync]:
    x, z, weight = node.inputs
    rows, columns = row_shape(graph, x)
    size = int(graph.buffers[weight].shape[0])
    eps = float(node.attrs["eps"])
    if "gated_norm" in tuning.own_kernels:
        buffers = Ref(x), Ref(weight), Ref(node.outputs[0]), Ref(z)
        yield Launch("gated_norm", buffers, (size, eps, columns), (columns // size, rows, 1))
        return
    normed = Temp("normed", 4 * capacity["tokens"] * columns)
    yield make_norm_launch(Ref(x), Ref(weight), normed, rows=rows, columns=columns, size=size, eps=eps)
    yield SYNC
    yield make_rowwise_launch(tuning, "swiglu", (Ref(z), normed, Ref(node.outputs[0])), rows, columns)


def load_request_state(
    tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    table, slot = node.inputs
    dwords, (count,) = find_row_bytes(graph, table) // 4, graph.buffers[slot].shape
    yield make_rows_launch(tuning, "load_rows", Ref(table), slot, Ref(node.outputs[0]), dwords, count)


def store_request_state(
    tuning: Tuning, node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> Iterator[Launch | Sync]:
    value, slot, table = node.inputs
    dwords, (count,) = find_row_bytes(graph, table) // 4, graph.buffers[slot].shape
    yield make_rows_launch(tuning, "store_rows", Ref(value), slot, Ref(node.outputs[0]), dwords, count)


def _is_register_sized(tuning: Tuning, d: int) -> bool:
    """Return whether delta_net can hold a row of a head's state in registers."""
    return d % 4 == 0 and d <= tuning.delta_head_maximum


def _check_convolution(tuning: Tuning, node: Node, graph: OpGraph) -> str | None:
    taps, bias = node.inputs[2], node.inputs[7]
    for name in (taps, bias):
        if name != ABSENT and graph.buffers[name].dtype != "f32":
            return f"{name} is {graph.buffers[name].dtype}, not f32"
    return check_projection_weights(tuning, node, graph)


def rows(tuning: Tuning) -> tuple[Entry, ...]:
    orderings = tuning.orderings
    conv, delta = partial(conv1d, tuning), partial(delta_net, tuning)
    return (
        *(
            Entry(op, conv, orderings, F32)
            for op in (Op.SSM_CONV1D, Op.SSM_CONV1D_UPDATE, Op.SSM_CONV1D_UPDATE_IDS)
        ),
        *(
            Entry(op, delta, orderings, F32)
            for op in (Op.SSM_DELTA_NET, Op.SSM_DELTA_NET_INPLACE, Op.SSM_DELTA_NET_INPLACE_IDS)
        ),
        *make_projection_entries(
            tuning, {Op.MATMUL_FUSED_CONV1D_IDS: make_convolution_code(conv)}, partial(_check_convolution, tuning)
        ),
        Entry(Op.SSM_GATED_NORM, partial(gated_norm, tuning), orderings, F32),
        Entry(Op.LOAD_REQUEST_STATE, partial(load_request_state, tuning), orderings),
        Entry(Op.STORE_REQUEST_STATE, partial(store_request_state, tuning), orderings),
    )
