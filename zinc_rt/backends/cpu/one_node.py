"""Run one node on a host-memory backend: operands in, outputs back. Used by the self-test and the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zinc_rt.backends.cpu.native import NativeBackend
from zinc_rt.exec import Buffer, Stream
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.op import Op
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph
from zinc_rt.lower.lower import choose_entry
from zinc_rt.lower.lowered_graph import Call
from zinc_rt.lower.one_node import Operand, Place, build_one_node


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
    """Run a node. Return every output in port order, at its capacity; other arguments are lower.one_node's. Raise
    UnsupportedError if the kernel table refuses the node."""
    compiled = build_one_node(op, operands, fresh, capacity=capacity, place=place, **attrs)
    entry = choose_entry(compiled.node, compiled.graph, backend.kernels.entries, backend.ordering)
    if isinstance(entry, str):
        raise UnsupportedError(f"{compiled.node!r}: {entry}")
    buffers = {
        name: Buffer(
            name, array.nbytes, "host", storage=array if isinstance(array, Weight) else _view_bytes(array)
        )
        for name, array in compiled.arrays.items()
    }
    lowered = LoweredGraph(
        compiled.graph, compiled.make_separate_plan(), backend.ordering, (Call(compiled.node, entry),)
    )
    executable = backend.build(lowered, buffers)
    backend.wait(backend.submit(executable, Stream("node")), 600)
    backend.unload(executable)
    outputs = (compiled.arrays[compiled.find_storage(name)] for name in compiled.node.outputs)
    return tuple(array for array in outputs if isinstance(array, np.ndarray))


def _view_bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
