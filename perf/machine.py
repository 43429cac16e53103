"""The machine of a timing: processor, governor, load, and sensor readings during the run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

SYSFS = Path("/sys")
EVERY_SECONDS = 0.5
# Files of amdgpu's hwmon folder: the quantity and its scale (Documentation/hwmon of Linux).
GPU_SENSORS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "gpu_temperature_c": (("temp1_input",), 1e3),
    "gpu_clock_mhz": (("freq1_input",), 1e6),
    "power_w": (("power1_average", "power1_input"), 1e6),
}


def describe_machine(sysfs: Path = SYSFS) -> dict[str, Any]:
    """Describe the host for the record. Unavailable properties are omitted."""
    from zinc_rt.host.machine import count_available_cores

    description: dict[str, Any] = {
        "processor": _processor_name(),
        "cores": count_available_cores(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    governors = {
        text
        for path in sysfs.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
        if (text := _read_text(path)) is not None
    }
    if governors:
        description["governor"] = ", ".join(sorted(governors))
    return description


def find_gpu_folder(sysfs: Path = SYSFS, render_path: str = "") -> Path | None:
    """Return the hwmon folder of the AMD GPU with this file in /dev/dri. Without a path, return that of the only
    AMD GPU, or None if there are several: the sensors of another GPU would be wrong.
    """
    name = Path(render_path).name or "renderD*"
    devices = [path for path in sysfs.glob(f"class/drm/{name}/device") if _read_text(path / "vendor") == "0x1002"]
    return next(iter(sorted(devices[0].glob("hwmon/hwmon*"))), None) if len(devices) == 1 else None


@dataclass(slots=True)
class Sampler:
    """Sensor readings during a run, at most one per EVERY_SECONDS. Call `look` between timed parts. `render_path`
    is the GPU that runs, as for `find_gpu_folder`; None if none does.
    """

    sysfs: Path = SYSFS
    clock: Callable[[], float] = time.monotonic
    render_path: str | None = ""
    samples: list[dict[str, float]] = field(default_factory=list)
    _gpu: Path | None = None
    _started: float = 0.0
    _last: float = float("-inf")

    def __post_init__(self) -> None:
        self._gpu = None if self.render_path is None else find_gpu_folder(self.sysfs, self.render_path)
        self._started = self.clock()

    def look(self) -> None:
        now = self.clock()
        if now - self._last < EVERY_SECONDS:
            return
        self._last = now
        reading = {"at_seconds": round(now - self._started, 3), **self._read_gpu(), **_read_cpu()}
        self.samples.append(reading)

    def _read_gpu(self) -> dict[str, float]:
        reading = {}
        for name, (files, parts) in GPU_SENSORS.items() if self._gpu is not None else ():
            assert self._gpu is not None
            text = next((t for file in files if (t := _read_text(self._gpu / file)) is not None), None)
            if text is not None and text.lstrip("-").isdigit():
                reading[name] = int(text) / parts
        return reading


def _read_cpu() -> dict[str, float]:
    reading = {}
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    if frequency is not None and frequency.current:
        reading["cpu_clock_mhz"] = round(frequency.current, 1)
    sensors: dict[str, Any] = getattr(psutil, "sensors_temperatures", dict)()  # Linux and FreeBSD only
    values = [item.current for name in ("k10temp", "coretemp") for item in sensors.get(name, [])]
    if values:
        reading["cpu_temperature_c"] = max(values)
    return reading


def _processor_name() -> str:
    for line in (_read_text(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
