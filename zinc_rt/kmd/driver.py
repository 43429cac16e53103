"""The seam between ZINC_RT and whatever owns the GPU: Linux, or a simulated device (design §3).

A Driver does system calls and nothing else. It keeps the rules of Linux exactly: an ioctl dispatches on type and
number and tolerates other struct sizes, files under /sys hold Linux's text, a failure is an OSError whose
`errno` is Linux's. 524 (ENOTSUPP) is an errno inside Linux that amdgpu does let out.

Pointers. Some ioctl arguments hold user-space addresses of arrays. They are addresses in this process, kept
alive by the caller for the length of the call. Linux follows them itself; a driver in another process cannot, and
knows by a table of its own (zinc_rt/sim/tables) which bytes to carry along and which to bring back. Two kinds of
address are not arrays and are never carried: USERPTR memory (the device uses the caller's pages for as long as the
buffer lives) and the debugger's.

File descriptors inside structs (ACQUIRE_VM.drm_fd, dma-buf fds) are ones the same Driver handed out.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

# mmap(2); asm-generic/mman-common.h
PROT_NONE = 0
PROT_READ = 1
PROT_WRITE = 2

ANONYMOUS = -1  # instead of an fd: private memory of this process, or with PROT_NONE an address range set aside


class Mapping:
    """Bytes the host can reach: `address` in this process, `size_bytes`, and `view` over them.

    Owned by the Driver that made it and dead after its munmap. Under PROT_NONE `view` is empty.
    """

    __slots__ = ("_store", "address", "covers", "set_aside", "size_bytes", "view")

    def __init__(self, address: int, size_bytes: int, prot: int, *, covers: bool = False) -> None:
        """A Driver makes this over bytes that exist already; nothing is owned yet."""
        self.address = address
        self.size_bytes = size_bytes
        self.covers = covers  # lies over an address range set aside before, and gives it back
        self.set_aside = prot == PROT_NONE
        store = (ctypes.c_char * (0 if prot == PROT_NONE else size_bytes)).from_address(address)
        self.view = memoryview(store).cast("B")
        self._store = weakref.ref(store)  # alive as long as any view or array of these bytes

    def release(self) -> None:
        """`view` ends. BufferError while an array or slice made from it lives: it would point into nothing."""
        self.view.release()
        if self._store() is not None:
            raise BufferError(f"{self} is still looked at: drop the arrays and slices made from its view")

    def __repr__(self) -> str:
        return f"Mapping(0x{self.address:x}, size_bytes=0x{self.size_bytes:x})"


@dataclass(frozen=True, slots=True)
class KernelToCompile:
    """A kernel about to be dispatched, for a device that can use the news: a simulated one compiles it."""

    program_va: int
    rsrc1: int
    rsrc2: int
    threads: tuple[int, int, int]
    wave32: bool = True


@runtime_checkable
class SideChannel(Protocol):
    """What a simulated device takes and tells beside the system calls: its Driver has this too, Linux's not.
    Addresses are those of the process behind the Driver."""

    def announce(self, va: int, size_bytes: int, name: str) -> None:
        """A suballocation [va, va + size_bytes), for bounds checks; size 0 takes it back."""

    def announce_all(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """The same as `announce` for each (VA, bytes, name), in order."""

    def precompile(self, kernels: Sequence[KernelToCompile]) -> None:
        """Kernels about to be dispatched, which it may compile beforehand."""

    def discard(self, va: int, size_bytes: int) -> None:
        """These bytes count as uninitialised from now on, but where the host maps them."""

    def set_watchpoint(self, va: int, size_bytes: int) -> None:
        """From the next dispatch on `watchpoint_hits` says which waves stored to these bytes; size 0 ends that."""

    def watchpoint_hits(self) -> Sequence[Any]:
        """The stores to watched bytes since the last question, in order."""

    def findings(self) -> Sequence[Any]:
        """What it found wrong so far, in order; also what other clients of the device did."""

    def tell_again(self) -> None:
        """Findings are told a few times each and kernel: from now on they count as not told yet."""

    def tell_unfinished(self) -> None:
        """Findings `still-running` of every dispatch that waves have begun and not ended: where each stands."""

    def consulted(self, since: int = 0) -> tuple[int, Sequence[str]]:
        """Return a number for the next question, and the marks (zinc_rt/host/facts.py) reached since the one that
        gave `since`, sorted; those of other clients too."""


class Driver(Protocol):
    """System calls of one device owner. Not safe for use after fork: open a new one in the child."""

    simulated: bool
    """Carried into every report; nothing outside reports may ask."""

    def open(self, path: str, flags: int) -> int:
        """An fd that only this Driver understands. `flags` are those of os.open; O_CLOEXEC is added."""

    def ioctl(self, fd: int, request: int, arg: bytearray) -> None:
        """One ioctl on `arg`, changed in place. Interrupted calls are repeated; signal handlers run in between.

        `arg` is as long as the size inside `request` says. Output is copied back even where the call fails,
        because MAP_MEMORY_TO_GPU.n_success and WAIT_EVENTS.wait_result are meant to be read then.
        """

    def mmap(self, fd: int, size_bytes: int, offset: int, prot: int, fixed_va: int | None = None) -> Mapping:
        """A shared mapping of `fd`, or private memory where `fd` is ANONYMOUS.

        `fixed_va` lies in an address range set aside by this Driver (ANONYMOUS, PROT_NONE); the mapping covers it
        and munmap sets the range aside again. A simulated device may map elsewhere, so the CPU uses
        `Mapping.address`, the GPU its own address, and nobody takes them for the same.
        """

    def munmap(self, mapping: Mapping) -> None:
        """This ends the mapping and its `view`: BufferError while something still looks at the bytes."""

    def close(self, fd: int) -> None: ...

    def poll(self, fds: Sequence[int], timeout_seconds: float) -> list[int]:
        """Those of `fds` that are readable; empty once the time is over. Never raises for a timeout."""

    def read_file(self, path: str) -> bytes:
        """A whole file of /sys, /proc or /dev. OSError where it is missing or not allowed."""

    def list_dir(self, path: str) -> list[str]:
        """The names in a folder, sorted. OSError where it is missing or not allowed."""


def folder_names(driver: Driver, path: str) -> list[str]:
    """List the names in a folder; none where it cannot be read."""
    try:
        return driver.list_dir(path)
    except OSError:
        return []
