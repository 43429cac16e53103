"""The seam to a tier: what a backend does, and nothing about which one it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np

from zinc_rt.exec import Buffer, Fence, Stream
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.kernels.entry import Entry
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import Program


class Tier(Enum):
    T1 = "t1"
    T2 = "t2"
    T_CPU = "t_cpu"
    T_METAL = "t_metal"
    T_INTEL = "t_intel"
    T_CUDA = "t_cuda"


@dataclass(frozen=True, slots=True)
class Device:
    """What the device says of itself; carried into every report."""

    name: str
    arch: str
    simulated: bool = False
    profile: str = ""
    kernel: str = ""
    firmware: str = ""


class Store(Protocol):
    """One lane's store, as a simulated device saw it. `pc`: a byte offset in the kernel; `group`: the workgroup's
    id; `wave`: its number in that; `value`: the lowest 8 bytes stored at `address`."""

    @property
    def kernel(self) -> str: ...
    @property
    def instruction(self) -> str: ...
    @property
    def pc(self) -> int: ...
    @property
    def group(self) -> tuple[int, int, int]: ...
    @property
    def wave(self) -> int: ...
    @property
    def lane(self) -> int: ...
    @property
    def value(self) -> int: ...


class Backend(Protocol):
    tier: Tier
    device: Device
    ordering: str

    def entries(self) -> tuple[Entry, ...]:
        """The kernel table; `rejects` answers for one node of a graph."""

    def rejects(self, node: Node, graph: Graph) -> str | None: ...

    def alloc_bo(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        """Memory; without `zeroed` its bytes are undefined, and a simulated device finds reads of them."""

    def free_bo(self, buffer: Buffer) -> None: ...

    def map(self, buffer: Buffer) -> memoryview: ...

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """The bytes as they are now, read-only, not copied. Never counts as a write. ValueError for memory the CPU
        cannot reach."""

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        """Copy bytes in, also where the host does not map the buffer; visible to what is submitted afterwards."""

    def copy(
        self,
        source: Buffer,
        source_offset_bytes: int,
        target: Buffer,
        target_offset_bytes: int,
        size_bytes: int,
        stream: Stream,
    ) -> Fence:
        """On the device, in the stream's order. `zinc_rt.exec.copy` checks the ranges and tells the buffers."""

    def upload(self, weights: Mapping[str, Weight], constants: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
        """Make weights resident, by logical name. A tier whose memory is the file's own does not copy."""

    def build(self, program: Program, buffers: Mapping[str, Buffer]) -> Any:
        """A variant to submit. `buffers` holds the plan's allocations and the resident weights by name."""

    def code_of(self, program: Program) -> dict[str, bytes]:
        """The machine code a program dispatches, by kernel; nothing where there is none."""

    def submit(self, variant: Any, stream: Stream) -> Fence: ...

    def wait(self, fence: Fence, timeout_seconds: float) -> None:
        """Raises DeadlineMissed with the tier's report."""

    def findings(self) -> list[str]:
        """What a simulated device found wrong so far. Nothing elsewhere."""

    def culprit(self, program: Program, variant: Any, error: BaseException) -> Node | None:
        """The node at which a replay of the variant ended by `error`, where the tier can tell."""

    def watch(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> bool:
        """Have a simulated device note who stores to these bytes from now on; size 0 ends it. False elsewhere."""

    def stores(self) -> list[Store]:
        """What was noted since, in order."""

    def close(self) -> None: ...


Opener = Callable[[], Backend]
