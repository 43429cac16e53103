"""Device memory blocks: one allocation, a buffer's range in it, and guard poison that kernels must not touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

GUARD_BYTES = 4096
POISON = bytes((0xA5, 0xFF))  # a NaN as float32, negative as an index


@dataclass(eq=False, slots=True)
class VulkanBlock:
    """One VkDeviceMemory and the VkBuffer over all of it. `host`: its bytes; None if the host cannot map it.
    `guard_bytes`: size of the poison on both sides of the used part. `keeps`: the owner of imported memory.
    """

    name: str
    size_bytes: int
    heap_index: int
    memory: int = 0
    handle: int = 0
    base_va: int = 0
    host: memoryview | None = None
    coherent: bool = True
    guard_bytes: int = 0
    users: int = 0
    keeps: Any = None

    @property
    def gpu_va(self) -> int:
        return self.base_va + self.guard_bytes


@dataclass(eq=False, slots=True)
class VulkanStorage:
    """The location of a Buffer of this backend: `offset_bytes` in the block's used part."""

    block: VulkanBlock
    offset_bytes: int
    size_bytes: int

    @property
    def gpu_va(self) -> int:
        return self.block.gpu_va + self.offset_bytes

    @property
    def handle_offset(self) -> int:
        """Return the offset in the block's VkBuffer."""
        return self.block.guard_bytes + self.offset_bytes

    def view(self) -> memoryview:
        """Return the host's bytes. Raise ValueError if the host cannot map them."""
        if self.block.host is None:
            raise ValueError(
                f"{self.block.name}: the host cannot map this memory; copy the buffer to heap host_visible"
            )
        return self.block.host[self.handle_offset : self.handle_offset + self.size_bytes]


def poison(block: VulkanBlock) -> None:
    """Write the poison on both sides."""
    if block.guard_bytes and block.host is not None:
        content = POISON * (block.guard_bytes // len(POISON))
        block.host[: block.guard_bytes] = content
        block.host[block.guard_bytes + block.size_bytes :][: block.guard_bytes] = content


def check_poison(block: VulkanBlock) -> list[str]:
    """Return a sentence for each side with damaged poison; nothing if there is no poison."""
    if not block.guard_bytes or block.host is None:
        return []
    problems = []
    want = np.frombuffer(POISON * (block.guard_bytes // len(POISON)), np.uint8)
    for side, start in (("before", 0), ("after", block.guard_bytes + block.size_bytes)):
        now = np.frombuffer(block.host[start : start + block.guard_bytes], np.uint8)
        wrong = np.flatnonzero(now != want)
        if wrong.size:
            far = block.guard_bytes - int(wrong[-1]) if side == "before" else int(wrong[0])
            problems.append(f"{wrong.size} bytes {side} {block.name} were overwritten, the nearest {far} away")
    return problems
