"""A second tier with one thing wrong in it: T-CPU under the name of T1, opened through the seam to the tiers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.backends.cpu.oracle import BoundCall, CpuBackend, CpuExecutable
from zinc_rt.exec import Buffer
from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph

Code = Callable[..., Any]
Resident = dict[str, Weight]
Rewrite = Callable[[OpGraph], OpGraph]


def return_unchanged(anything: Any) -> Any:
    return anything


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """`at` and `op` name one node, `code` makes another of its code, None leaves the node out; `resident` changes
    what is uploaded, `program` what is built. `only` says in which variants."""

    at: str = ""
    op: str = ""
    code: Callable[[Code], Code] | None = return_unchanged
    resident: Callable[[Resident], Resident] = return_unchanged
    program: Callable[[LoweredGraph], LoweredGraph] = return_unchanged
    only: Callable[[LoweredGraph], bool] = lambda program: True

    def is_target(self, call: BoundCall) -> bool:
        return call.node.label == self.at and self.op in ("", call.node.op.name)


class PlantedBackend(CpuBackend):
    def __init__(self, ordering: str, plant: PlantedFault) -> None:
        super().__init__(ordering, spec=registry.spec("t1"))
        self.plant = plant

    def upload(self, weights: Mapping[str, Weight], constants: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
        tables = {name: Weight("f32", table.shape, table) for name, table in constants.items()}
        return super().upload(self.plant.resident({**weights, **tables}), {})

    def build(self, program: LoweredGraph, buffers: Mapping[str, Buffer]) -> CpuExecutable:
        if not self.plant.only(program):
            return super().build(program, buffers)
        variant = super().build(self.plant.program(program), buffers)
        return replace(variant, calls=tuple(self._calls(variant)))

    def _calls(self, variant: CpuExecutable) -> Iterator[BoundCall]:
        for call in variant.calls:
            if not self.plant.is_target(call):
                yield call
            elif self.plant.code is not None:
                yield replace(call, code=self.plant.code(call.code))


# --- what can be wrong --------------------------------------------------------------------------------------


def replace_op(label: str, op: str = "", **attrs: Any) -> PlantedFault:
    """The node runs with other attributes."""
    return PlantedFault(label, op, code=lambda code: lambda *operands, **own: code(*operands, **{**own, **attrs}))


def change_result(
    label: str, change: Callable[[Any], Any], op: str = "", only: Callable[[LoweredGraph], bool] | None = None
) -> PlantedFault:
    """Change the node's result after it was computed."""
    plant = PlantedFault(label, op, code=lambda code: lambda *operands, **own: change(code(*operands, **own)))
    return plant if only is None else replace(plant, only=only)


def change_element(
    label: str, token: int, dim: int, change: Callable[[np.float32], float], op: str = ""
) -> PlantedFault:
    """Change one element of the node's result, in the pass over the prompt."""

    def change_array(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[token, dim] = change(array[token, dim])
        return array

    return change_result(label, change_array, op, only=has_several_tokens)


def one_ulp_up(value: np.float32) -> float:
    return float(np.nextafter(value, np.float32(np.inf)))


def omit_node(label: str, op: str = "") -> PlantedFault:
    """Skip the node, so that its consumers read the previous contents."""
    return PlantedFault(label, op, code=None)


def drop_store(label: str) -> PlantedFault:
    return PlantedFault(label, code=lambda code: lambda *operands, **own: ())


def shift_position(label: str) -> PlantedFault:
    def run_late(code: Code) -> Code:
        return lambda math, x, position, *tables, **own: code(math, x, position + 1, *tables, **own)

    return PlantedFault(label, "ROPE", code=run_late)


def shift_table(*names: str) -> PlantedFault:
    """Shift the rope tables by one position, both cosine and sine."""

    def shift_rows(resident: Resident) -> Resident:
        rolled = {name: np.roll(resident[name].raw, -1, axis=0) for name in names}
        return {**resident, **{name: Weight("f32", raw.shape, raw) for name, raw in rolled.items()}}

    return PlantedFault(resident=shift_rows)


def change_rope_base(
    factor: float, cos: str = "constant.rope.cos", sin: str = "constant.rope.sin"
) -> PlantedFault:
    """Use rope tables with another base; the model's base is derived from position 1."""

    def replace_tables(resident: Resident) -> Resident:
        frequency = np.arctan2(resident[sin].raw[1].astype(np.float64), resident[cos].raw[1])
        pairs = len(frequency)
        frequency = frequency * factor ** (-np.arange(pairs) / pairs)
        angle = np.arange(len(resident[cos].raw))[:, None] * frequency
        other = {cos: np.cos(angle).astype(np.float32), sin: np.sin(angle).astype(np.float32)}
        return {**resident, **{name: Weight("f32", raw.shape, raw) for name, raw in other.items()}}

    return PlantedFault(resident=replace_tables)


def flip_bit(weight: str, byte: int, bit: int) -> PlantedFault:
    """Flip one bit of one weight in the first row."""

    def flip_weight(resident: Resident) -> Resident:
        whole = resident[weight]
        raw = whole.raw.copy()
        raw.view(np.uint8).reshape(-1)[byte] ^= 1 << bit
        return {**resident, weight: Weight(whole.dtype, whole.shape, raw)}

    return PlantedFault(resident=flip_weight)


def swap_experts(label: str) -> PlantedFault:
    """Reorder the ids, but not their weights."""
    return change_result(label, lambda routed: (routed[0], routed[1][:, ::-1], routed[2]))


def overlap_buffer(name: str, target: str) -> PlantedFault:
    """Use a memory plan that places one buffer over another that is still needed, if nothing is tapped."""

    def overlap_program(program: LoweredGraph) -> LoweredGraph:
        placements = {**program.plan.placements, name: program.plan.placements[target]}
        return replace(program, plan=replace(program.plan, placements=placements))

    return PlantedFault(program=overlap_program, only=lambda program: not program.plan.tap)


def has_several_tokens(program: LoweredGraph) -> bool:
    return program.plan.capacity["tokens"] > 1


def change_attribute(
    ops: tuple[str, ...], name: str, change: Callable[[float], float], *, layer: int | None = None, stage: str = ""
) -> Rewrite:
    """Change this attribute of nodes with these opcodes, in one layer or all, and in one stage or both."""

    def change_array(node: Node) -> Node:
        if node.op.name not in ops or name not in node.attrs or layer not in (None, node.layer):
            return node
        return replace(node, attrs={**node.attrs, name: change(node.attrs[name])})

    def rewrite_graph(graph: OpGraph) -> OpGraph:
        if stage not in ("", graph.stage):
            return graph
        return replace(graph, nodes=tuple(change_array(node) for node in graph.nodes))

    return rewrite_graph
