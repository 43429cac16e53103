"""Code objects of code_objects.c, linked, for both wave sizes.

python code_objects.py       # compiles and writes code_objects.npz (needs ziglang)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
BUILT = HERE / "code_objects.npz"
TARGETS = {"gfx1201_32": ("gfx1201", 32), "gfx1201_64": ("gfx1201", 64), "gfx1100_32": ("gfx1100", 32)}


def code_object(name: str = "gfx1201_32") -> bytes:
    with np.load(BUILT) as file:
        return bytes(file[name])


def build(arch: str, wave: int) -> bytes:
    flags = [f"-mcpu={arch}", "-O2", "-nogpulib", "-mcode-object-version=5"]
    flags += ["-mwavefrontsize64"] if wave == 64 else []
    with tempfile.TemporaryDirectory() as folder:
        unlinked, linked = Path(folder) / "kernel.o", Path(folder) / "kernel.co"
        zig = [sys.executable, "-m", "ziglang"]
        source = str(HERE / "code_objects.c")
        for words in (
            [*zig, "clang", "--target=amdgcn-amd-amdhsa", *flags, "-c", source, "-o", str(unlinked)],
            [*zig, "ld.lld", "-shared", "-s", str(unlinked), "-o", str(linked)],
        ):
            subprocess.run(words, check=True)
        return linked.read_bytes()


if __name__ == "__main__":
    made = {name: np.frombuffer(build(*target), np.uint8) for name, target in TARGETS.items()}
    np.savez_compressed(BUILT, allow_pickle=False, **made)
