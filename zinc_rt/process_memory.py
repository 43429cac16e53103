"""What this process has of the machine's memory, and how often it had to wait for the disk to get it."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """`resident_bytes` counts the pages of mapped files that are in memory. `major_faults`: since the process
    began, pages that were read from disk while a thread waited. None where the system does not tell."""

    resident_bytes: int
    peak_resident_bytes: int | None
    major_faults: int | None


def process_memory() -> ProcessMemory:
    resident = psutil.Process().memory_info().rss
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return ProcessMemory(resident, None, None)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)  # getrusage(2): kilobytes on Linux
    return ProcessMemory(resident, peak, usage.ru_majflt)
