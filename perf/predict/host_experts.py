"""Experts that a device has no VRAM for: where they lie, and what reading them over PCIe makes of a token's time.

Nothing else runs while a layer's experts come over the link: what follows needs their result. So a token takes
longer by their bytes at the link's speed, less what they would take at the memory's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zinc_rt.host.settings import Experts
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.mem.residency import LayerExperts, Residency, place_weights, room_beside
from zinc_rt.perf.predict.devices import DeviceRow


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """A model's weights as the device stores them, in bytes by name; `plan`: of what else it needs."""

    layers: tuple[LayerExperts, ...]
    sizes: Mapping[str, int]
    plan: MemoryPlan


@dataclass(frozen=True, slots=True)
class HostExperts:
    """`seconds`: of a token, its experts over PCIe at the link's speed, the least that they can take; `extra`:
    beyond what they take in VRAM."""

    residency: Residency
    seconds: float
    extra: float


def host_experts(
    weights: ModelWeights, device: DeviceRow, experts: Experts, *, read_efficiency: float
) -> HostExperts:
    """Where they lie on a device, of whose memory's speed reads reach `read_efficiency`. Raises InputError as
    place_weights does."""
    room = room_beside(weights.plan, int(device.memory_gb * 1e9))
    if not device.pcie_gbps:
        experts = "vram"  # its host memory is the memory it has
    residency = place_weights(weights.layers, weights.sizes, experts=experts, room_bytes=room)
    if not residency.host:
        return HostExperts(residency, 0.0, 0.0)
    seconds = residency.token_bytes / (device.pcie_gbps * 1e9)
    in_vram = residency.token_bytes / (device.memory_gbps * 1e9 * read_efficiency)
    return HostExperts(residency, seconds, seconds - in_vram)
