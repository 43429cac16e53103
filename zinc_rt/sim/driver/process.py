"""A client process as the kernel sees it: its memory, its open files, and its amdkfd state."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from zinc_rt.sim.driver.client_memory import UserMemory
from zinc_rt.sim.driver.files import DmaBufFile, DrmFile, File, SmiFile
from zinc_rt.sim.driver.kfd_state import KfdProcessState

MAX_FILES = 1024  # ulimit -n


@dataclass(eq=False)
class Process:
    """A process. `fds` allocates the numbers of the files that it opens."""

    pid: int
    memory: UserMemory
    fds: Iterator[int]
    files: dict[int, File] = field(default_factory=dict)
    kfd: KfdProcessState | None = None
    privileged: bool = False  # CAP_SYS_NICE
    dead: bool = False
    interrupted: set[int] = field(default_factory=set)  # threads whose caller is gone: their waits end
    launches: Callable[[int, int], str] | None = None  # of a client that records its launches

    def launched_at(self, packet_va: int, index: int) -> str:
        """Return the code of this process that wrote an AQL packet; "" if it is not known."""
        return self.launches(packet_va, index) if self.launches is not None else ""

    def is_interrupted(self) -> bool:
        """Return whether a wait in this thread has to end, because its caller is gone."""
        return self.dead or threading.get_ident() in self.interrupted

    def check_uninterrupted(self) -> None:
        if self.is_interrupted():
            raise OSError(errno.EINTR, "the caller is gone")

    def add_file(self, file: File) -> int:
        if len(self.files) >= MAX_FILES:
            raise OSError(errno.EMFILE, "too many open files")
        fd = next(self.fds)
        self.files[fd] = file
        return fd

    def check_alive(self) -> None:
        if self.dead:
            raise OSError(errno.ENODEV, "the simulated device is closed")

    def file(self, fd: int) -> File:
        self.check_alive()
        if fd not in self.files:
            raise OSError(errno.EBADF, f"fd {fd}")
        return self.files[fd]

    def take_file(self, fd: int) -> File:
        """Remove the file number and return its file."""
        file = self.file(fd)
        del self.files[fd]
        return file

    def list_drm_files(self) -> list[DrmFile]:
        return [file for file in self.files.values() if isinstance(file, DrmFile)]

    def release(self, file: File) -> None:
        """Release a file whose last fd was closed. KFD's state outlives /dev/kfd: it is released with the
        process (kfd_release)."""
        if isinstance(file, DrmFile):
            if self.kfd is not None and any(on.file is file for on in self.kfd.on.values()):
                self.kfd.held_files.append(file)  # ACQUIRE_VM holds it until the process ends
            else:
                file.release()
        elif isinstance(file, DmaBufFile):
            file.release()
        elif isinstance(file, SmiFile) and self.kfd is not None and file in self.kfd.smi:
            self.kfd.smi.remove(file)

    def end(self) -> None:
        """End the process by exit or signal: release everything it had open."""
        if self.kfd is not None:
            self.kfd.close()
            held, self.kfd = self.kfd.held_files, None
            for item in held:
                item.release()
        for fd in list(self.files):
            self.release(self.files.pop(fd))
        self.dead = True
