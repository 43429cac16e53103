"""Run one case on one backend and compare it with the oracle bit by bit.

The node takes the normal path: it is lowered by the tier's kernel table, built, submitted and read back. Its
operands are adjacent named allocations in device memory, so that a simulated device knows their bounds. Outputs
are initialised to NaN and marked as never written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np

from zinc_rt.backends.base import Backend, Finding, read_findings
from zinc_rt.exec import Buffer, DeadlineMissed, Stream
from zinc_rt.exec import copy as copy_bytes
from zinc_rt.host.errors import UnsupportedError, ZincError
from zinc_rt.kernels.cases import Case, Operand
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.table import FUNCTIONS
from zinc_rt.lower import LoweredGraph, lower
from zinc_rt.lower.one_node import TOGETHER, OneNode, build_one_node
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.validate.kernel_test.bits import BitDifference, find_first_difference
from zinc_rt.validate.kernel_test.select import find_dispatched_kernels

ALIGNMENT = 256
ROOM_BYTES = 1 << 20  # of operands at first; it grows
TIMEOUT_SECONDS = 120.0  # of one case: a simulated device may have to compile its kernels first

_KIND = {"index": np.int32, "float": np.float32, "any": np.float32}

Status = Literal["pass", "refused", "left out", "wrong", "finding", "stopped", "died"]
FAILED: tuple[Status, ...] = ("wrong", "finding", "stopped", "died")


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The outcome of a case. `kernels` are the dispatched kernels; `said` is the complete reason for a failure;
    `blamed` is the kernel that a finding names, or whose failures caused the case to be skipped.
    """

    status: Status
    kernels: tuple[str, ...] = ()
    said: str = ""
    difference: BitDifference | None = None
    blamed: str = ""
    counts: tuple[int, int] = (0, 0)  # elements compared, and those of them that are wrong

    @property
    def failed(self) -> bool:
        return self.status in FAILED


@dataclass(frozen=True, slots=True)
class OracleAnswer:
    """The oracle's result. `outputs` are names and values in port order; `fresh` are the outputs that are not in
    place.
    """

    operands: tuple[Operand, ...]
    outputs: tuple[tuple[str, np.ndarray], ...]
    fresh: tuple[np.ndarray, ...]


class CaseBench:
    """A context manager that runs cases. It owns the backend that `opened` returns, and opens a new one after a
    case stopped it.
    """

    def __init__(self, opened: Callable[[], Backend]) -> None:
        self._opened = opened
        self._ready: _OpenedBackend | None = None

    @property
    def backend(self) -> Backend:
        return self._open_backend().backend

    def __enter__(self) -> CaseBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.close()

    def run(self, case: Case, timeout_seconds: float = TIMEOUT_SECONDS) -> CaseOutcome:
        """Run a case. Never raises because of a kernel's behaviour. A device with findings is replaced, because it
        does not report a repeated finding again.
        """
        expected = _run_oracle(case, self.backend.ordering)
        node = build_one_node(case.op, expected.operands, expected.fresh, capacity=case.room, **case.attrs)
        ready = self._open_backend()
        try:
            program = ready.lower_node(node)
        except UnsupportedError as error:
            return CaseOutcome("refused", said=_find_reason(error))
        kernels = find_dispatched_kernels(program, ready.backend.kernels)
        try:
            got = ready.run(node, program, timeout_seconds)
        except (DeadlineMissed, ZincError) as error:
            last_words = ready.format_last_findings()
            self._abandon()
            return CaseOutcome(
                "stopped",
                kernels,
                last_words or _format_error(error),
                blamed=_name_kernels(last_words or str(error), kernels),
            )
        if findings := ready.take_new_findings():
            last_words = "\n".join(dict.fromkeys(finding.text for finding in findings))
            self._abandon()
            return CaseOutcome("finding", kernels, last_words, blamed=findings[0].kernel)
        return _compare_outputs(expected, node, got, kernels)

    def results(self, node: OneNode, timeout_seconds: float = TIMEOUT_SECONDS) -> dict[str, np.ndarray]:
        """Return every buffer of the node except its weights after the run, without a comparison. Raise
        UnsupportedError if the tier rejects the node.
        """
        ready = self._open_backend()
        return ready.run(node, ready.lower_node(node), timeout_seconds)

    def time_case(self, case: Case, count: int) -> list[float]:
        """Return the seconds of `count` submissions, each waited for, without a comparison. Raise UnsupportedError
        if the tier rejects the node.
        """
        fresh = [np.empty(case.shape(port), _KIND[port.kind]) for port in case.fresh_ports()]
        node = build_one_node(case.op, case.operands(), fresh, capacity=case.room, **case.attrs)
        ready = self._open_backend()
        return ready.time_node(node, ready.lower_node(node), count, TIMEOUT_SECONDS)

    def _open_backend(self) -> _OpenedBackend:
        if self._ready is None:
            self._ready = _OpenedBackend(self._opened())
        return self._ready

    def _abandon(self) -> None:
        """Drop the backend. A hung device does not close cleanly."""
        ready, self._ready = self._ready, None
        if ready is not None:
            with suppress(ZincError):
                ready.close()


