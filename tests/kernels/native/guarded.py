"""Every self-test case on a library, operands against pages that nobody may touch. A process of its own:

    python guarded.py LIBRARY before|behind|none

What reads or writes outside an operand ends the process by a signal; the last line says in which case. An operand
ends (behind) or begins (before) at such a page: vector loads over a mapped file's end are found.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import partial
from pathlib import Path

import numpy as np

from zinc_rt.backends.cpu import library, self_test

PAGE = mmap.PAGESIZE
PROT_NONE = 0


def copy_between_guards(array: np.ndarray, side: str) -> np.ndarray:
    """Return a copy between two inaccessible pages, adjacent to the first or the second."""
    size = max(array.nbytes, 1)
    room = -(-size // PAGE) * PAGE
    area = mmap.mmap(-1, room + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for page in (start, start + PAGE + room):
        if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = PAGE + (room - array.nbytes if side == "behind" else 0)
    copy = np.frombuffer(area, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


def main(path: Path, side: str) -> int:
    location = np.copy if side == "none" else partial(copy_between_guards, side=side)
    for problem in self_test.find_problems(library.load(path.read_bytes()), location):
        print(problem, flush=True)
        return library.WRONG_BITS
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
