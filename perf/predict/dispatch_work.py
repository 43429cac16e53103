"""The work of each dispatch of a plan on a GPU: bytes, workgroups, loads, instructions. Contains no
assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.isa.report import KernelReport
from zinc_rt.kernels.launch import Launch, Ref
from zinc_rt.lower import Barrier, Dispatch, DispatchPlan
from zinc_rt.mem.plan import name_allocation
from zinc_rt.mem.traffic import Traffic, list_decode_traffic
from zinc_rt.perf.predict.wave_work import StepTokens, WaveTotals, WaveWork

WAVE = 32


@dataclass(frozen=True, slots=True)
class DispatchWork:
    """One dispatch. `read_bytes` and `written_bytes` are bytes of memory, each counted once; `waves` is the work
    of its waves (wave_work.py). `behind_barrier`: it follows a barrier.
    """

    labels: tuple[str, ...]
    op: str
    kernel: str
    grid: tuple[int, int, int]
    waves_a_workgroup: int
    behind_barrier: bool
    read_bytes: int
    written_bytes: int
    waves: WaveTotals
    report: KernelReport

    @property
    def workgroups(self) -> int:
        return prod(self.grid)

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @property
    def wave_bytes(self) -> float:
        """Return the bytes that a wave loads, from memory or a cache."""
        return self.waves.load_bytes / max(1, self.waves.waves)

    @property
    def issued(self) -> float:
        """Return the instructions of all waves that fill an issue slot."""
        return self.waves.issued


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a graph. `capacity` is the capacity of its variant, which may be more than the number of
    tokens.
    """

    graph: OpGraph
    capacity: Mapping[str, int]
    tokens: StepTokens

    def node_traffic(self, node: Node) -> tuple[Traffic, ...]:
        """Return the bytes of a node; data shared by its tokens is read once."""
        alone, step = replace(self.graph, nodes=(node,)), self.tokens
        return list_decode_traffic(alone, position=step.position, tokens=step.tokens, sequences=step.sequences)


def dispatch_works(
    plan: DispatchPlan, step: Step, arch: str, reports: Mapping[str, KernelReport], threads: Mapping[str, int]
) -> tuple[DispatchWork, ...]:
    """Return every dispatch of the plan, in order. `threads` is the workgroup size by kernel. A node's bytes are
    attributed to its first dispatch that uses the buffer.
    """
    claimed: set[tuple[int, str, str]] = set()
    counts = WaveWork(arch, step.tokens)
    works = []
    behind = False
    for item in plan.steps:
        if isinstance(item, Barrier):
            behind = True
            continue
        kernel = item.launch.kernel
        waves = -(-threads[kernel] // WAVE)
        grid = _find_grid(item.launch, step)
        read, written = _count_memory_bytes(item, step, claimed)
        works.append(
            DispatchWork(
                labels=tuple(node.label or node.op.name for node in item.nodes),
                op="+".join(dict.fromkeys(node.op.name for node in item.nodes)) or "grids",
                kernel=kernel,
                grid=grid,
                waves_a_workgroup=waves,
                behind_barrier=behind,
                read_bytes=read,
                written_bytes=written,
                waves=counts.compute_totals(item.launch, grid, waves),
                report=reports[kernel],
            )
        )
        behind = False
    return tuple(works)


def _count_memory_bytes(dispatch: Dispatch, step: Step, claimed: set[tuple[int, str, str]]) -> tuple[int, int]:
    """Return the bytes read and written of the nodes' buffers that no earlier dispatch has claimed."""
    operands = set(_list_allocations(dispatch.launch, step.graph))
    read = written = 0
    for node in dispatch.nodes:
        for row in step.node_traffic(node):
            key = id(node), row.name, row.dtype
            if (row.name, row.dtype) in operands and key not in claimed:
                claimed.add(key)
                read, written = read + row.read_bytes, written + row.written_bytes
    return read, written


def _find_grid(launch: Launch, step: Step) -> tuple[int, int, int]:
    """Return the workgroups: symbols are counts of the step."""
    x, y, z = (step.tokens.count(dim) if isinstance(dim, str) else dim for dim in launch.grid)
    return x, y, z


def _list_allocations(launch: Launch, graph: OpGraph) -> Iterator[tuple[str, str]]:
    for buffer in launch.buffers:
        if isinstance(buffer, Ref):
            spec = graph.buffers[buffer.name]
            yield name_allocation(spec).partition("/")[2], spec.dtype
