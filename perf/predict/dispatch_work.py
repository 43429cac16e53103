"""The work of each dispatch of a plan on a GPU: bytes, workgroups, loads, instructions. Contains no
assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.isa.report import KernelReport
from zinc_rt.kernels.launch import Launch, Ref, Temp
from zinc_rt.kernels.rows.projections import CODES
from zinc_rt.lower import Barrier, Dispatch, DispatchPlan
from zinc_rt.mem.plan import allocation_of, size_bytes
from zinc_rt.mem.traffic import Traffic, decode_traffic

WAVE = 32
TILED = "matmul_"  # kernels whose workgroups take a tile of tokens each, along x
NO_WORK = ("wait", "other")  # of the units: they fill no issue slot that an instruction could use


@dataclass(frozen=True, slots=True)
class DispatchWork:
    """One dispatch. `read_bytes` and `written_bytes` of memory, each once; `wave_bytes` is what one wave loads of
    memory or a cache, and `issued` what all of them issue, both estimates (docs/perf.md). `behind_barrier`: a
    barrier comes before it."""

    labels: tuple[str, ...]
    op: str
    kernel: str
    grid: tuple[int, int, int]
    waves_a_workgroup: int
    behind_barrier: bool
    read_bytes: int
    written_bytes: int
    wave_bytes: float
    issued: float
    report: KernelReport

    @property
    def workgroups(self) -> int:
        return prod(self.grid)

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class Step:
    """A graph's step: a number of tokens of one sequence, the last at a position."""

    graph: OpGraph
    capacity: Mapping[str, int]
    position: int
    tokens: int

    def traffic(self, node: Node) -> tuple[Traffic, ...]:
        """Return the bytes of a node; data shared by its tokens is read once."""
        alone = replace(self.graph, nodes=(node,))
        return decode_traffic(alone, position=self.position, tokens=self.tokens)

    def traffic_a_token(self, node: Node) -> dict[tuple[str, str], int]:
        """Return the bytes read by the token in the middle of the step, by allocation and type."""
        alone = replace(self.graph, nodes=(node,))
        traffic = decode_traffic(alone, position=max(0, self.position - self.tokens // 2))
        return {(row.name, row.dtype): row.read_bytes for row in traffic}


def dispatch_works(
    plan: DispatchPlan, step: Step, reports: Mapping[str, KernelReport], threads: Mapping[str, int]
) -> tuple[DispatchWork, ...]:
    """Return every dispatch of the plan, in order. `threads` is the workgroup size by kernel. A node's bytes
    belong to its first dispatch that takes the buffer.
    """
    claimed: set[tuple[int, str, str]] = set()
    works = []
    behind = False
    for each in plan.steps:
        if isinstance(each, Barrier):
            behind = True
            continue
        report, waves = reports[each.launch.kernel], -(-threads[each.launch.kernel] // WAVE)
        works.append(_work(each, step, report, waves, behind, claimed))
        behind = False
    return tuple(works)


def _work(
    each: Dispatch,
    step: Step,
    report: KernelReport,
    waves_a_workgroup: int,
    behind: bool,
    claimed: set[tuple[int, str, str]],
) -> DispatchWork:
    grid, passes = _grid(each.launch, step.capacity)
    waves = prod(grid) * waves_a_workgroup
    given = set(_allocations(each.launch, step.graph))
    read = written = 0
    loaded = 0.0
    for node in each.nodes:
        a_token = step.traffic_a_token(node)
        for row in step.traffic(node):
            key = id(node), row.name, row.dtype
            if (row.name, row.dtype) in given and key not in claimed:
                claimed.add(key)
                read, written = read + row.read_bytes, written + row.written_bytes
                readers = _heads_a_key(node, step.graph) if row.kind == "kv" else 1
                loaded += a_token[row.name, row.dtype] * passes * readers
    projection = loaded > 0 and all(node.op in CODES for node in each.nodes)
    rate = instructions_a_byte(report)
    if projection:  # each wave reads the rows of its tokens whole
        in_tile, one = _tile(each.launch, step, passes), dict.fromkeys(step.capacity, 1)
        wave_bytes = loaded / waves + in_tile * _activation_bytes(each, step, one) / grid[2]
        issued = loaded * rate
    else:
        shared = _activation_bytes(each, step, step.capacity)
        wave_bytes = (loaded + shared) / waves
        if rate and report.streaming and report.streaming.in_flight.bytes == report.in_flight.bytes:
            issued = (loaded + shared * (not loaded)) * rate
        else:
            issued = float(waves * _issued(report.instructions, report.mix))
    return DispatchWork(
        labels=tuple(node.label or node.op.name for node in each.nodes),
        op="+".join(dict.fromkeys(node.op.name for node in each.nodes)) or "grids",
        kernel=each.launch.kernel,
        grid=grid,
        waves_a_workgroup=waves_a_workgroup,
        behind_barrier=behind,
        read_bytes=read,
        written_bytes=written,
        wave_bytes=wave_bytes,
        issued=issued,
        report=report,
    )


def _grid(launch: Launch, capacity: Mapping[str, int]) -> tuple[tuple[int, int, int], int]:
    """Return the workgroups at full capacity, and how often a weight's bytes are loaded for all tokens: once per
    token, or for matmul, whose x is a tile of tokens, once per tile.
    """
    x, y, z = (capacity[dim] if isinstance(dim, str) else dim for dim in launch.grid)
    passes = prod(capacity[dim] for dim in launch.grid if isinstance(dim, str))
    return (x, y, z), x if launch.kernel.startswith(TILED) else passes


def _tile(launch: Launch, step: Step, passes: int) -> int:
    """Return the number of tokens whose rows a wave of a projection reads."""
    return -(-step.tokens // passes) if launch.kernel.startswith(TILED) else 1


def _heads_a_key(node: Node, graph: OpGraph) -> int:
    """Return how many query heads load the same keys."""
    queries = prod(int(dim) for dim in graph.buffers[node.inputs[0]].shape[1:])
    keys = next((graph.buffers[name] for name in node.inputs if name.startswith("state.kv_")), None)
    return max(1, queries // prod(int(dim) for dim in keys.shape[1:])) if keys is not None else 1


def _allocations(launch: Launch, graph: OpGraph) -> Iterator[tuple[str, str]]:
    for buffer in launch.buffers:
        if isinstance(buffer, Ref):
            spec = graph.buffers[buffer.name]
            yield allocation_of(spec).partition("/")[2], spec.dtype


def _activation_bytes(each: Dispatch, step: Step, capacity: Mapping[str, int]) -> int:
    """Return the bytes of activations and temporaries that it reads, each once."""
    outputs = {name for node in each.nodes for name in node.outputs}
    total_bytes = 0
    for buffer in dict.fromkeys(each.launch.buffers):
        if isinstance(buffer, Temp):
            total_bytes += buffer.size_bytes * capacity["tokens"] // step.capacity["tokens"]
        elif isinstance(buffer, Ref) and buffer.name not in outputs:
            spec = step.graph.buffers[buffer.name]
            total_bytes += size_bytes(spec, capacity) if spec.role == "activation" else 0
    return total_bytes


def instructions_a_byte(kernel: KernelReport) -> float:
    """Return the wave instructions per loaded byte of the innermost loop with the most loads. Its loads of
    activations count as loads of weights, so this is a lower bound. 0 for a kernel without a loading loop.
    """
    busiest = kernel.streaming
    return _issued(busiest.instructions, busiest.mix) / busiest.load_bytes if busiest is not None else 0.0


def _issued(instructions: int, mix: Mapping[str, int]) -> int:
    return instructions - sum(mix[unit] for unit in NO_WORK)
