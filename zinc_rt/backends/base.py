"""The seam to a tier: what a backend does, and nothing about which one it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from zinc_rt.backends.spec import BackendSpec, DeviceKind
from zinc_rt.backends.times import Times
from zinc_rt.exec import Buffer, Copier, Fence, Stream
from zinc_rt.ir.graph import Node
from zinc_rt.kernels.launch import Ref
from zinc_rt.kernels.sets import KernelSet
from zinc_rt.kernels.weight import Weight
from zinc_rt.kmd.driver import KernelToCompile
from zinc_rt.lower import LoweredGraph, PlannedGraph


@dataclass(frozen=True, slots=True)
class Device:
    """What the device says of itself; carried into every report."""

    name: str
    arch: str
    simulated: bool = False
    profile: str = ""
    kernel: str = ""
    firmware: str = ""
    memory_bytes_per_second: float = 0.0  # as specified; 0: unknown
    memory_bytes: int = 0  # VRAM in all; 0: unknown, or the host's own
    unchecked: str = ""  # why pm4-test does not stand behind it, where a user ran it all the same
    software: bool = False  # a driver that computes on the host's processor: its speed says nothing of a GPU
    driver_files: str = ""  # VK_DRIVER_FILES=..., where the environment names the drivers
    layers: tuple[str, ...] = ()  # of Vulkan, between us and the driver
    # what a tier tells one driver's arithmetic from another's by, where it runs compiled by one; goldens keep it
    identity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageFault:
    """The access behind a page fault: `va` to the byte, `access` in words ("store", "packet fetch"), `near` what
    lies there or around it, `by` the packet that did or launched it."""

    va: int
    access: str
    why: str
    near: str
    by: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a simulated device found wrong. What follows the sentence is said in it too, as far as it is
    known: `pc` is a byte offset in the kernel, `source` its line (moe_topk.s:97), `wave` a number in the
    workgroup, `lanes` a bit each. `node`: whose dispatch it was."""

    rule: str
    sentence: str
    kernel: str = ""
    pc: int | None = None
    instruction: str = ""
    source: str = ""
    group: tuple[int, int, int] | None = None
    wave: int | None = None
    lanes: int = 0
    address: int | None = None
    node: Node | None = field(default=None, compare=False)
    fault: PageFault | None = None  # of rule page-fault

    @property
    def text(self) -> str:
        return f"{self.rule}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One lane's store, as a simulated device saw it. `pc`: a byte offset in the kernel; `group`: the workgroup's
    id; `wave`: its number in that; `value`: the lowest 8 bytes stored."""

    kernel: str
    pc: int
    instruction: str
    group: tuple[int, int, int]
    wave: int
    lane: int
    value: int


class Instrument(Protocol):
    """What only a simulated device can do."""

    def findings(self) -> list[Finding]:
        """What it found wrong so far, each once, in order; also what others that share the device did."""

    def consulted(self) -> Sequence[str]:
        """Return the marks of zinc_rt/host/facts.py reached so far, sorted, other clients' included."""

    def set_watchpoint(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        """Note who stores to these bytes from now on; size 0 ends it."""

    def watchpoint_hits(self) -> list[StoreEvent]:
        """What was noted since, in order."""

    def discard(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        """These bytes count as uninitialised from now on. In memory that the host maps nothing does."""

    def hand_over(self, buffer: Buffer, after: Any) -> None:
        """A buffer that executables take turns in is `after`'s from here on: nothing in it counts as written, and
        it holds what `after` puts there, and nothing that others built over it do."""

    def precompile(self, kernels: Sequence[KernelToCompile]) -> None:
        """Kernels about to run, which the device may compile beforehand."""


class Executable(Protocol):
    """What `build` gave for a lowered graph, opaque but for this."""

    def kernels(self) -> dict[str, bytes]:
        """The machine code it dispatches, by kernel; nothing where there is none."""

    @property
    def nodes(self) -> Sequence[Node]:
        """Those that a replay of it computes on the tier, each once, in order."""

    def times(self) -> Times:
        """Of its last replay, which has ended; no dispatches where the graph was not `timed`."""


@dataclass(slots=True)
class Submissions:
    """What was submitted so far. `fast`: with nothing to settle, wait for or flush first; `careful`: the others;
    `doorbells`: rung for both."""

    fast: int = 0
    careful: int = 0
    doorbells: int = 0


class Backend(Copier, Protocol):
    """One tier on one device. It owns what it allocated; one host thread drives it. `copy` is exec.Copier's:
    zinc_rt.exec.copy checks the ranges and tells the buffers."""

    @property
    def spec(self) -> BackendSpec: ...

    device: Device
    ordering: str

    @property
    def kernels(self) -> KernelSet: ...

    @property
    def instrument(self) -> Instrument | None:
        """None on silicon, and where there is no device."""

    @property
    def submissions(self) -> Submissions: ...

    def alloc(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        """Memory; without `zeroed` its bytes are undefined, and a simulated device finds reads of them."""

    def free(self, buffer: Buffer) -> None:
        """The caller has waited for every replay that uses it."""

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """The bytes as they are now, read-only, not copied. Never counts as a write. ValueError for memory the CPU
        cannot reach."""

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        """Copy bytes in, also where the host does not map the buffer; visible to what is submitted afterwards."""

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> Fence:
        """Zeros, in the stream's order."""

    def upload(self, weights: Mapping[str, Weight], constants: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
        """Make weights resident, by logical name. A tier whose memory is the file's own does not copy."""

    def build(self, lowered: Any, buffers: Mapping[str, Buffer]) -> Any:
        """An Executable to submit of a LoweredGraph, where `builds_planned` is true of a PlannedGraph too.
        `buffers` holds the plan's allocations and the resident weights by name."""

    def unload(self, executable: Any) -> None:
        """Give back what `build` took. The caller has waited for its replays."""

    def submit(self, executable: Any, stream: Stream) -> Fence:
        """Start after the stream's earlier submissions and every fence in `stream.waits`."""

    def wait(self, fence: Fence, timeout_seconds: float) -> None:
        """Raises DeadlineMissed with the tier's report, and the node at which a replay stopped where it knows."""

    def close(self) -> None: ...


def device_kind(backend: Backend) -> DeviceKind:
    """The kind of the device that a backend has opened."""
    if backend.device.simulated:
        return DeviceKind.SIMULATED
    return DeviceKind.SOFTWARE if backend.device.software else backend.spec.kind


def gpu_va(buffer: Buffer) -> int:
    assert buffer.gpu_va is not None, buffer.name
    return buffer.gpu_va


def gpu_address(lowered: LoweredGraph | PlannedGraph, buffers: Mapping[str, Buffer], place: Ref) -> int:
    """Compute the address of a byte of a graph's buffer: in a resident weight, or an allocation of the memory
    plan."""
    if place.name in buffers:
        return gpu_va(buffers[place.name]) + place.offset_bytes
    placement = lowered.plan.placements[place.name]
    return gpu_va(buffers[placement.allocation]) + placement.offset_bytes + place.offset_bytes
