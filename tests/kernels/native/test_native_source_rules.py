"""What the compiled kernels may not contain: fused multiply-add where a result is not exact, calls to other libraries.

canonical-1 rounds every product. A fused multiply-add rounds once for two operations, so it is allowed only where the
product or the result is provably exact; vec.h or a dot_*.h says so at each such function in a comment EXACT_FMA.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels.native.libraries import faulty, library_bytes

from zinc_rt.kernels.native import build

FUSED = re.compile(r"^(?:v?fn?m(?:add|sub|addsub|subadd)[0-9a-z]*|fml[as]\d?|bfmla[lt]?[bt]?)$")
ALLOWED_CALLS = {"memcpy", "memset", "memmove"}
"""A compiler emits calls to these itself; the C library that Python is linked with has them."""


def tool(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no disassembler: none of {', '.join(names)} is installed")
