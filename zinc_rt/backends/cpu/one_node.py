"""One node on a backend of host memory: operands in, outputs back. The self-test and the tests use it.

Counts of tokens, sequences, rows and entries come from the operands' shapes. Buffers are as long as `capacity`
says, NaN and -1 behind the counted part, in outputs everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from zinc_rt.backends.cpu.native import NativeBackend
from zinc_rt.errors import UnsupportedError
from zinc_rt.exec import Buffer, Stream
from zinc_rt.ir.graph import ABSENT, SYMBOLS, Builder
from zinc_rt.ir.op import OPS, Op, Port
from zinc_rt.kernels.launch import COUNTS
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import Program
from zinc_rt.lower.lower import choose
from zinc_rt.lower.program import Call
from zinc_rt.mem.heaps import Heap
from zinc_rt.mem.plan import Allocation, MemoryPlan, Placement

SYMBOL_OF_DIM = {"T": "tokens", "S": "sequences", "L": "rows", "E": "entries"}  # how ir/op.py writes them first
GARBAGE = 0xFF  # bytes of NaN, and of index -1
DTYPES = {"float32": "f32", "int32": "i32"}

Operand = np.ndarray | Weight | None
Place = Callable[[np.ndarray], np.ndarray]  # a copy of an array's bytes where a test wants them


def run_node(
    backend: NativeBackend,
    op: Op,
    operands: Sequence[Operand],
    fresh: Sequence[np.ndarray],
    *,
    capacity: Mapping[str, int] | None = None,
    place: Place = np.copy,
    **attrs: Any,
) -> tuple[np.ndarray, ...]:
    """Every output in port order, at its capacity. `fresh` have the shapes and dtypes of the outputs that are not
    in place. Raises UnsupportedError where the kernel table refuses the node."""
    spec = OPS[op]
    given = {port.name: operand for port, operand in zip(spec.inputs, operands, strict=False)}
    counts = _counts(spec.inputs, given)
    room = {symbol: max((capacity or {}).get(symbol, 0), count, 1) for symbol, count in counts.items()}
    builder = Builder("node")
    arrays: dict[str, np.ndarray | Weight] = {}
    shared: dict[str, str] = {}  # an output in place -> the input
    inputs = []
    for port in spec.inputs:
        operand = given.get(port.name)
        if operand is None:
            inputs.append(ABSENT)
        elif isinstance(operand, Weight):
            arrays[port.name] = _placed(operand, place)
            inputs.append(builder.buffer(port.name, operand.shape, operand.dtype, "weight"))
        else:
            arrays[port.name] = place(_roomy(operand, port, room))
            inputs.append(
                builder.buffer(port.name, _dims(operand, port), DTYPES[operand.dtype.name], "activation")
            )
    made = iter(fresh)
    names = []
    for port in spec.outputs:
        name = f"{port.name}_made" if port.name in arrays else port.name
        if port.inplace:
            like = given[port.inplace]
            shared[name] = port.inplace
        else:
            found = next(made, None)
            if found is None:  # an optional one at the end
                break
            like = found
            arrays[name] = place(_roomy(found, port, room, blank=True))
        assert isinstance(like, np.ndarray)
        names.append(builder.buffer(name, _dims(like, port), DTYPES[like.dtype.name], "activation"))
    arrays[COUNTS] = np.array([counts[symbol] for symbol in SYMBOLS], np.int32)
    builder.buffer(COUNTS, (len(SYMBOLS),), "i32", "step")
    builder.node(op, tuple(inputs), tuple(names), **attrs)
    graph = builder.build()
    node = graph.nodes[0]
    entry = choose(node, graph, backend.kernels.entries, backend.ordering)
    if isinstance(entry, str):
        raise UnsupportedError(f"{node!r}: {entry}")
    placements = {
        name: Placement(shared.get(name, name), 0, arrays[shared.get(name, name)].nbytes) for name in graph.buffers
    }
    allocations = {
        name: Allocation(Heap.HOST_VISIBLE, array.nbytes, array.nbytes) for name, array in arrays.items()
    }
    plan = MemoryPlan("node", room, 1, False, allocations, placements, 0)
    buffers = {
        name: Buffer(name, array.nbytes, "host", storage=array if isinstance(array, Weight) else _bytes(array))
        for name, array in arrays.items()
    }
    executable = backend.build(Program(graph, plan, backend.ordering, (Call(node, entry),)), buffers)
    backend.wait(backend.submit(executable, Stream("node")), 600)
    backend.unload(executable)
    outputs = (arrays[shared.get(name, name)] for name in node.outputs)
    return tuple(array for array in outputs if isinstance(array, np.ndarray))


def _counts(ports: Sequence[Port], given: Mapping[str, Operand]) -> dict[str, int]:
    counts = dict.fromkeys(SYMBOLS, 0)
    for port in ports:
        operand = given.get(port.name)
        if isinstance(operand, np.ndarray) and port.shape[0] in SYMBOL_OF_DIM:
            counts[SYMBOL_OF_DIM[port.shape[0]]] = len(operand)
    if not counts["sequences"] and isinstance(numbers := given.get("sequence"), np.ndarray):
        counts["sequences"] = int(numbers.max()) + 1  # of cache rows: no operand is that long
    return counts


def _roomy(array: np.ndarray, port: Port, room: Mapping[str, int], *, blank: bool = False) -> np.ndarray:
    """A copy at the capacity; what is not counted (everything where `blank`) is garbage."""
    shape = list(array.shape)
    if port.shape[0] in SYMBOL_OF_DIM:
        shape[0] = room[SYMBOL_OF_DIM[port.shape[0]]]
    full = np.full(prod(shape) * array.itemsize, GARBAGE, np.uint8).view(array.dtype).reshape(shape)
    if not blank:
        full[tuple(slice(0, size) for size in array.shape)] = array
    return full


def _placed(weight: Weight, place: Place) -> Weight:
    """Its own bytes where its strides matter or nothing else is wanted."""
    return weight if place is np.copy else Weight(weight.dtype, weight.shape, place(weight.raw))


def _dims(array: np.ndarray, port: Port) -> tuple[int | str, ...]:
    symbol = SYMBOL_OF_DIM.get(port.shape[0])
    return (symbol, *array.shape[1:]) if symbol else array.shape


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
