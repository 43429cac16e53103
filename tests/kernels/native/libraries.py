"""Libraries of the native kernels for tests: other levels, other flags, and ones with a planted fault."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from zinc_rt.backends.cpu.self_test_cases import make_cases
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.files import cache_folder
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.ir.op import Op
from zinc_rt.kernels.native import build

# -O0: the checks are the same, and the compiler six times faster
UNDEFINED = ("-O0", "-fsanitize=undefined,float-cast-overflow", "-fsanitize-trap=all")
GUARDED = Path(__file__).with_name("guarded.py")
FRAME = """
#include "task.h"
#include "vec.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif
KERNEL(add) {{
    struct {{ const float *a, *b; float *y; uint32_t columns; }} const *g = arguments;
    uint32_t n = grid[1] * g->columns, zero = n * 0;
    {fault}
    for (uint32_t i = first * g->columns; i < last * g->columns; i++) g->y[i] = g->a[i] + g->b[i];
    (void)n, (void)zero;
    return OK;
}}
"""
# What goes wrong in ADD, the first case that the self-test runs.
FAULTS = {
    "none": "",
    "wrong bits": "if (last) { g->y[0] = 1; return OK; }",
    "bad instruction": "__builtin_trap();",
    "bad address": "*(volatile int *)(uintptr_t)(zero + 16) = 1;",
    "read before": "volatile float x = ((const volatile float *)g->b)[(int)zero - 1]; (void)x;",
    "read behind": "volatile float x = ((const volatile float *)g->b)[n]; (void)x;",
    "write before": "((volatile float *)g->y)[(int)zero - 1] = 0;",
    "write behind": "((volatile float *)g->y)[n] = 0;",
    "undefined shift": "volatile int places = 40; volatile int x = 1 << places; (void)x;",
    "fused": "volatile float x = 3, z = __builtin_fmaf(x, x, x); (void)z;",
    "another library": "extern float expf(float); volatile float x = 3, z = expf(x); (void)z;",
}


@cache
def find_compiler() -> build.Compiler:
    """Skip with the reason if there is none."""
    try:
        build.list_levels()
        return build.find_compiler()
    except UnsupportedError as error:
        pytest.skip(str(error))


def library_bytes(level: str, extra: tuple[str, ...] = ()) -> bytes:
    """The kernels, compiled once and then from the cache."""
    tests, tried = ObjectCache(cache_folder() / "native-tests"), ObjectCache(cache_folder() / "native")
    key = build.make_key(find_compiler(), level, extra)
    content = tried.load(key) or tests.load(key)
    if content is None:
        content = build.compile_library(find_compiler(), level, extra)
        tests.store(key, content)
    return content


def compile_to_assembly(level: str, extra: tuple[str, ...] = (), files: tuple[Path, ...] | None = None) -> str:
    """Return the compiler's output for every C file as text; that of the kernels comes from the cache."""
    flags = (*extra, "-S", "-Wno-unused-command-line-argument")
    cached = ObjectCache(cache_folder() / "native-tests")
    key = build.make_key(find_compiler(), level, flags)
    content = cached.load(key) if files is None else None
    if content is None:
        content = b"".join(
            build.compile_library(find_compiler(), level, flags, (file,)) for file in files or build.list_sources()
        )
        if files is None:
            cached.store(key, content)
    return content.decode("latin-1")


def disassemble_library(library: bytes) -> str | None:
    """Disassemble a library for this machine, if a disassembler is installed."""
    program = shutil.which("objdump") or shutil.which("llvm-objdump")
    if program is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        command = [program, "-d", "--no-show-raw-insn", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


@cache
def compile_faulty(source: str, level: str, extra: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "planted.c"
        path.write_text(source, encoding="ascii")
        return build.compile_library(find_compiler(), level, extra, (build.SOURCES / "pool.c", path))


def faulty_library(fault: str, *extra: str) -> bytes:
    """A library of ADD alone."""
    assert next(make_cases()).op is Op.ADD, "faults are planted in the first case"
    return compile_faulty(FRAME.format(fault=FAULTS[fault]), build.list_levels()[-1], extra)


def write_faulty_source(folder: Path, fault: str) -> Path:
    source = folder / "planted.c"
    source.write_text(FRAME.format(fault=FAULTS[fault]), encoding="ascii")
    return source


def run_guarded(content: bytes, folder: Path, side: str) -> tuple[int, str]:
    """Return the exit status (negative for a signal) and the last line, which names the case that ran or the
    error.
    """
    path = folder / "kernels.so"
    path.write_bytes(content)
    result = subprocess.run(
        [sys.executable, str(GUARDED), str(path), side], capture_output=True, text=True, timeout=600
    )
    assert result.returncode <= 0 or result.stdout, result.stderr
    return result.returncode, result.stdout.strip().rpartition("\n")[2]
