"""Packets that set registers. Offsets are dwords relative to the packet's base (registers.py), never absolute.

Layouts: PAL gfx12_merged_f32_mec_pm4_packets.h, gfx9_plus_merged_f32_mec_pm4_packets.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.fields import address, bits, payload
from zinc_rt.pm4.generation import GFX12
from zinc_rt.pm4.lint_registers import lint_registers
from zinc_rt.pm4.lint_rules import Complaint, StreamContext
from zinc_rt.pm4.packet import Access, Packet, RegisterWrite
from zinc_rt.pm4.registers import CONFIG, SH, UCONFIG, Sh

INDICES = {0: "default", 1: "insert_vmid"}


class _SetsRegisters(Packet):
    """A packet that sets registers of its SPACE; the rules for those registers apply to it."""

    __slots__ = ()

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        return lint_registers(self, context.generation)

    def payload_texts(self) -> Iterator[tuple[int, str]]:
        """Return no texts; the disassembler shows the registers instead."""
        return iter(())

    def _write(self, register: int, value: int, dword: int) -> RegisterWrite:
        assert self.SPACE is not None
        return RegisterWrite(self.SPACE.base + register, value, dword)


class _SetsConsecutive(_SetsRegisters):
    __slots__ = ()

    register: int
    values: tuple[int, ...]

    def register_writes(self) -> Iterator[RegisterWrite]:
        return (self._write(self.register + i, value, 2 + i) for i, value in enumerate(self.values))


class _SetsPairs(_SetsRegisters):
    __slots__ = ()

    writes: tuple[tuple[int, int], ...]

    def register_writes(self) -> Iterator[RegisterWrite]:
        return (self._write(register, value, 2 + 2 * i) for i, (register, value) in enumerate(self.writes))


@packet(0x76, dwords=3, group=1, sets=SH)
class SetShReg(_SetsConsecutive):
    """Set consecutive SH registers from 0x2C00 + `register`. The values persist; nothing is launched."""

    register: int = bits(1, 15, 0)
    values: tuple[int, ...] = payload(2)
    index: int = bits(1, 31, 28, default=0, values=INDICES)
    vmid_shift: int = bits(1, 27, 23, default=0)

    def accesses(self) -> Iterator[Access]:
        """Return the access to the code that PGM_LO and PGM_HI point to."""
        index = Sh.PGM_LO - self.register
        if 0 <= index < len(self.values) - 1:
            low, high = self.values[index : index + 2]
            yield Access((low | (high & 0xFF) << 32) << 8, 4, "execute", 256, 2 + index)


@packet(0x9B, dwords=3, group=1, sets=SH)
class SetShRegIndex(_SetsConsecutive):
    """SET_SH_REG with an index: index 3 combines a CU mask with the driver's mask."""

    register: int = bits(1, 15, 0)
    values: tuple[int, ...] = payload(2)
    index: int = bits(1, 31, 28, default=3, values=INDICES | {3: "apply_kernel_cu_mask"})
    vmid_shift: int = bits(1, 27, 23, default=0)


@packet(0x79, dwords=3, group=1, sets=UCONFIG)
class SetUconfigReg(_SetsConsecutive):
    """Set consecutive UCONFIG registers from 0xC000 + `register`."""

    register: int = bits(1, 15, 0)
    values: tuple[int, ...] = payload(2)


@packet(0x68, dwords=3, group=1, sets=CONFIG, privileged=True)
class SetConfigReg(_SetsConsecutive):
    """Set consecutive CONFIG registers from 0x2000 + `register`; privileged on these chips."""

    register: int = bits(1, 15, 0)
    values: tuple[int, ...] = payload(2)
    index: int = bits(1, 31, 28, default=0, values=INDICES)
    vmid_shift: int = bits(1, 27, 23, default=0)


@packet(0x78, dwords=3, group=1, privileged=True)
class SetQueueReg(Packet):
    """Set registers of a hardware queue, reserved for the driver."""

    register: int = bits(1, 7, 0)
    values: tuple[int, ...] = payload(2)
    defer_exec: int = bits(1, 15, default=0)
    queue: int = bits(1, 25, 16, default=0)


@packet(0xBA, dwords=3, group=2, on=GFX12, sets=SH)
class SetShRegPairs(_SetsPairs):
    """Set nonconsecutive SH registers: a list of (register, value)."""

    writes: tuple[tuple[int, int], ...] = payload(1, "pairs")


@packet(0xBE, dwords=3, group=2, on=GFX12, sets=UCONFIG)
class SetUconfigRegPairs(_SetsPairs):
    """Set nonconsecutive UCONFIG registers: a list of (register, value)."""

    writes: tuple[tuple[int, int], ...] = payload(1, "pairs")


@packet(0xBC, dwords=5, group=3, sets=SH)
class SetShRegPairsPacked(_SetsRegisters):
    """SET_SH_REG_PAIRS with two registers per dword, so `writes` is even; `of` repeats one to pad an odd
    number.
    """

    writes_count: int = bits(1, 15, 0)
    writes: tuple[tuple[int, int], ...] = payload(2, "packed")

    @classmethod
    def of(cls, writes: tuple[tuple[int, int], ...]) -> Self:
        padded = writes if len(writes) % 2 == 0 else (*writes, writes[0])
        return cls(len(padded), padded)

    def register_writes(self) -> Iterator[RegisterWrite]:
        for index, (register, value) in enumerate(self.writes):
            yield self._write(register, value, 3 + 3 * (index // 2) + index % 2)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        yield from lint_registers(self, context.generation)
        if self.writes_count != len(self.writes):
            text = f"{self.NAME} has count {self.writes_count} but holds {len(self.writes)} registers"
            yield 1, "register-count", text, f"{type(self).__name__}.of(writes) counts"


@packet(0xBD, dwords=5, group=3, sets=SH)
class SetShRegPairsPackedN(SetShRegPairsPacked):
    """SET_SH_REG_PAIRS_PACKED for a small number of registers."""


@packet(0x63, dwords=5)
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
        """Return the VA in bytes."""
        return self.address_dw << 2 | self.address_hi << 32

    def accesses(self) -> Iterator[Access]:
        yield Access(self.address, 4 * max(1, self.num_dwords), "read", 4, 1)


@packet(0x11, dwords=4, on=GFX12)
class SetBase(Packet):
    """Set the base address for EXECUTE_INDIRECT_V2."""

    address: int = address(2)
    base_index: int = bits(1, 3, 0, default=6, values={6: "execute_indirect_v2"})
