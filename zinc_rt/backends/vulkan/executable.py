"""A lowered graph as a command buffer that is recorded once and replayed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np

from zinc_rt.backends.base import gpu_address
from zinc_rt.backends.times import Times
from zinc_rt.backends.vulkan.blocks import VulkanBlock, VulkanStorage
from zinc_rt.backends.vulkan.commands import (
    BEGIN,
    BETWEEN,
    END,
    TO_CHECKPOINT,
    CmdBindPipeline,
    CmdDispatch,
    CmdDispatchIndirect,
    CmdFillBuffer,
    CmdPushConstants,
    CmdResetQueryPool,
    CmdWriteTimestamp,
    CommandPool,
    VulkanCommand,
)
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.backends.vulkan.memory import VulkanMemory
from zinc_rt.backends.vulkan.pipelines import Pipeline, Pipelines
from zinc_rt.backends.vulkan.timestamps import Timestamps
from zinc_rt.exec import Buffer
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import Node
from zinc_rt.kernels.launch import Grid
from zinc_rt.lower import Barrier, Dispatch, DispatchPlan, LoweredGraph, PlannedGraph, plan_block, plan_dispatches
from zinc_rt.lower.dispatch_plan import GridInBlock
from zinc_rt.mem.heaps import BufferHeap

CHECKPOINT_BYTES = 4

Put = Callable[[VulkanStorage, int, np.ndarray], None]
"""(where, offset in bytes, uint8): the bytes are there when it returns."""


@dataclass(eq=False, slots=True)
class VulkanExecutable:
    """The executable of a lowered graph. `block`: arguments, grids and temporaries of its dispatches;
    `checkpoint`: in a debug build, the location where each barrier writes its number."""

    plan: DispatchPlan
    command_buffer: int
    block: VulkanBlock
    read_module: Callable[[str], bytes]
    timestamps: Timestamps | None = None
    checkpoint: VulkanBlock | None = None

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes of its dispatches, each once."""
        return tuple({id(step.node): step.node for step in self.plan.dispatches if step.node is not None}.values())

    def kernels(self) -> dict[str, bytes]:
        """Return the SPIR-V that it dispatches, by kernel."""
        return {
            name: self.read_module(name) for name in sorted({step.launch.kernel for step in self.plan.dispatches})
        }

    def times(self) -> Times:
        return self.timestamps.read() if self.timestamps is not None else Times("", False, ())

    def stopped_at(self) -> tuple[Dispatch, ...]:
        """Return the dispatches of which one has not finished, after a stalled replay; none without
        checkpoints.
        """
        if self.checkpoint is None or self.checkpoint.host is None:
            return ()
        storage = VulkanStorage(self.checkpoint, 0, CHECKPOINT_BYTES)
        (passed,) = struct.unpack("<I", storage.view())
        runs: list[list[Dispatch]] = [[]]
        for step in self.plan.steps:
            if isinstance(step, Barrier):
                runs.append([])
            else:
                runs[-1].append(step)
        return tuple(runs[passed]) if passed < len(runs) else ()


@dataclass(frozen=True, slots=True)
class VulkanBuilder:
    """Builder of a backend's executables. `put` writes device memory, `warm` receives new pipelines. `debug`:
    barriers write their numbers."""

    device: VulkanDevice
    memory: VulkanMemory
    pipelines: Pipelines
    pool: CommandPool
    put: Put
    warm: Callable[[list[Pipeline]], None]
    read_module: Callable[[str], bytes]
    debug: bool = False

    def build(self, lowered: LoweredGraph | PlannedGraph, buffers: Mapping[str, Buffer]) -> VulkanExecutable:
        """Build an executable. Raise UnsupportedError for a grid that the device does not support, ValueError if a
        kernel's arguments differ from its row."""
        plan = plan_dispatches(lowered)
        self._check_grids(plan)
        with ExitStack() as undo:
            pipelines, new = self.pipelines.get(step.launch.kernel for step in plan.dispatches)
            _check_arguments(plan, pipelines)
            self.warm(new)
            block = self.memory.block(plan.size_bytes, BufferHeap.DEVICE_LOCAL, f"program {plan.name}")
            undo.callback(self.memory.give_back, block)
            image = plan_block.build_content(plan, block.gpu_va, partial(gpu_address, lowered, buffers))
            storage = VulkanStorage(block, 0, plan.size_bytes)
            self.put(storage, plan.specs_offset, np.frombuffer(image, np.uint8))
            timestamps = checkpoint = None
            if lowered.timed:
                timestamps = Timestamps(self.device, [(step.node, step.launch.kernel) for step in plan.dispatches])
                undo.callback(timestamps.close)
            if self.debug:
                checkpoint = self.memory.block(
                    CHECKPOINT_BYTES, BufferHeap.HOST_VISIBLE, f"checkpoint of {plan.name}"
                )
                undo.callback(self.memory.give_back, checkpoint)
            buffer = self.record(plan, block, timestamps, checkpoint)
            undo.pop_all()
        return VulkanExecutable(plan, buffer, block, self.read_module, timestamps, checkpoint)

    def record(
        self,
        plan: DispatchPlan,
        block: VulkanBlock,
        timestamps: Timestamps | None = None,
        checkpoint: VulkanBlock | None = None,
    ) -> int:
        """Record a plan's command buffer. Its pipelines must exist."""
        pipelines, _ = self.pipelines.get(step.launch.kernel for step in plan.dispatches)
        storage = VulkanStorage(block, 0, plan.size_bytes)
        commands = record_plan(plan, storage, pipelines, self.pipelines.layout, timestamps, checkpoint)
        return self.pool.record(commands, replayed=True)

    def free(self, executable: VulkanExecutable) -> None:
        self.pool.free(executable.command_buffer)
        self.memory.give_back(executable.block)
        if executable.timestamps is not None:
            executable.timestamps.close()
        if executable.checkpoint is not None:
            self.memory.give_back(executable.checkpoint)

    def _check_grids(self, plan: DispatchPlan) -> None:
        maximum = self.device.limits.grid
        for step in plan.dispatches:
            grid = step.grid
            if isinstance(grid, tuple) and any(size > limit for size, limit in zip(grid, maximum, strict=True)):
                raise UnsupportedError(
                    f"{step.node!r}: {step.launch.kernel} needs {' x '.join(map(str, grid))} workgroups, but "
                    f"{self.device.physical.name} has maxComputeWorkGroupCount {' x '.join(map(str, maximum))}",
                    next="use a smaller step, or another tier",
                )


