"""Experts that do not fit in VRAM: their placement, and the effect of reading them over PCIe on a token's time.

Nothing else runs while a layer's experts are read over the link, because later work needs their result. A token
therefore takes longer by their time at the link's bandwidth, minus their time at the memory's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zinc_rt.host.devices import DeviceRow
from zinc_rt.host.settings import Experts
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.mem.residency import LayerExperts, Residency, count_remaining_bytes, place_weights


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """A model's weights as stored on the device, in bytes by name; `plan` is the other memory it needs."""

    layers: tuple[LayerExperts, ...]
    sizes: Mapping[str, int]
    plan: MemoryPlan


@dataclass(frozen=True, slots=True)
class HostExperts:
    """`seconds` is the time to read a token's experts over PCIe at the link's bandwidth, a lower bound; `extra` is
    the time beyond that in VRAM.
    """

    residency: Residency
    seconds: float
    extra: float


def place_host_experts(
    weights: ModelWeights, device: DeviceRow, experts: Experts, *, read_efficiency: float
) -> HostExperts:
    """Return the placement on a device whose reads reach `read_efficiency` of the memory bandwidth. Raise
    InputError as place_weights does.
    """
    room = count_remaining_bytes(weights.plan, int(device.memory_gb * 1e9))
    if not device.pcie_gbps:
        experts = "vram"  # its host memory is the memory it has
    residency = place_weights(weights.layers, weights.sizes, experts=experts, room_bytes=room)
    if not residency.host:
        return HostExperts(residency, 0.0, 0.0)
    seconds = residency.token_bytes / (device.pcie_gbps * 1e9)
    in_vram = residency.token_bytes / (device.memory_gbps * 1e9 * read_efficiency)
    return HostExperts(residency, seconds, seconds - in_vram)
