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
        """Return whether something that may read or write the memory has not finished."""
        fences = self._fences
        while fences:
            if not fences[0].done():
                return True
            fences.popleft()
        return False

    def add_fence(self, fence: Fence) -> None:
        """Record a submission that uses the memory and ends at `fence`."""
        fences = self._fences
        while fences and fences[0].done():
            fences.popleft()
        fences.append(fence)


@dataclass(eq=False, slots=True)
class Buffer:
    """A named region of device memory. Two graphs share data by binding the same one.

    `storage` is the backend's own handle and opaque here; `gpu_va` is None if the tier has no GPU addresses.
    `owned`: the backend that allocated the memory frees it; otherwise it has another owner, see `wrap`. Several
    buffers with equal lifetimes may share one `usage`, which must be set before they are bound.
    """

    name: str
    size_bytes: int
    heap: str
    storage: Any = field(default=None, repr=False)
    gpu_va: int | None = None
    usage: Usage = field(default_factory=Usage, repr=False)
    owned: bool = True

    def busy(self) -> bool:
        """Return whether something that may read or write these bytes has not finished."""
        return self.usage.busy()

    def check_inside(self, offset_bytes: int, size_bytes: int, what: str) -> None:
        """Check that the buffer has these bytes. Raise ValueError, with a message prefixed by `what`, if it does
        not.
        """
        if offset_bytes < 0 or size_bytes < 0 or offset_bytes + size_bytes > self.size_bytes:
            raise ValueError(
                f"{what}: {size_bytes} bytes at offset {offset_bytes} exceed the {self.size_bytes} bytes of "
                f"{self.name}"
            )

    def check_owned(self) -> None:
        """Check that the backend may free the buffer. Raise ValueError for a wrapped one."""
        if not self.owned:
            raise ValueError(f"{self.name} wraps memory that belongs to another owner and must be freed there")


def wrap(
    name: str,
    storage: Any,
    size_bytes: int,
    heap: str,
    gpu_va: int | None = None,
    *,
    usage: Usage | None = None,
) -> Buffer:
    """Create a buffer over memory that the caller owns, keeps alive and frees; nothing is copied.

    `storage` has the type of the backend's own buffers: on T-CPU a NumPy array of uint8. A window on another
    buffer's memory needs that buffer's `usage`.
    """
    return Buffer(name, size_bytes, heap, storage, gpu_va, usage or Usage(), owned=False)
