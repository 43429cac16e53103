"""The interfaces between the two halves of the simulated device: driver side and command processor.

The driver side (ioctls, memory, events) owns processes, allocations, page tables and queue objects. The
command processor sees a queue, its address space, and an interface for reports to the driver side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from zinc_rt.host.sanitizer_rules import Severity


class AccessKind(Enum):
    """The kind of a GPU memory access."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"


class Fault(Exception):
    """A GPU access that the page tables do not allow. `why`: "not present", "read only", "no execute".
    `reported`: the instruction and wave, if already reported."""

    def __init__(self, va: int, access: AccessKind, reason: str, reported: str = "") -> None:
        super().__init__(reported or f"{access.value} at 0x{va:x}: {reason}")
        self.va = va
        self.access = access
        self.why = reason
        self.reported = reported


class AddressSpace(Protocol):
    """The GPU virtual memory of one process: 4 KiB pages, translated at every access."""

    def read(self, va: int, size_bytes: int) -> bytes:
        """Read bytes. Raises Fault. Ranges may cross pages and allocations."""

    def write(self, va: int, data: bytes) -> None:
        """Write bytes. Raises Fault and then writes nothing. Naturally aligned 4- and 8-byte writes are
        single stores, so the host never sees a partial value."""

    def view(self, va: int, size_bytes: int, access: AccessKind) -> memoryview:
        """Return a writable view of bytes in one allocation, for bulk work. Raises Fault; ValueError
        across allocations."""

    def fetch(self, va: int, size_bytes: int) -> bytes:
        """Read instructions through the shader's instruction cache: bytes fetched earlier keep their value
        until invalidate_icache. Raises Fault ("no execute" too). The CP reads packets with `read`,
        which bypasses this cache."""

    def describe(self, va: int) -> str:
        """Return "ring+0x40" if an allocation (or an announced suballocation) covers the address, else
        "unmapped"."""

    def nearby(self, va: int) -> str:
        """Return the result of `describe`; for an unmapped address also the freed allocation there and the
        neighbours on both sides."""

    def flush_hdp(self, inside: tuple[int, int] | None = None) -> None:
        """Make host writes through the BAR visible to the GPU: all, or those to the buffers that (VA, bytes)
        overlaps."""

    def find_unflushed(self, ranges: Iterable[tuple[int, int]]) -> int | None:
        """Return the first VA in the ranges of (VA, bytes) that the host stored to through the BAR since the last
        HDP flush; None without such a store."""

    def write_back(self) -> None:
        """Make GPU writes at system scope visible to the host through the BAR."""

    def host_sees(self, va: int) -> bool:
        """Return whether the host reads the last GPU store to these bytes: False until it is written back."""

    def before_waves(self) -> None:
        """Re-read host memory that GL2 caches but does not contain now: waves may access any of it."""

    def stop_caching_coherent(self) -> None:
        """Stop caching coherent host memory, which waves and the host access at the same time."""

    def after_waves(self, touched: Iterable[tuple[int, int]]) -> None:
        """Record that waves accessed these (VA, bytes): GL2 now contains their lines."""

    def invalidate_gl2(self, inside: tuple[int, int] | None = None) -> None:
        """Invalidate GL2's lines of host memory, in (VA, bytes) or all; they are re-read at the next use."""

    def invalidate_wave_caches(
        self, *, vector: bool, scalar: bool, array: bool, inside: tuple[int, int] | None = None
    ) -> None:
        """Invalidate the L0, scalar and GL1 caches of the shader engine, in (VA, bytes) or all, if they are
        simulated (--coherence caches)."""

    def invalidate_icache(self) -> None:
        """Invalidate the instruction cache, so that new instructions are fetched."""


class QueueKind(Enum):
    """The driver that created the queue, and its engine."""

    KFD_COMPUTE = "kfd compute"
    KFD_AQL = "kfd AQL"
    KFD_SDMA = "kfd sdma"
    USERQ_COMPUTE = "user queue compute"
    KERNEL_COMPUTE = "kernel compute"
    KERNEL_GFX = "kernel gfx"
    KERNEL_SDMA = "kernel sdma"


