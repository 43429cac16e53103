"""A named region of device memory, the only state of the execution interface."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.exec.fence import Fence


class Usage:
    """The submissions that may still access a memory region."""

    __slots__ = ("_fences",)

    def __init__(self) -> None:
        self._fences: deque[Fence] = deque()  # in the order of submission; the first one is not done

    @property
    def in_flight(self) -> tuple[Fence, ...]:
        return tuple(fence for fence in self._fences if not fence.done())

    def busy(self) -> bool:
        """True while something that may read or write the memory has not finished."""
        fences = self._fences
        while fences:
            if not fences[0].done():
                return True
            fences.popleft()
        return False

    def used_until(self, fence: Fence) -> None:
        """Note that something which uses the memory was submitted and ends at `fence`."""
        fences = self._fences
        while fences and fences[0].done():
            fences.popleft()
        fences.append(fence)


@dataclass(eq=False, slots=True)
class Buffer:
    """A named region of device memory. Two graphs share data by binding the same one.

    `storage` is the backend's own handle and opaque here; `gpu_va` is None where the tier has no GPU addresses.
    `owned`: by the backend that allocated it, which frees it; else the memory is somebody else's, see `wrap`.
    Whoever allocates several buffers that live and die together may give them one `usage`, before they are bound.
    """

    name: str
    size_bytes: int
    heap: str
    storage: Any = field(default=None, repr=False)
    gpu_va: int | None = None
    usage: Usage = field(default_factory=Usage, repr=False)
    owned: bool = True

    def busy(self) -> bool:
        """True while something that may read or write these bytes has not finished."""
        return self.usage.busy()

    def check_inside(self, offset_bytes: int, size_bytes: int, what: str) -> None:
        """Check that the buffer has these bytes. Raises ValueError, with `what` in front."""
        if offset_bytes < 0 or size_bytes < 0 or offset_bytes + size_bytes > self.size_bytes:
            raise ValueError(
                f"{what}: {size_bytes} bytes at offset {offset_bytes} pass the end of {self.name}, "
                f"{self.size_bytes} bytes"
            )

    def check_owned(self) -> None:
        """Check that the backend may free it. Raises ValueError for a wrapped one."""
        if not self.owned:
            raise ValueError(f"{self.name} wraps memory that somebody else owns: its owner frees it")


def wrap(
    name: str,
    storage: Any,
    size_bytes: int,
    heap: str,
    gpu_va: int | None = None,
    *,
    usage: Usage | None = None,
) -> Buffer:
    """A buffer over memory that somebody else owns, keeps alive and frees; nothing is copied.

    `storage` is of the kind that the backend's own buffers hold: on T-CPU a NumPy array of uint8. A window on
    another buffer's memory takes that buffer's `usage`.
    """
    return Buffer(name, size_bytes, heap, storage, gpu_va, usage or Usage(), owned=False)
