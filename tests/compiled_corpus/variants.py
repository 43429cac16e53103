"""One source as many kernel binaries: every compiler that is here, O1 to O3 (O0 on demand), both wave sizes.

A binary lies in the cache folder under the hash of its source, its flags and its compiler's version.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from zinc_rt.host.files import cache_folder
from zinc_rt.isa.target import DEFAULT_ARCH, target_of

HERE = Path(__file__).parent
OPENCL = HERE / "opencl"
C_KERNELS = HERE.parent / "sim" / "shader" / "c_kernels"
HEADERS = (C_KERNELS / "gpu.h", OPENCL / "gpu.h")
LEVELS, WAVES = (1, 2, 3), (32, 64)
TARGET = ("--target=amdgcn-amd-amdhsa", "-nogpulib", "-ffp-contract=off", "-w")
# clang 19 takes this attribute for OpenCL only.
C_OF_19 = ("-Damdgpu_flat_work_group_size(least,most)=unused",)
# In C a barrier is a call like any other unless said otherwise, and may be copied to both sides of a branch.
LANGUAGE = {
    ".c": ("-std=gnu17", "-fvisibility=hidden", "-fconvergent-functions"),
    ".cl": ("-x", "cl", "-cl-std=CL2.0", "-cl-no-stdinc"),
}
# Sources that are written for one size.
ONLY_WAVE = {"wave_ops64": 64, "wave_ops": 32, "matrix_cores": 32, "matrix_copies": 32, "quantized": 32}
ONLY_GENERATION = {"matrix_cores": 12, "matrix_copies": 11}
# Recursion and calls by pointer: stacks of a size that no metadata tells.
DYNAMIC_STACK = ("recursion", "dynamic_stack", "function_table")


@dataclass(frozen=True, slots=True)
class Compiler:
    name: str
    clang: tuple[str, ...]
    linker: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel binary: a source, and how it is compiled."""

    source: Path
    compiler: Compiler
    level: int
    wave: int
    arch: str = DEFAULT_ARCH

    @property
    def name(self) -> str:
        return self.source.stem

    @property
    def key(self) -> str:
        return f"{self.name}-{self.compiler.name}-O{self.level}-wave{self.wave}-{self.arch}"


@cache
def find_compilers() -> tuple[Compiler, ...]:
    """Return the compilers of this machine: Debian's clang-19 with ld.lld-19, the clang in ziglang, and those of
    other versions of ziglang in the folders of ZIGLANG_FOLDERS (`pip install --target FOLDER ziglang==0.14.1`).
    """
    result = []
    for folder in filter(None, os.environ.get("ZIGLANG_FOLDERS", "").split(os.pathsep)):
        zig = (str(Path(folder) / "ziglang" / "zig"),)
        number = subprocess.run([*zig, "version"], capture_output=True, text=True, check=True).stdout.strip()
        result.append(Compiler(f"zig-{number}", (*zig, "clang"), (*zig, "ld.lld")))
    if shutil.which("clang-19") and shutil.which("ld.lld-19"):
        result.append(Compiler("clang-19", ("clang-19",), ("ld.lld-19",)))
    if find_spec("ziglang") is not None:
        zig = (sys.executable, "-m", "ziglang")
        result.append(Compiler("zig", (*zig, "clang"), (*zig, "ld.lld")))
    return tuple(result)


def list_sources() -> list[Path]:
    return sorted([*C_KERNELS.glob("*.c"), *OPENCL.glob("*.cl")], key=lambda path: path.stem)


def list_variants(levels: Sequence[int] = LEVELS, arch: str = DEFAULT_ARCH) -> list[Variant]:
    """Return every variant that can be compiled, grouped by source."""
    generation = target_of(arch).generation
    return [
        Variant(source, compiler, level, wave, arch)
        for source in list_sources()
        for compiler in find_compilers()
        for level in levels
        for wave in WAVES
        if ONLY_WAVE.get(source.stem, wave) == wave
        and ONLY_GENERATION.get(source.stem, generation) == generation
        and source.stem not in DYNAMIC_STACK
    ]


def spread_variants(count: int, levels: Sequence[int] = LEVELS, arch: str = DEFAULT_ARCH) -> list[Variant]:
    """`count` variants of every source, so that all compilers, levels and wave sizes come in turn."""
    by_source: dict[Path, list[Variant]] = {}
    for variant in list_variants(levels, arch):
        by_source.setdefault(variant.source, []).append(variant)
    return [
        of_one[(7 * number + 5 * turn) % len(of_one)]
        for number, of_one in enumerate(by_source.values())
        for turn in range(min(count, len(of_one)))
    ]


@cache
def compiler_version(compiler: Compiler) -> str:
    return subprocess.run([*compiler.clang, "--version"], capture_output=True, text=True, check=True).stdout


def compile_variant(variant: Variant) -> Path:
    """The linked code object's file. Raises RuntimeError with the compiler's output."""
    flags = [
        *TARGET,
        f"-mcpu={variant.arch}",
        *LANGUAGE[variant.source.suffix],
        f"-O{variant.level}",
        f"-DWAVE={variant.wave}",
    ]
    is_c = variant.source.suffix == ".c"
    flags += C_OF_19 if is_c and "clang version 19" in compiler_version(variant.compiler) else ()
    flags += ["-mwavefrontsize64"] if variant.wave == 64 else []
    job = hashlib.sha256(compiler_version(variant.compiler).encode() + " ".join(flags).encode())
    for path in (variant.source, *HEADERS):
        job.update(path.read_bytes())
    kept = cache_folder() / "compiled-corpus" / f"{variant.key}-{job.hexdigest()[:16]}.co"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            item, linked = f"{folder}/k.o", f"{folder}/k.co"
            _run([*variant.compiler.clang, *flags, "-c", str(variant.source), "-o", item], variant)
            _run([*variant.compiler.linker, "-shared", item, "-o", linked], variant)
            Path(linked).replace(kept)
    return kept


def _run(command: list[str], variant: Variant) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{variant.key}: {result.stderr[:2000]}")
