"""Memory with pages around it that nobody may touch: a store of compiled code past the end kills the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
ALIGNMENT = 64
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def guarded_array(size_bytes: int, alignment: int = ALIGNMENT) -> np.ndarray:
    """[size_bytes] uint8, zeros, that ends at a page nobody may touch (or up to `alignment` - 1 bytes before it)
    and has another one before its first page."""
    held = -(-size_bytes // alignment) * alignment
    pages = -(-max(held, 1) // PAGE)
    area = mmap.mmap(-1, (pages + 2) * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(area, np.uint8)
    start = int(whole.ctypes.data)
    for page in (start, start + (pages + 1) * PAGE):
        if _libc.mprotect(page, PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    end = (pages + 1) * PAGE
    return whole[end - held : end - held + size_bytes]
