"""A fence of the kernel's: something that will have happened."""

from __future__ import annotations


class DmaFence:
    """Completes once. `error` is a positive errno, ECANCELED after a reset."""

    __slots__ = ("done", "error", "queue_va", "value")

    def __init__(self, *, done: bool = False, queue_va: int = 0, value: int = 0) -> None:
        self.done, self.error = done, 0
        self.queue_va, self.value = queue_va, value  # of a user queue: where the position appears, and which

    def complete(self, error: int = 0) -> None:
        self.done, self.error = True, error
