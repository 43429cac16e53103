"""The seam to a tier: what a backend does, and nothing about which one it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from zinc_rt.backends.spec import BackendSpec
from zinc_rt.exec import Buffer, Fence, Stream
from zinc_rt.ir.graph import Node
from zinc_rt.kernels.sets import KernelSet
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import Program


@dataclass(frozen=True, slots=True)
class Device:
    """What the device says of itself; carried into every report."""

    name: str
    arch: str
    simulated: bool = False
    profile: str = ""
    kernel: str = ""
    firmware: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a simulated device found wrong."""

    rule: str
    sentence: str

    @property
    def text(self) -> str:
        return f"{self.rule}: {self.sentence}"


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


class Instrument(Protocol):
    """What only a simulated device can do."""

    def findings(self) -> list[Finding]:
        """What it found wrong so far, each once, in order; also what others that share the device did."""

    def watch(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        """Note who stores to these bytes from now on; size 0 ends it."""

    def stores(self) -> list[Store]:
        """What was noted since, in order."""


class Executable(Protocol):
    """A built program, opaque but for this."""

    def kernels(self) -> dict[str, bytes]:
        """The machine code it dispatches, by kernel; nothing where there is none."""


class Backend(Protocol):
    """One tier on one device. It owns what it allocated; one host thread drives it."""

    @property
    def spec(self) -> BackendSpec: ...

    device: Device
    ordering: str
    kernels: KernelSet

    @property
    def instrument(self) -> Instrument | None:
        """None on silicon, and where there is no device."""

    def alloc(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        """Memory; without `zeroed` its bytes are undefined, and a simulated device finds reads of them."""

    def free(self, buffer: Buffer) -> None:
        """The caller has waited for every replay that uses it."""

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """The bytes as they are now, read-only, not copied. Never counts as a write. ValueError for memory the CPU
        cannot reach."""

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        """Copy bytes in, also where the host does not map the buffer; visible to what is submitted afterwards."""

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """A read-only view of what is there now; marks nothing written. ValueError for memory the CPU cannot
        reach."""

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> Fence:
        """Zeros, in the stream's order."""

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
        """An Executable to submit. `buffers` holds the plan's allocations and the resident weights by name."""

    def unload(self, executable: Any) -> None:
        """Give back what `build` took. The caller has waited for its replays."""

    def submit(self, executable: Any, stream: Stream) -> Fence:
        """Start after the stream's earlier submissions and every fence in `stream.waits`."""

    def wait(self, fence: Fence, timeout_seconds: float) -> None:
        """Raises DeadlineMissed with the tier's report."""

    def culprit(self, program: Program, executable: Any, error: BaseException) -> Node | None:
        """The node at which a replay ended by `error`, where the tier can tell."""

    def close(self) -> None: ...
