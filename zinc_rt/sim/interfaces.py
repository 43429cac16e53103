"""What the halves of the simulated device promise each other: driver side and command processor.

The driver side (ioctls, memory, events) owns processes, allocations, page tables and queue objects. The command
processor sees a queue, the address space behind it, and an outlet for what it reports to the driver side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from zinc_rt.host.sanitizer_rules import Severity


class AccessKind(Enum):
    """What a GPU access does to its bytes."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"


class Fault(Exception):
    """A GPU access the page tables do not allow. `why`: "not present", "read only", "no execute". `reported`:
    which instruction of which wave it was, where that has been reported already."""

    def __init__(self, va: int, access: AccessKind, why: str, reported: str = "") -> None:
        super().__init__(reported or f"{access.value} at 0x{va:x}: {why}")
        self.va = va
        self.access = access
        self.why = why
        self.reported = reported


class AddressSpace(Protocol):
    """One process's GPU virtual memory: 4 KiB pages, looked up at every access."""

    def read(self, va: int, size_bytes: int) -> bytes:
        """Raises Fault. Ranges may cross pages and allocations."""

    def write(self, va: int, data: bytes) -> None:
        """Raises Fault; nothing is written then. Naturally aligned 4- and 8-byte writes are single stores, so the
        host never sees half of one."""

    def view(self, va: int, size_bytes: int, access: AccessKind) -> memoryview:
        """Writable bytes of one allocation, for bulk work. Raises Fault, ValueError across allocations."""

    def fetch(self, va: int, size_bytes: int) -> bytes:
        """Instructions as the shader's cache has them: bytes fetched before stay as they were until
        invalidate_icache. Raises Fault ("no execute" too). The CP reads packets with `read`, past this cache."""

    def describe(self, va: int) -> str:
        """ "ring+0x40" where an allocation (or an announced suballocation) covers it, else "unmapped"."""

    def nearby(self, va: int) -> str:
        """What `describe` says; of an unmapped address also what was freed there, and what lies on either side."""

    def flush_hdp(self) -> None:
        """Host writes through the BAR become visible to the GPU."""

    def write_back(self) -> None:
        """GPU writes at system scope become visible to the host through the BAR."""

    def host_sees(self, va: int) -> bool:
        """Whether a host that reads these bytes finds what the GPU stored last: False until it is written back."""

    def before_waves(self) -> None:
        """Host memory that GL2 caches and does not hold is read anew: waves may touch any of it."""

    def after_waves(self, touched: Iterable[tuple[int, int]]) -> None:
        """Waves have touched these (VA, bytes): GL2 holds their lines."""

    def invalidate_gl2(self, inside: tuple[int, int] | None = None) -> None:
        """What GL2 holds of host memory, in (VA, bytes) or all of it, is read anew at its next use."""

    def invalidate_wave_caches(self, *, vector: bool, scalar: bool, inside: tuple[int, int] | None = None) -> None:
        """The L0s, the scalar caches of what runs waves, in (VA, bytes) or all of it: where they hold lines at
        all (--coherence caches)."""

    def invalidate_icache(self) -> None:
        """Instructions written since are fetched anew."""


class QueueKind(Enum):
    """Which driver made the queue, and for which engine."""

    KFD_COMPUTE = "kfd compute"
    KFD_AQL = "kfd AQL"
    KFD_SDMA = "kfd sdma"
    USERQ_COMPUTE = "user queue compute"


class QueueState(Enum):
    """Whether a queue runs, and if not, why."""

    ACTIVE = "active"
    HUNG = "hung"  # an illegal packet, a wait that cannot end, or a fault; nothing more runs
    EVICTED = "evicted"  # taken off the hardware by the driver, may come back
    DESTROYED = "destroyed"


@dataclass(slots=True)
class HardwareQueue:
    """A queue as the hardware has it: what was in its MQD. Positions count dwords (SDMA: bytes), never wrapped."""

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
    report: str = ""  # why it hung: which dword, which packet, what was wrong
    extra: dict[str, int] = field(default_factory=dict)  # registers a client may have set through the MQD


@dataclass(frozen=True, slots=True)
class CodePlace:
    """Where in a kernel. `kernel` as AddressSpace.describe calls its first byte, `pc` a byte offset in it, `lanes`
    a bit each, `address` the first lane's; None and "" where there is none."""

    kernel: str
    pc: int
    instruction: str = ""
    group: tuple[int, int, int] | None = None
    wave: int | None = None  # in its workgroup
    lanes: int = 0
    address: int | None = None


@dataclass(frozen=True, slots=True)
class DevicePageFault:
    """The access that the page tables refused, as no hardware reports it: `va` to the byte, `access` in words
    ("store", "packet fetch"), `near` what lies there or around it, `by` the packet that did or launched it."""

    va: int
    access: str
    why: str
    near: str
    by: str


@dataclass(frozen=True, slots=True)
class DeviceFinding:
    """One thing that the device found wrong or doubtful."""

    severity: Severity
    rule: str  # short, stable: "missing-barrier", "reserved-bits", "stale-hdp"
    queue_id: int
    position: int  # dword (SDMA: byte) in the ring or IB where the packet starts
    sentence: str
    packet_va: int = 0  # where that packet lies
    place: CodePlace | None = None
    fault: DevicePageFault | None = None


class Kmd(Protocol):
    """What the command processor reports to the driver side. Called from the CP's thread."""

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        """An end-of-pipe interrupt: wakes the process's event of that id, or scans its event page."""

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        """Becomes a MEMORY event (KFD) or a reset and -ECANCELED fences (user queues)."""

    def hung(self, queue: HardwareQueue) -> None:
        """The queue stopped for good; the driver finds out when it next tries to take it off the hardware."""

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        """An AQL packet the CP refuses: amdkfd tells a process that enabled the runtime (its EC_QUEUE_PACKET)."""

    def finding(self, finding: DeviceFinding) -> None: ...

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        """PROTECTED_FENCE_SIGNAL of a user queue: everything before `position_dw` has finished. The kernel owns
        the fence's memory (read-only in the client's VM), so it stores the value, not the CP."""

    def injected(self, point: str) -> bool:
        """Whether the injected fault of that name (zinc_rt.sim.inject) strikes now; asking uses up one strike."""

    def gpu_counter(self) -> int:
        """The 100 MHz counter, now."""
