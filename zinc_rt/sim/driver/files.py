"""The files that a simulated process can open: nodes, dma-bufs, text files, directories."""

from __future__ import annotations

import errno
import threading
from collections.abc import Container
from dataclasses import dataclass

from zinc_rt.sim.driver.fences import SyncobjState
from zinc_rt.sim.driver.kernel_rings import DrmContext, KernelRings
from zinc_rt.sim.driver.userq_state import UserQueues
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.memory.buffers import Bo


@dataclass(eq=False)
class File:
    """One open file. `path` is the node's; `readable` is the result of poll(2)."""

    path: str

    @property
    def readable(self) -> bool:
        return False


class KfdFile(File):
    """/dev/kfd. All such files of a process share the same state."""


class FolderFile(File):
    """A directory. Its names are looked up by path (list_dir)."""


class TextFile(File):
    """A file of /sys or /proc. Its text is read by path (read_file), and errors are raised only then."""

    @property
    def readable(self) -> bool:
        return True


class DmaBufFile(File):
    """A buffer shared between processes, or between the two drivers of one."""

    def __init__(self, bo: Bo, gpu: SimGpu) -> None:
        super().__init__("anon_inode:dmabuf")
        self.bo, self.gpu = bo, gpu

    def release(self) -> None:
        self.gpu.release(self.bo)

    @property
    def readable(self) -> bool:
        return True


class SyncobjFile(File):
    """A syncobj that was exported."""

    def __init__(self, syncobj: SyncobjState) -> None:
        super().__init__("anon_inode:syncobj_file")
        self.syncobj = syncobj


class SyncFile(File):
    """A fence that was exported. It is done: the export waits for it, so that poll(2) need not."""

    def __init__(self) -> None:
        super().__init__("anon_inode:sync_file")

    @property
    def readable(self) -> bool:
        return True


class SmiFile(File):
    """Lines that SMI_EVENTS returns to monitoring tools."""

    def __init__(self) -> None:
        super().__init__("anon_inode:kfd_smi_ev")
        self.lines: list[str] = []

    @property
    def readable(self) -> bool:
        return bool(self.lines)


class DrmFile(File):
    """A render node: its own GPU address space, buffer handles, syncobjs, contexts, user queues."""

    def __init__(self, path: str, gpu: SimGpu, changed: threading.Condition) -> None:
        super().__init__(path)
        self.gpu, self.vm = gpu, gpu.create_vm()
        self.handles: dict[int, Bo] = {}
        self.allowed: set[Bo] = set()  # may be mapped through this file
        self.syncobjs: dict[int, SyncobjState] = {}
        self.contexts: dict[int, DrmContext] = {}
        self.bo_lists: dict[int, list[Bo]] = {}
        self.user_queues = UserQueues(gpu, self.vm, self.contexts, changed)
        self.kernel_rings = KernelRings(gpu, self.vm, changed)

    def find_bo(self, handle: int) -> Bo:
        if handle not in self.handles:
            raise OSError(errno.ENOENT, f"no buffer {handle}")
        return self.handles[handle]

    def add(self, bo: Bo) -> int:
        handle = find_lowest_free(self.handles)
        self.handles[handle] = bo
        self.allowed.add(bo)
        return handle

    def close_handle(self, handle: int) -> None:
        """Close a handle. Closing a buffer's last handle removes its mappings."""
        bo = self.handles.pop(handle)
        if bo not in self.handles.values():
            self.allowed.discard(bo)
            for span in [span for span in self.vm.spans if span.bo is bo]:
                self.vm.unmap(span)
                self.gpu.release(bo)
        self.gpu.release(bo)

    def find_syncobj(self, handle: int, number: int = errno.ENOENT) -> SyncobjState:
        if handle not in self.syncobjs:
            raise OSError(number, f"no syncobj {handle}")
        return self.syncobjs[handle]

    def release(self) -> None:
        """Release the file when its last fd is closed."""
        self.user_queues.close()
        self.kernel_rings.close()
        for handle in list(self.handles):
            self.close_handle(handle)
        self.syncobjs.clear()
        self.vm.clear()


def find_lowest_free(taken: Container[int]) -> int:
    """Return the lowest free handle or id of a file, from 1."""
    number = 1
    while number in taken:
        number += 1
    return number
