"""The memory traffic of one step of a sequence by class of buffer, computed from the graph alone.

Weights, the host's constants, cached keys and values and recurrent state are counted once for each node that reads
them. Activations and the step block are not counted, because they are small. A weight read by two nodes counts
twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from zinc_rt.ir.graph import ABSENT, BufferSpec, Node, OpGraph
from zinc_rt.ir.op import OPS, Op, list_forms
from zinc_rt.mem.plan import count_buffer_bytes, name_allocation

Kind = Literal["weight", "constant", "kv", "state"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of one class of buffers of one type (all layers together)."""

    kind: Kind
    name: str  # as the memory plan's allocation: model.attn.q_weight[*]
    dtype: str
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class _Read:
    """One node's operand, in a step of several tokens. The last token of each sequence is at `position`."""

    node: Node
    spec: BufferSpec
    graph: OpGraph
    position: int
    tokens: int
    sequences: int

    @property
    def whole_bytes(self) -> int:
        return count_buffer_bytes(self.spec, {})

    @property
    def row_bytes(self) -> int:
        """Return the bytes of one row of a table, one expert, one slot's state, one token's keys."""
        return self.whole_bytes // int(self.spec.shape[0])

    def find_operand(self, name: str) -> BufferSpec:
        ports = [port.name for port in OPS[self.node.op].inputs]
        return self.graph.buffers[self.node.inputs[ports.index(name)]]


def _count_row_per_sequence(read: _Read) -> int:
    return read.row_bytes * min(read.sequences, int(read.spec.shape[0]))


def _count_row_per_token(read: _Read) -> int:
    return read.row_bytes * min(read.tokens, int(read.spec.shape[0]))


def _count_expert_rows(read: _Read) -> int:
    """Return the bytes of the distinct experts that the tokens choose, each once: the expected number if every
    token chooses independently and evenly."""
    experts = int(read.spec.shape[0])
    chosen = read.node.attrs["k"] if read.node.op is Op.MOE_GATE_TOPK else read.find_operand("ids").shape[1]
    missed = (1 - int(chosen) / experts) ** read.tokens
    return round(read.row_bytes * experts * (1 - missed))


def _count_keys_read(read: _Read) -> int:
    window = read.node.attrs.get("window", 0)
    assert isinstance(window, int)
    seen = read.position + 1
    return read.sequences * read.row_bytes * (min(seen, window) if window else seen)


def _count_nothing(read: _Read) -> int:
    return 0


_ROPE_TABLES = ("cos", "sin")
_PLAIN_KV = ("kv_k", "kv_v")
_RECURRENT = (
    Op.SSM_CONV1D,
    Op.SSM_DELTA_NET,
    Op.SSM_SCAN,
    Op.SSM_CONV1D_UPDATE,
    Op.SSM_CONV1D_UPDATE_IDS,
    Op.MATMUL_FUSED_CONV1D_IDS,
    Op.SSM_DELTA_NET_INPLACE,
    Op.SSM_DELTA_NET_INPLACE_IDS,
)

# Operands that a token reads only a part of. Every other weight and constant is read whole.
PARTLY_READ: dict[tuple[Op, str], Callable[[_Read], int]] = {
    (Op.EMBED, "table"): _count_row_per_token,
    (Op.ROW_SCALE, "table"): _count_row_per_token,
    **{
        (op, name): _count_row_per_token
        for op in (Op.ROPE, Op.RMS_NORM_FUSED_ROPE_KV_WRITE, Op.QKV_FUSED_ROPE_KV_WRITE)
        for name in _ROPE_TABLES
    },
    **{
        (op, name): _count_expert_rows
        for op in list_forms(Op.MOE_GATE_UP)
        for name in ("gate_w", "up_w", "gate_scale", "up_scale")
    },
    **{
        (Op.MOE_GATE_TOPK, name): _count_expert_rows
        for name in ("expert_gate_w", "expert_up_w", "gate_scale", "up_scale")
    },
    **{
        (op, name): _count_expert_rows for op in list_forms(Op.MOE_DOWN_ACC) for name in ("down_w", "expert_scale")
    },
    **{(op, name): _count_keys_read for op in (Op.FLASH_ATTN, Op.FLASH_ATTN_BATCHED) for name in _PLAIN_KV},
    (Op.MLA_FLASH_ATTN, "kv_latent"): _count_keys_read,
    (Op.MLA_FLASH_ATTN, "kv_pe"): _count_keys_read,
    **{
        (op, name): _count_nothing
        for op in (Op.KV_WRITE_BATCHED, Op.RMS_NORM_FUSED_ROPE_KV_WRITE, Op.QKV_FUSED_ROPE_KV_WRITE)
        for name in _PLAIN_KV
    },
    **{(op, "state"): _count_row_per_sequence for op in _RECURRENT},
    (Op.LOAD_REQUEST_STATE, "table"): _count_row_per_sequence,
    (Op.STORE_REQUEST_STATE, "table"): _count_nothing,
}


def list_decode_traffic(
    graph: OpGraph, *, position: int, tokens: int = 1, sequences: int = 1
) -> tuple[Traffic, ...]:
    """Return the traffic of one token of one request at `position`, weights first.

    `graph`: a model's decode stage; for `tokens` together, in equal parts of `sequences` that each end at
    `position`, its prefill stage. Data that they share is read once.

    Raise KeyError for a state operand without a rule.
    """
    totals: dict[tuple[str, str], Traffic] = {}

    def add(spec: BufferSpec, read: int, written: int) -> None:
        name = name_allocation(spec).partition("/")[2]
        known = totals.get((name, spec.dtype), Traffic(_buffer_kind(spec), name, spec.dtype, 0, 0))
        totals[name, spec.dtype] = replace(
            known, read_bytes=known.read_bytes + read, written_bytes=known.written_bytes + written
        )

    for node in graph.nodes:
        for port, name in zip(OPS[node.op].inputs, node.inputs, strict=False):  # BARRIER has no ports
            if name == ABSENT or graph.buffers[name].role not in ("weight", "constant", "state"):
                continue
            read = _Read(node, graph.buffers[name], graph, position, tokens, sequences)
            rule = PARTLY_READ.get((node.op, port.name))
            if rule is None and read.spec.role == "state":
                raise KeyError(f"{node!r}: mem/traffic.py has no row for how much of {name} it reads")
            add(read.spec, rule(read) if rule else read.whole_bytes, 0)
        for port, name in zip(OPS[node.op].outputs, node.outputs, strict=False):
            if port.inplace is not None and graph.buffers[name].role == "state":
                spec = graph.buffers[name]
                rows = tokens if _buffer_kind(spec) == "kv" else sequences
                add(spec, 0, rows * _Read(node, spec, graph, position, tokens, sequences).row_bytes)
    order = ("weight", "constant", "kv", "state")
    return tuple(sorted(totals.values(), key=lambda row: order.index(row.kind)))


def _buffer_kind(spec: BufferSpec) -> Kind:
    if spec.role == "weight":
        return "weight"
    if spec.role == "constant":
        return "constant"
    return "kv" if spec.name.startswith("state.kv_") else "state"
