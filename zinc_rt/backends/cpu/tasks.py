"""A dispatch plan as the task list that kernels/native/c/pool.c walks. The structs are task.h's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from zinc_rt.backends.cpu.host_memory import allocate_aligned
from zinc_rt.backends.cpu.read_ahead import FollowedGraph
from zinc_rt.backends.cpu.sharing import share
from zinc_rt.backends.times import TimedDispatch, Times
from zinc_rt.exec import Buffer
from zinc_rt.ir.graph import SYMBOLS, Node
from zinc_rt.kernels.launch import COUNTS, Operand, Ref, Stride, Temp
from zinc_rt.kernels.native.task import ANY, Task
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph
from zinc_rt.lower.dispatch_plan import RESIDENT, Dispatch, GridInBlock, dispatch_plan

IS_COUNT = 1 << 31
LINE_BYTES = 64
CLOCK = "this CPU's counter, scaled by the host's clock"
TASK = np.dtype(
    [("run", "u8"), ("arguments", "u8"), ("dims", "u4", 3), ("barrier", "u4"), ("least", "u4"), ("most", "u4")],
    align=True,
)


class TaskListStruct(ctypes.Structure):
    """`task_list` of task.h."""

    _fields_ = (
        ("tasks", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("cells", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
        ("shuffle", ctypes.c_uint32),
        ("seen", ctypes.c_void_p),
    )


class PoolStruct(ctypes.Structure):
    """`pool` of task.h. It must be aligned to a cache line; `allocate_aligned` allocates it so."""

    _fields_ = (
        ("running", ctypes.c_void_p),
        ("epoch", ctypes.c_uint32),
        ("stop", ctypes.c_uint32),
        ("failed", ctypes.c_uint64),
        ("pad", ctypes.c_uint8 * (LINE_BYTES - 24)),
        ("inside", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("yield_core", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class TaskSplitting:
    """A rule for splitting ranges, used by tests because results must not depend on it. `least` 0: use the value
    of each launch.
    """

    least: int = 0
    shuffle: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class NativeExecutable:
    """`tasks`: the node of each task, None for tasks that the plan added, and its kernel. The arrays keep alive
    what the tasks point to."""

    struct: TaskListStruct
    tasks: tuple[tuple[Node | None, str], ...]
    keeps: tuple[object, ...]
    cells: np.ndarray  # u8 [tasks, LINE_BYTES]: task.h's `cell`
    followed: FollowedGraph | None = None  # where its weights do not fit memory
    seen: np.ndarray | None = None  # u64 [2 + 2 tasks]: task.h's, of a timed graph
    host_ns: list[int] = field(default_factory=list)  # before and after its last call

    def kernels(self) -> dict[str, bytes]:
        return {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple({id(node): node for node, _ in self.tasks if node is not None}.values())

    def times(self) -> Times:
        """Return the times of the last replay. A task without items has a duration of 0."""
        if self.seen is None or not self.host_ns or self.seen[1] <= self.seen[0]:
            return Times(CLOCK, False, ())
        first, last = int(self.seen[0]), int(self.seen[1])
        start, scale = self.host_ns[0], (self.host_ns[1] - self.host_ns[0]) / (last - first)
        dispatches = []
        index = first
        for number, (node, kernel) in enumerate(self.tasks):
            start_time, ended = (int(reading) for reading in self.seen[2 + 2 * number : 4 + 2 * number])
            start_time, ended = (start_time, ended) if start_time else (index, index)
            index = ended
            dispatches.append(
                TimedDispatch(
                    node, kernel, *(start + round((item - first) * scale) for item in (start_time, ended))
                )
            )
        return Times(CLOCK, False, tuple(dispatches), host_time=True)

    def running(self) -> int:
        """Return the last task of which a part was claimed; 0 if none was. May be called during a replay."""
        claimed = np.flatnonzero(self.cells.view(np.uint32)[:, 0])  # the lower half of `next`
        return int(claimed[-1]) if claimed.size else 0


def build(
    lowered: LoweredGraph, buffers: Mapping[str, Buffer], kernel: Callable[[str], int], splitting: TaskSplitting
) -> NativeExecutable:
    """Build an executable. `kernel` returns a kernel's address by name. Raise UnsupportedError for an unsupported
    grid."""
    steps, block_bytes = share(dispatch_plan(lowered), lowered.graph)
    block = allocate_aligned(block_bytes)
    address = _Addresses(lowered, buffers, block.ctypes.data)
    tasks = allocate_aligned(len(steps) * TASK.itemsize).view(TASK)
    for row, item in zip(tasks, steps, strict=True):
        step = item.dispatch
        arguments = step.launch.pack_kernarg(partial(address.of, step.temps))
        end = step.arguments_offset + len(arguments)
        block[step.arguments_offset : end] = np.frombuffer(arguments, np.uint8)
        row["run"], row["arguments"] = kernel(step.launch.kernel), block.ctypes.data + step.arguments_offset
        row["dims"], row["barrier"] = encode_dims(step), item.barrier or lowered.timed
        row["least"], row["most"] = choose_claims(step, splitting)
    cells = allocate_aligned(len(steps) * LINE_BYTES)
    struct = TaskListStruct(
        tasks.ctypes.data, address.of({}, Ref(COUNTS)), cells.ctypes.data, len(steps), splitting.shuffle
    )
    seen = np.zeros(2 + 2 * len(steps), np.uint64) if lowered.timed else None
    if seen is not None:
        struct.seen = seen.ctypes.data
    return NativeExecutable(
        struct,
        tuple((item.dispatch.node, item.dispatch.launch.kernel) for item in steps),
        (block, tasks, tuple(buffers.values())),
        cells.reshape(-1, LINE_BYTES),
        seen=seen,
    )


def encode_dims(step: Dispatch) -> tuple[int, ...]:
    """Return the dimensions of a task's grid: numbers, and IS_COUNT with the index of a count."""
    dims = step.grid.dims if isinstance(step.grid, GridInBlock) else step.grid
    return tuple(IS_COUNT | SYMBOLS.index(dim) if isinstance(dim, str) else dim for dim in dims)


def choose_claims(step: Dispatch, splitting: TaskSplitting) -> tuple[int, int]:
    """Return the least and the most items that a thread claims at a time."""
    if splitting.least:
        return splitting.least, splitting.least
    launch = step.launch
    return (launch.least, launch.most) if isinstance(launch, Task) else (1, ANY)


class _Addresses:
    """The addresses of a launch's operands."""

    def __init__(self, lowered: LoweredGraph, buffers: Mapping[str, Buffer], block: int) -> None:
        self._lowered = lowered
        self._buffers = buffers
        self._block = block

    def of(self, temps: Mapping[str, int], operand: Operand) -> int:
        if isinstance(operand, Temp):
            return self._block + temps[operand.name]
        spec = self._lowered.graph.buffers.get(operand.name)
        if spec is not None and spec.role in RESIDENT:
            weight: Weight = self._buffers[operand.name].storage
            if isinstance(operand, Stride):
                return weight.raw.strides[operand.axis]
            return weight.raw.ctypes.data + operand.offset_bytes
        assert isinstance(operand, Ref), f"{operand.name} is no weight: its strides are its shape's"
        placement = self._lowered.plan.placements[operand.name]
        storage: np.ndarray = self._buffers[placement.allocation].storage
        return storage.ctypes.data + placement.offset_bytes + operand.offset_bytes
