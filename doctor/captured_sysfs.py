"""Present a capture as the file functions of a Driver, so that kmd/topology.py can read another machine's
KFD."""

from __future__ import annotations

import errno
import re
from typing import cast

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.host.errors import ZincError, error_first_line
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.topology import NODES, Topology, read_topology

_HERE = "sys/class/kfd/kfd/topology/nodes"
_DENIED = re.compile(r"permission|not (?:permitted|allowed)|denied|EACCES|EPERM", re.IGNORECASE)


def is_permission_error(reason: str) -> bool:
    return bool(_DENIED.search(reason))


class CapturedFiles:
    """The read_file and list_dir of a Driver, below KFD's topology."""

    def __init__(self, capture: MachineCapture) -> None:
        self._capture = capture
        self._prefix = next(
            (
                p
                for p in (_HERE, NODES.strip("/"))
                if any(name.startswith(f"{p}/") for name in _list_names(capture))
            ),
            _HERE,
        )

    def read_file(self, path: str) -> bytes:
        name = self._relative_name(path)
        text = self._capture.text(name)
        if text is not None:
            return text.encode()
        if is_permission_error(self._capture.unreadable.get(name, "")):
            raise PermissionError(errno.EPERM, self._capture.unreadable[name], path)
        if name.endswith("/name"):
            return b"\n"  # only a label
        if name.endswith("/gpu_id"):  # left out of a capture made by hand: a node with shaders is a GPU
            match = re.search(
                rb"^simd_count (\d+)", self.read_file(path.removesuffix("gpu_id") + "properties"), re.M
            )
            return b"1" if match and int(match[1]) else b"0"
        raise FileNotFoundError(errno.ENOENT, "not in the capture", path)

    def list_dir(self, path: str) -> list[str]:
        start = self._relative_name(path) + "/"
        inside = {
            name[len(start) :].partition("/")[0] for name in _list_names(self._capture) if name.startswith(start)
        }
        if not inside:
            raise FileNotFoundError(errno.ENOENT, "not in the capture", path)
        return sorted(inside)

    def _relative_name(self, path: str) -> str:
        return self._prefix + path.removeprefix(NODES) if path.startswith(NODES) else path.strip("/")


def _list_names(capture: MachineCapture) -> list[str]:
    return [*capture.files, *capture.unreadable]


def read_captured_topology(capture: MachineCapture) -> tuple[Topology | None, str]:
    """Return KFD's topology in the capture; or None and the reason if it is missing or cannot be read."""
    if not any("kfd/kfd/topology" in name for name in _list_names(capture)):
        return None, ""
    try:
        kfd_topology = read_topology(cast("Driver", CapturedFiles(capture)))
    except (ZincError, OSError, ValueError) as error:
        return None, error_first_line(error)
    return kfd_topology, "; ".join(kfd_topology.hidden)
