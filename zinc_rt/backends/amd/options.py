"""Options of a T1 or T2 backend that do not depend on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zinc_rt.backends.amd.kmd_log import KmdLog
from zinc_rt.backends.amd.publish import Publish
from zinc_rt.kernels.sets import BinaryKernelSet

RING_BYTES = 64 << 10  # 16384 dwords: some 1,300 replays in flight
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class AmdOptions:
    """Options of an AmdBackend, in addition to its device.

    `kernels` None: the chip has none. `hang_folder`: the parent folder of bundles; None saves none.
    `timeout_seconds`: for waits of the backend itself, copies and a full ring. `log`: the Linux kernel's log, if
    it is not this machine's. `debug`: lint everything before submission and check dispatches against their
    kernels; the default is true on a simulated device.
    """

    ordering: str = ""
    kernels: BinaryKernelSet | None = None
    hang_folder: Path | None = Path("zinc-rt-hangs")
    ring_bytes: int = RING_BYTES
    timeout_seconds: float = TIMEOUT_SECONDS
    log: KmdLog | None = None
    publish: Publish | None = None
    debug: bool | None = None
