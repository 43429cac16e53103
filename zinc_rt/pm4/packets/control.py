"""Packets that steer the stream itself: padding, calls, skips.

Layouts: PAL gfx12_merged_f32_mec_pm4_packets.h, gfx9_plus_merged_f32_mec_pm4_packets.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import ClassVar, Self

from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.generation import BOTH, GFX12, Generation
from zinc_rt.pm4.opcodes import Opcode
from zinc_rt.pm4.packet import EncodeError, Field, Packet, Place, Span, address, bits, pair
from zinc_rt.pm4.packets.names import CACHE, CACHE_LABELS, FUNCTIONS

ONE_DWORD_NOP = 0xFFFF1000
"""NOP with count 0x3FFF: by special rule one dword long (PAL, IGT, kfdtest)."""


@dataclass(frozen=True, slots=True)
class Nop(Packet):
    """Padding of 1 + len(body) dwords, at most 16384. Without a body it is the one-dword form."""

    body: tuple[int, ...] = dataclass_field(
        default=(), metadata={"place": Place((Span(1, 31, 0),), payload="values")}
    )

    OP: ClassVar[Opcode] = Opcode.NOP
    NAME: ClassVar[str] = "NOP"
    ON: ClassVar[tuple[Generation, ...]] = BOTH
    DWORDS: ClassVar[tuple[int, ...]] = (1,)
    GROUP: ClassVar[int] = 1
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("body", Place((Span(1, 31, 0),), payload="values")),)

    def words(self, generation: Generation) -> list[int]:
        body = self.body
        if len(body) > 0x3FFF or any(item >> 32 for item in body):
            raise EncodeError(f"NOP of {1 + len(body)} dwords: wanted at most 16384 dwords of 32 bits")
        header = 0xC0001000 | len(body) - 1 << 16 if body else ONE_DWORD_NOP
        for dword, extra in self.reserved:
            if dword or extra >> 8:
                raise EncodeError(f"reserved bits {extra:#x} of dword {dword}: a NOP has those of its header only")
            header |= extra
        return [header, *body]

    @classmethod
    def read(cls, words: Sequence[int], offset: int, length: int, generation: Generation) -> Self:
        low = words[offset] & 0xFF
        return cls(tuple(words[offset + 1 : offset + length]), reserved=((0, low),) if low else ())


@packet(Opcode.INDIRECT_BUFFER, dwords=4)
class IndirectBuffer(Packet):
    """Run `size_dw` dwords at `address`, then go on here; with `chain`, never come back."""

    address: int = address(1)
    size_dw: int = bits(3, 19, 0)
    inherit_vmid: int = bits(
        3, 30, default=0
    )  # the VMID of the queue's MQD, for user queues (IGT, Mesa on the MEC)
    chain: int = bits(3, 20, default=0)
    offload_polling: int = bits(3, 21, default=0)
    valid: int = bits(3, 23, default=1)
    vmid: int = bits(3, 27, 24, default=0)
    cache_policy: int = bits(3, 29, 28, default=0, values=CACHE, labels=CACHE_LABELS)
    priv: int = bits(3, 31, default=0)


@packet(Opcode.INDIRECT_BUFFER_PASID, dwords=5)
class IndirectBufferPasid(Packet):
    """INDIRECT_BUFFER in another process's address space: the kernel's, not ours."""

    address: int = address(1)
    size_dw: int = bits(3, 19, 0)
    pasid: int = bits(4, 15, 0)
    chain: int = bits(3, 20, default=0)
    offload_polling: int = bits(3, 21, default=0)
    valid: int = bits(3, 23, default=1)
    cache_policy: int = bits(3, 29, 28, default=0, values=CACHE, labels=CACHE_LABELS)


@packet(Opcode.INDIRECT_BUFFER, dwords=14, name="COND_INDIRECT_BUFFER")
class CondIndirectBuffer(Packet):
    """Run buffer 1 if (memory & mask) FUNCTION reference, else buffer 2 where mode says so."""

    compare_address: int = address(2)
    mask: int = pair(4)
    reference: int = pair(6)
    address_1: int = address(8)
    size_1_dw: int = bits(10, 19, 0)
    address_2: int = address(11, default=0)
    size_2_dw: int = bits(13, 19, 0, default=0)
    function: int = bits(1, 10, 8, default=3, values=FUNCTIONS)
    mode: int = bits(1, 1, 0, default=1, values={1: "if_then", 2: "if_then_else"})
    cache_policy_1: int = bits(10, 29, 28, default=0, values=CACHE, labels=("cache_policy_1", "temporal_1"))
    cache_policy_2: int = bits(13, 29, 28, default=0, values=CACHE, labels=("cache_policy_2", "temporal_2"))


@packet(Opcode.COND_EXEC, dwords=5)
class CondExec(Packet):
    """Skip the next `exec_count` dwords if the dword at `address` is 0."""

    address: int = address(1)
    exec_count: int = bits(4, 13, 0)
    cache_policy: int = bits(3, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)


@packet(Opcode.PRED_EXEC, dwords=2)
class PredExec(Packet):
    """Run the next `exec_count` dwords on the selected compute dies only.

    Not in PAL's MEC lists; layout from the kernel's soc15d.h, used by tinygrad on multi-die gfx9 inside IBs.
    """

    exec_count: int = bits(1, 13, 0)
    xcc_select: int = bits(1, 31, 24, default=0)


@packet(Opcode.REWIND, dwords=2)
class Rewind(Packet):
    """Read the rest of the buffer again until `valid` is set in memory."""

    valid: int = bits(1, 31, default=0)
    offload_enable: int = bits(1, 24, default=0)


@packet(Opcode.CLEANER_SHADER, dwords=2, on=GFX12)
class CleanerShader(Packet):
    """Run the kernel's LDS and register cleaning shader."""
