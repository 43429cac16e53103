"""Compute values once that several nodes would compute alike, such as an input that three projections quantise.

A shared launch depends only on its inputs, which are values of the graph, and writes only temporaries. The first
node's launch is kept, and its temporaries live until the last node has read them. The other nodes' launches are
removed, with the barriers that only waited for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from zinc_rt.ir.graph import OpGraph
from zinc_rt.ir.op import OPS
from zinc_rt.kernels.launch import Launch, Temp
from zinc_rt.lower.dispatch_plan import GRIDS_KERNEL, TEMP_ALIGNMENT, Dispatch, DispatchPlan
from zinc_rt.lower.lowered_graph import Barrier
from zinc_rt.mem.arena import Lifetime, align_up, pack_lifetimes

SHARED_KERNELS = frozenset({"quantise32", "quantise256", "dequantise"})


@dataclass(frozen=True, slots=True)
class NativeStep:
    """A dispatch. `barrier`: all earlier steps must have finished."""

    barrier: bool
    dispatch: Dispatch


@dataclass(slots=True)
class _SharedStep:
    """A temporary that several nodes read. Groups are separated by barriers."""

    size_bytes: int
    first: int
    last: int


@dataclass(slots=True)
class _Sharing:
    written: dict[object, tuple[_SharedStep, ...]] = field(default_factory=dict)  # by what a launch computes
    read: dict[tuple[int, str], _SharedStep] = field(default_factory=dict)  # by node and the name it has there
    all: list[_SharedStep] = field(default_factory=list)


def share(plan: DispatchPlan, graph: OpGraph) -> tuple[list[NativeStep], int]:
    """Return the plan's dispatches with each shared one once, and the size of the block that holds their
    temporaries.

    Grids from data need no dispatch here, because the executor reads the counts itself.
    """
    steps = list(_list_steps(plan))
    changed = _list_changed_in_place(graph)
    sharing = _Sharing()
    group = 0
    kept: list[tuple[int, NativeStep]] = []
    gone: set[int] = set()  # nodes of which nothing is kept so far
    pending = False
    last_node = None
    for step in steps:
        node, launch = step.dispatch.node, step.dispatch.launch
        within = node is not None and node is last_node  # a barrier here is the node's own
        last_node = node
        pending |= step.barrier and not (within and id(node) in gone)
        if node is not None and _can_share(launch) and not changed & _list_sources(launch):
            temps = [buffer for buffer in launch.buffers if isinstance(buffer, Temp)]
            known = sharing.written.get(_make_computation_key(launch))
            start = group + pending
            shared = known or tuple(
                _SharedStep(align_up(t.size_bytes, TEMP_ALIGNMENT), start, start) for t in temps
            )
            for temp, location in zip(temps, shared, strict=True):
                sharing.read[id(node), temp.name] = location
            if known:
                if not within:
                    gone.add(id(node))
                continue
            sharing.written[_make_computation_key(launch)] = shared
            sharing.all += shared
        group += pending
        for buffer in launch.buffers:
            if isinstance(buffer, Temp) and (id(node), buffer.name) in sharing.read:
                sharing.read[id(node), buffer.name].last = group
        gone.discard(id(node))
        kept.append((id(node), NativeStep(pending, step.dispatch)))
        pending = False
    base = align_up(plan.size_bytes, TEMP_ALIGNMENT)
    offsets = pack_lifetimes([Lifetime(item.first, item.last, item.size_bytes) for item in sharing.all])
    places = {id(item): base + offset for item, offset in zip(sharing.all, offsets, strict=True)}
    end = max((places[id(item)] + item.size_bytes for item in sharing.all), default=plan.size_bytes)
    moved = [
        NativeStep(step.barrier, _relocate_temps(step.dispatch, node, sharing, places)) for node, step in kept
    ]
    return moved, end


def _list_steps(plan: DispatchPlan) -> Iterable[NativeStep]:
    barrier = False
    for step in plan.steps:
        if isinstance(step, Barrier):
            barrier = True
        elif not (step.node is None and step.launch.kernel == GRIDS_KERNEL):
            yield NativeStep(barrier, step)
            barrier = False


def _list_changed_in_place(graph: OpGraph) -> frozenset[str]:
    """Return the buffers that a node updates in place: the name refers to a different value afterwards."""
    return frozenset(
        name
        for node in graph.nodes
        for port in OPS[node.op].outputs
        if port.inplace
        for argument, name in zip(OPS[node.op].inputs, node.inputs, strict=False)
        if argument.name == port.inplace
    )


def _can_share(launch: Launch) -> bool:
    """Return whether a launch can be shared. A dispatch that reads a temporary cannot be shared, because
    temporaries are private to their node.
    """
    return launch.kernel in SHARED_KERNELS and not isinstance(launch.buffers[0], Temp)


def _list_sources(launch: Launch) -> frozenset[str]:
    return frozenset(
        buffer.name for buffer in launch.buffers if buffer is not None and not isinstance(buffer, Temp)
    )


def _make_computation_key(launch: Launch) -> object:
    """Return a key that is equal for launches that write the same values."""
    buffers = tuple(buffer.size_bytes if isinstance(buffer, Temp) else buffer for buffer in launch.buffers)
    return launch.kernel, buffers, launch.constants, launch.grid


def _relocate_temps(dispatch: Dispatch, node: int, sharing: _Sharing, places: Mapping[int, int]) -> Dispatch:
    ours = {name: places[id(sharing.read[node, name])] for name in dispatch.temps if (node, name) in sharing.read}
    return replace(dispatch, temps={**dispatch.temps, **ours}) if ours else dispatch
