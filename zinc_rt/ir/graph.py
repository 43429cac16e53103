"""The graph: named buffers and a list of nodes over them, immutable once built.

Buffers have logical names from the model: `model.attn.q_weight[3]`, `state.kv_k[3]`, `request[slot].position`,
`act.l_out[3]`. A dimension is an int or one of the symbols in SYMBOLS, whose value is in the step block of every
replay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from zinc_rt.ir.op import Op, with_absent

Dim = int | str
Shape = tuple[Dim, ...]
Attrs = Mapping[str, int | float | bool | str]
Role = Literal["weight", "constant", "state", "step", "activation", "output", "table"]  # new ones last: serial.py
Stage = Literal["prefill", "decode", "both"]
# A prompt's tokens have the prefill ordering if there is one, whatever their number in a step. All other tokens,
# drafts included, have the ordering of decodes, also if they are computed again after an eviction.
TokenRole = Literal["prompt", "decode"]

# What the host may vary without a new graph: tokens in the step, sequences they belong to, logit rows wanted,
# page-table entries that change, of the first page group and of the second. step.counts has them in this order; a
# graph or log of before may lack the last.
SYMBOLS = ("tokens", "sequences", "rows", "entries", "entries_1")
ENTRIES = SYMBOLS[3:]  # by page group
ABSENT = ""  # an optional operand that is not there


def maximum_dim(dim: Dim, capacity: Mapping[str, int]) -> int | None:
    """Return the largest value of a dimension; None for a symbol without capacity. `entries` need no separate
    capacity: every token of a step may begin a page, and every sequence may have received one before. The maximum
    of a second group equals that of the first.
    """
    if isinstance(dim, int):
        return dim
    if dim in ENTRIES and dim not in capacity:
        if dim != ENTRIES[0]:
            return maximum_dim(ENTRIES[0], capacity)
        if "tokens" in capacity:
            return capacity["tokens"] + capacity.get("sequences", 0)
    return capacity.get(dim)


_NAME = re.compile(r"[a-z_][a-z0-9_]*(\[[a-z0-9_]+\])?(\.[a-z_][a-z0-9_]*(\[[a-z0-9_]+\])?)*\Z")


def is_buffer_name(name: str) -> bool:
    return _NAME.match(name) is not None


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A buffer's name, shape, type and role.

    weight: from the file. constant: computed by the host once. state: lives across replays. step: written by the
    host before a replay. activation: within one replay. output: read by the host. table: lives across replays as
    state does; a step's first dispatch updates it.
    """

    name: str
    shape: Shape  # row-major, the last dimension contiguous
    dtype: str  # ggml's name, "f32" for activations, "i32" for indices
    role: Role


@dataclass(frozen=True, slots=True)
class Node:
    op: Op
    inputs: tuple[str, ...]  # ABSENT for an optional operand left out
    outputs: tuple[str, ...]
    attrs: Attrs = field(default_factory=dict)
    layer: int | None = None
    label: str = ""  # the value's common name, e.g. "l_out-3": llama.cpp's where it has one

    def __repr__(self) -> str:
        where = "" if self.layer is None else f" layer {self.layer}"
        return f"{self.op.name}{where} {self.label or '/'.join(self.outputs)}"


@dataclass(frozen=True)
class OpGraph:
    name: str
    stage: Stage
    buffers: Mapping[str, BufferSpec]
    nodes: tuple[Node, ...]

    def by_role(self, *roles: Role) -> Iterator[BufferSpec]:
        return (spec for spec in self.buffers.values() if spec.role in roles)


class Builder:
    """Builder of a graph: collects buffers and nodes; `build()` freezes them. It checks names only; ir.verify
    checks the rest."""

    def __init__(self, name: str, stage: Stage = "both") -> None:
        self.name = name
        self.stage: Stage = stage
        self._buffers: dict[str, BufferSpec] = {}
        self._nodes: list[Node] = []

    def buffer(self, name: str, shape: Shape, dtype: str, role: Role) -> str:
        """Declare a buffer and return its name. Repeating the same declaration has no effect.

        Raise ValueError for a malformed name or a different second declaration.
        """
        if not is_buffer_name(name):
            raise ValueError(f"{name!r} is not a buffer name; expected a name like model.attn.q_weight[3]")
        spec = BufferSpec(name, tuple(shape), dtype, role)
        known = self._buffers.setdefault(name, spec)
        if known != spec:
            raise ValueError(f"{name} is already declared as {known}, not {spec}")
        return name

    def spec(self, name: str) -> BufferSpec:
        return self._buffers[name]

    def has(self, name: str) -> bool:
        return name in self._buffers

    def node(
        self,
        op: Op,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        *,
        layer: int | None = None,
        label: str = "",
        **attrs: int | float | bool | str,
    ) -> None:
        argument = with_absent(op, tuple(inputs))
        self._nodes.append(Node(op, argument, tuple(outputs), MappingProxyType(dict(attrs)), layer, label))

    def build(self) -> OpGraph:
        return OpGraph(self.name, self.stage, MappingProxyType(dict(self._buffers)), tuple(self._nodes))
