"""What the kernel's log gained while the probes ran, or why it cannot be read and how to change that."""

from __future__ import annotations

import re

from zinc_rt.backends.amd.kmd_log import KmsgLog

OURS = re.compile(r"amdgpu|kfd|\bMES\b|page fault|\bring\b|\bdrm\b", re.IGNORECASE)
FIX = "sudo sysctl kernel.dmesg_restrict=0 (until the next boot), or run `sudo dmesg` beside it"


class GpuMessages:
    """What the kernel says of GPUs from now on. A simulated device has its own log: each probe brings back what it
    saw of it."""

    def __init__(self, *, simulated: bool, log: KmsgLog | None = None) -> None:
        self._log = None if simulated else (log or KmsgLog())
        self.missing = ""
        if self._log is not None and self._log.missing:
            self.missing = f"{self._log.missing.split(';')[0]}; fix: {FIX}"

    def lines(self) -> tuple[str, ...]:
        """The lines about the GPU."""
        if self._log is None:
            return ()
        return tuple(line for line in self._log.lines() if OURS.search(line))
