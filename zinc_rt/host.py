"""The machine a result comes from, as far as two results have to share it. Nothing here names its owner."""

from __future__ import annotations

import platform
from typing import Any

import psutil

from zinc_rt.backends.cpu.processor import processor_name
from zinc_rt.backends.spec import available_cores


def host() -> dict[str, Any]:
    """Processor, cores this process may use, memory in 10^9 bytes, system and its release."""
    return {
        "processor": processor_name(),
        "cores": available_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
    }
