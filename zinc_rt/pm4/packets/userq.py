"""Packets that are valid only on user-mode queues (userq.md).

Sources: Mesa amdgpu_cs.cpp and pm4_it_opcodes_gfx12.h, IGT amd_ip_blocks.c.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.fields import payload, word
from zinc_rt.pm4.lint_rules import Complaint, StreamContext
from zinc_rt.pm4.packet import Access, Packet

FENCE_WAIT_MAX = 32
"""Fences in one FENCE_WAIT_MULTI; 4 on gfx11 APUs (Mesa, IGT)."""


@packet(0xD0, dwords=2)
class ProtectedFenceSignal(Packet):
    """Write the queue's progress to the driver's fence and interrupt. It is the last packet before a doorbell."""

    dummy: int = word(1, default=0)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        if context.queue == "kfd":
            yield (
                0,
                "fence-queue",
                "PROTECTED_FENCE_SIGNAL on a KFD queue",
                "write the fence to your own memory with RELEASE_MEM",
            )


@packet(0xD1, dwords=6, group=4)
class FenceWaitMulti(Packet):
    """Wait until *va >= value for every (va, value).

    `control` contains an engine select, a poll interval and a preemptable bit. Their positions are unverified, so
    it is one dword without a default.
    """

    control: int = word(1)
    fences: tuple[tuple[int, int], ...] = payload(2, "fences")

    def accesses(self) -> Iterator[Access]:
        for index, (va, _) in enumerate(self.fences):
            yield Access(va, 8, "read", 8, 2 + 4 * index)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        text = f"FENCE_WAIT_MULTI control {self.control:#x} is unverified"
        yield 1, "fence-wait", text, "use one WAIT_REG_MEM64 per fence"
        if len(self.fences) > FENCE_WAIT_MAX:
            text = f"FENCE_WAIT_MULTI of {len(self.fences)} fences, expected at most {FENCE_WAIT_MAX}"
            yield 0, "fence-wait-many", text, "split it"

    def payload_texts(self) -> Iterator[tuple[int, str]]:
        for index, (va, value) in enumerate(self.fences):
            yield 3 + 4 * index, f"fence[{index}].va={va:#x}"
            yield 5 + 4 * index, f"fence[{index}].value={value:#x}"
