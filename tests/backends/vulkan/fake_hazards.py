"""What a command buffer's barriers order, and what they do not: conflicts between accesses, by Vulkan's rules.

An access is made by a stage with an access bit. A barrier covers those before it whose stage it waits for (and, of
a store, whose bit it makes available), for those behind it whose stage and bit it names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.commands import COMPUTE, HOST, INDIRECT, SHADER_WRITE, TRANSFER, TRANSFER_WRITE

SHADER_READ = api.VK_ACCESS_SHADER_READ_BIT
GRID_READ = api.VK_ACCESS_INDIRECT_COMMAND_READ_BIT
TRANSFER_READ = api.VK_ACCESS_TRANSFER_READ_BIT
STORES = SHADER_WRITE | TRANSFER_WRITE
ALL_STAGES = COMPUTE | INDIRECT | TRANSFER
EVERYTHING = {  # what may follow on the device
    (COMPUTE, SHADER_READ),
    (COMPUTE, SHADER_WRITE),
    (INDIRECT, GRID_READ),
    (TRANSFER, TRANSFER_READ),
    (TRANSFER, TRANSFER_WRITE),
}


class FakeVulkanError(AssertionError):
    """An error that a real driver would ignore or crash on."""


@dataclass(eq=False, slots=True)
class Access:
    """Bytes `start` to `end` of device addresses. `what`: a description of the buffer. `order`: accesses of
    one command do not conflict with each other."""

    what: str
    start: int
    end: int
    stage: int
    bit: int
    order: int
    seen_by: set[tuple[int, int]] = field(default_factory=set)

    @property
    def stores(self) -> bool:
        return bool(self.bit & STORES)


class Hazards:
    """The accesses of one queue, across submissions, which are ordered by barriers only."""

    def __init__(self) -> None:
        self._open: list[Access] = []
        self._order = 0

    def command(self) -> int:
        self._order += 1
        return self._order

    def access(self, new: Access) -> None:
        """Raises FakeVulkanError for a conflict that no barrier orders."""
        for old in self._open:
            if old.end <= new.start or new.end <= old.start or old.order == new.order:
                continue
            if not (old.stores or new.stores):
                continue
            if old.stores and (new.stage, new.bit) not in old.seen_by:
                raise FakeVulkanError(f"no barrier between {old.what} and {new.what}")
            if not old.stores and new.stage not in {stage for stage, _ in old.seen_by}:
                raise FakeVulkanError(f"no barrier between {old.what} and {new.what}")
        self._open.append(new)

    def barrier(self, after: int, before: int, writes: int, reads: int) -> None:
        then = {(stage, bit) for stage, bit in EVERYTHING if before & stage and reads & bit}
        if before & HOST and reads & api.VK_ACCESS_HOST_READ_BIT:
            then.add((HOST, api.VK_ACCESS_HOST_READ_BIT))
        if after & COMPUTE:
            after |= INDIRECT  # logically earlier stages are in the first scope
        left = []
        for item in self._open:
            if after & item.stage and (not item.stores or writes & item.bit):
                item.seen_by |= then
            if not item.seen_by >= EVERYTHING:
                left.append(item)
        self._open = left

    def ended(self, name: str) -> None:
        """Check a submission before its semaphore is signalled, because after that the host may read."""
        for item in self._open:
            if item.stores and (HOST, api.VK_ACCESS_HOST_READ_BIT) not in item.seen_by:
                raise FakeVulkanError(f"{name} ends without a barrier that makes {item.what} visible to the host")
