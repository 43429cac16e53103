"""Packets that control the stream itself: padding, calls, skips.

Layouts: PAL gfx12_merged_f32_mec_pm4_packets.h, gfx9_plus_merged_f32_mec_pm4_packets.h.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import ClassVar, Self

from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.fields import CACHE, CACHE_LABELS, FUNCTIONS, Field, Place, Span, address, bits, pair
from zinc_rt.pm4.generation import BOTH, GFX12, Generation
from zinc_rt.pm4.lint_rules import Complaint, StreamContext
from zinc_rt.pm4.packet import Access, EncodeError, Packet, register

IB_ALIGN_BYTES, IB_ALIGN_DWORDS = 32, 8  # INFO's ib_start_alignment and ib_size_alignment for compute

ONE_DWORD_NOP = 0xFFFF1000
"""NOP with count 0x3FFF: by special rule one dword long (PAL, IGT, kfdtest)."""


@register
@dataclass(frozen=True, slots=True)
class Nop(Packet):
    """Padding of 1 + len(body) dwords, at most 16384. Without a body it uses the one-dword form."""

    body: tuple[int, ...] = dataclass_field(
        default=(), metadata={"place": Place((Span(1, 31, 0),), payload="values")}
    )

    OP: ClassVar[int] = 0x10
    NAME: ClassVar[str] = "NOP"
    ON: ClassVar[tuple[Generation, ...]] = BOTH
    DWORDS: ClassVar[tuple[int, ...]] = (1,)
    GROUP: ClassVar[int] = 1
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("body", Place((Span(1, 31, 0),), payload="values")),)

    def words(self, generation: Generation) -> list[int]:
        body = self.body
        if len(body) > 0x3FFF or any(item >> 32 for item in body):
            raise EncodeError(f"NOP of {1 + len(body)} dwords: expected at most 16384 dwords of 32 bits")
        header = 0xC0001000 | len(body) - 1 << 16 if body else ONE_DWORD_NOP
        for dword, extra in self.reserved:
            if dword or extra >> 8:
                raise EncodeError(
                    f"reserved bits {extra:#x} of dword {dword}: a NOP has reserved bits in its header only"
                )
            header |= extra
        return [header, *body]

    @classmethod
    def read(cls, words: Sequence[int], offset: int, length: int, generation: Generation) -> Self:
        low = words[offset] & 0xFF
        return cls(tuple(words[offset + 1 : offset + length]), reserved=((0, low),) if low else ())

    def payload_texts(self) -> Iterator[tuple[int, str]]:
        """Return no texts, since padding has no meaning."""
        return iter(())


@packet(0x3F, dwords=4)
class IndirectBuffer(Packet):
    """Run `size_dw` dwords at `address`, then continue here; with `chain`, do not return."""

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

    RESERVED_HINTS: ClassVar[Mapping[int, str]] = {
        3: "bit 22 is graphics' VMID inheritance; on compute it is bit 30"
    }

    def accesses(self) -> Iterator[Access]:
        yield Access(self.address, 4 * self.size_dw, "execute", 4, 1)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        if not self.valid:
            yield 3, "ib-valid", "INDIRECT_BUFFER without the valid bit (23)", "size | 1 << 23"
        if context.queue == "userq" and not self.inherit_vmid:
            text = "INDIRECT_BUFFER without bit 30 on a user queue"
            yield 3, "ib-inherit-vmid", text, "size | 1 << 23 | 1 << 30"
        if context.queue == "kfd" and self.inherit_vmid:
            yield 3, "ib-inherit-vmid-kfd", "INDIRECT_BUFFER with bit 30 on a KFD queue", "size | 1 << 23"
        if self.vmid or self.priv:
            text = f"INDIRECT_BUFFER with vmid {self.vmid}, priv {self.priv}: expected 0 and 0"
            yield 3, "ib-vmid", text, "the queue's own VMID is used"
        if self.size_dw == 0:
            yield 3, "ib-size", "INDIRECT_BUFFER of 0 dwords", "remove it"
        if self.address % IB_ALIGN_BYTES or self.size_dw % IB_ALIGN_DWORDS:
            text = f"IB of {self.size_dw} dwords at {self.address:#x}: expected multiples of 8 dwords and 32 bytes"
            yield 1, "ib-alignment", text, "pad with NOPs to 8 dwords"
        if context.is_ib and not self.chain:
            yield 0, "ib-nesting", "INDIRECT_BUFFER inside an IB", "call it from the ring, or use a chained IB"
        if self.chain and not context.is_ib:
            yield 3, "ib-chain", "INDIRECT_BUFFER with chain in the ring", "chain from an IB only"


@packet(0x5C, dwords=5, privileged=True)
class IndirectBufferPasid(Packet):
    """INDIRECT_BUFFER in another process's address space, reserved for the driver."""

    address: int = address(1)
    size_dw: int = bits(3, 19, 0)
    pasid: int = bits(4, 15, 0)
    chain: int = bits(3, 20, default=0)
    offload_polling: int = bits(3, 21, default=0)
    valid: int = bits(3, 23, default=1)
    cache_policy: int = bits(3, 29, 28, default=0, values=CACHE, labels=CACHE_LABELS)

    def accesses(self) -> Iterator[Access]:
        yield Access(self.address, 4 * self.size_dw, "execute", 4, 1)


@packet(0x3F, dwords=14)
class CondIndirectBuffer(Packet):
    """Run buffer 1 if (memory & mask) FUNCTION reference, else buffer 2 if the mode selects it."""

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

    def accesses(self) -> Iterator[Access]:
        yield Access(self.compare_address, 8, "read", 8, 2)
        yield Access(self.address_1, 4 * self.size_1_dw, "execute", 4, 8)
        if self.mode == 2:
            yield Access(self.address_2, 4 * self.size_2_dw, "execute", 4, 11)


@packet(0x22, dwords=5)
class CondExec(Packet):
    """Skip the next `exec_count` dwords if the dword at `address` is 0."""

    address: int = address(1)
    exec_count: int = bits(4, 13, 0)
    cache_policy: int = bits(3, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)

    def accesses(self) -> Iterator[Access]:
        yield Access(self.address, 4, "read", 4, 1)


@packet(0x23, dwords=2)
class PredExec(Packet):
    """Run the next `exec_count` dwords on the selected compute dies only.

    Not in PAL's MEC lists; layout from amdgpu's soc15d.h, used by tinygrad on multi-die gfx9 inside IBs.
    """

    exec_count: int = bits(1, 13, 0)
    xcc_select: int = bits(1, 31, 24, default=0)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        rule = "unlisted" if context.is_ib else "pred-exec-ring"
        yield 0, rule, "PRED_EXEC is not in AMD's tables of compute packets for this chip", "use COND_EXEC"


@packet(0x59, dwords=2)
class Rewind(Packet):
    """Read the rest of the buffer again until `valid` is set in memory."""

    valid: int = bits(1, 31, default=0)
    offload_enable: int = bits(1, 24, default=0)


@packet(0xD2, dwords=2, on=GFX12, privileged=True)
class CleanerShader(Packet):
    """Run the driver's LDS and register cleaning shader."""
