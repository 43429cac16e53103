"""Compare the runtime's layout of ioctl arguments with a second table written from the kernel headers.

The simulated device's tables (zinc_rt/sim/tables) were written from the headers, independently of the
runtime. If the two differ for a failed call, on a card or on the simulated device, one of them is wrong,
and this explains the failure.
"""

from __future__ import annotations

from types import ModuleType

from zinc_rt.kmd.uapi import amdgpu, drm, kfd
from zinc_rt.sim.tables import amdgpu as amdgpu_table
from zinc_rt.sim.tables import drm as drm_table
from zinc_rt.sim.tables import kfd as kfd_table
from zinc_rt.sim.tables.structs import StructLayout

HEADERS: tuple[tuple[ModuleType, ModuleType, str], ...] = (
    (kfd, kfd_table, "kfd_ioctl.h"),
    (drm, drm_table, "drm.h"),
    (amdgpu, amdgpu_table, "amdgpu_drm.h"),
)


def find_difference(call: str) -> str:
    """Return a sentence with the first difference between runtime and header for this ioctl; empty if they agree
    or if `call` is in neither.
    """
    for runtime, table, header in HEADERS:
        ioctl = next((ioctl for ioctl in runtime.IOCTLS.values() if ioctl.name == call), None)
        theirs = next((ioctl for ioctl in table.IOCTLS.values() if ioctl.name == call), None)
        if ioctl is None or theirs is None:
            continue
        if (ioctl.type_, ioctl.number) != (theirs.type_, theirs.number):
            return (
                f"the runtime sends {call} as number {ioctl.number:#x}, {header} has {theirs.number:#x} "
                f"(zinc_rt/kmd/uapi/{runtime.__name__.rpartition('.')[2]}.py)"
            )
        if theirs.layout is not None:
            return _compare_structs(ioctl.struct.offsets, theirs.layout, call, header)
    return ""


def _compare_structs(offsets: dict[str, int], layout: StructLayout, call: str, header: str) -> str:
    for name, offset in offsets.items():
        member = layout.fields.get(name)
        if member is not None and member.offset != offset:
            return (
                f"the runtime's layout of {call}: {name} at offset {offset}, in {header} it is at {member.offset}"
            )
    return ""
