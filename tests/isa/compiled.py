"""gfx12 code that a compiler made of C, for tests of what reads machine code."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from zinc_rt.isa.elf import read_elf

SOURCE = Path(__file__).parent / "compiled_kernels.c"


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """`code` is the code of the whole file; the kernel begins at byte `entry` and ends before byte `end`."""

    name: str
    wave: int
    code: bytes
    entry: int
    end: int


def is_compiler_available() -> bool:
    return find_spec("ziglang") is not None


@cache
def build_code_object(wave: int = 32, level: int = 2, source: Path = SOURCE) -> bytes:
    """Compile a C file to a relocatable object for gfx1201."""
    with TemporaryDirectory() as folder:
        built = Path(folder) / "k.o"
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201", "-w"]
        command += ["-nogpulib", f"-O{level}", f"-DWAVE={wave}", *(["-mwavefrontsize64"] if wave == 64 else [])]
        subprocess.run([*command, "-c", str(source), "-o", str(built)], check=True)
        return built.read_bytes()


def compile_kernels(wave: int = 32, level: int = 2, source: Path = SOURCE) -> tuple[CompiledKernel, ...]:
    """Return the functions of a C file for gfx1201, in the order of their code. Nothing where there is no
    compiler.
    """
    if not is_compiler_available():
        return ()
    return tuple(
        CompiledKernel(name, wave, section.code, index, end)
        for section in read_elf(build_code_object(wave, level, source), source.name).sections
        for (index, name), end in zip(
            section.symbols, [*(index for index, _ in section.symbols[1:]), len(section.code)], strict=True
        )
    )
