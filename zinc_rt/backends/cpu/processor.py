"""What this machine calls its CPU."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path


def processor_name() -> str:
    """The CPU as the kernel names it; Python knows no more than the architecture on Linux."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
