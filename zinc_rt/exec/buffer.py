"""A named region of device memory: the only state there is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zinc_rt.exec.fence import Fence


@dataclass(eq=False, slots=True)
class Buffer:
    """Owned by the backend that allocated it; two graphs share data by binding the same Buffer.

    `storage` is the backend's own handle and opaque here; `gpu_va` is None where the tier has no GPU addresses.
    `in_flight` holds the replays that may still touch the bytes.
    """

    name: str
    size_bytes: int
    heap: str
    storage: Any = field(default=None, repr=False)
    gpu_va: int | None = None
    in_flight: list[Fence] = field(default_factory=list, repr=False)

    def busy(self) -> bool:
        """True while a replay that may read or write these bytes has not retired."""
        self.in_flight[:] = [fence for fence in self.in_flight if not fence.done()]
        return bool(self.in_flight)

    def used_until(self, fence: Fence) -> None:
        """A replay that binds this buffer was submitted and ends at `fence`."""
        self.busy()
        self.in_flight.append(fence)
