"""A variant's content on a GPU tier: PM4 packets for one indirect buffer."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.pm4.layout import Packet
from zinc_rt.ring.device_memory import Storage
from zinc_rt.ring.examine import IndirectCode


@dataclass(frozen=True, slots=True)
class PacketProgram:
    """Raw packets, run as they stand; the backend puts a cache invalidation before them."""

    packets: tuple[Packet, ...]
    name: str = "packets"


@dataclass(eq=False, slots=True)
class AmdVariant:
    """A built program: its indirect buffer in GPU memory, replayed as it is."""

    name: str
    ib: IndirectCode
    storage: Storage
