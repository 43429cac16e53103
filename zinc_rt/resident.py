"""What lies on a device for one model: its weights and state, and the variants built over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zinc_rt.backends.base import Backend
from zinc_rt.exec import Buffer, Graph
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import SYMBOLS
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import Program, lower
from zinc_rt.mem.heaps import ROLE_HEAPS, Heap
from zinc_rt.mem.plan import plan_memory

Counts = tuple[int, int, int]  # of a step, in the order of SYMBOLS: tokens, sequences, rows
NUMPY_DTYPES = {"f32": np.dtype(np.float32), "i32": np.dtype(np.int32)}
RESIDENT = ("weight", "constant")  # roles that are uploaded, not allocated by the plan
CACHE = "state/state.kv_"  # a query sees only rows that were written
TAPPED_HEAPS = {**ROLE_HEAPS, "activation": Heap.BAR}  # the host looks at them


@dataclass(frozen=True, slots=True)
class Variant:
    """One lowered graph of one capacity, and the host's way to its buffers."""

    replays: Graph
    key: tuple[int, ...]
    program: Program
    built: Any = None  # the backend's own

    @property
    def graph(self) -> ir.Graph:
        return self.program.graph

    def write(self, name: str, data: np.ndarray | bytes, *, offset_bytes: int = 0) -> None:
        """Into a buffer by its logical name; refused while a replay may still read it (exec.InFlight)."""
        place = self.program.plan.placements[name]
        self.replays.write(port(place.allocation, self.key), place.offset_bytes + offset_bytes, data)

    def read(self, name: str, counts: Counts) -> np.ndarray:
        """A view of the rows a step of `counts` filled, valid until the next replay."""
        spec, place = self.graph.buffers[name], self.program.plan.placements[name]
        capacity = self.program.plan.capacity
        shape = tuple(capacity[dim] if isinstance(dim, str) else dim for dim in spec.shape)
        view = self.replays.view(port(place.allocation, self.key))
        flat = np.frombuffer(view, NUMPY_DTYPES[spec.dtype], int(np.prod(shape)), place.offset_bytes)
        return flat.reshape(shape)[: self.shape(name, counts)[0]]

    def shape(self, name: str, counts: Counts) -> tuple[int, ...]:
        """A buffer's shape in a step of `counts`."""
        dims = self.graph.buffers[name].shape
        return tuple(counts[SYMBOLS.index(dim)] if isinstance(dim, str) else dim for dim in dims)


class Resident:
    """Weights go to the device with the first variant. State is shared by all, the rest is each one's own."""

    def __init__(
        self, backend: Backend, weights: Mapping[str, Weight], constants: Mapping[str, np.ndarray]
    ) -> None:
        self.backend = backend
        self._given = (weights, constants)
        self._weights: dict[str, Buffer] = {}
        self._state: dict[str, Buffer] = {}

    def build(
        self,
        graph: ir.Graph,
        key: tuple[int, ...],
        replays: Graph,
        *,
        tapped: bool = False,
        heaps: Mapping[ir.Role, Heap] | None = None,
        steps: int | None = None,
    ) -> Variant:
        """Plan, lower and build a verified graph for a capacity, and add it to `replays` under `key`: the most
        tokens, sequences and rows. `tapped`: no activation shares memory, and the host reaches them all. `heaps`
        instead of those that `tapped` stands for. `steps`: only so many of the program's, to look at what is left
        behind."""
        backend = self.backend
        capacity = dict(zip(SYMBOLS, key, strict=True))
        heaps = heaps or (TAPPED_HEAPS if tapped else ROLE_HEAPS)
        plan = plan_memory(graph, capacity=capacity, tap=tapped, heaps=heaps)
        program = lower(graph, backend.kernels.entries, plan, ordering=backend.ordering, tier=backend.spec.tier)
        if steps is not None:
            program = replace(program, steps=program.steps[:steps])
        if not self._weights:
            self._weights = backend.upload(*self._given)
        own: dict[str, Buffer] = {}
        for name, allocation in plan.allocations.items():
            role = name.partition("/")[0]
            if role in RESIDENT:
                continue
            kept = self._state if role == "state" else own
            if name not in kept:
                zeroed = role != "activation" and not name.startswith(CACHE)
                kept[name] = backend.alloc(allocation.size_bytes, allocation.heap, name, zeroed=zeroed)
            own[name] = kept[name]
        built = backend.build(program, {**self._weights, **own})
        replays.add(key, built)
        for name, buffer in own.items():
            replays.bind(port(name, key), buffer)
        return Variant(replays, key, program, built)


def port(allocation: str, key: tuple[int, ...]) -> str:
    """Variants of one graph have step blocks and outputs of their own."""
    return f"{allocation}@{','.join(map(str, key))}"
