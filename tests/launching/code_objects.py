"""Code objects of code_objects.c and calls.c, linked, for both wave sizes.

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
TARGETS = {
    "gfx1201_32": ("gfx1201", 32, "code_objects.c"),
    "gfx1201_64": ("gfx1201", 64, "code_objects.c"),
    "gfx1100_32": ("gfx1100", 32, "code_objects.c"),
    "calls_32": ("gfx1201", 32, "calls.c"),
    "calls_64": ("gfx1201", 64, "calls.c"),
    "launches_32": ("gfx1201", 32, "launches.c"),
}


def code_object(name: str = "gfx1201_32") -> bytes:
    with np.load(BUILT) as file:
        return bytes(file[name])


def build(arch: str, wave: int, file: str = "code_objects.c") -> bytes:
    flags = [f"-mcpu={arch}", "-O2", "-nogpulib", "-mcode-object-version=5"]
    flags += ["-mwavefrontsize64"] if wave == 64 else []
    with tempfile.TemporaryDirectory() as folder:
        unlinked, linked = Path(folder) / "kernel.o", Path(folder) / "kernel.co"
        zig = [sys.executable, "-m", "ziglang"]
        source = str(HERE / file)
        for words in (
            [*zig, "clang", "--target=amdgcn-amd-amdhsa", *flags, "-c", source, "-o", str(unlinked)],
            [*zig, "ld.lld", "-shared", "-s", str(unlinked), "-o", str(linked)],
        ):
            subprocess.run(words, check=True)
        return linked.read_bytes()


if __name__ == "__main__":
    made = {name: np.frombuffer(build(*target), np.uint8) for name, target in TARGETS.items()}
    np.savez_compressed(BUILT, allow_pickle=False, **made)
