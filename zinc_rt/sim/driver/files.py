"""What a simulated process has open, and the process itself."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zinc_rt.sim.driver.client_memory import UserMemory
from zinc_rt.sim.memory.buffers import Bo, Shared
from zinc_rt.sim.memory.vm import GpuVm

if TYPE_CHECKING:
    from zinc_rt.sim.driver.kfd_state import KfdProcessState
    from zinc_rt.sim.driver.syncobj import SyncobjState
    from zinc_rt.sim.driver.userq_state import UserQueue
    from zinc_rt.sim.gpu import SimGpu


class File:
    """One open file. `path` is the node's."""

    def __init__(self, path: str, process: Process) -> None:
        self.path, self.process = path, process

    @property
    def readable(self) -> bool:
        """poll(2)."""
        return False


class KfdFile(File):
    """/dev/kfd. Every one of a process shows the same state."""


class DmaBufFile(File):
    def __init__(self, bo: Bo, process: Process) -> None:
        super().__init__("anon_inode:dmabuf", process)
        self.bo = bo

    @property
    def readable(self) -> bool:
        return True


class TextFile(File):
    """A file of /sys or /proc. Its text comes by path (read_file), and says only then what it refuses."""

    @property
    def readable(self) -> bool:
        return True


class FolderFile(File):
    """A folder. Its names come by path (list_dir)."""


class SmiFile(File):
    """Lines that SMI_EVENTS hands to monitoring tools."""

    def __init__(self, process: Process) -> None:
        super().__init__("anon_inode:kfd_smi_ev", process)
        self.lines: list[str] = []

    @property
    def readable(self) -> bool:
        return bool(self.lines)


@dataclass(eq=False)
class DrmContext:
    """AMDGPU_CTX: what a client knows of resets."""

    resets_seen: int
    vram_lost_seen: int
    guilty: bool = False


class DrmFile(File):
    """A render node: its own GPU address space, buffer handles, syncobjs, user queues."""

    def __init__(self, path: str, process: Process, gpu: SimGpu, vm: GpuVm) -> None:
        super().__init__(path, process)
        self.gpu, self.vm = gpu, vm
        self.handles: dict[int, Bo] = {}
        self.allowed: set[Bo] = set()  # may be mapped through this file
        self.syncobjs: dict[int, SyncobjState] = {}
        self.queues: dict[int, UserQueue] = {}
        self.contexts: dict[int, DrmContext] = {}

    def bo(self, handle: int) -> Bo:
        if handle not in self.handles:
            raise OSError(errno.ENOENT, f"no buffer {handle}")
        return self.handles[handle]

    def add(self, bo: Bo) -> int:
        handle = lowest_free(self.handles, 1)
        self.handles[handle] = bo
        self.allowed.add(bo)
        return handle


def lowest_free(taken: dict[int, object] | dict[int, Bo], first: int) -> int:
    number = first
    while number in taken:
        number += 1
    return number


@dataclass(eq=False)
class Process:
    """A client as the kernel sees it."""

    pid: int
    memory: UserMemory
    files: dict[int, File] = field(default_factory=dict)
    kfd: KfdProcessState | None = None
    host_mappings: list[tuple[Bo, Shared]] = field(default_factory=list)
    privileged: bool = False  # CAP_SYS_NICE
    dead: bool = False
