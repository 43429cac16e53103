"""The three heaps, and which one a buffer's role puts it in."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from zinc_rt.ir.graph import Role


class Heap(StrEnum):
    DEVICE_LOCAL = "device_local"  # VRAM the host does not map
    BAR = "bar"  # VRAM the host maps: small, read by the host after each replay
    HOST_VISIBLE = "host_visible"  # system memory both sides map


ROLE_HEAPS: Mapping[Role, Heap] = MappingProxyType(
    {
        "weight": Heap.DEVICE_LOCAL,
        "constant": Heap.DEVICE_LOCAL,
        "state": Heap.DEVICE_LOCAL,
        "table": Heap.DEVICE_LOCAL,
        "activation": Heap.DEVICE_LOCAL,
        "step": Heap.HOST_VISIBLE,
        "output": Heap.BAR,
    }
)
