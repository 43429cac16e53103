"""Weight residency: weights in VRAM, or experts of whole layers in host memory that the GPU reads over PCIe.

A token reads few experts of a mixture of experts, so experts are the best weights to keep outside VRAM: they are
read least for their size (original design, section 10.3). A layer's experts are placed together, because a token
that chooses one reads its gate, up and down weights. The last layers are moved first. Every layer costs a token
the same, because each chooses the same number of experts, so the order does not affect speed; with this order a
longer context moves one more layer and leaves the others in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zinc_rt.host.errors import InputError
from zinc_rt.host.settings import EXPERTS, Experts
from zinc_rt.ir.graph import OpGraph
from zinc_rt.ir.op import OPS, Op, list_forms
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.mem.plan import MemoryPlan

VRAM_RESERVE = 16  # a part of so many: programs, kernels, the driver's own, a desktop
STACKED = {  # operands, an expert a row
    op: names
    for plain, names in ((Op.MOE_GATE_UP, ("gate_w", "up_w")), (Op.MOE_DOWN_ACC, ("down_w",)))
    for op in list_forms(plain)
}


@dataclass(frozen=True, slots=True)
class LayerExperts:
    """The stacked expert weights of a layer. `chosen_share`: the share of them that a token reads."""

    layer: int
    weights: tuple[str, ...]
    chosen_share: float


@dataclass(frozen=True, slots=True)
class Residency:
    """The placement of a model's weights.

    `host`: the names of the weights in host memory, those of `layers`. `token_bytes`: the bytes of them that a
    decoded token reads over PCIe.
    """

    vram_bytes: int
    host_bytes: int
    token_bytes: int
    host: frozenset[str]
    layers: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the placement for reports."""
        return {
            "vram_bytes": self.vram_bytes,
            "host_bytes": self.host_bytes,
            "host_layers": list(self.layers),
            "host_bytes_a_token": self.token_bytes,
        }

    @property
    def text(self) -> str:
        text = f"weights {_format_size(self.vram_bytes)} in VRAM"
        if not self.host:
            return text
        first, last = self.layers[0], self.layers[-1]
        return (
            f"{text}, {_format_size(self.host_bytes)} in host memory: the experts of {len(self.layers)} layers "
            f"({first} to {last}), of which a token reads {_format_size(self.token_bytes)} over PCIe"
        )


def list_experts(graph: OpGraph) -> tuple[LayerExperts, ...]:
    """Return a model's stacked experts by layer, in order; empty if it has none."""
    names: dict[int, dict[str, None]] = {}
    share: dict[int, float] = {}
    for node in graph.nodes:
        if node.op not in STACKED or node.layer is None:
            continue
        operand = dict(zip((port.name for port in OPS[node.op].inputs), node.inputs, strict=True))
        weights = [operand[name] for name in STACKED[node.op]]
        names.setdefault(node.layer, {}).update(dict.fromkeys(weights))
        chosen, there = graph.buffers[operand["ids"]].shape[1], graph.buffers[weights[0]].shape[0]
        share[node.layer] = min(1.0, int(chosen) / int(there))
    return tuple(LayerExperts(layer, tuple(names[layer]), share[layer]) for layer in sorted(names))


def count_remaining_bytes(plan: MemoryPlan, memory_bytes: int) -> int:
    """Return the VRAM left for weights, out of `memory_bytes`, after a program's other memory and a reserve.

    It may be negative.
    """
    others = sum(
        item.size_bytes
        for name, item in plan.allocations.items()
        if not name.startswith("weight/") and item.heap is not BufferHeap.HOST_VISIBLE
    )
    return memory_bytes - memory_bytes // VRAM_RESERVE - others


def place_weights(
    layers: tuple[LayerExperts, ...], sizes: Mapping[str, int], *, experts: Experts, room_bytes: int | None
) -> Residency:
    """Place weights of these sizes.

    `experts`: all in VRAM, all in host memory ("gtt"), or the fewest layers in host memory that let the others fit
    in `room_bytes` of VRAM; None if the size of VRAM is unknown.

    Raise InputError if the weights that must be in VRAM do not fit, naming the setting if one would help.
    """
    moved = len(layers) if experts == "gtt" else 0
    bytes_of = [sum(sizes[name] for name in layer.weights) for layer in layers]
    whole = sum(sizes.values())
    if experts == "auto" and room_bytes is not None:
        while moved < len(layers) and whole - sum(bytes_of[len(layers) - moved :]) > room_bytes:
            moved += 1
    kept = len(layers) - moved
    host_bytes = sum(bytes_of[kept:])
    if room_bytes is not None and whole - host_bytes > room_bytes:
        raise InputError(
            f"the weights that must be in VRAM take {_format_size(whole - host_bytes)}, but only "
            f"{_format_size(max(0, room_bytes))} are free",
            next=_format_advice(experts, sum(bytes_of)),
        )
    reads = sum(int(size * item.chosen_share) for size, item in zip(bytes_of[kept:], layers[kept:], strict=True))
    return Residency(
        whole - host_bytes,
        host_bytes,
        reads,
        frozenset(name for layer in layers[kept:] for name in layer.weights),
        tuple(layer.layer for layer in layers[kept:]),
    )


def _format_advice(experts: Experts, expert_bytes: int) -> str:
    smaller = "give a smaller --ctx or fewer slots, or take a model with fewer bits a weight"
    if experts == "vram" and expert_bytes:
        return (
            f"{EXPERTS}=auto puts of {_format_size(expert_bytes)} of experts into host memory what must; "
            f"or {smaller}"
        )
    return smaller


def _format_size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"
