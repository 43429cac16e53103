"""The kernarg segment: the caller's values at the offsets in the metadata, followed by the hidden arguments.

LLVM AMDGPUUsage, "Code Object V5 Metadata": value kinds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.launching.code_object import CodeKernel, KernelArgument
from zinc_rt.launching.values import LaunchBuffer, Lds, Value

Triple = tuple[int, int, int]
SHARED_BASE_HI, PRIVATE_BASE_HI = 1 << 16, 2 << 16  # apertures' upper halves, as KFD lays them out from gfx9 on


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The launch dimensions: `grid` counts workgroups, `block` the work-items of a workgroup."""

    grid: Triple
    block: Triple
    dimensions: int


def _make_axis_table(of: Callable[[LaunchShape], Triple]) -> dict[str, Callable[[LaunchShape], int]]:
    return {
        "x": lambda shape: of(shape)[0],
        "y": lambda shape: of(shape)[1],
        "z": lambda shape: of(shape)[2],
    }


_HIDDEN: dict[str, Callable[[LaunchShape], int]] = {
    **{f"hidden_block_count_{axis}": value for axis, value in _make_axis_table(lambda shape: shape.grid).items()},
    **{f"hidden_group_size_{axis}": value for axis, value in _make_axis_table(lambda shape: shape.block).items()},
    **{f"hidden_remainder_{axis}": lambda _: 0 for axis in "xyz"},  # the grid is whole workgroups
    **{f"hidden_global_offset_{axis}": lambda _: 0 for axis in "xyz"},
    "hidden_grid_dims": lambda shape: shape.dimensions,
    "hidden_shared_base": lambda _: SHARED_BASE_HI,
    "hidden_private_base": lambda _: PRIVATE_BASE_HI,
    # null: services of a language runtime. A kernel that uses one faults at address 0.
    **{
        f"hidden_{name}": lambda _: 0
        for name in (
            "none", "multigrid_sync_arg", "default_queue", "completion_action", "queue_ptr",
            "printf_buffer", "hostcall_buffer", "heap_v1",
        )
    },
}  # fmt: skip


Matched = list[tuple[KernelArgument, str, Value]]
"""Each argument with the name that the caller gave for it, and its value."""


def match(kernel: CodeKernel, values: Mapping[str, Value], workgroups: int = 1) -> Matched:
    """Match arguments by name if the metadata has names, else in order.

    Pointers that Triton appends to the arguments may be omitted: `workgroups` is the number of workgroups that
    each points to scratch memory for. Raise InputError with the metadata's argument list if they do not match.
    """
    wanted = kernel.shown
    appended = kernel.scratch_pointers
    if appended and len(values) == len(wanted) - len(appended):
        values = {
            **values,
            **{f"scratch {index}": _make_scratch(size, workgroups) for index, size in enumerate(appended)},
        }
    listed = "; ".join(str(item) for item in wanted) or "none"
    if len(wanted) != len(values):
        raise InputError(
            f"{kernel.name} takes {len(wanted)} arguments, but got {len(values)}. Arguments: {listed}"
        )
    names = {item.name for item in wanted}
    if "" in names or len(names) < len(wanted):
        pairs = list(zip(wanted, values.items(), strict=True))
        return [(item, name, _check_value(kernel, item, name, value)) for item, (name, value) in pairs]
    unknown = sorted(set(values) - names)
    if unknown:
        raise InputError(f"{kernel.name} has no argument {', '.join(unknown)}. Arguments: {listed}")
    return [(item, item.name, _check_value(kernel, item, item.name, values[item.name])) for item in wanted]


def _make_scratch(size_bytes: int, workgroups: int) -> Value:
    return LaunchBuffer(np.zeros(size_bytes * workgroups, np.uint8)) if size_bytes else None


def _check_value(kernel: CodeKernel, argument: KernelArgument, name: str, value: Value) -> Value:
    if value is None and argument.kind == "global_buffer":
        return value
    kinds = {"global_buffer": LaunchBuffer, "dynamic_shared_pointer": Lds, "by_value": np.generic}
    if argument.kind not in kinds:
        raise InputError(f"{kernel.name}: {argument}: this kind of argument is not supported")
    size = value.dtype.itemsize if isinstance(value, np.generic) else argument.size_bytes
    if not isinstance(value, kinds[argument.kind]) or size != argument.size_bytes:
        got = (
            "a buffer"
            if isinstance(value, LaunchBuffer)
            else "LDS"
            if isinstance(value, Lds)
            else "null"
            if value is None
            else f"{getattr(value, 'dtype', type(value).__name__)}"
        )
        raise InputError(f"{kernel.name}: {name} is {got}, but the metadata specifies {argument}")
    return value


def require_supported(kernel: CodeKernel) -> None:
    """Raise InputError for an unknown hidden argument, and for a stack of unknown size."""
    for argument in kernel.arguments:
        if argument.hidden and argument.kind not in _HIDDEN and argument.kind != "hidden_dynamic_lds_size":
            raise InputError(f"{kernel.name} needs {argument.kind}, which this version does not support")
    if kernel.dynamic_stack:
        raise InputError(f"{kernel.name} has a stack of unknown size (recursion, indirect calls)")


LDS_ALIGNMENT = 16  # of an array in LDS: that of its widest access
SEGMENT_ALIGNMENT = 16  # at least, of any kernarg segment: LLVM AMDGPUUsage, "Kernel Argument Segment"


def pack(
    kernel: CodeKernel,
    matched: Matched,
    addresses: Mapping[str, int],
    shape: LaunchShape,
    dynamic_lds_bytes: int = 0,
) -> tuple[bytes, int]:
    """Return the segment and the bytes of LDS per workgroup. `addresses`: the VA of each buffer by its given name.
    `dynamic_lds_bytes`: LDS after the kernel's own, which its code addresses as an `extern __shared__` array.

    The segment is padded to its alignment: compilers widen a scalar load up to the known alignment of its address,
    so a load of 12 bytes may become one of 16 and read past the last argument.
    """
    data = bytearray(-(-kernel.kernarg_bytes // SEGMENT_ALIGNMENT) * SEGMENT_ALIGNMENT)
    lds_bytes = kernel.group_bytes + dynamic_lds_bytes  # LLVM aligns the size of static LDS for what follows it
    for wanted, name, value in matched:
        if isinstance(value, LaunchBuffer):
            _put(data, wanted, struct.pack("<Q", addresses[name]))
        elif isinstance(value, Lds):
            lds_bytes = -(-lds_bytes // LDS_ALIGNMENT) * LDS_ALIGNMENT
            _put(data, wanted, struct.pack("<I", lds_bytes))
            lds_bytes += value.size_bytes
        elif value is None:
            _put(data, wanted, bytes(8))
        else:
            _put(data, wanted, value.tobytes())
    for argument in kernel.arguments:
        if argument.kind == "hidden_dynamic_lds_size":
            _put(data, argument, (lds_bytes - kernel.group_bytes).to_bytes(argument.size_bytes, "little"))
        elif argument.hidden:
            _put(data, argument, _HIDDEN[argument.kind](shape).to_bytes(argument.size_bytes, "little"))
    return bytes(data), lds_bytes


def _put(data: bytearray, where: KernelArgument, content: bytes) -> None:
    if where.offset + len(content) > len(data):
        raise InputError(f"{where}: is outside the segment of {len(data)} bytes")
    data[where.offset : where.offset + len(content)] = content
