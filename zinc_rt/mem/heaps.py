"""The three heaps, and the heap for each buffer role."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from zinc_rt.ir.graph import Role


class BufferHeap(StrEnum):
    DEVICE_LOCAL = "device_local"  # VRAM the host does not map
    BAR = "bar"  # VRAM the host maps: small, read by the host after each replay
    HOST_VISIBLE = "host_visible"  # system memory both sides map


ROLE_HEAPS: Mapping[Role, BufferHeap] = MappingProxyType(
    {
        "weight": BufferHeap.DEVICE_LOCAL,
        "constant": BufferHeap.DEVICE_LOCAL,
        "state": BufferHeap.DEVICE_LOCAL,
        "table": BufferHeap.BAR,  # an audit reads it back
        "activation": BufferHeap.DEVICE_LOCAL,
        "step": BufferHeap.HOST_VISIBLE,
        "output": BufferHeap.BAR,
    }
)
