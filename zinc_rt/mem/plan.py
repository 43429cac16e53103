"""The memory plan: the location of every buffer of a graph, decided before anything is allocated.

There is one allocation per class of weight, constant, state, table and output (`model.attn.q_weight[*]`: all
layers together), one for the whole step block, and one arena for the activations. Buffers that share arena bytes
are ordered only by the nodes that access them: lowering must treat overlapping placements as the same memory.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from zinc_rt.host.errors import InputError
from zinc_rt.ir.dtypes import count_row_bytes
from zinc_rt.ir.graph import ABSENT, BufferSpec, OpGraph, Role, maximum_dim
from zinc_rt.mem.arena import Lifetime, align_up, compute_floor_bytes, pack_lifetimes
from zinc_rt.mem.heaps import ROLE_HEAPS, BufferHeap

FORMAT = 1
STEP = "step"
ARENA = "activation"
_INDEX = re.compile(r"\[[^]]*\]")
LINGER_NODES = 16
LINGER_TOKENS = 16  # a step of more keeps the units busy as it is, and its values are large
STEP_ALIGNMENT = 16  # the block is small and written in one go; four dwords keep vector loads legal


@dataclass(frozen=True, slots=True)
class Allocation:
    """An allocation. `payload_bytes` belong to a buffer at some time; the rest is padding."""

    heap: BufferHeap
    size_bytes: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class BufferPlacement:
    allocation: str
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class HeapUsage:
    payload_bytes: int
    padding_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.payload_bytes + self.padding_bytes


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    graph: str
    capacity: Mapping[str, int]
    alignment: int
    tap: bool
    allocations: Mapping[str, Allocation]
    placements: Mapping[str, BufferPlacement]  # by buffer name
    arena_floor_bytes: int  # the most activation bytes alive at one node

    def usage(self) -> dict[BufferHeap, HeapUsage]:
        """Return the exact bytes in each heap."""
        return {heap: self._compute_heap_usage(heap) for heap in BufferHeap}

    def _compute_heap_usage(self, heap: BufferHeap) -> HeapUsage:
        allocations = [allocation for allocation in self.allocations.values() if allocation.heap is heap]
        payload = sum(allocation.payload_bytes for allocation in allocations)
        return HeapUsage(payload, sum(allocation.size_bytes for allocation in allocations) - payload)

    @property
    def total_bytes(self) -> int:
        return sum(allocation.size_bytes for allocation in self.allocations.values())

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for JSON, readable by `from_dict`. `usage` is derived and only informative."""
        return {
            "format": FORMAT,
            "graph": self.graph,
            "capacity": dict(self.capacity),
            "alignment": self.alignment,
            "tap": self.tap,
            "arena_floor_bytes": self.arena_floor_bytes,
            "usage": {
                heap.value: {"payload_bytes": use.payload_bytes, "padding_bytes": use.padding_bytes}
                for heap, use in self.usage().items()
            },
            "allocations": {
                name: {"heap": a.heap.value, "size_bytes": a.size_bytes, "payload_bytes": a.payload_bytes}
                for name, a in self.allocations.items()
            },
            "placements": {
                name: {"allocation": p.allocation, "offset_bytes": p.offset_bytes, "size_bytes": p.size_bytes}
                for name, p in self.placements.items()
            },
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> MemoryPlan:
        """Return the plan written by `as_dict`. Raise InputError for another format or a malformed plan."""
        if data.get("format") != FORMAT:
            raise InputError(f"memory plan: format {data.get('format')}; this build reads {FORMAT}")
        try:
            plan = MemoryPlan(
                data["graph"],
                MappingProxyType(dict(data["capacity"])),
                data["alignment"],
                data["tap"],
                MappingProxyType(
                    {
                        name: Allocation(BufferHeap(row["heap"]), row["size_bytes"], row["payload_bytes"])
                        for name, row in data["allocations"].items()
                    }
                ),
                MappingProxyType({name: BufferPlacement(**row) for name, row in data["placements"].items()}),
                data["arena_floor_bytes"],
            )
            plan.check_ranges()
            return plan
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"memory plan is malformed: {type(error).__name__}: {error}") from error

    def check_ranges(self) -> None:
        """Check every placement. Raise KeyError, TypeError or ValueError if a buffer is not inside its
        allocation.
        """
        for name, placement in self.placements.items():
            size = self.allocations[placement.allocation].size_bytes
            if not 0 <= placement.offset_bytes <= placement.offset_bytes + placement.size_bytes <= size:
                raise ValueError(
                    f"{name} at {placement.offset_bytes} exceeds {placement.allocation} of {size} bytes"
                )

    @staticmethod
    def from_json(text: str) -> MemoryPlan:
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InputError(f"memory plan is not JSON: {error}") from error
        if not isinstance(data, dict):
            raise InputError(f"memory plan is a JSON {type(data).__name__}, expected an object")
        return MemoryPlan.from_dict(data)


