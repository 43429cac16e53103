"""The device's files as a folder on disk: what a program finds below /sys and /dev when `sim -- PROGRAM` runs it.

Folders lie where Linux has them (/sys/devices), the other paths are links to them, as in sysfs.
"""

from __future__ import annotations

import os
from pathlib import Path

from zinc_rt.sim.serve.client import SimClient

_KFD = "/sys/devices/virtual/kfd/kfd"
_BUS = "/sys/devices/pci0000:00"


def copy_files(client: SimClient, root: Path) -> None:
    """The device's files, as they are now, below `root`."""
    _copy(client, f"{_KFD}/topology", root)
    _copy(client, "/sys/module/amdgpu", root)
    _link(root, "/sys/class/kfd/kfd", _KFD)
    (root / "dev/dri").mkdir(parents=True)
    (root / "dev/kfd").touch()
    for address in client.list_dir("/sys/bus/pci/devices"):
        _copy(client, f"/sys/bus/pci/devices/{address}", root, at=f"{_BUS}/{address}")
        _link(root, f"/sys/bus/pci/devices/{address}", f"{_BUS}/{address}")
        _link(root, f"{_BUS}/{address}/subsystem", "/sys/bus/pci")
        _link(root, f"{_BUS}/{address}/driver", "/sys/bus/pci/drivers/amdgpu")
        (root / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True, exist_ok=True)
    for name in client.list_dir("/dev/dri"):
        (root / "dev/dri" / name).touch()
        _copy_drm_node(client, root, name)


def _copy_drm_node(client: SimClient, root: Path, name: str) -> None:
    """renderD128 of a GPU, in its PCI device's folder and where programs look for it."""
    shown = f"/sys/class/drm/{name}"
    events = client.read_file(f"{shown}/device/uevent").decode().split()
    address = next(line.partition("=")[2] for line in events if line.startswith("PCI_SLOT_NAME="))
    number = client.read_file(f"{shown}/dev").decode().strip()
    node = f"{_BUS}/{address}/drm/{name}"
    place = root / node[1:]
    place.mkdir(parents=True)
    (place / "dev").write_text(f"{number}\n")
    major, minor = number.split(":")
    (place / "uevent").write_text(f"MAJOR={major}\nMINOR={minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor\n")
    _link(root, f"{node}/device", f"{_BUS}/{address}")
    _link(root, shown, node)
    _link(root, f"/sys/dev/char/{number}", node)


def _link(root: Path, name: str, to: str) -> None:
    place = root / name[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(root / to[1:], place.parent))


def _copy(client: SimClient, path: str, root: Path, *, at: str | None = None) -> None:
    """A folder with all that lies below it."""
    place = root / (at or path)[1:]
    place.mkdir(parents=True, exist_ok=True)
    for name in client.list_dir(path):
        try:
            (place / name).write_bytes(client.read_file(f"{path}/{name}"))
        except IsADirectoryError:
            _copy(client, f"{path}/{name}", root, at=f"{at or path}/{name}")
        except PermissionError:
            (place / name).touch(0o000)  # as the device keeps it from its clients
