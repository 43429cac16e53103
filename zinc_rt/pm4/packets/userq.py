"""Packets that only user-mode queues take (userq.md).

Sources: Mesa amdgpu_cs.cpp and pm4_it_opcodes_gfx12.h, IGT amd_ip_blocks.c.
"""

from __future__ import annotations

from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.opcodes import Opcode
from zinc_rt.pm4.packet import Packet, payload, word

FENCE_WAIT_MAX = 32
"""Fences in one FENCE_WAIT_MULTI; 4 on gfx11 APUs (Mesa, IGT)."""


@packet(Opcode.PROTECTED_FENCE_SIGNAL, dwords=2)
class ProtectedFenceSignal(Packet):
    """The CP writes the queue's progress to the kernel's fence, and interrupts. Last before a doorbell."""

    dummy: int = word(1, default=0)


@packet(Opcode.FENCE_WAIT_MULTI, dwords=6, group=4)
class FenceWaitMulti(Packet):
    """Wait until every (va, value) has *va >= value.

    `control` holds an engine select, a poll interval and a preemptable bit; where they lie was not verified, so it
    is one dword here, and there is no default.
    """

    control: int = word(1)
    fences: tuple[tuple[int, int], ...] = payload(2, "fences")