class _OpenedBackend:
    """An open backend, and the memory that the cases use in turn."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._stream = Stream("kernel-test")
        self._arena: Buffer | None = None
        self._back: Buffer | None = None
        self._seen = len(self._read_findings())

    def close(self) -> None:
        self.backend.close()

    def lower_node(self, node: OneNode) -> LoweredGraph:
        backend = self.backend
        plan = node.make_shared_plan(BufferHeap.DEVICE_LOCAL, ALIGNMENT)
        program = lower(
            node.graph, backend.kernels.entries, plan, ordering=backend.ordering, tier=backend.spec.tier
        )
        return replace(program, merging=backend.kernels.merging)

    def run(self, node: OneNode, program: LoweredGraph, timeout_seconds: float) -> dict[str, np.ndarray]:
        """Run a program and return every buffer except the weights."""
        size = program.plan.allocations[TOGETHER].size_bytes
        with _BuiltNode(self, node, program) as built:
            self.backend.submit(built, self._stream)
            arena, back = self._allocate_buffers(size)
            fence = copy_bytes(self.backend, arena, 0, back, 0, size, self._stream)
            self.backend.wait(fence, timeout_seconds)
            image = np.frombuffer(self.backend.read(back, 0, size), np.uint8).copy()
        return {name: _view_result(image, program, name, array) for name, array in node.operands.items()}

    def time_node(self, node: OneNode, program: LoweredGraph, count: int, timeout_seconds: float) -> list[float]:
        taken = []
        with _BuiltNode(self, node, program) as built:
            for _ in range(count):
                start = perf_counter()
                self.backend.wait(self.backend.submit(built, self._stream), timeout_seconds)
                taken.append(perf_counter() - start)
        return taken

    def take_new_findings(self) -> list[Finding]:
        findings = self._read_findings()
        fresh = findings[self._seen :]
        self._seen = len(findings)
        return fresh

    def format_last_findings(self) -> str:
        """Return the findings of a simulated device before it stopped."""
        try:
            return "\n".join(dict.fromkeys(finding.text for finding in self.take_new_findings()))
        except ZincError:  # its process has gone
            return ""

    def _read_findings(self) -> list[Finding]:
        return read_findings(self.backend)

    def _allocate_buffers(self, size_bytes: int) -> tuple[Buffer, Buffer]:
        """Return device memory for the operands, and host memory to read them back."""
        if self._arena is None or self._back is None or self._arena.size_bytes < size_bytes:
            for buffer in (self._arena, self._back):
                if buffer is not None:
                    self.backend.free(buffer)
            size = max(ROOM_BYTES, 1 << (size_bytes - 1).bit_length())
            self._arena = self.backend.alloc(size, BufferHeap.DEVICE_LOCAL, TOGETHER, zeroed=False)
            self._back = self.backend.alloc(size, BufferHeap.HOST_VISIBLE, "results", zeroed=False)
        return self._arena, self._back


class _BuiltNode:
    """A program with its operands in device memory, released at the end."""

    def __init__(self, ready: _OpenedBackend, node: OneNode, program: LoweredGraph) -> None:
        self._backend = ready.backend
        arena, _ = ready._allocate_buffers(program.plan.allocations[TOGETHER].size_bytes)
        self._weights = self._backend.upload(node.weights, {})
        self._built: Any = self._backend.build(program, {TOGETHER: arena, **self._weights})
        instrument = self._backend.instrument
        if instrument is not None:
            instrument.hand_over(arena, self._built)
        image = np.zeros(program.plan.allocations[TOGETHER].size_bytes, np.uint8)
        for name, array in node.operands.items():
            _view_result(image, program, name, array)[...] = array
        self._backend.write(arena, 0, image.data)
        if instrument is not None:
            for name in node.node.outputs:
                if node.find_storage(name) == name:
                    placement = program.plan.placements[name]
                    instrument.discard(arena, placement.offset_bytes, placement.size_bytes)

    def __enter__(self) -> Any:
        return self._built

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            return  # it may still run
        self._backend.unload(self._built)
        for buffer in self._weights.values():
            if buffer.gpu_va is not None:
                self._backend.free(buffer)


def _run_oracle(case: Case, ordering: str) -> OracleAnswer:
    operands = case.operands()
    mine = [operand.copy() if isinstance(operand, np.ndarray) else operand for operand in operands]
    with np.errstate(all="ignore"):
        result = FUNCTIONS[case.op](arithmetic(ordering), *mine, **case.attrs)
    fresh = result if isinstance(result, tuple) else () if result is None else (result,)
    return OracleAnswer(operands, tuple(case.outputs(mine, fresh)), fresh)


def _view_result(image: np.ndarray, program: LoweredGraph, name: str, like: np.ndarray) -> np.ndarray:
    placement = program.plan.placements[name]
    part = image[placement.offset_bytes : placement.offset_bytes + placement.size_bytes]
    return part.view(like.dtype).reshape(like.shape)


def _compare_outputs(
    expected: OracleAnswer, node: OneNode, got: dict[str, np.ndarray], kernels: tuple[str, ...]
) -> CaseOutcome:
    written = set()
    compared = wrong = 0
    first: BitDifference | None = None
    for name, (port, want) in zip(node.node.outputs, expected.outputs, strict=False):
        stored = node.find_storage(name)
        written.add(stored)
        output = got[stored]
        counted = tuple(slice(0, size) for size in want.shape)
        count, difference = find_first_difference(port, output[counted], want)
        compared += want.size
        wrong += count
        first = first or difference
        behind = np.ones(output.shape, bool)
        behind[counted] = False
        if not first and (output[behind].view(np.uint32) != 0xFFFFFFFF).any():
            return CaseOutcome("wrong", kernels, f"{port}: wrote past the step's counts")
    if first is not None:
        return CaseOutcome("wrong", kernels, first.text, first, counts=(compared, wrong))
    for name, array in node.operands.items():
        if name not in written and got[name].tobytes() != array.tobytes():
            return CaseOutcome("wrong", kernels, f"input {name} was changed")
    return CaseOutcome("pass", kernels, counts=(compared, 0))


def _find_reason(error: UnsupportedError) -> str:
    """Return the kernel table's reason from lower's error about one node."""
    return re.sub(r"^.*?\n\s*[^:\n]*: ", "", str(error), count=1, flags=re.S)


def _format_error(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _name_kernels(text: str, kernels: tuple[str, ...]) -> str:
    """Return the kernel that a report mentions first."""
    positions = [(text.find(name), name) for name in kernels if re.search(rf"\b{re.escape(name)}\b", text)]
    return min(positions)[1] if positions else ""
