"""A lowered graph as dispatches: every launch with the location of its arguments and its grid, and barriers.

The plan is independent of the target: PM4, a CUDA graph, a Vulkan command buffer and an interpreter of native code
encode the same plan. It lays out the plan's block of memory: temporaries shared by a node's launches, grids whose
size depends on data (written by a first dispatch), and each launch's arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import SYMBOLS, Node, OpGraph
from zinc_rt.kernels.launch import COUNTS, Grid, Launch, Ref, Sync, Temp
from zinc_rt.kernels.sets import Merging
from zinc_rt.lower.levels import Touch, group_by_level
from zinc_rt.lower.lowered_graph import Barrier, LoweredGraph
from zinc_rt.mem.arena import align_up
from zinc_rt.mem.plan import MemoryPlan

RESIDENT = ("weight", "constant")  # roles whose buffers are allocations of their own
GRIDS_KERNEL = "step_grids"  # buffers: counts, specs, grids; constants: how many. One lane a grid
GRIDS_THREADS = 32
GRID_COUNTS = SYMBOLS[:3]  # those that it reads
GRID_BYTES = 12
ZERO_KERNEL = "zero_words"  # buffers: words; constants: how many. One lane a word
ZERO_THREADS = 256
ZEROED = "zeroed"  # the name of all zeroed temporaries together
ARGUMENT_ALIGNMENT = 64  # a scalar cache line
TEMP_ALIGNMENT = 256
TEMPS_APART = 1 << 18  # bytes of temporaries in turn, where launches of several nodes may overlap
IS_COUNT = 1 << 31
AXIS_MAXIMUM = (0xFFFFFFFF, 0xFFFF, 0xFFFF)  # workgroups


@dataclass(frozen=True, slots=True)
class GridInBlock:
    """Three dwords in the plan's block, written by the first dispatch; `dims` contains the counts that they are
    computed from.
    """

    offset_bytes: int
    dims: Grid


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A dispatch.

    `launch` gives kernel, buffers and constants. `temps`: the locations of its Temps in the plan's block.
    `node` is None for dispatches added by the plan; for merged launches it is the first launch's node, `merged`
    are the others'.
    """

    node: Node | None
    launch: Launch
    temps: Mapping[str, int]
    arguments_offset: int  # of launch.kernarg_bytes: the buffers' addresses, then the constants
    grid: tuple[int, int, int] | GridInBlock
    merged: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes whose launches this dispatch executes."""
        return () if self.node is None else (self.node, *self.merged)


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """A list of dispatches and barriers with the layout of its block.

    `steps` are in order. Of the block's `size_bytes`, those before `temps_bytes` are temporaries, which the device
    writes before it reads them; the inputs of the grids, the grids and the arguments follow.
    """

    name: str
    steps: tuple[Dispatch | Barrier, ...]
    grids: tuple[Grid, ...]
    temps_bytes: int
    specs_offset: int
    grids_offset: int
    size_bytes: int

    @property
    def dispatches(self) -> Iterator[Dispatch]:
        return (step for step in self.steps if isinstance(step, Dispatch))

    @property
    def grid_specs(self) -> bytes:
        """Return the inputs from which the first dispatch computes grids: a number, or a marker and the index of a
        count.
        """
        dims = (
            IS_COUNT | SYMBOLS.index(dim) if isinstance(dim, str) else dim for grid in self.grids for dim in grid
        )
        return b"".join(struct.pack("<I", dim) for dim in dims)


@dataclass(frozen=True, slots=True)
class _PlacedLaunch:
    """A launch with located temporaries; it does not write those in `read`."""

    node: Node | None
    launch: Launch
    temps: Mapping[str, int]
    merged: tuple[Node, ...] = ()
    read: frozenset[str] = frozenset()


def dispatch_plan(lowered: LoweredGraph) -> DispatchPlan:
    """Plan the dispatches. Raise UnsupportedError for an invalid dispatch grid."""
    capacity = lowered.plan.capacity
    placed, temps_bytes, zeroed_bytes = _lower_launches(lowered)
    if zeroed_bytes:
        placed = [_make_zero_launch(zeroed_bytes, temps_bytes), Barrier(()), *_locate_zeroed(placed, temps_bytes)]
        temps_bytes += zeroed_bytes
    if lowered.merging is not None:
        placed = list(_merge_dispatches(_order_by_level(placed, lowered), lowered.merging))
    dynamic_grids = (item.launch.grid for item in placed if isinstance(item, _PlacedLaunch))
    grids = tuple(dict.fromkeys(grid for grid in dynamic_grids if _is_data_dependent(grid, capacity)))
    specs_offset = align_up(temps_bytes, TEMP_ALIGNMENT)
    grids_offset = align_up(specs_offset + GRID_BYTES * len(grids), ARGUMENT_ALIGNMENT)
    end = align_up(grids_offset + GRID_BYTES * len(grids), ARGUMENT_ALIGNMENT)
    if grids:
        placed[:0] = [_make_grids_launch(len(grids), specs_offset, grids_offset), Barrier(())]
    in_block = {grid: GridInBlock(grids_offset + GRID_BYTES * number, grid) for number, grid in enumerate(grids)}
    steps: list[Dispatch | Barrier] = []
    for item in placed:
        if isinstance(item, Barrier):
            steps.append(item)
            continue
        grid = in_block.get(item.launch.grid) or _find_fixed_grid(item, capacity)
        steps.append(Dispatch(item.node, item.launch, item.temps, end, grid, item.merged))
        end = align_up(end + item.launch.kernarg_bytes, ARGUMENT_ALIGNMENT)
    name = f"{lowered.graph.name} {','.join(str(capacity[symbol]) for symbol in SYMBOLS if symbol in capacity)}"
    return DispatchPlan(name, tuple(steps), grids, temps_bytes, specs_offset, grids_offset, end)


def find_operand_addresses(
    plan: DispatchPlan, graph: OpGraph, memory: MemoryPlan
) -> Iterator[tuple[str, int, int, str]]:
    """Return named memory: (allocation of the memory plan, or "" for the plan's block; offset, bytes, name)."""
    for name, placement in memory.placements.items():
        if graph.buffers[name].role not in RESIDENT:
            yield placement.allocation, placement.offset_bytes, placement.size_bytes, name
    for step in plan.dispatches:
        what = f"{step.node.label or step.node.op.name}" if step.node is not None else plan.name
        yield "", step.arguments_offset, step.launch.kernarg_bytes, f"arguments of {step.launch.kernel} for {what}"
        for buffer in step.launch.buffers:
            if isinstance(buffer, Temp):
                yield "", step.temps[buffer.name], buffer.size_bytes, f"{buffer.name} of {what}"
    if plan.grids:
        yield "", plan.grids_offset, GRID_BYTES * len(plan.grids), f"grids of {plan.name}"


def _lower_launches(lowered: LoweredGraph) -> tuple[list[_PlacedLaunch | Barrier], int, int]:
    """Return every launch with its temporaries located, the end of the temporaries, and the bytes of zeroed ones,
    which are located from 0 on.

    Bytes are reused after a barrier; small temporaries rotate, so that launches of several nodes can overlap. A
    temporary made by a launch is computed once and reused while it and its inputs are in memory.
    """
    apart = TEMPS_APART if lowered.merging is not None else 0
    steps: list[_PlacedLaunch | Barrier] = []
    end = maximum = zeroed = 0
    numbers: dict[Launch, int] = {}
    for step in lowered.steps:
        if isinstance(step, Barrier):
            _add_barrier(steps, step)
            if end >= apart:
                end = 0
                numbers.clear()
            continue
        temps: dict[str, int] = {}
        read: frozenset[str] = frozenset()
        for item in step.entry.code(step.node, lowered.graph, lowered.plan.capacity):
            if isinstance(item, Sync):
                _add_barrier(steps, Barrier(()))
                continue
            if item.makes and item in numbers:
                temps[item.makes.name] = numbers[item]
                read |= {item.makes.name}
                continue
            for buffer in item.buffers:
                if not isinstance(buffer, Temp) or buffer.name in temps:
                    continue
                if buffer.zeroed:
                    temps[buffer.name] = zeroed
                    zeroed = align_up(zeroed + buffer.size_bytes, TEMP_ALIGNMENT)
                else:
                    temps[buffer.name] = end
                    end = align_up(end + buffer.size_bytes, TEMP_ALIGNMENT)
            steps.append(_PlacedLaunch(step.node, item, temps, read=read))
            if item.makes:
                numbers[item] = temps[item.makes.name]
                read |= {item.makes.name}
        maximum = max(maximum, end)
        numbers = {
            launch: index for launch, index in numbers.items() if not _has_overwrite(step.node, launch, lowered)
        }
    return steps, align_up(maximum, TEMP_ALIGNMENT), zeroed


def _locate_zeroed(
    steps: Iterable[_PlacedLaunch | Barrier], offset_bytes: int
) -> Iterator[_PlacedLaunch | Barrier]:
    """Move the zeroed temporaries of every launch by `offset_bytes`."""
    for step in steps:
        if isinstance(step, Barrier):
            yield step
            continue
        zeroed = {buffer.name for buffer in step.launch.buffers if isinstance(buffer, Temp) and buffer.zeroed}
        moved = {name: at + offset_bytes * (name in zeroed) for name, at in step.temps.items()}
        yield replace(step, temps=moved) if zeroed else step


def _has_overwrite(node: Node, launch: Launch, lowered: LoweredGraph) -> bool:
    """Return whether a node writes memory that a launch reads."""
    written = [lowered.plan.placements[name] for name in node.outputs if name]
    read = [lowered.plan.placements[buffer.name] for buffer in launch.buffers if isinstance(buffer, Ref)]
    return any(
        item.allocation == other.allocation
        and item.offset_bytes < other.offset_bytes + other.size_bytes
        and other.offset_bytes < item.offset_bytes + item.size_bytes
        for item in written
        for other in read
    )


def _order_by_level(
    steps: Iterable[_PlacedLaunch | Barrier], lowered: LoweredGraph
) -> Iterator[_PlacedLaunch | Barrier]:
    """Order the launches with as few barriers as their memory accesses allow."""
    runs = groupby(steps, lambda step: isinstance(step, Barrier))
    intervals = (
        [item for item in run if isinstance(item, _PlacedLaunch)] for is_barrier, run in runs if not is_barrier
    )
    for number, level in enumerate(group_by_level(intervals, lambda item: _list_memory_touches(item, lowered))):
        if number:
            yield Barrier(())
        yield from level


def _list_memory_touches(placed: _PlacedLaunch, lowered: LoweredGraph) -> tuple[Touch, ...]:
    """Return the mutable memory that a launch reads or writes: its node's outputs, and temporaries."""
    outputs = placed.node.outputs if placed.node is not None else ()
    ranges = []
    for buffer in dict.fromkeys(placed.launch.buffers):
        if isinstance(buffer, Temp):
            begin = placed.temps[buffer.name]
            ranges.append(("", begin, begin + buffer.size_bytes, buffer.name not in placed.read))
        elif isinstance(buffer, Ref) and lowered.graph.buffers[buffer.name].role not in RESIDENT:
            placement = lowered.plan.placements[buffer.name]
            end = placement.offset_bytes + placement.size_bytes
            ranges.append((placement.allocation, placement.offset_bytes, end, buffer.name in outputs))
    return tuple(ranges)


def _merge_dispatches(
    steps: Iterable[_PlacedLaunch | Barrier], merging: Merging
) -> Iterator[_PlacedLaunch | Barrier]:
    """Merge launches between two barriers into the fewest dispatches, each at the position of its first launch."""
    for is_barrier, run in groupby(steps, lambda step: isinstance(step, Barrier)):
        if is_barrier:
            yield from run
            continue
        together: list[list[_PlacedLaunch]] = []
        open_: dict[Hashable, list[_PlacedLaunch]] = {}
        for item in run:
            assert isinstance(item, _PlacedLaunch)
            key = merging.key(item.launch)
            group = open_.get(key) if key is not None else None
            if group is None or len(group) == merging.most or not _can_merge(group, item, merging):
                group = []
                together.append(group)
                if key is not None:
                    open_[key] = group
            group.append(item)
        for group in together:
            yield group[0] if len(group) == 1 else _merge_group(group, merging)


def _can_merge(group: Sequence[_PlacedLaunch], other: _PlacedLaunch, merging: Merging) -> bool:
    """Return whether the launches fit together and no temporary name refers to two temporaries."""
    return merging.fit([item.launch for item in (*group, other)]) and all(
        other.temps.get(name, location) == location for item in group for name, location in item.temps.items()
    )


def _merge_group(group: Sequence[_PlacedLaunch], merging: Merging) -> _PlacedLaunch:
    temps = {name: location for item in group for name, location in item.temps.items()}
    nodes = {id(item.node): item.node for item in group if item.node is not None}
    others = tuple(node for node in nodes.values() if node is not group[0].node)
    return _PlacedLaunch(group[0].node, merging.merged([item.launch for item in group]), temps, others)


def _add_barrier(steps: list[_PlacedLaunch | Barrier], barrier: Barrier) -> None:
    if steps and not isinstance(steps[-1], Barrier):
        steps.append(barrier)


def _make_zero_launch(size_bytes: int, offset_bytes: int) -> _PlacedLaunch:
    words = size_bytes // 4
    launch = Launch(ZERO_KERNEL, (Temp(ZEROED, size_bytes),), (words,), (-(-words // ZERO_THREADS), 1, 1))
    return _PlacedLaunch(None, launch, {ZEROED: offset_bytes})


def _make_grids_launch(count: int, specs_offset: int, grids_offset: int) -> _PlacedLaunch:
    groups = -(-count // GRIDS_THREADS)
    specs, grids = Temp("specs", GRID_BYTES * count), Temp("grids", GRID_BYTES * count)
    launch = Launch(GRIDS_KERNEL, (Ref(COUNTS), specs, grids), (count,), (groups, 1, 1))
    return _PlacedLaunch(None, launch, {"specs": specs_offset, "grids": grids_offset})


def _is_data_dependent(grid: Grid, capacity: Mapping[str, int]) -> bool:
    """Return whether a grid depends on data. A count with capacity 1 is constant, because an unneeded row of
    logits is cheaper than a grid in memory.
    """
    counts = [dim for dim in grid if isinstance(dim, str) and capacity[dim] > 1]
    if not set(counts) <= set(GRID_COUNTS):
        raise UnsupportedError(
            f"a grid cannot depend on the count {counts[0]}: {GRIDS_KERNEL} supports only {', '.join(GRID_COUNTS)}"
        )
    return bool(counts)


def _find_fixed_grid(placed: _PlacedLaunch, capacity: Mapping[str, int]) -> tuple[int, int, int]:
    x, y, z = (capacity[dim] if isinstance(dim, str) else dim for dim in placed.launch.grid)
    if min(x, y, z) < 1 or any(size > maximum for size, maximum in zip((x, y, z), AXIS_MAXIMUM, strict=True)):
        raise UnsupportedError(f"{placed.node!r}: {placed.launch.kernel} needs {x} x {y} x {z} workgroups")
    return x, y, z
