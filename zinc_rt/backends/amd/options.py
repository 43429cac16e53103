"""How a backend of T1 or T2 works, whatever GPU it is on."""

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
    """What an AmdBackend is told beside its device.

    `kernels`: None is a chip without any. `hang_folder`: where bundles go; None saves none. `timeout_seconds`: for
    what the backend itself waits for, copies and a full ring. `log`: the Linux kernel's, where it is not this
    machine's. `debug`: lint everything before it is submitted, and hold dispatches against their kernels; unless
    said, on a simulated device.
    """

    ordering: str = ""
    kernels: BinaryKernelSet | None = None
    hang_folder: Path | None = Path("zinc-rt-hangs")
    ring_bytes: int = RING_BYTES
    timeout_seconds: float = TIMEOUT_SECONDS
    log: KmdLog | None = None
    publish: Publish | None = None
    debug: bool | None = None
