"""Publish as a list of stores, for tests that ask for their order."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field


@dataclass
class RecordingPublish:
    """Does what publish does, one store at a time, and notes each: ("ring", place), ("wptr", value), …"""

    stores: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self, target: int, wptr_dw: int, source: int, count_dw: int) -> int:
        ring, mask, wptr, doorbell = (ctypes.c_uint64 * 4).from_address(target)
        for index in range(count_dw):
            location = wptr_dw + index & mask
            word = ctypes.c_uint32.from_address(source + 4 * index).value
            ctypes.c_uint32.from_address(ring + 4 * location).value = word
            self.stores.append(("ring", location))
        self.stores.append(("fence", 0))
        ctypes.c_uint64.from_address(wptr).value = wptr_dw + count_dw
        self.stores.append(("wptr", wptr_dw + count_dw))
        self.stores.append(("fence", 0))
        ctypes.c_uint64.from_address(doorbell).value = wptr_dw + count_dw
        self.stores.append(("doorbell", wptr_dw + count_dw))
        return wptr_dw + count_dw
