"""Packets for counters and address translation.

Layouts: PAL gfx12_merged_f32_mec_pm4_packets.h, gfx9_plus_merged_f32_mec_pm4_packets.h.
"""

from __future__ import annotations

from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.fields import address, bits
from zinc_rt.pm4.packet import Packet


@packet(0x54, dwords=3)
class PerfmonControl(Packet):
    """Configure one of the CP's performance monitors."""

    event: int = bits(2, 13, 0)
    counter: int = bits(1, 2, 0, default=0)
    enable: int = bits(1, 15, default=1)
    unit_mask: int = bits(1, 23, 16, default=0)


@packet(0x3D, dwords=2)
class PerfCounterWindow(Packet):
    """Open (7) or close (0) a window in which performance counters count."""

    operation: int = bits(1, 2, 0, values={0: "stop_window", 7: "start_window"})


@packet(0x5D, dwords=5)
class PrimeUtcl2(Packet):
    """Prefetch address translations; pages of 4 KiB."""

    address: int = address(2)
    requested_pages: int = bits(4, 13, 0)
    cache_permissions: int = bits(1, 2, 0, default=0)
    prime_mode: int = bits(1, 3, default=0, values={0: "dont_wait_for_xack", 1: "wait_for_xack"})


@packet(0x98, dwords=2, privileged=True)
class InvalidateTlbs(Packet):
    """Invalidate cached translations, reserved for the driver."""

    invalidate_sel: int = bits(1, 2, 0, default=0, values={0: "invalidate", 1: "use_pasid"})
    mmhub_invalidate_sel: int = bits(1, 4, 3, default=0, values={0: "no", 1: "mmhub_type", 2: "gfx_type"})
    pasid: int = bits(1, 20, 5, default=0)
    mmhub_flush_type: int = bits(1, 27, 25, default=0)
    gfx_flush_type: int = bits(1, 31, 29, default=0)
