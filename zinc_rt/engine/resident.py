"""The device memory of one model: weights, state, and the variants that use them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zinc_rt.backends.base import Backend
from zinc_rt.exec import Buffer, Fence, Graph, InFlight, Observer, Stream, Usage
from zinc_rt.ir import graph as ir
from zinc_rt.ir.dtypes import find_array_layout
from zinc_rt.ir.graph import SYMBOLS
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph, PlannedGraph, lower
from zinc_rt.mem.heaps import ROLE_HEAPS, BufferHeap
from zinc_rt.mem.plan import ARENA, STEP, Allocation, MemoryPlan, choose_linger, plan_memory

Counts = Sequence[int]  # of a step, in the order of SYMBOLS; those of old logs end early
NUMPY_DTYPES = {"f32": np.dtype(np.float32), "i32": np.dtype(np.int32)}  # of what a step reads or writes
RESIDENT = ("weight", "constant")  # roles that are uploaded, not allocated by the plan
KEPT: tuple[ir.Role, ...] = ("state", "table")  # roles that live across replays, shared by all variants
MAX_VARIANTS = 64  # of one graph
CACHE = "state/state.kv_"  # a query sees only rows that were written
PAGE_TABLES = "table/state.page_table"
TAPPED_HEAPS = {**ROLE_HEAPS, "activation": BufferHeap.BAR}  # the host looks at them


@dataclass(eq=False, slots=True)
class Arena:
    """Activation memory shared by variants that are never in flight together. All their buffers have its
    usage flags."""

    buffer: Buffer
    usage: Usage
    users: int = 0
    last: Any = None  # the executable that ran in it last, and nothing was built over it since


@dataclass(frozen=True, slots=True)
class _Place:
    """The location of a buffer for the host: rows of `inner` elements, as many as the count `symbol`, or always
    `rows`.
    """

    port: str
    offset_bytes: int
    dtype: np.dtype[Any]
    symbol: int | None
    rows: int
    inner: tuple[int, ...]
    row_bytes: int


@dataclass(slots=True, eq=False)
class Variant:
    """A lowered graph of one capacity with host access to its buffers. `blocks`: step blocks that a runner
    keeps for it; `ran`: a replay has completed."""

    replays: Graph
    key: tuple[int, ...]
    made_of: LoweredGraph | PlannedGraph
    backend: Backend
    built: Any = None  # the backend's own
    buffers: Mapping[str, Buffer] = field(default_factory=dict)  # by allocation; state's are shared
    arena: Arena | None = None
    blocks: list[Any] = field(default_factory=list)
    ran: bool = False
    _step_port: str = field(init=False)
    _places: dict[str, _Place] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._step_port = port_name(STEP, self.key)

    @property
    def graph(self) -> ir.OpGraph:
        return self.made_of.graph

    @property
    def plan(self) -> MemoryPlan:
        return self.made_of.plan

    @property
    def program(self) -> LoweredGraph:
        """Return the lowered program. Raises ValueError for a variant read from the cache, which has only the
        dispatches."""
        if not isinstance(self.made_of, LoweredGraph):
            raise ValueError(f"{self.graph.name} has no lowered program, because it was read from the cache")
        return self.made_of

    def submit(self, stream: Stream) -> Fence:
        """Submit one replay. Data that another variant left in a shared arena counts as uninitialized
        afterwards. Raises InFlight while that variant runs."""
        arena = self.arena
        if arena is not None and arena.last is not self.built:
            if arena.last is not None and arena.usage.busy():
                raise InFlight(
                    f"{self.graph.name}: another variant is using the shared arena",
                    next="wait for it, or build them with share_arenas=False",
                )
            if self.backend.instrument is not None:
                self.backend.instrument.hand_over(arena.buffer, self.built)
            arena.last = self.built
        return self.replays.replay(self.key, stream)

    def write(self, name: str, data: np.ndarray | bytes, *, offset_bytes: int = 0) -> None:
        """Write a buffer by its logical name. Raises exec.InFlight while a replay may still read it."""
        placement = self.plan.placements[name]
        self.replays.write(port_name(placement.allocation, self.key), placement.offset_bytes + offset_bytes, data)

    def write_step(self, block: np.ndarray) -> None:
        """Write the whole step block in one transfer, u8 in the layout of the plan."""
        self.replays.write(self._step_port, 0, block)

    def read(self, name: str, counts: Counts) -> np.ndarray:
        """Return a view of the rows that a step of `counts` wrote, valid until the next replay."""
        location = self._places.get(name) or self._place(name)
        rows = location.rows if location.symbol is None else counts[location.symbol]
        view = self.replays.view(location.port, location.offset_bytes, rows * location.row_bytes)
        return np.frombuffer(view, location.dtype).reshape(rows, *location.inner)

    def read_back(self, name: str) -> np.ndarray:
        """Return a copy of a fixed-size buffer, even if the host cannot map it. No replay may be in flight."""
        location = self._places.get(name) or self._place(name)
        size_bytes = location.rows * location.row_bytes
        look = getattr(self.backend, "read_back", None)
        if look is None:
            return self.read(name, ()).copy()
        buffer = self.buffers[self.plan.placements[name].allocation]
        return np.frombuffer(look(buffer, location.offset_bytes, size_bytes), location.dtype).reshape(
            location.rows, *location.inner
        )

    def shape(self, name: str, counts: Counts) -> tuple[int, ...]:
        """Return a buffer's shape in a step of `counts`."""
        location = self._places.get(name) or self._place(name)
        return location.rows if location.symbol is None else counts[location.symbol], *location.inner

    def _place(self, name: str) -> _Place:
        spec, placed = self.graph.buffers[name], self.plan.placements[name]
        first, *inner = spec.shape
        dtype, sizes = find_array_layout(
            spec.dtype, tuple(int(dim) for dim in inner)
        )  # only the first is a symbol
        symbol = SYMBOLS.index(first) if isinstance(first, str) else None
        location = self._places[name] = _Place(
            port_name(placed.allocation, self.key),
            placed.offset_bytes,
            dtype,
            symbol,
            first if isinstance(first, int) else 0,
            sizes,
            dtype.itemsize * math.prod(sizes),
        )
        return location


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """The memory of a model's buffers on its device, in bytes: `weights` with constants; `kv`, the pages of keys
    and values and their tables; `state`, recurrent state and slot records; `activations`; `steps`, step blocks and
    outputs. Machine code and packets are not included."""

    weights: int
    kv: int
    state: int
    activations: int
    steps: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.state + self.activations + self.steps


