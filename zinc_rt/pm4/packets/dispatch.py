"""Packets that launch work. The CP continues once the launch is handed over, so ordering requires a fence.

Layouts: PAL gfx12_merged_f32_mec_pm4_packets.h, gfx9_plus_merged_f32_mec_pm4_packets.h.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.pm4.bits import combine_masks
from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.fields import address, bits, word
from zinc_rt.pm4.generation import GFX12
from zinc_rt.pm4.lint_rules import Complaint, StreamContext
from zinc_rt.pm4.packet import Access, Packet
from zinc_rt.pm4.registers import DISPATCH_INITIATOR


def _lint_initiator(initiator: int, dword: int, context: StreamContext) -> Iterator[Complaint]:
    if not initiator & 1:
        text = f"initiator {initiator:#x} lacks COMPUTE_SHADER_EN (bit 0)"
        yield dword, "dispatch-disabled", text, "0x8005 launches wave32, 0x5 wave64"
    extra = initiator & ~combine_masks(DISPATCH_INITIATOR[context.generation])
    if extra:
        yield (
            dword,
            "register-bits",
            f"initiator {initiator:#x}: bits {extra:#x} are outside all fields",
            "write 0",
        )


@packet(0x15, dwords=5)
class DispatchDirect(Packet):
    """Launch x * y * z workgroups, or threads if the initiator sets USE_THREAD_DIMENSIONS."""

    dim_x: int = word(1)
    dim_y: int = word(2)
    dim_z: int = word(3)
    initiator: int = word(4, inner=DISPATCH_INITIATOR)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        yield from _lint_initiator(self.initiator, 4, context)
        if 0 in (self.dim_x, self.dim_y, self.dim_z):
            text = f"DISPATCH_DIRECT of {self.dim_x} x {self.dim_y} x {self.dim_z}"
            yield 1, "dispatch-empty", text, "remove it"


@packet(0x16, dwords=4)
class DispatchIndirect(Packet):
    """Launch with x, y, z read from three dwords at `address`, a full VA: the compute engine's form."""

    address: int = address(1)
    initiator: int = word(3, inner=DISPATCH_INITIATOR)

    def accesses(self) -> Iterator[Access]:
        yield Access(self.address, 12, "read", 4, 1)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        yield from _lint_initiator(self.initiator, 3, context)


@packet(0xA9, dwords=3)
class DispatchTaskStateInit(Packet):
    """Set the address of the task ring's control buffer; 256-byte aligned."""

    control_address: int = address(1)

    def accesses(self) -> Iterator[Access]:
        yield Access(self.control_address, 4, "read", 256, 1)


@packet(0xAA, dwords=6)
class DispatchTaskmeshDirectAce(Packet):
    """Launch task shaders for a graphics queue."""

    dim_x: int = word(1)
    dim_y: int = word(2)
    dim_z: int = word(3)
    initiator: int = word(4, inner=DISPATCH_INITIATOR)
    ring_entry_register: int = bits(5, 15, 0)


@packet(0xAD, dwords=11)
class DispatchTaskmeshIndirectMultiAce(Packet):
    """Launch task shaders for a graphics queue, with the count and sizes read from memory."""

    data_address: int = address(1)
    count: int = word(6)
    count_address: int = address(7)
    stride: int = word(9)
    initiator: int = word(10, inner=DISPATCH_INITIATOR)
    ring_entry_register: int = bits(3, 15, 0)
    dispatch_index_register: int = bits(4, 31, 16, default=0)
    dims_register: int = bits(5, 15, 0, default=0)
    thread_trace_marker: int = bits(4, 0, default=0)
    count_indirect: int = bits(4, 1, default=0)
    draw_index: int = bits(4, 2, default=0)
    dims_enable: int = bits(4, 3, default=0)


@packet(0xB4, dwords=13, on=GFX12)
class ExecuteIndirectV2(Packet):
    """Execute up to `max_count` dispatches described in memory."""

    count_address: int = address(2, high_bits=16)
    data_address: int = address(6, high_bits=16)
    max_count: int = word(4)
    stride: int = word(5)
    operation: int = bits(1, 21, 19, default=2, values={2: "dispatch", 5: "dispatch_taskmesh"})
    count_indirect: int = bits(1, 0, default=0)
    userdata_dw_count: int = bits(1, 5, 1, default=0)
    command_index: int = bits(1, 6, default=0)
    num_spill_registers: int = bits(1, 9, 8, default=0)
    init_copy_count: int = bits(1, 12, 10, default=0)
    update_copy_count: int = bits(1, 18, 16, default=0)
    userdata_scatter_mode: int = bits(1, 25, 23, default=0, values={0: "cs_only"})
    thread_trace: int = bits(1, 31, default=0)
    userdata_offset: int = bits(8, 31, 16, default=0)
    spill_table_address: int = address(9, high_bits=16, default=0)
    spill_table_stride: int = bits(11, 31, 16, default=0)
    spill_register_0: int = bits(12, 15, 0, default=0)
    spill_register_1: int = bits(12, 31, 16, default=0)

    def accesses(self) -> Iterator[Access]:
        if self.count_indirect:
            yield Access(self.count_address, 4, "read", 4, 2)
