"""Compile a kernel from source: OpenCL C, HIP or assembly, with clang from PATH or ziglang's.

A source becomes assembly, then an object, then a linked code object. HIP takes this way because clang links device
code itself when it is asked for an object, with a linker that ziglang does not have.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.host.errors import InputError, NothingRan
from zinc_rt.isa.target import DEFAULT_ARCH

INCLUDE = Path(__file__).parent / "include"
_OPTIONS = ("-O2", "-g", "-nogpulib", "-mcode-object-version=5")
_LANGUAGES: dict[str, tuple[str, ...]] = {
    ".cl": (
        "--target=amdgcn-amd-amdhsa", "-mcpu={arch}", "-x", "cl", "-cl-std=CL2.0", "-cl-no-stdinc",
        "-cl-kernel-arg-info", "-include", str(INCLUDE / "launch_opencl.h"),
    ),
    ".hip": (
        "-x", "hip", "--cuda-device-only", "--offload-arch={arch}", "-nogpuinc", "-fno-discard-value-names",
        "-include", str(INCLUDE / "hip/hip_runtime.h"),
    ),
}  # fmt: skip
ASSEMBLY = ".s"
SUFFIXES = (*_LANGUAGES, ASSEMBLY)
_CONTAINER = re.compile(rb'^\s*\.include\s+"zrt\.inc"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The commands of a compiler and its linker."""

    name: str
    clang: tuple[str, ...]
    linker: tuple[str, ...]


def find_toolchains(arch: str = DEFAULT_ARCH) -> Iterator[Toolchain]:
    """Return the installed compilers that can build code for this chip: clang from PATH, then ziglang's."""
    clang, lld = shutil.which("clang"), shutil.which("ld.lld")
    if clang is not None and lld is not None and _can_build([clang], arch):
        yield Toolchain(clang, (clang,), (lld,))
    from zinc_rt.kernels.assemble import find_zig_command, is_available

    if is_available():
        zig = find_zig_command()
        yield Toolchain("ziglang", (*zig, "clang"), (*zig, "ld.lld"))


def _can_build(clang: list[str], arch: str) -> bool:
    """Return whether this clang has the AMDGPU target with this chip."""
    words = [
        *clang,
        "--target=amdgcn-amd-amdhsa",
        f"-mcpu={arch}",
        "-x",
        "assembler",
        "-c",
        os.devnull,
        "-o",
        os.devnull,
    ]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def is_source(path: str | Path | bytes) -> bool:
    return not isinstance(path, bytes) and Path(path).suffix in SUFFIXES


def compile_source(path: Path, arch: str = DEFAULT_ARCH, flags: Sequence[str] = ()) -> bytes:
    """Return the linked code object of a source; of assembly that includes zrt.inc, the .zrt container.

    `flags`: for the compiler, after its usual ones. Raise NothingRan without a compiler, InputError with the
    compiler's messages for a source that it rejects.
    """
    from zinc_rt.kernels.assemble import assemble, read_sources
    from zinc_rt.kernels.sources import read_source
    from zinc_rt.kernels.true16 import REAL, has_halves

    text = read_source(path)
    if path.suffix == ASSEMBLY and _CONTAINER.search(text):
        kernels = read_sources(path)
        if len(kernels) > 1:
            raise InputError(
                f"{path}: contains a family of {len(kernels)} kernels, expected one kernel",
                next=f"zinc-rt asm {path}, then launch one",
            )
        return assemble(kernels[0])
    toolchain = next(find_toolchains(arch), None)
    if toolchain is None:
        raise NothingRan(
            f"{path}: no compiler for {arch}: PATH has no clang that supports it, and the package ziglang is not "
            "installed",
            next="pip install 'zinc-rt[asm]'",
        )
    with tempfile.TemporaryDirectory() as name:
        halves = path.suffix == ASSEMBLY and has_halves(text.decode("utf-8", "replace"))
        return _compile(toolchain, path, Path(name), arch, (*flags, *(REAL if halves else ())))


def _compile(toolchain: Toolchain, path: Path, folder: Path, arch: str, flags: Sequence[str]) -> bytes:
    assembly, unlinked, linked = path, folder / "kernel.o", folder / "kernel.co"
    includes = ["-I", str(path.parent), "-I", str(INCLUDE)]
    line_table: list[str] = ["-g"]
    if path.suffix in _LANGUAGES:
        language = [word.format(arch=arch) for word in _LANGUAGES[path.suffix]]
        assembly, line_table = folder / "kernel.s", []
        words = [*language, *_OPTIONS, *includes, *flags, "-S", str(path), "-o", str(assembly)]
        _run([*toolchain.clang, *words], path)
    target = ["--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-x", "assembler", *line_table]
    own_flags = flags if assembly is path else ()
    _run([*toolchain.clang, *target, *includes, *own_flags, "-c", str(assembly), "-o", str(unlinked)], path)
    _run([*toolchain.linker, "-shared", str(unlinked), "-o", str(linked)], path)
    return linked.read_bytes()


def _run(words: Sequence[str], path: Path) -> None:
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode:
        raise InputError(f"{path}: compiler error:\n{result.stderr.strip()}")
