"""The interface between ZINC_RT and the owner of the GPU: Linux, or a simulated device (design §3).

A Driver only performs system calls. It follows the rules of Linux exactly: an ioctl dispatches on type and number
and tolerates other struct sizes, files under /sys hold Linux's text, a failure is an OSError with Linux's `errno`.
524 (ENOTSUPP) is a kernel-internal errno that amdgpu nevertheless returns.

Pointers. Some ioctl arguments hold user-space addresses of arrays. They are addresses in this process, which the
caller keeps alive during the call. Linux follows them itself; a driver in another process cannot, and uses its own
table (zinc_rt/sim/tables) of the bytes to copy in and out. Two kinds of address are not arrays and are never
copied: USERPTR memory (the device uses the caller's pages during the buffer's lifetime) and the debugger's.

File descriptors inside structs (ACQUIRE_VM.drm_fd, dma-buf fds) must come from the same Driver.
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
    """Memory mapped for the host: `address` in this process, `size_bytes`, and a `view` of it.

    Owned by the Driver that created it and invalid after its munmap. Under PROT_NONE `view` is empty.
    """

    __slots__ = ("_store", "address", "covers", "set_aside", "size_bytes", "view")

    def __init__(self, address: int, size_bytes: int, prot: int, *, covers: bool = False) -> None:
        """Initialise a mapping over existing bytes, without ownership. Called by a Driver."""
        self.address = address
        self.size_bytes = size_bytes
        self.covers = covers  # lies over an address range set aside before, and gives it back
        self.set_aside = prot == PROT_NONE
        store = (ctypes.c_char * (0 if prot == PROT_NONE else size_bytes)).from_address(address)
        self.view = memoryview(store).cast("B")
        self._store = weakref.ref(store)  # alive as long as any view or array of these bytes

    def release(self) -> None:
        """Release `view`. Raise BufferError while an array or slice made from it exists, which would dangle."""
        self.view.release()
        if self._store() is not None:
            raise BufferError(
                f"{self} is still in use: delete the arrays and slices that were created from its view"
            )

    def __repr__(self) -> str:
        return f"Mapping(0x{self.address:x}, size_bytes=0x{self.size_bytes:x})"


@dataclass(frozen=True, slots=True)
class KernelToCompile:
    """A kernel that will be dispatched soon. A simulated device may compile it in advance."""

    program_va: int
    rsrc1: int
    rsrc2: int
    threads: tuple[int, int, int]
    wave32: bool = True


@runtime_checkable
class SideChannel(Protocol):
    """The additional interface of a simulated device, besides system calls; Linux's Driver does not have it.

    Addresses are those of the Driver's client process.
    """

    def announce(self, va: int, size_bytes: int, name: str) -> None:
        """Announce a suballocation [va, va + size_bytes), for bounds checks; size 0 removes it."""

    def announce_all(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Call `announce` for each (VA, bytes, name), in order."""

    def precompile(self, kernels: Sequence[KernelToCompile]) -> None:
        """Pass kernels that will be dispatched soon, for compilation in advance."""

    def discard(self, va: int, size_bytes: int) -> None:
        """Mark these bytes as uninitialised, except where the host maps them."""

    def discard_mapped(self, va: int, size_bytes: int) -> None:
        """Mark these bytes as uninitialised, although the host maps them."""

    def initialised(self, va: int, size_bytes: int) -> bytes:
        """Return one bit for each byte, the first in the low bit: whether it was written since it was
        discarded."""

    def set_watchpoint(self, va: int, size_bytes: int) -> None:
        """Watch these bytes from the next dispatch on: `watchpoint_hits` returns the waves that store there; size
        0 stops."""

    def watchpoint_hits(self) -> Sequence[Any]:
        """Return the stores to watched bytes since the last call, in order."""

    def executions(self) -> Sequence[Any]:
        """Return the executions that completed since the last call, by kernel (sim.executions.KernelExecution);
        empty unless the device counts them.
        """

    def counters(self) -> Sequence[dict[str, Any]]:
        """Return the counters of each kernel since the device began, fields of
        sim.shader.run.profile.KernelCounters."""

    def findings(self) -> Sequence[Any]:
        """Return all findings in order, including those of other clients of the device."""

    def tell_again(self) -> None:
        """Reset the report limit: findings are reported a limited number of times per kernel."""

    def tell_unfinished(self) -> None:
        """Report a finding `still-running` for every dispatch with waves that have not ended, with their
        position.
        """

    def consulted(self, since: int = 0) -> tuple[int, Sequence[str]]:
        """Return a sequence number, and the marks (zinc_rt/host/facts.py) recorded after the call that returned
        the number `since`.

        The marks are sorted and include those of other clients.
        """


class Driver(Protocol):
    """System calls of one device owner. Not usable after fork: open a new one in the child."""

    simulated: bool
    """Carried into every report; nothing outside reports may ask."""

    def open(self, path: str, flags: int) -> int:
        """Open a file. The fd is valid only for this Driver. `flags` are those of os.open; O_CLOEXEC is added."""

    def ioctl(self, fd: int, request: int, arg: bytearray) -> None:
        """Execute one ioctl on `arg`, modified in place. Interrupted calls are repeated; signal handlers run in
        between.

        `arg` has the size encoded in `request`. Output is copied back even if the call fails, because
        MAP_MEMORY_TO_GPU.n_success and WAIT_EVENTS.wait_result are meant to be read then.
        """

    def mmap(self, fd: int, size_bytes: int, offset: int, prot: int, fixed_va: int | None = None) -> Mapping:
        """Map `fd` shared, or map private memory if `fd` is ANONYMOUS.

        `fixed_va` is in an address range reserved by this Driver (ANONYMOUS, PROT_NONE); the mapping replaces that
        range and munmap reserves it again. A simulated device may map elsewhere, so the CPU must use
        `Mapping.address` and the GPU its own address.
        """

    def munmap(self, mapping: Mapping) -> None:
        """Remove the mapping and its `view`. Raise BufferError while the bytes are in use."""

    def close(self, fd: int) -> None: ...

    def poll(self, fds: Sequence[int], timeout_seconds: float) -> list[int]:
        """Return the readable `fds`; empty on timeout. Never raises for a timeout."""

    def read_file(self, path: str) -> bytes:
        """Read a whole file of /sys, /proc or /dev. Raise OSError if it is missing or access is denied."""

    def list_dir(self, path: str) -> list[str]:
        """List the names in a folder, sorted. Raise OSError if it is missing or access is denied."""


def list_folder(driver: Driver, path: str) -> list[str]:
    """List the names in a folder; empty if it cannot be read."""
    try:
        return driver.list_dir(path)
    except OSError:
        return []
