"""A graph of one node over given operands, for testing a kernel in isolation on any tier.

Counts of tokens, sequences, rows and entries come from the operands' shapes. Buffers have the length given by
`capacity`, filled with NaN and -1 after the counted part, and everywhere in outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from zinc_rt.ir.dtypes import find_block
from zinc_rt.ir.graph import ABSENT, SYMBOLS, Builder, Node, OpGraph
from zinc_rt.ir.op import OPS, Op, Port
from zinc_rt.kernels.launch import COUNTS
from zinc_rt.kernels.weight import Weight
from zinc_rt.mem.arena import align_up
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.mem.plan import Allocation, BufferPlacement, MemoryPlan

SYMBOL_OF_DIM = {"T": "tokens", "S": "sequences", "L": "rows", "E": "entries"}  # how ir/op.py writes them first
GARBAGE = 0xFF  # bytes of NaN, and of index -1
DTYPES = {"float32": "f32", "float16": "f16", "int32": "i32", "uint8": "q8_0"}  # uint8: a cache's blocks
TOGETHER = "operands"  # the allocation of a plan with all of them

Operand = np.ndarray | Weight | None
Place = Callable[[np.ndarray], np.ndarray]  # a copy of an array's bytes where a test wants them


@dataclass(frozen=True, slots=True)
class OneNode:
    """A graph of one node with its data.

    `arrays`: weights, and the initial content of the other buffers. `shared`: maps an in-place output to its
    input.
    """

    graph: OpGraph
    arrays: Mapping[str, np.ndarray | Weight]
    shared: Mapping[str, str]
    capacity: Mapping[str, int]

    @property
    def node(self) -> Node:
        return self.graph.nodes[0]

    @property
    def weights(self) -> dict[str, Weight]:
        return {name: array for name, array in self.arrays.items() if isinstance(array, Weight)}

    @property
    def operands(self) -> dict[str, np.ndarray]:
        """Return the operands that are not weights, by name."""
        return {name: array for name, array in self.arrays.items() if isinstance(array, np.ndarray)}

    def find_storage(self, name: str) -> str:
        """Return the array that contains a buffer."""
        return self.shared.get(name, name)

    def make_separate_plan(self) -> MemoryPlan:
        """Return a plan with a separate allocation for each operand, including weights."""
        placements = {name: self._make_placement(name, self.find_storage(name), 0) for name in self.graph.buffers}
        allocations = {
            name: Allocation(BufferHeap.HOST_VISIBLE, array.nbytes, array.nbytes)
            for name, array in self.arrays.items()
        }
        return MemoryPlan("node", self.capacity, 1, False, allocations, placements, 0)

    def make_shared_plan(self, heap: BufferHeap, alignment: int) -> MemoryPlan:
        """Return a plan with all operands but the weights in one allocation, each at a multiple of `alignment`.

        Weights are resident: their placements give their sizes.
        """
        end = payload = 0
        offsets: dict[str, int] = {}
        for name, array in self.operands.items():
            offsets[name] = end
            payload += array.nbytes
            end = align_up(end + array.nbytes, alignment)
        placements = {}
        for name in self.graph.buffers:
            stored = self.find_storage(name)
            resident = stored not in offsets
            placements[name] = self._make_placement(name, stored if resident else TOGETHER, offsets.get(stored, 0))
        allocations = {TOGETHER: Allocation(heap, end, payload)}
        return MemoryPlan("node", self.capacity, alignment, False, allocations, placements, 0)

    def _make_placement(self, name: str, allocation: str, offset_bytes: int) -> BufferPlacement:
        return BufferPlacement(allocation, offset_bytes, self.arrays[self.find_storage(name)].nbytes)


def build_one_node(
    op: Op,
    operands: Sequence[Operand],
    fresh: Sequence[np.ndarray],
    *,
    capacity: Mapping[str, int] | None = None,
    place: Place = np.copy,
    **attrs: Any,
) -> OneNode:
    """Build a graph of one node.

    `operands` are in port order; missing trailing ones are absent. `fresh` are the shapes and dtypes of the
    outputs that are not in place.
    """
    spec = OPS[op]
    argument = {port.name: operand for port, operand in zip(spec.inputs, operands, strict=False)}
    counts = _find_counts(spec.inputs, argument)
    room = {symbol: max((capacity or {}).get(symbol, 0), count, 1) for symbol, count in counts.items()}
    builder = Builder("node")
    arrays: dict[str, np.ndarray | Weight] = {}
    shared: dict[str, str] = {}
    inputs = []
    for port in spec.inputs:
        operand = argument.get(port.name)
        if operand is None:
            inputs.append(ABSENT)
        elif isinstance(operand, Weight):
            arrays[port.name] = _place_weight(operand, place)
            inputs.append(builder.buffer(port.name, operand.shape, operand.dtype, "weight"))
        else:
            arrays[port.name] = place(_pad_array(operand, port, room))
            inputs.append(
                builder.buffer(port.name, _find_dims(operand, port), DTYPES[operand.dtype.name], "activation")
            )
    outputs = iter(fresh)
    names = []
    for port in spec.outputs:
        name = f"{port.name}_made" if port.name in arrays else port.name
        if port.inplace:
            like = argument[port.inplace]
            shared[name] = port.inplace
        else:
            array = next(outputs, None)
            if array is None:  # an optional one at the end
                break
            like = array
            arrays[name] = place(_pad_array(array, port, room, blank=True))
        assert isinstance(like, np.ndarray)
        names.append(builder.buffer(name, _find_dims(like, port), DTYPES[like.dtype.name], "activation"))
    arrays[COUNTS] = np.array([counts[symbol] for symbol in SYMBOLS], np.int32)
    builder.buffer(COUNTS, (len(SYMBOLS),), "i32", "step")
    builder.node(op, tuple(inputs), tuple(names), **attrs)
    return OneNode(builder.build(), arrays, shared, room)


def _find_counts(ports: Sequence[Port], operands: Mapping[str, Operand]) -> dict[str, int]:
    counts = dict.fromkeys(SYMBOLS, 0)
    for port in ports:
        operand = operands.get(port.name)
        if isinstance(operand, np.ndarray) and port.shape[0] in SYMBOL_OF_DIM:
            counts[SYMBOL_OF_DIM[port.shape[0]]] = len(operand)
    if not counts["sequences"] and isinstance(numbers := operands.get("sequence"), np.ndarray):
        counts["sequences"] = int(numbers.max()) + 1  # of cache rows: no operand is that long
    return counts


def _pad_array(array: np.ndarray, port: Port, room: Mapping[str, int], *, blank: bool = False) -> np.ndarray:
    """Copy an array at full capacity; the uncounted part (everything if `blank`) is filled with garbage."""
    shape = list(array.shape)
    if port.shape[0] in SYMBOL_OF_DIM:
        shape[0] = room[SYMBOL_OF_DIM[port.shape[0]]]
    full = np.full(prod(shape) * array.itemsize, GARBAGE, np.uint8).view(array.dtype).reshape(shape)
    if not blank:
        full[tuple(slice(0, size) for size in array.shape)] = array
    return full


def _place_weight(weight: Weight, place: Place) -> Weight:
    """Return the weight, with its bytes copied by `place` unless that is a plain copy."""
    return weight if place is np.copy else Weight(weight.dtype, weight.shape, place(weight.raw))


def _find_dims(array: np.ndarray, port: Port) -> tuple[int | str, ...]:
    symbol = SYMBOL_OF_DIM.get(port.shape[0])
    elements, size_bytes = find_block(DTYPES[array.dtype.name])
    *outer, last = array.shape
    shape = (*outer, last * array.itemsize // size_bytes * elements)
    return (symbol, *shape[1:]) if symbol else shape
