"""Tier T-CPU: a lowered graph as a list of NumPy calls. It is the reference for all other tiers."""

from __future__ import annotations

import platform
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from zinc_rt.backends import registry
from zinc_rt.backends.base import Device, Submissions
from zinc_rt.backends.cpu.host_memory import HostMemory
from zinc_rt.backends.spec import Availability, BackendSpec, Host, OnDevice, Opening
from zinc_rt.backends.times import HOST_CLOCK, TimedDispatch, Times
from zinc_rt.exec import Buffer, HostExecutor, HostFence, Stream
from zinc_rt.host.errors import ZincError
from zinc_rt.host.machine import count_available_cores, read_processor_name
from zinc_rt.ir.dtypes import find_array_layout
from zinc_rt.ir.graph import ABSENT, SYMBOLS, BufferSpec, Node, maximum_dim
from zinc_rt.ir.op import OPS
from zinc_rt.kernels import reference
from zinc_rt.kernels.reference.arithmetic import Arithmetic, arithmetic
from zinc_rt.kernels.reference.table import KERNELS
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph

REFERENCE = Path(reference.__file__).parent


def probe(host: Host) -> Availability:
    device = OnDevice("cpu", True, f"the NumPy oracle, {host.cores} cores")
    return Availability(True, device.why, devices=(device,))


def open(opening: Opening) -> CpuBackend:
    """Open the backend. Option `threads`: by default every core available to this process."""
    threads = opening.options.get("threads") or count_available_cores()
    return CpuBackend(opening.ordering, threads=threads, spec=opening.spec)


class RunStopped(ZincError):
    """Raised if the backend was closed while a replay was running."""

    exit_code = 130


class NodeFailed(ZincError):
    """Raised if the function of an opcode raised: the function or its input is wrong."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class BoundOperand:
    """A view of a buffer at full capacity; `symbol` is the index of the count that bounds its rows, or None."""

    array: np.ndarray
    symbol: int | None

    def select_counted(self, counts: np.ndarray) -> np.ndarray:
        return self.array if self.symbol is None else self.array[: counts[self.symbol]]


@dataclass(frozen=True, slots=True)
class BoundCall:
    node: Node
    code: Callable[..., object]
    inputs: tuple[BoundOperand | Weight | None, ...]
    outputs: tuple[BoundOperand, ...]  # those that are not in place


@dataclass(frozen=True, slots=True)
class CpuExecutable:
    """The executable of T-CPU. `seen_ns`: two clock readings per call of the last replay; None if it is not
    timed.
    """

    calls: tuple[BoundCall, ...]
    counts: np.ndarray  # i32, the step block's, in the order of SYMBOLS
    seen_ns: list[int] | None = None

    def kernels(self) -> dict[str, bytes]:
        return {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(call.node for call in self.calls)

    def times(self) -> Times:
        seen = self.seen_ns or ()
        pairs = zip(self.calls, seen[::2], seen[1::2], strict=False)
        return Times(
            HOST_CLOCK,
            False,
            tuple(TimedDispatch(c.node, c.code.__name__, start, ended) for c, start, ended in pairs),
            host_time=True,
        )


class CpuBackend(HostMemory):
    instrument: None = None

    def __init__(
        self,
        ordering: str,
        *,
        threads: int = 1,
        spec: BackendSpec | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create a backend. `clock_ns` is the clock for timed programs."""
        self._clock_ns = clock_ns
        self.spec = spec or registry.spec(registry.ORACLE)
        self.kernels = KERNELS
        self.math: Arithmetic = arithmetic(ordering, threads=threads)
        self.ordering = ordering
        self.device = Device(name=read_processor_name(), arch=platform.machine())
        super().__init__(HostExecutor(self.spec.tier))
        self.submissions = Submissions()
        self._stopping = threading.Event()

    def build(self, lowered: LoweredGraph, buffers: Mapping[str, Buffer]) -> CpuExecutable:
        bind = partial(_bind_operand, lowered, buffers)
        calls = []
        for call in lowered.calls:
            spec = OPS[call.node.op]
            outputs = zip(spec.outputs, call.node.outputs, strict=False)  # optional ones may be left out
            calls.append(
                BoundCall(
                    call.node,
                    call.entry.code,
                    tuple(None if name == ABSENT else bind(name) for name in call.node.inputs),
                    tuple(
                        _require_array(bind(name))
                        for port, name in outputs
                        if port.inplace is None and name != ABSENT
                    ),
                )
            )
        return CpuExecutable(
            tuple(calls), _require_array(bind("step.counts")).array, [] if lowered.timed else None
        )

    def unload(self, executable: CpuExecutable) -> None:
        """Do nothing: an executable owns no resources."""

    def submit(self, executable: CpuExecutable, stream: Stream) -> HostFence:
        self.submissions.fast += 1
        return self._executor.submit(partial(self._run, executable), stream)

    def close(self) -> None:
        self._stopping.set()
        self._executor.close()

    def _run(self, executable: CpuExecutable) -> None:
        counts, seen = executable.counts, executable.seen_ns
        if seen is not None:
            seen.clear()
        for call in executable.calls:
            if self._stopping.is_set():
                raise RunStopped(f"{self.spec.tier} was closed before this replay ended")
            if seen is not None:
                seen.append(self._clock_ns())
            inputs = (
                operand.select_counted(counts) if isinstance(operand, BoundOperand) else operand
                for operand in call.inputs
            )
            with np.errstate(all="ignore"):  # overflow and NaN are results to report, not warnings
                try:
                    results = call.code(self.math, *inputs, **call.node.attrs)
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    raise _make_node_failure(self.spec.tier, call.node, error) from error
            if not isinstance(results, tuple):
                results = (results,)
            for output, result in zip(call.outputs, results, strict=False):
                output.select_counted(counts)[...] = result
            if seen is not None:
                seen.append(self._clock_ns())


def _make_node_failure(tier: str, node: Node, error: Exception) -> NodeFailed:
    """Create the error that names the node and the deepest line in the oracle's own code."""
    lines = [
        f"kernels/reference/{path.relative_to(REFERENCE)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if (path := Path(frame.filename)).is_relative_to(REFERENCE)
    ]
    where = f", at {lines[-1]}" if lines else ""
    return NodeFailed(
        f"{tier}: node {node.label} ({node.op.name}) raises {type(error).__name__}: {error}{where}: "
        "suspect the oracle's function, or the inputs of this node"
    )


def _bind_operand(lowered: LoweredGraph, buffers: Mapping[str, Buffer], name: str) -> BoundOperand | Weight:
    spec = lowered.graph.buffers[name]
    if spec.role in ("weight", "constant"):
        weight: Weight = buffers[name].storage
        return weight
    placement = lowered.plan.placements[name]
    storage: np.ndarray = buffers[placement.allocation].storage
    raw = storage[placement.offset_bytes : placement.offset_bytes + placement.size_bytes]
    rows, *columns = _maximum_shape(spec, lowered.plan.capacity)
    dtype, inner = find_array_layout(spec.dtype, tuple(columns))
    array = raw.view(dtype).reshape(rows, *inner)
    return BoundOperand(array, _find_symbol(spec))


def _require_array(operand: BoundOperand | Weight) -> BoundOperand:
    assert isinstance(operand, BoundOperand), "weights and constants are never written"
    return operand


def _maximum_shape(spec: BufferSpec, capacity: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(maximum_dim(dim, capacity) or 0 for dim in spec.shape)


def _find_symbol(spec: BufferSpec) -> int | None:
    return SYMBOLS.index(spec.shape[0]) if spec.shape and isinstance(spec.shape[0], str) else None
