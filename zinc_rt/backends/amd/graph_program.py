"""A lowered graph as dispatches: every launch with its kernel, its arguments' place and its grid, and barriers.

`plan` decides what lies where in a block of device memory of the program's own: what a node's launches share,
their kernarg blocks, and the grids whose size is data, which a first dispatch writes. `content` fills the block,
`packets` writes the command stream, both once addresses are known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from zinc_rt.backends.amd.kernel_code import KernelKey, LoadedKernel
from zinc_rt.errors import UnsupportedError
from zinc_rt.ir.graph import SYMBOLS, Node
from zinc_rt.kernels.launch import Grid, Launch, Ref, Sync, Temp
from zinc_rt.lower import Barrier, Program
from zinc_rt.mem.suballocator import align_up
from zinc_rt.pm4 import gcr
from zinc_rt.pm4.decode import decode_stream
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.layout import Packet
from zinc_rt.pm4.packets import AcquireMem, DispatchDirect, DispatchIndirect, EventWrite, SetShReg
from zinc_rt.pm4.registers import WAVE32, Sh

COUNTS = "step.counts"
RESIDENT = ("weight", "constant")  # roles whose buffers are allocations of their own
GRIDS_KERNEL = "step_grids"  # buffers: counts, specs, grids; constants: how many. One lane a grid
GRIDS_THREADS = 32
GRID_BYTES = 12
ARGUMENT_ALIGNMENT = 64  # a scalar cache line
TEMP_ALIGNMENT = 256
IS_COUNT = 1 << 31

STORES_OF_BEFORE = {  # caches that may hold older bytes: stores have gone through to L2
    Generation.GFX11: gcr.acquire(Generation.GFX11, GLK_INV=1, GLV_INV=1, GL1_INV=1),
    Generation.GFX12: gcr.acquire(Generation.GFX12, GLK_INV=1, GLV_INV=1),
}


@dataclass(frozen=True, slots=True)
class InBlock:
    """A byte of the program's own block."""

    offset_bytes: int


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch. `node` is None for what the tier adds; `grid` an offset where the count is data."""

    node: Node | None
    launch: Launch
    temps: Mapping[str, InBlock]
    arguments_offset: int = 0
    grid: tuple[int, int, int] | InBlock = (1, 1, 1)

    @property
    def kernel(self) -> KernelKey:
        return self.launch.kernel, self.launch.patches


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """`steps` in order, None is a barrier. Bytes [0, temps_end) are written by the GPU before it reads them."""

    name: str
    steps: tuple[Step | None, ...]
    grids: tuple[Grid, ...]
    temps_end: int
    specs_offset: int
    grids_offset: int
    size_bytes: int

    @property
    def dispatches(self) -> Iterator[Step]:
        return (step for step in self.steps if step is not None)


def plan(program: Program) -> ProgramPlan:
    """Raises UnsupportedError for a grid that no dispatch can have."""
    capacity = program.plan.capacity
    steps, temps_end = _launches(program)
    wanted_grids = (step.launch.grid for step in steps if step is not None)
    grids = tuple(dict.fromkeys(grid for grid in wanted_grids if _is_data(grid, capacity)))
    specs_offset = align_up(temps_end, TEMP_ALIGNMENT)
    grids_offset = align_up(specs_offset + GRID_BYTES * len(grids), ARGUMENT_ALIGNMENT)
    end = align_up(grids_offset + GRID_BYTES * len(grids), ARGUMENT_ALIGNMENT)
    if grids:
        steps[:0] = [_grids_step(len(grids), specs_offset, grids_offset), None]
    placed: list[Step | None] = []
    for step in steps:
        if step is None:
            placed.append(None)
            continue
        wanted = step.launch.grid
        in_memory = InBlock(grids_offset + GRID_BYTES * grids.index(wanted)) if wanted in grids else None
        placed.append(replace(step, arguments_offset=end, grid=in_memory or _fixed(step, capacity)))
        end = align_up(end + step.launch.kernarg_bytes, ARGUMENT_ALIGNMENT)
    name = f"{program.graph.name} {','.join(str(capacity[symbol]) for symbol in SYMBOLS if symbol in capacity)}"
    return ProgramPlan(name, tuple(placed), grids, temps_end, specs_offset, grids_offset, end)


def _launches(program: Program) -> tuple[list[Step | None], int]:
    """Every launch with its temporaries placed, and where those end. Past a barrier their bytes are free again."""
    steps: list[Step | None] = []
    end = most = 0
    for step in program.steps:
        if isinstance(step, Barrier):
            _barrier(steps)
            end = 0
            continue
        temps: dict[str, InBlock] = {}
        for each in step.entry.code(step.node, program.graph, program.plan.capacity):
            if isinstance(each, Sync):
                _barrier(steps)
                continue
            for buffer in each.buffers:
                if isinstance(buffer, Temp) and buffer.name not in temps:
                    temps[buffer.name] = InBlock(end)
                    end = align_up(end + buffer.size_bytes, TEMP_ALIGNMENT)
            steps.append(Step(step.node, each, temps))
        most = max(most, end)
    return steps, most


def _barrier(steps: list[Step | None]) -> None:
    if steps and steps[-1] is not None:
        steps.append(None)


def _grids_step(count: int, specs_offset: int, grids_offset: int) -> Step:
    groups = -(-count // GRIDS_THREADS)
    specs, made = Temp("specs", GRID_BYTES * count), Temp("grids", GRID_BYTES * count)
    launch = Launch(GRIDS_KERNEL, (Ref(COUNTS), specs, made), (count,), (groups, 1, 1))
    return Step(None, launch, {"specs": InBlock(specs_offset), "grids": InBlock(grids_offset)})


def _is_data(grid: Grid, capacity: Mapping[str, int]) -> bool:
    """A count that can be only 1 is none: a row of logits nobody wants costs less than a grid in memory."""
    return any(isinstance(dim, str) and capacity[dim] > 1 for dim in grid)


def _fixed(step: Step, capacity: Mapping[str, int]) -> tuple[int, int, int]:
    x, y, z = (capacity[dim] if isinstance(dim, str) else dim for dim in step.launch.grid)
    if min(x, y, z) < 1 or max(y, z) > 0xFFFF or x > 0xFFFFFFFF:
        raise UnsupportedError(f"{step.node!r}: {step.launch.kernel} wants {x} x {y} x {z} workgroups")
    return x, y, z


def content(plan: ProgramPlan, va: int, address: Callable[[Ref], int]) -> bytes:
    """What the host writes into the block at `va`, from byte `temps_end` rounded up (specs_offset) on."""
    image = bytearray(plan.size_bytes)

    for step in plan.dispatches:

        def resolve(place: Ref | Temp, temps: Mapping[str, InBlock] = step.temps) -> int:
            return va + temps[place.name].offset_bytes if isinstance(place, Temp) else address(place)

        block = step.launch.kernarg(resolve)
        image[step.arguments_offset : step.arguments_offset + len(block)] = block
    dims = (IS_COUNT | SYMBOLS.index(dim) if isinstance(dim, str) else dim for grid in plan.grids for dim in grid)
    specs = b"".join(struct.pack("<I", dim) for dim in dims)
    image[plan.specs_offset : plan.specs_offset + len(specs)] = specs
    return bytes(image[plan.specs_offset :])


def places(plan: ProgramPlan, program: Program) -> Iterator[tuple[str, int, int, str]]:
    """What has a name: (allocation of the memory plan, or "" for the program's block; offset, bytes, name)."""
    for name, place in program.plan.placements.items():
        if program.graph.buffers[name].role not in RESIDENT:
            yield place.allocation, place.offset_bytes, place.size_bytes, name
    for step in plan.dispatches:
        what = f"{step.node.label or step.node.op.name}" if step.node is not None else plan.name
        yield "", step.arguments_offset, step.launch.kernarg_bytes, f"arguments of {step.launch.kernel} for {what}"
        for buffer in step.launch.buffers:
            if isinstance(buffer, Temp):
                yield "", step.temps[buffer.name].offset_bytes, buffer.size_bytes, f"{buffer.name} of {what}"
    if plan.grids:
        yield "", plan.grids_offset, GRID_BYTES * len(plan.grids), f"grids of {plan.name}"


def packets(
    plan: ProgramPlan, va: int, kernels: Mapping[KernelKey, LoadedKernel], generation: Generation
) -> list[Packet]:
    """The command stream, to run behind a cache invalidation that includes instructions."""
    wait = (EventWrite.cs_partial_flush(), AcquireMem(STORES_OF_BEFORE[generation]))
    registers = _Registers()
    stream: list[Packet] = [*registers.set(Sh.RESTART_X, 0, 0, 0), *registers.set(Sh.RESOURCE_LIMITS, 0)]
    for step in plan.steps:
        if step is None:
            stream += wait
            continue
        kernel = kernels[step.kernel]
        given = len(step.launch.buffers), len(step.launch.constants)
        if given != (kernel.buffers, kernel.constants):
            raise ValueError(
                f"{step.node!r}: {kernel.name} takes {kernel.buffers} buffers and {kernel.constants} constants, "
                f"its row gives {given[0]} and {given[1]}"
            )
        arguments = va + step.arguments_offset
        stream += registers.set(Sh.PGM_LO, kernel.program_va >> 8 & 0xFFFFFFFF, kernel.program_va >> 40)
        stream += registers.set(Sh.PGM_RSRC1, *kernel.rsrc[:2])
        stream += registers.set(Sh.PGM_RSRC3, kernel.rsrc[2])
        stream += registers.set(Sh.TMPRING_SIZE, 0)
        stream += registers.set(Sh.START_X, 0, 0, 0, *kernel.threads, 0, 0)
        stream += registers.set(Sh.USER_DATA_0, arguments & 0xFFFFFFFF, arguments >> 32)
        if isinstance(step.grid, InBlock):
            stream.append(DispatchIndirect(va + step.grid.offset_bytes, WAVE32))
        else:
            stream.append(DispatchDirect(*step.grid, WAVE32))
    return stream


def node_at(program: Program, words: Sequence[int], offset_dw: int, generation: Generation) -> Node | None:
    """The node whose dispatch lies at that dword of the program's indirect buffer; None where none does."""
    dispatches = (
        item.offset
        for item in decode_stream(words, generation)
        if isinstance(item.packet, DispatchDirect | DispatchIndirect)
    )
    steps = dict(zip(dispatches, plan(program).dispatches, strict=False))
    return steps[offset_dw].node if offset_dw in steps else None


class _Registers:
    """What the stream has set so far: a dispatch sets only what it changes."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[int, ...]] = {}

    def set(self, register: int, *values: int) -> list[Packet]:
        if self._values.get(register) == values:
            return []
        self._values[register] = values
        return [SetShReg(register, values)]
