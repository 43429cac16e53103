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


def _axis(of: Callable[[LaunchShape], Triple]) -> dict[str, Callable[[LaunchShape], int]]:
    return {
        "x": lambda shape: of(shape)[0],
        "y": lambda shape: of(shape)[1],
        "z": lambda shape: of(shape)[2],
    }


_HIDDEN: dict[str, Callable[[LaunchShape], int]] = {
    **{f"hidden_block_count_{axis}": value for axis, value in _axis(lambda shape: shape.grid).items()},
    **{f"hidden_group_size_{axis}": value for axis, value in _axis(lambda shape: shape.block).items()},
    **{f"hidden_remainder_{axis}": lambda _: 0 for axis in "xyz"},  # the grid is whole workgroups
    **{f"hidden_global_offset_{axis}": lambda _: 0 for axis in "xyz"},
    "hidden_grid_dims": lambda shape: shape.dimensions,
    "hidden_shared_base": lambda _: SHARED_BASE_HI,
    "hidden_private_base": lambda _: PRIVATE_BASE_HI,
    "hidden_none": lambda _: 0,
    # null where a program does not use them, as HIP leaves them
    "hidden_multigrid_sync_arg": lambda _: 0,
    "hidden_default_queue": lambda _: 0,
    "hidden_completion_action": lambda _: 0,
    "hidden_queue_ptr": lambda _: 0,
}
_REFUSED = {
    "hidden_printf_buffer": "printf",
    "hidden_hostcall_buffer": "calls to the host (printf, assert)",
    "hidden_heap_v1": "the device's heap (malloc)",
}


def match(kernel: CodeKernel, given: Mapping[str, Value]) -> list[tuple[KernelArgument, str, Value]]:
    """Match arguments by name if the metadata has names, else in order. Return (argument, given name, value) for
    each.

    Raise InputError with the metadata's argument list if they do not match.
    """
    wanted = kernel.shown
    listed = "; ".join(str(each) for each in wanted) or "none"
    if len(wanted) != len(given):
        raise InputError(f"{kernel.name} takes {len(wanted)} arguments, {len(given)} were given. It has: {listed}")
    names = {each.name for each in wanted}
    if "" in names or len(names) < len(wanted):
        pairs = list(zip(wanted, given.items(), strict=True))
        return [(each, name, _checked(kernel, each, name, value)) for each, (name, value) in pairs]
    unknown = sorted(set(given) - names)
    if unknown:
        raise InputError(f"{kernel.name} has no argument {', '.join(unknown)}. It has: {listed}")
    return [(each, each.name, _checked(kernel, each, each.name, given[each.name])) for each in wanted]


def _checked(kernel: CodeKernel, wanted: KernelArgument, name: str, value: Value) -> Value:
    kinds = {"global_buffer": LaunchBuffer, "dynamic_shared_pointer": Lds, "by_value": np.generic}
    if wanted.kind not in kinds:
        raise InputError(f"{kernel.name}: {wanted}: this kind of argument is not supported")
    size = value.dtype.itemsize if isinstance(value, np.generic) else wanted.size_bytes
    if not isinstance(value, kinds[wanted.kind]) or size != wanted.size_bytes:
        got = (
            "a buffer"
            if isinstance(value, LaunchBuffer)
            else "LDS"
            if isinstance(value, Lds)
            else f"{value.dtype}"
        )
        raise InputError(f"{kernel.name}: {name} is {got}, and the metadata has {wanted}")
    return value


def refuse_unsupported(kernel: CodeKernel) -> None:
    """Raise InputError for a hidden argument that requires services of a runtime."""
    for each in kernel.arguments:
        if each.kind in _REFUSED:
            raise InputError(f"{kernel.name} needs {each.kind}: {_REFUSED[each.kind]} is not supported")
        if each.hidden and each.kind not in _HIDDEN and each.kind != "hidden_dynamic_lds_size":
            raise InputError(f"{kernel.name} needs {each.kind}, which this version does not support")
    if kernel.dynamic_stack:
        raise InputError(f"{kernel.name} has a stack without a known size (recursion, calls by pointer)")


SEGMENT_ALIGNMENT = 16  # at least, of any kernarg segment: LLVM AMDGPUUsage, "Kernel Argument Segment"


def pack(
    kernel: CodeKernel,
    matched: list[tuple[KernelArgument, str, Value]],
    addresses: Mapping[str, int],
    shape: LaunchShape,
) -> tuple[bytes, int]:
    """Return the segment and the bytes of LDS per workgroup. `addresses`: the VA of each buffer by its given name.

    The segment is padded to its alignment: compilers widen a scalar load up to the known alignment of its address,
    so a load of 12 bytes may become one of 16 and read past the last argument.
    """
    data = bytearray(-(-kernel.kernarg_bytes // SEGMENT_ALIGNMENT) * SEGMENT_ALIGNMENT)
    lds_bytes = kernel.group_bytes
    for wanted, name, value in matched:
        if isinstance(value, LaunchBuffer):
            _put(data, wanted, struct.pack("<Q", addresses[name]))
        elif isinstance(value, Lds):
            lds_bytes = -(-lds_bytes // 16) * 16
            _put(data, wanted, struct.pack("<I", lds_bytes))
            lds_bytes += value.size_bytes
        else:
            _put(data, wanted, value.tobytes())
    for each in kernel.arguments:
        if each.kind == "hidden_dynamic_lds_size":
            _put(data, each, (lds_bytes - kernel.group_bytes).to_bytes(each.size_bytes, "little"))
        elif each.hidden:
            _put(data, each, _HIDDEN[each.kind](shape).to_bytes(each.size_bytes, "little"))
    return bytes(data), lds_bytes


def _put(data: bytearray, where: KernelArgument, content: bytes) -> None:
    if where.offset + len(content) > len(data):
        raise InputError(f"{where}: outside of the segment's {len(data)} bytes")
    data[where.offset : where.offset + len(content)] = content
