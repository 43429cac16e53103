"""Byte layouts (little-endian) of AQL packets and of the structures they point to.

Sources: HSA Runtime Programmer's Reference 1.2, section 2.9 (packets) and hsa.h; ROCr's amd_hsa_queue.h,
amd_hsa_signal.h, amd_hsa_kernel_code.h and hsa_ven_amd_aqlprofile (vendor packets); LLVM AMDGPUUsage, "Kernel
Descriptor" (descriptor, order of user SGPRs); exception codes: enum
kfd_dbg_trap_exception_code of include/uapi/linux/kfd_ioctl.h.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

PACKET_BYTES = 64
PACKET_DW = PACKET_BYTES // 4
SIGNAL_BYTES = 64
DESCRIPTOR_BYTES = 64


class AqlType(IntEnum):
    """Header bits 7:0."""

    VENDOR = 0
    INVALID = 1
    KERNEL_DISPATCH = 2
    BARRIER_AND = 3
    AGENT_DISPATCH = 4
    BARRIER_OR = 5


class AqlVendor(IntEnum):
    """AmdFormat, the byte after the header of a vendor packet."""

    PM4_IB = 1
    BARRIER_VALUE = 2


class AqlFault(IntEnum):
    """The exception that ends a queue, if amdkfd can report it to the process (bit code - 1 of its
    error reason)."""

    WAVE_MEMORY_VIOLATION = 5
    DIM_INVALID = 16
    GROUP_SEGMENT_SIZE_INVALID = 17
    CODE_INVALID = 18
    PACKET_RESERVED = 19
    PACKET_UNSUPPORTED = 20
    WORK_GROUP_SIZE_INVALID = 21
    VENDOR_UNSUPPORTED = 23


BARRIER_BIT = 1 << 8
ACQUIRE_SHIFT, RELEASE_SHIFT, SCOPE_MASK = 9, 11, 3
SCOPE_AGENT, SCOPE_SYSTEM = 1, 2

DISPATCH = struct.Struct("<HH3HH3IIIQQQQ")
BARRIER = struct.Struct("<HHI5QQQ")
BARRIER_VALUE = struct.Struct("<HBBIQqqI20xQ")
PM4_IB = struct.Struct("<HH4II8IQ")
DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
SIGNAL = struct.Struct("<qqQI4xQQQ8x")

# amd_signal_t
SIGNAL_VALUE, SIGNAL_START_TS = 8, 32

# amd_queue_t, by the distance from its start
QUEUE_READ_INDEX = 0x80
QUEUE_BASE_OFFSET = 0x88  # offset of read_dispatch_id_field_base_byte_offset, from which the CP finds the start
QUEUE_TMPRING_SIZE = 0x8C
QUEUE_SCRATCH_VA = 0xA0
QUEUE_PROPERTIES = 0xB4
QUEUE_INACTIVE_SIGNAL = 0xC0
PROPERTY_PROFILING = 1 << 3
INACTIVE_SCRATCH = 1  # value of the inactive signal if a dispatch needs more scratch than the queue has

# kernel_code_properties
SGPR_SEGMENT_BUFFER, SGPR_DISPATCH_PTR, SGPR_QUEUE_PTR, SGPR_KERNARG = 1 << 0, 1 << 1, 1 << 2, 1 << 3
SGPR_DISPATCH_ID, SGPR_FLAT_SCRATCH, SGPR_PRIVATE_SIZE = 1 << 4, 1 << 5, 1 << 6
WAVE32, DYNAMIC_STACK = 1 << 10, 1 << 11


@dataclass(frozen=True, slots=True)
class DispatchPacket:
    """hsa_kernel_dispatch_packet_t."""

    setup: int
    group_threads: tuple[int, int, int]
    reserved: int
    grid_threads: tuple[int, int, int]
    private_bytes: int  # of a lane
    group_bytes: int
    kernel_va: int  # of the descriptor
    kernarg_va: int
    reserved_2: int
    signal_va: int

    @classmethod
    def read(cls, packet: bytes) -> DispatchPacket:
        _, setup, gx, gy, gz, spare, x, y, z, private, group, kernel, kernarg, spare_2, signal = DISPATCH.unpack(
            packet
        )
        return cls(setup, (gx, gy, gz), spare, (x, y, z), private, group, kernel, kernarg, spare_2, signal)


@dataclass(frozen=True, slots=True)
class KernelDescriptor:
    """amdhsa kernel descriptor, code object version 3 and later."""

    group_bytes: int
    private_bytes: int
    kernarg_bytes: int
    entry_offset: int  # of the code from the descriptor
    rsrc3: int
    rsrc1: int
    rsrc2: int
    properties: int
    preload: int

    @classmethod
    def read(cls, data: bytes) -> KernelDescriptor:
        return cls(*DESCRIPTOR.unpack(data))