def record_plan(
    plan: DispatchPlan,
    block: VulkanStorage,
    pipelines: Mapping[str, Pipeline],
    layout: int,
    timestamps: Timestamps | None = None,
    checkpoint: VulkanBlock | None = None,
) -> Iterator[VulkanCommand]:
    """Return the commands of a plan. `block` is the plan's block. With `timestamps`, dispatches do not overlap."""
    if timestamps is not None:
        yield CmdResetQueryPool(timestamps.pool, timestamps.count)
    yield BEGIN
    if checkpoint is not None:
        yield _checkpoint_command(checkpoint, 0)
    bound = passed = query = 0
    for step in plan.steps:
        if isinstance(step, Barrier):
            passed += 1
            yield from _barrier_commands(checkpoint, passed)
            continue
        pipeline = pipelines[step.launch.kernel]
        if pipeline.handle != bound:
            bound = pipeline.handle
            yield CmdBindPipeline(bound)
        yield CmdPushConstants(layout, block.gpu_va + step.arguments_offset)
        if timestamps is not None:
            yield CmdWriteTimestamp(timestamps.pool, query)
        if isinstance(step.grid, GridInBlock):
            yield CmdDispatchIndirect(block.block.handle, block.handle_offset + step.grid.offset_bytes)
        else:
            yield CmdDispatch(step.grid)
        if timestamps is not None:
            yield CmdWriteTimestamp(timestamps.pool, query + 1)
            yield BETWEEN
            query += 2
    yield END


def _barrier_commands(checkpoint: VulkanBlock | None, passed: int) -> Iterator[VulkanCommand]:
    if checkpoint is None:
        yield BETWEEN
        return
    yield TO_CHECKPOINT
    yield _checkpoint_command(checkpoint, passed)


def _checkpoint_command(checkpoint: VulkanBlock, number: int) -> CmdFillBuffer:
    return CmdFillBuffer(checkpoint.handle, checkpoint.guard_bytes, CHECKPOINT_BYTES, number)


def _check_arguments(plan: DispatchPlan, pipelines: Mapping[str, Pipeline]) -> None:
    for step in plan.dispatches:
        takes = pipelines[step.launch.kernel].takes
        expected = len(takes.buffers), len(takes.constants)
        argument = len(step.launch.buffers), len(step.launch.constants)
        if argument != expected:
            raise ValueError(
                f"{step.node!r}: {step.launch.kernel} takes {expected[0]} buffers and {expected[1]} constants, "
                f"but its row passes {argument[0]} and {argument[1]}"
            )


def record_empty_runs(pipelines: Iterable[Pipeline], layout: int) -> Iterator[VulkanCommand]:
    """Dispatch each pipeline with zero workgroups, because a software driver compiles a kernel at its first
    dispatch.
    """
    for pipeline in pipelines:
        yield CmdBindPipeline(pipeline.handle)
        yield CmdPushConstants(layout, 0)
        yield CmdDispatch((0, 0, 0))


def record_single_run(pipeline: Pipeline, layout: int, kernarg_va: int, grid: Grid) -> Iterator[VulkanCommand]:
    """Return the commands of one dispatch. Raise ValueError for a grid that depends on a count of the step."""
    x, y, z = (int(axis) for axis in grid)
    yield CmdBindPipeline(pipeline.handle)
    yield CmdPushConstants(layout, kernarg_va)
    yield CmdDispatch((x, y, z))
