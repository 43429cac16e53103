"""Memory that compiled code and Python share, one record of a RecordLayout: aligned, never moved, quick to set."""

from __future__ import annotations

import numpy as np

from zinc_rt.sim.shader.layout import ALIGNMENT, RecordLayout

_VIEW = {"u8": "B", "u32": "I", "i32": "i", "u64": "Q", "i64": "q", "ptr": "Q"}
_WIDTH = {"u8": 1, "u32": 4, "i32": 4, "u64": 8, "i64": 8, "ptr": 8}


def aligned(size_bytes: int) -> np.ndarray:
    """[size_bytes] uint8, zeros, at a multiple of 64; it stays where it is as long as the array lives."""
    raw = np.zeros(size_bytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size_bytes]


class RecordBlock:
    """`block["name"]` reads and sets a field that is no array; `record` is a NumPy view of all of it."""

    __slots__ = ("_places", "address", "memory", "record")

    def __init__(self, layout: RecordLayout) -> None:
        self.memory = aligned(layout.size_bytes)
        self.address = int(self.memory.ctypes.data)
        self.record = self.memory.view(layout.dtype)[0]
        view = memoryview(self.memory.data)
        views = {kind: view.cast(code) for kind, code in _VIEW.items()}  # type: ignore[call-overload]
        self._places = {
            name: (views[field.type], field.offset // _WIDTH[field.type]) for name, field in layout.fields.items()
        }

    def __getitem__(self, name: str) -> int:
        view, index = self._places[name]
        return int(view[index])

    def __setitem__(self, name: str, value: int) -> None:
        view, index = self._places[name]
        view[index] = value