def plan_memory(
    graph: OpGraph,
    *,
    capacity: Mapping[str, int],
    tap: bool = False,
    alignment: int = 256,
    linger: int = 0,
    heaps: Mapping[Role, BufferHeap] = ROLE_HEAPS,
) -> MemoryPlan:
    """Place every buffer of a verified graph.

    `capacity` gives each symbol its maximum. `tap` keeps every activation until the end, so no bytes are reused.
    `linger` is the number of nodes after the last use of a value for which its bytes are not reused, so that those
    nodes need not wait for each other. Raise InputError for a symbol without capacity, a dtype without whole
    blocks or an unknown role.
    """
    if alignment < STEP_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"alignment must be a power of two of at least {STEP_ALIGNMENT}, not {alignment}")
    sizes = {spec.name: count_buffer_bytes(spec, capacity) for spec in graph.buffers.values()}
    allocations: dict[str, Allocation] = {}
    placements: dict[str, BufferPlacement] = {}

    groups: dict[str, list[BufferSpec]] = {}
    for spec in graph.buffers.values():
        if spec.role not in heaps:
            raise InputError(f"{spec.name}: unknown role {spec.role}")
        groups.setdefault(name_allocation(spec), []).append(spec)
    floor = 0
    for name, specs in groups.items():
        heap = heaps[specs[0].role]
        if name == ARENA:
            lifetimes = _compute_lifetimes(graph, specs, sizes, alignment, linger)
            floor = compute_floor_bytes(lifetimes)
            offsets = (
                _place_in_sequence([life.size_bytes for life in lifetimes], 1)
                if tap
                else pack_lifetimes(lifetimes)
            )
        else:
            step = STEP_ALIGNMENT if name == STEP else alignment
            offsets = _place_in_sequence([sizes[spec.name] for spec in specs], step)
        for spec, offset in zip(specs, offsets, strict=True):
            placements[spec.name] = BufferPlacement(name, offset, sizes[spec.name])
        ranges = [(offset, offset + sizes[spec.name]) for spec, offset in zip(specs, offsets, strict=True)]
        end = align_up(max(end for _, end in ranges), alignment)
        allocations[name] = Allocation(heap, end, _count_covered(ranges))
    return MemoryPlan(
        graph.name,
        MappingProxyType(dict(capacity)),
        alignment,
        tap,
        MappingProxyType(allocations),
        MappingProxyType({name: placements[name] for name in graph.buffers}),
        floor,
    )


def choose_linger(capacity: Mapping[str, int]) -> int:
    """Return the `linger` value for steps of this many tokens."""
    return LINGER_NODES if capacity["tokens"] <= LINGER_TOKENS else 0


def name_allocation(spec: BufferSpec) -> str:
    """Return a buffer's allocation: "weight/model.attn.q_weight[*]", "step", "activation". No buffer name contains
    a slash."""
    if spec.role in (STEP, ARENA):
        return spec.role
    return f"{spec.role}/{_INDEX.sub('[*]', spec.name)}"


def count_buffer_bytes(spec: BufferSpec, capacity: Mapping[str, int]) -> int:
    """Return a buffer's bytes at full capacity. Raise InputError as plan_memory does."""
    dims: list[int] = []
    for dim in spec.shape:
        value = maximum_dim(dim, capacity)
        if value is None:
            raise InputError(f"{spec.name}: no capacity given for {dim!r}; given: {', '.join(capacity) or 'none'}")
        if value < 1:
            raise InputError(f"{spec.name}: dimension {dim!r} is {value}; it must be at least 1")
        dims.append(value)
    *rows, last = dims or [1]
    try:
        return math.prod(rows) * count_row_bytes(spec.dtype, last)
    except KeyError as error:
        raise InputError(f"{spec.name}: unknown dtype {spec.dtype!r}") from error
    except ValueError as error:
        raise InputError(f"{spec.name}: {error}") from error


def _place_in_sequence(sizes: list[int], alignment: int) -> list[int]:
    offsets: list[int] = []
    end = 0
    for size in sizes:
        offsets.append(end)
        end = align_up(end + size, alignment)
    return offsets


def _compute_lifetimes(
    graph: OpGraph, specs: list[BufferSpec], sizes: Mapping[str, int], alignment: int, linger: int
) -> list[Lifetime]:
    """Return each buffer's lifetime, from the first node that uses it to `linger` nodes after the last use.

    A buffer that no node uses keeps its bytes throughout.
    """
    span: dict[str, tuple[int, int]] = {}
    for index, node in enumerate(graph.nodes):
        for name in (*node.inputs, *node.outputs):
            if name != ABSENT:
                span[name] = (span.get(name, (index, index))[0], index + linger)
    everywhere = (0, max(0, len(graph.nodes) - 1))
    return [Lifetime(*span.get(spec.name, everywhere), align_up(sizes[spec.name], alignment)) for spec in specs]


def _count_covered(ranges: list[tuple[int, int]]) -> int:
    """Return the number of bytes inside at least one range."""
    covered = reached = 0
    for begin, end in sorted(ranges):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered
