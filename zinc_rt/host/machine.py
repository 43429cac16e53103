"""What a result says of the machine it comes from: what two results have to share, and what the process had of it.

Nothing here names the machine's owner.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name() -> str:
    """Return the CPU's name as the kernel gives it; Python knows no more than the architecture on Linux."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def host() -> dict[str, Any]:
    """The machine: processor, cores this process may use, memory in 10^9 bytes, system and its release."""
    import psutil

    return {
        "processor": processor_name(),
        "cores": available_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """This process's memory. `resident_bytes` counts the pages of mapped files that are in memory. `major_faults`:
    since the process began, pages that were read from disk while a thread waited. None where the system does not
    tell."""

    resident_bytes: int
    peak_resident_bytes: int | None
    major_faults: int | None


def process_memory() -> ProcessMemory:
    import psutil

    resident = psutil.Process().memory_info().rss
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return ProcessMemory(resident, None, None)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)  # getrusage(2): kilobytes on Linux
    return ProcessMemory(resident, peak, usage.ru_majflt)
