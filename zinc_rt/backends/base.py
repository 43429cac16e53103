"""The interface of a tier: the methods of a backend, without tier-specific details."""

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
    """The properties of the device, included in every report."""

    name: str
    arch: str
    simulated: bool = False
    profile: str = ""
    kernel: str = ""
    firmware: str = ""
    memory_bytes_per_second: float = 0.0  # as specified; 0: unknown
    memory_bytes: int = 0  # VRAM in all; 0: unknown, or the host's own
    pci_id: str = ""  # vendor:device in lower case, as rows of devices.yaml name boards; "": unknown
    render_path: str = ""  # the GPU's file, such as /dev/dri/renderD128; "": unknown, or no GPU
    unchecked: str = ""  # why pm4-test does not stand behind it, where a user ran it all the same
    software: bool = False  # a driver that computes on the host's processor: its speed says nothing of a GPU
    driver_files: str = ""  # VK_DRIVER_FILES=..., where the environment names the drivers
    layers: tuple[str, ...] = ()  # of Vulkan, between us and the driver
    # what a tier tells one driver's arithmetic from another's by, where it runs compiled by one; goldens keep it
    identity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageFault:
    """The access that caused a page fault: `va` is exact to the byte, `access` is a description ("store", "packet
    fetch"), `near` lists the nearest allocations, and `by` is the packet that caused or launched it.
    """

    va: int
    access: str
    why: str
    near: str
    by: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a simulated device. The sentence includes the following fields if available: `pc` is a byte
    offset in the kernel, `source` its line (moe_topk.s:97), `wave` a number in the workgroup, `lanes` a bit mask.
    `node`: the node of the dispatch.
    """

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
    """One lane's store, recorded by a simulated device. `pc`: a byte offset in the kernel; `group`: the
    workgroup id; `wave`: its number in the workgroup; `value`: the lowest 8 stored bytes."""

    kernel: str
    pc: int
    instruction: str
    group: tuple[int, int, int]
    wave: int
    lane: int
    value: int


class Instrument(Protocol):
    """Functions that only a simulated device supports."""

    def findings(self) -> list[Finding]:
        """Return the distinct findings in order, including those of other clients of the device."""

    def consulted(self) -> Sequence[str]:
        """Return the sorted coverage marks (zinc_rt/host/facts.py) that were recorded, including those of other
        clients.
        """

    def set_watchpoint(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        """Record the stores to these bytes from now on; size 0 stops recording."""

    def watchpoint_hits(self) -> list[StoreEvent]:
        """Return the recorded stores, in order."""

    def discard(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        """Mark these bytes as uninitialised. No effect in host-mapped memory."""

    def hand_over(self, buffer: Buffer, after: Any) -> None:
        """Assign a buffer shared by several executables to `after`: its content counts as uninitialised, and
        only the names and values of `after` apply to it."""

    def precompile(self, kernels: Sequence[KernelToCompile]) -> None:
        """Compile kernels ahead of their first run, if the device supports that."""


class Executable(Protocol):
    """The result of `build` for a lowered graph."""

    def kernels(self) -> dict[str, bytes]:
        """Return the machine code that it dispatches, by kernel; empty without machine code."""

    @property
    def nodes(self) -> Sequence[Node]:
        """Return the nodes that a replay computes on the tier, each once, in order."""

    def times(self) -> Times:
        """Return the times of its last completed replay; no dispatches if the graph was not `timed`."""


@dataclass(slots=True)
class Submissions:
    """Submission counters. `fast`: submissions without any preceding wait or flush; `careful`: all others;
    `doorbells`: number rung for both.
    """

    fast: int = 0
    careful: int = 0
    doorbells: int = 0


class Backend(Copier, Protocol):
    """One tier on one device. It owns its allocations; one host thread drives it. `copy` implements exec.Copier:
    zinc_rt.exec.copy checks the ranges and updates the buffers."""

    @property
    def spec(self) -> BackendSpec: ...

    device: Device
    ordering: str

    @property
    def kernels(self) -> KernelSet: ...

    @property
    def instrument(self) -> Instrument | None:
        """Return the instrument of a simulated device, None on hardware or without a device."""

    @property
    def submissions(self) -> Submissions: ...

    def alloc(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        """Allocate memory; without `zeroed` its bytes are undefined, and a simulated device reports reads of
        them."""

    def free(self, buffer: Buffer) -> None:
        """Free a buffer. The caller must first wait for every replay that uses it."""

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """Return a read-only view of the current bytes, which never counts as a write. Raise ValueError for memory
        that the CPU cannot map.
        """

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        """Copy bytes into a buffer, even if the host cannot map it; later submissions see them."""

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> Fence:
        """Zero memory, in the stream's order."""

    def upload(self, weights: Mapping[str, Weight], constants: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
        """Make weights resident, by logical name. A tier that uses the mapped file does not copy them."""

    def build(self, lowered: Any, buffers: Mapping[str, Buffer]) -> Any:
        """Build an Executable from a LoweredGraph, or a PlannedGraph if `builds_planned` is true. `buffers`
        holds the plan's allocations and the resident weights by name."""

    def unload(self, executable: Any) -> None:
        """Free the resources of `build`. The caller has waited for its replays."""

    def submit(self, executable: Any, stream: Stream) -> Fence:
        """Start after the stream's earlier submissions and every fence in `stream.waits`."""

    def wait(self, fence: Fence, timeout_seconds: float) -> None:
        """Wait for a fence. Raise DeadlineMissed with the tier's report, and the node at which a replay
        stopped if known."""

    def close(self) -> None: ...


def device_kind(backend: Backend) -> DeviceKind:
    """Return the kind of a backend's device."""
    if backend.device.simulated:
        return DeviceKind.SIMULATED
    return DeviceKind.SOFTWARE if backend.device.software else backend.spec.kind


def gpu_va(buffer: Buffer) -> int:
    assert buffer.gpu_va is not None, buffer.name
    return buffer.gpu_va


def gpu_address(lowered: LoweredGraph | PlannedGraph, buffers: Mapping[str, Buffer], ref: Ref) -> int:
    """Return the address of a byte of a graph's buffer: in a resident weight, or an allocation of the memory
    plan."""
    if ref.name in buffers:
        return gpu_va(buffers[ref.name]) + ref.offset_bytes
    placement = lowered.plan.placements[ref.name]
    return gpu_va(buffers[placement.allocation]) + placement.offset_bytes + ref.offset_bytes


def read_findings(backend: Backend) -> list[Finding]:
    """Return what a simulated device has reported since the backend was opened, each finding once; empty on any
    other device."""
    instrument = backend.instrument
    return instrument.findings() if instrument is not None else []
