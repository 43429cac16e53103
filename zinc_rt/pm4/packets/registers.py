"""Packets that set registers. Offsets are dwords relative to the packet's base (registers.py), never absolute.

Layouts: PAL gfx12_merged_f32_mec_pm4_packets.h, gfx9_plus_merged_f32_mec_pm4_packets.h.
"""

from __future__ import annotations

from typing import Self

from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.generation import GFX12
from zinc_rt.pm4.opcodes import Opcode
from zinc_rt.pm4.packet import Packet, address, bits, payload

INDICES = {0: "default", 1: "insert_vmid"}


@packet(Opcode.SET_SH_REG, dwords=3, group=1)
class SetShReg(Packet):
    """Set consecutive SH registers from 0x2C00 + `register` on. They keep their values; nothing launches."""

    register: int = bits(1, 15, 0)
    values: tuple[int, ...] = payload(2)
    index: int = bits(1, 31, 28, default=0, values=INDICES)
    vmid_shift: int = bits(1, 27, 23, default=0)


@packet(Opcode.SET_SH_REG_INDEX, dwords=3, group=1)
class SetShRegIndex(Packet):
    """SET_SH_REG in a special way: index 3 combines a CU mask with the kernel's."""

    register: int = bits(1, 15, 0)
    values: tuple[int, ...] = payload(2)
    index: int = bits(1, 31, 28, default=3, values=INDICES | {3: "apply_kernel_cu_mask"})
    vmid_shift: int = bits(1, 27, 23, default=0)


@packet(Opcode.SET_UCONFIG_REG, dwords=3, group=1)
class SetUconfigReg(Packet):
    """Set consecutive UCONFIG registers from 0xC000 + `register` on."""

    register: int = bits(1, 15, 0)
    values: tuple[int, ...] = payload(2)


@packet(Opcode.SET_CONFIG_REG, dwords=3, group=1)
class SetConfigReg(Packet):
    """Set consecutive CONFIG registers from 0x2000 + `register` on: privileged on these chips."""

    register: int = bits(1, 15, 0)
    values: tuple[int, ...] = payload(2)
    index: int = bits(1, 31, 28, default=0, values=INDICES)
    vmid_shift: int = bits(1, 27, 23, default=0)


@packet(Opcode.SET_QUEUE_REG, dwords=3, group=1)
class SetQueueReg(Packet):
    """Set registers of a hardware queue: the kernel's, not ours."""

    register: int = bits(1, 7, 0)
    values: tuple[int, ...] = payload(2)
    defer_exec: int = bits(1, 15, default=0)
    queue: int = bits(1, 25, 16, default=0)


@packet(Opcode.SET_SH_REG_PAIRS, dwords=3, group=2, on=GFX12)
class SetShRegPairs(Packet):
    """Set SH registers that are not consecutive: (register, value) each."""

    writes: tuple[tuple[int, int], ...] = payload(1, "pairs")


@packet(Opcode.SET_UCONFIG_REG_PAIRS, dwords=3, group=2, on=GFX12)
class SetUconfigRegPairs(Packet):
    """Set UCONFIG registers that are not consecutive: (register, value) each."""

    writes: tuple[tuple[int, int], ...] = payload(1, "pairs")


@packet(Opcode.SET_SH_REG_PAIRS_PACKED, dwords=5, group=3)
class SetShRegPairsPacked(Packet):
    """SET_SH_REG_PAIRS with two registers a dword, so `writes` is even; `of` repeats one to make it so."""

    writes_count: int = bits(1, 15, 0)
    writes: tuple[tuple[int, int], ...] = payload(2, "packed")

    @classmethod
    def of(cls, writes: tuple[tuple[int, int], ...]) -> Self:
        padded = writes if len(writes) % 2 == 0 else (*writes, writes[0])
        return cls(len(padded), padded)


@packet(Opcode.SET_SH_REG_PAIRS_PACKED_N, dwords=5, group=3)
class SetShRegPairsPackedN(Packet):
    """SET_SH_REG_PAIRS_PACKED for few registers."""

    writes_count: int = bits(1, 15, 0)
    writes: tuple[tuple[int, int], ...] = payload(2, "packed")

    @classmethod
    def of(cls, writes: tuple[tuple[int, int], ...]) -> Self:
        padded = writes if len(writes) % 2 == 0 else (*writes, writes[0])
        return cls(len(padded), padded)


@packet(Opcode.LOAD_SH_REG_INDEX, dwords=5)
class LoadShRegIndex(Packet):
    """Load SH registers from memory. The lowest bits of the address dword hold `index`."""

    address_dw: int = bits(1, 31, 2)
    address_hi: int = bits(2, 31, 0)
    register: int = bits(3, 15, 0)
    num_dwords: int = bits(4, 13, 0)
    index: int = bits(1, 1, 0, default=0, values={0: "direct_address", 2: "indirect_address"})
    data_format: int = bits(3, 31, default=0, values={0: "offset_and_size", 1: "offset_and_data"})

    @property
    def address(self) -> int:
        """The VA in bytes."""
        return self.address_dw << 2 | self.address_hi << 32


@packet(Opcode.SET_BASE, dwords=4, on=GFX12)
class SetBase(Packet):
    """Set the base address that EXECUTE_INDIRECT_V2 counts from."""

    address: int = address(2)
    base_index: int = bits(1, 3, 0, default=6, values={6: "execute_indirect_v2"})