class Resident:
    """A model on a device. Weights are uploaded with the first variant; state is shared by all variants,
    other buffers are per variant."""

    def __init__(
        self,
        backend: Backend,
        weights: Mapping[str, Weight],
        constants: Mapping[str, np.ndarray],
        *,
        share_arenas: bool = False,
        host: frozenset[str] = frozenset(),
    ) -> None:
        """Create it without allocations. `share_arenas`: variants share activation memory; disable it to
        detect reads of stale data. `host`: weights placed in host memory, on a backend that supports it."""
        self.backend = backend
        self._share_arenas = share_arenas
        self._given = (weights, constants)
        self._host = host
        self._weights: dict[str, Buffer] = {}
        self._kept: dict[str, Buffer] = {}
        self._kept_usage = Usage()
        self._arenas: list[Arena] = []
        self._variants: dict[tuple[int, tuple[int, ...]], Variant] = {}

    def graph(
        self,
        name: str,
        graph: ir.OpGraph,
        *,
        max_variants: int = 0,
        observers: Sequence[Observer] = (),
        dropped: Callable[[tuple[int, ...]], object] = lambda key: None,
    ) -> Graph:
        """Create an executable graph to `build` variants into. An entry that it evicts frees its memory, and
        `dropped` is called with its key."""

        def handle_eviction(key: tuple[int, ...], built: Any) -> None:
            self._free(self._variants[id(built), key])
            dropped(key)

        return Graph(
            name,
            self.backend,
            max_variants=max_variants or MAX_VARIANTS,
            ir=graph,
            observers=observers,
            evicted=handle_eviction,
        )

    def build(
        self,
        graph: ir.OpGraph,
        key: tuple[int, ...],
        replays: Graph,
        *,
        tapped: bool = False,
        heaps: Mapping[ir.Role, BufferHeap] | None = None,
        steps: int | None = None,
        timed: bool = False,
    ) -> Variant:
        """Plan, lower and build a verified graph for a capacity, and add it to `replays` under `key`: the
        maximum tokens, sequences and rows.

        A variant that is tapped, or has `heaps` or `steps`, gets a private arena. For the other parameters see
        `lower_graph`.
        """
        program = self.lower_graph(graph, key, tapped=tapped, heaps=heaps, steps=steps, timed=timed)
        alone = tapped or heaps is not None or steps is not None
        return self.place(program, key, replays, alone=alone)

    def lower_graph(
        self,
        graph: ir.OpGraph,
        key: tuple[int, ...],
        *,
        tapped: bool = False,
        heaps: Mapping[ir.Role, BufferHeap] | None = None,
        steps: int | None = None,
        timed: bool = False,
    ) -> LoweredGraph:
        """Plan and lower a verified graph for a capacity. `tapped`: activations do not share memory, and the
        host can read them all. `heaps`: replaces the heaps that `tapped` implies. `steps`: run only the
        first `steps` of the program, to inspect intermediate state. `timed`: see LoweredGraph."""
        backend = self.backend
        merging = None if tapped or timed or steps is not None else backend.kernels.merging
        capacity = parse_capacity(key)
        plan = plan_memory(
            graph,
            capacity=capacity,
            tap=tapped,
            linger=choose_linger(capacity) if merging is not None else 0,
            heaps=heaps or (TAPPED_HEAPS if tapped else ROLE_HEAPS),
        )
        program = lower(graph, backend.kernels.entries, plan, ordering=backend.ordering, tier=backend.spec.tier)
        return replace(program, steps=program.steps[:steps], timed=timed, merging=merging)

    def place(
        self,
        program: LoweredGraph | PlannedGraph,
        key: tuple[int, ...],
        replays: Graph,
        *,
        alone: bool = False,
    ) -> Variant:
        """Allocate the buffers of a program, build it, and add it to `replays` under `key`. `alone`: use a
        private arena."""
        backend, plan = self.backend, program.plan
        if not self._weights:
            on_host: Any = {"host": self._host} if self._host else {}
            self._weights = backend.upload(*self._given, **on_host)
        with ExitStack() as undo:
            arena = None
            own: dict[str, Buffer] = {}
            if self._share_arenas and ARENA in plan.allocations and not alone:
                arena = self._take_arena(plan.allocations[ARENA])
                undo.callback(self._give_back_arena, arena)
                own[ARENA] = arena.buffer
            usage = arena.usage if arena is not None else Usage()
            for name, allocation in plan.allocations.items():
                role = name.partition("/")[0]
                if role in RESIDENT or name in own:
                    continue
                if role in KEPT:
                    own[name] = self._keep_allocation(name, allocation)
                else:
                    own[name] = self._alloc(name, allocation, usage)
                    undo.callback(backend.free, own[name])
            built = backend.build(program, {**self._weights, **own})
            undo.callback(backend.unload, built)
            variant = Variant(replays, key, program, backend, built, own, arena)
            replays.add(key, built)
            undo.pop_all()
        if arena is not None:
            arena.last = None  # the new one's names are there too, until the next is handed the memory
        self._variants[id(built), key] = variant
        for name, buffer in own.items():
            replays.bind(port_name(name, key), buffer)
        return variant

    @property
    def weights(self) -> Mapping[str, Buffer]:
        """Return the resident weights and constants by name; empty before the first variant."""
        return self._weights

    def memory(self) -> ModelBytes:
        """Return the memory in use. May be called from any thread."""
        kept = {name: buffer.size_bytes for name, buffer in tuple(self._kept.items())}
        kv = sum(size for name, size in kept.items() if name.startswith((CACHE, PAGE_TABLES)))
        activations = sum(arena.buffer.size_bytes for arena in tuple(self._arenas))
        steps = 0
        for variant in tuple(self._variants.values()):
            for name, buffer in tuple(variant.buffers.items()):
                if name == ARENA or name.startswith("activation/"):
                    activations += buffer.size_bytes if variant.arena is None else 0
                elif name.partition("/")[0] not in KEPT:
                    steps += buffer.size_bytes
        weights = sum(buffer.size_bytes for buffer in tuple(self._weights.values()))
        return ModelBytes(weights, kv, sum(kept.values()) - kv, activations, steps)

    def drop(self, variant: Variant) -> None:
        """Free a variant's memory. Raises InFlight while its last replay runs."""
        variant.replays.remove(variant.key)
        self._free(variant)

    def zero_row(self, prefix: str, row: int, rows: int, stream: Stream) -> None:
        """Zero row `row` of every state buffer with `rows` rows and this name prefix, for later submissions
        to `stream`. No-op before the first variant, because the state is still zero."""
        variant = next(iter(self._variants.values()), None)
        if variant is None:
            return
        for spec in variant.graph.by_role("state"):
            if spec.name.startswith(prefix) and spec.shape[0] == rows:
                placement = variant.plan.placements[spec.name]
                size_bytes = placement.size_bytes // rows
                allocation = port_name(placement.allocation, variant.key)
                variant.replays.fill(allocation, placement.offset_bytes + row * size_bytes, size_bytes, stream)

    def spoilt(self, node: ir.Node) -> Iterator[tuple[str, int]]:
        """Return the weights and constants of a node whose device contents differ from the original, each
        with its first differing byte; empty if the backend cannot compare them. No replay may run."""
        look: Callable[[Buffer, Weight | np.ndarray], int] | None = getattr(self.backend, "spoilt", None)
        if look is None:
            return
        argument: dict[str, Weight | np.ndarray] = {**self._given[0], **self._given[1]}
        for name in node.inputs:
            if (
                name in self._weights
                and name in argument
                and (index := look(self._weights[name], argument[name])) >= 0
            ):
                yield name, index

    def unload(self) -> None:
        """Free all memory of the model: variants, state, weights. Raises InFlight while a replay runs."""
        busy = [variant for variant in self._variants.values() if any(b.busy() for b in variant.buffers.values())]
        if busy:
            raise InFlight(
                f"cannot unload: a replay of {busy[0].graph.name} is in flight", next="wait for it, then unload"
            )
        for variant in list(self._variants.values()):
            self.drop(variant)
        for buffer in (*self._kept.values(), *self._weights.values()):
            self.backend.free(buffer)
        self._kept.clear()
        self._weights.clear()

    # --- inside ---

    def _free(self, variant: Variant) -> None:
        del self._variants[id(variant.built), variant.key]
        self.backend.unload(variant.built)
        for name, buffer in variant.buffers.items():
            variant.replays.unbind(port_name(name, variant.key))
            if name.partition("/")[0] not in KEPT and (variant.arena is None or name != ARENA):
                self.backend.free(buffer)
        if variant.arena is not None:
            self._give_back_arena(variant.arena)

    def _keep_allocation(self, name: str, allocation: Allocation) -> Buffer:
        if name not in self._kept:
            zeroed = not name.startswith(CACHE)
            self._kept[name] = self._alloc(name, allocation, self._kept_usage, zeroed=zeroed)
        buffer = self._kept[name]
        if buffer.size_bytes != allocation.size_bytes:
            raise ValueError(
                f"{name} has {buffer.size_bytes} bytes in one graph, but {allocation.size_bytes} in another"
            )
        return buffer

    def _alloc(self, name: str, allocation: Allocation, usage: Usage, *, zeroed: bool | None = None) -> Buffer:
        zeroed = name != ARENA if zeroed is None else zeroed
        buffer = self.backend.alloc(allocation.size_bytes, allocation.heap, name, zeroed=zeroed)
        buffer.usage = usage
        return buffer

    def _take_arena(self, sizes: Allocation) -> Arena:
        """Return the smallest arena that is large enough, else a new one."""
        fits = [arena for arena in self._arenas if arena.buffer.size_bytes >= sizes.size_bytes]
        arena = min(fits, key=lambda arena: arena.buffer.size_bytes, default=None)
        if arena is None:
            usage = Usage()
            arena = Arena(self._alloc(ARENA, sizes, usage), usage)
            self._arenas.append(arena)
        arena.users += 1
        return arena

    def _give_back_arena(self, arena: Arena) -> None:
        arena.users -= 1
        if not arena.users:
            self._arenas.remove(arena)
            self.backend.free(arena.buffer)


def parse_capacity(key: tuple[int, ...]) -> dict[str, int]:
    """Return the maximum counts of a variant. `key`: tokens, sequences and rows of logits."""
    return dict(zip(SYMBOLS, key, strict=False))


def port_name(allocation: str, key: tuple[int, ...]) -> str:
    """Return the port of a variant's allocation. Step blocks and outputs are per variant of a graph."""
    return f"{allocation}@{','.join(map(str, key))}"
