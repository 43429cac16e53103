"""The interface of the shader engine to the command processor, and an engine that runs no waves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zinc_rt.kmd.driver import KernelToCompile
from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.interfaces import AddressSpace, CodePlace, DevicePageFault, HardwareQueue
from zinc_rt.sim.tables.registers import SCRATCH_BASE_HI, SCRATCH_BASE_LO, USER_DATA_0, USER_DATA_COUNT

Ranges = tuple[tuple[int, int], ...]
"""Pairs of (va, size in bytes)."""


@dataclass(frozen=True, slots=True)
class Accesses:
    """Memory accessed by work, for the hazard tracker. Atomics do not conflict with atomics."""

    reads: Ranges = ()
    scalar_reads: Ranges = ()  # through the scalar cache (K$)
    writes: Ranges = ()
    atomics: Ranges = ()
    low: int = field(init=False, compare=False)  # VA range that contains all of it
    high: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        ranges = (*self.reads, *self.scalar_reads, *self.writes, *self.atomics)
        object.__setattr__(self, "low", min((va for va, _ in ranges), default=0))
        object.__setattr__(self, "high", max((va + size for va, size in ranges), default=0))


NOTHING = Accesses()
LEVELS = ("off", "fast", "full")
"""Sanitizer modes: virtual memory only; bounds, alignment and initialised reads; in addition races and
lint."""


class DispatchReport(Protocol):
    """A finding at a dispatch."""

    def __call__(
        self, rule: str, sentence: str, *, place: CodePlace | None = None, fault: DevicePageFault | None = None
    ) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class ShaderDispatch:
    """One launch, with the register values at its packet. Compared by identity.

    `groups` is the workgroup count of each axis, `start` the first id. `last_threads` is the size of the
    last workgroup of each axis, `group_threads` that of the others.
    """

    queue: HardwareQueue
    space: AddressSpace
    generation: Generation
    program_va: int
    groups: tuple[int, int, int]
    start: tuple[int, int, int]
    group_threads: tuple[int, int, int]
    last_threads: tuple[int, int, int]
    wave32: bool
    initiator: int
    registers: Mapping[int, int]  # SH offset -> value; read through `register`
    label: str  # "DISPATCH_DIRECT at ring dword 0x1c (position 28)"
    report: DispatchReport

    def register(self, offset: int) -> int:
        return self.registers.get(offset, 0)

    @property
    def user_data(self) -> tuple[int, ...]:
        """Return USER_DATA_0 to _15."""
        return tuple(self.registers.get(USER_DATA_0 + index, 0) for index in range(USER_DATA_COUNT))

    @property
    def scratch_va(self) -> int:
        low, high = self.register(SCRATCH_BASE_LO), self.register(SCRATCH_BASE_HI)
        return (low | (high & 0xFF) << 32) << 8


class ShaderEngine(Protocol):
    """Runs waves. Called from the CP's thread, one dispatch of a queue at a time unless one is preempted."""

    def run(self, dispatch: ShaderDispatch) -> Accesses | None:
        """Run waves to the end, or until the fuel of one call is used up; in that case return None, and the CP
        calls again with the same object (its identity is the key). Raises Fault for an access that the page tables
        refuse.
        """

    def abandon(self, dispatch: ShaderDispatch) -> None:
        """Drop a dispatch that `run` did not finish, because its queue was destroyed or hangs."""

    def precompile(self, space: AddressSpace, kernels: Sequence[KernelToCompile]) -> None:
        """Compile kernels that will be dispatched, so that the first dispatch does not wait. May do
        nothing."""


class NoShaderEngine:
    """An engine whose dispatches end at once without any effect; it reports a finding once per program."""

    def __init__(self) -> None:
        self._told: set[tuple[int, int]] = set()

    def run(self, dispatch: ShaderDispatch) -> Accesses | None:
        key = (dispatch.queue.queue_id, dispatch.program_va)
        if key not in self._told:
            self._told.add(key)
            name = dispatch.generation.name.lower()
            dispatch.report("no-shader-engine", f"{dispatch.label}: no shader engine for {name} code, no wave ran")
        return NOTHING

    def abandon(self, dispatch: ShaderDispatch) -> None:
        return None

    def precompile(self, space: AddressSpace, kernels: Sequence[KernelToCompile]) -> None:
        return None