class QueueState(Enum):
    """The state of a queue: running, or the reason why it is not running."""

    ACTIVE = "active"
    HUNG = "hung"  # an illegal packet, a wait that cannot end, or a fault; nothing more runs
    EVICTED = "evicted"  # preempted by the driver, may be resumed
    DESTROYED = "destroyed"


@dataclass(slots=True)
class HardwareQueue:
    """A queue as seen by the hardware: the contents of its MQD. Positions count dwords (SDMA: bytes),
    never wrapped."""

    queue_id: int
    process_id: int
    kind: QueueKind
    space: AddressSpace
    ring_va: int
    ring_size_bytes: int
    rptr_va: int
    wptr_va: int
    eop_va: int
    priority: int = 7
    doorbell: int = 0  # the last value rung; the driver side stores it
    rptr: int = 0
    state: QueueState = QueueState.ACTIVE
    report: str = ""  # cause of the hang: dword, packet, error
    extra: dict[str, int] = field(default_factory=dict)  # registers a client may have set through the MQD
    launched_at: Callable[[int, int], str] = lambda packet_va, index: ""
    """The client's code that wrote the AQL packet at this address and index, as FILE+OFFSET; "" if not known."""


@dataclass(frozen=True, slots=True)
class OtherAccess:
    """The earlier access of a race: load or store, `pc` and `instruction` as in CodePlace. `group` and `wave` are
    None if several workgroups or waves made the access; `group` also if the device does not record it."""

    kind: str
    pc: int
    instruction: str
    group: tuple[int, int, int] | None = None
    wave: int | None = None


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A position in a kernel. `kernel` is the result of AddressSpace.describe for its first byte, `pc` a
    byte offset in it, `lanes` one bit per lane, `address` that of the first lane; None and "" if
    absent. `detail` is the part of the finding's sentence that says what is wrong; `count` is how many findings
    the sentence counts; `other`: of a race, the other access."""

    kernel: str
    pc: int
    instruction: str = ""
    group: tuple[int, int, int] | None = None
    wave: int | None = None  # in its workgroup
    lanes: int = 0
    address: int | None = None
    detail: str = ""
    count: int = 1
    other: OtherAccess | None = None


@dataclass(frozen=True, slots=True)
class DevicePageFault:
    """An access that the page tables rejected, in more detail than hardware reports: `va` is exact to the byte,
    `access` is a description ("store", "packet fetch"), `near` lists the allocations there or around it, and `by`
    is the packet that performed or launched it.
    """

    va: int
    access: str
    why: str
    near: str
    by: str


@dataclass(frozen=True, slots=True)
class DeviceFinding:
    """One error or doubtful operation detected by the device."""

    severity: Severity
    rule: str  # short, stable: "missing-barrier", "reserved-bits", "stale-hdp"
    queue_id: int
    position: int  # dword (SDMA: byte) in the ring or IB where the packet starts
    sentence: str
    packet_va: int = 0  # location of that packet
    place: CodePlace | None = None
    fault: DevicePageFault | None = None


class Kmd(Protocol):
    """Reports from the command processor to the driver side. Called from the CP's thread."""

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        """Deliver an end-of-pipe interrupt: wakes the process's event with that id, or scans its event
        page."""

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        """Report a fault. It becomes a MEMORY event (KFD), or a reset and -ECANCELED fences (user queues)."""

    def hung(self, queue: HardwareQueue) -> None:
        """Report that the queue stopped permanently; the driver notices when it next tries to take the
        queue off the hardware."""

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        """Report an AQL packet that the CP rejects: amdkfd notifies a process that enabled the runtime
        (its EC_QUEUE_PACKET)."""

    def finding(self, finding: DeviceFinding) -> None: ...

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        """Execute PROTECTED_FENCE_SIGNAL of a user queue: all work before `position_dw` has finished.
        The kernel owns the fence's memory (read-only in the client's VM), so the kernel stores the
        value, not the CP."""

    def injected(self, point: str) -> bool:
        """Return whether the injected fault of that name (zinc_rt.sim.inject) occurs now; each call counts
        one pass."""

    def gpu_counter(self) -> int:
        """Return the current value of the 100 MHz counter."""
