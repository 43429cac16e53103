"""The machine description in results, for comparing results, and this process's memory use.

It does not identify the machine's owner.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def count_available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_processor_name() -> str:
    """Return the CPU's name as reported by the kernel; on Linux, Python reports only the architecture."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def describe_host() -> dict[str, Any]:
    """Return the machine: processor, cores this process may use, memory in 10^9 bytes, system and its release."""
    import psutil

    return {
        "processor": read_processor_name(),
        "cores": count_available_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """This process's memory.

    `resident_bytes` includes resident pages of mapped files. `major_faults`: pages read from disk while a thread
    waited, since the process started. None if the system does not report a value.
    """

    resident_bytes: int
    peak_resident_bytes: int | None
    major_faults: int | None


def read_process_memory() -> ProcessMemory:
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
