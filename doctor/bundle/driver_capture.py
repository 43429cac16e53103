"""A capture of a simulated machine: what its driver shows as files."""

from __future__ import annotations

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.kmd.driver import Driver

_FILES = ("/proc/version", "/proc/cmdline", "/proc/sys/kernel/osrelease")
_FOLDERS = ("/sys/module/amdgpu", "/sys/class/kfd/kfd/topology", "/sys/class/drm")
_SKIPPED = ("ip_discovery",)  # hundreds of files that the chip's name stands for


def driver_capture(driver: Driver) -> MachineCapture:
    files: dict[str, bytes] = {}
    unreadable: dict[str, str] = {}

    def read(path: str) -> None:
        try:
            files[path.lstrip("/")] = driver.read_file(path)
        except IsADirectoryError:
            walk(path)
        except OSError as error:
            unreadable[path.lstrip("/")] = error.strerror or str(error)

    def walk(folder: str) -> None:
        try:
            names = driver.list_dir(folder)
        except OSError as error:
            unreadable[folder.lstrip("/")] = error.strerror or str(error)
            return
        for name in names:
            if name not in _SKIPPED:
                read(f"{folder}/{name}")

    for path in _FILES:
        read(path)
    for folder in _FOLDERS:
        walk(folder)
    try:
        files["kernel.log"] = driver.read_file("/dev/kmsg")
    except OSError as error:
        unreadable["kernel.log"] = error.strerror or str(error)
    return MachineCapture(files, unreadable)
