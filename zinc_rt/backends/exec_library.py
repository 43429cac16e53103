"""The C library of the execution contract: exec/c, compiled with the publish function of the GPU tiers."""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from functools import cache
from pathlib import Path

from zinc_rt.backends.amd.publish import STORE_FENCE, generate_source
from zinc_rt.backends.cpu.library import library_file
from zinc_rt.exec.abi import FOLDER, ExecLibrary
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.files import cache_folder
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.kernels.native.build import HEADERS, Compiler, find_compiler, run_compiler

FLAGS = (
    "-O2",
    "-std=c23",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-g0",
    "-pthread",
    "-fno-sanitize=undefined",
    "-Wall",
    "-Wextra",
    "-Werror",
)
SOURCES = ("objects.c", "context.c", "buffers.c", "streams.c", "graphs.c", "plans.c", "image.c", "capsule.c")
FOR_IR = (
    "-Wno-override-module",
    "-Wno-unused-command-line-argument",
)  # generate_source names no target and includes nothing


def compile_exec_library(compiler_name: str = "") -> bytes:
    """Return the shared library, from the cache or compiled now. Raise UnsupportedError without a compiler, and on
    systems other than Linux."""
    if sys.platform != "linux":
        raise UnsupportedError(f"the execution contract's C library needs Linux, not {sys.platform}")
    compiler = find_compiler(compiler_name)
    host = platform.machine()
    publish = generate_hidden_publish() if host in STORE_FENCE else ""
    files = [*sorted(FOLDER.iterdir()), HEADERS / "task.h"]
    parts = [*FLAGS, compiler.version, host, publish, *(file.read_text(encoding="ascii") for file in files)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    store = ObjectCache(cache_folder() / "native")
    content = store.load(key)
    if content is None:
        content = _compile(compiler, publish)
        store.store(key, content)
    return content


def generate_hidden_publish() -> str:
    """Return the publish function of T1 and T2 as LLVM IR, with a symbol that the library does not export."""
    return generate_source(platform.machine()).replace("define i64 @publish", "define hidden i64 @publish")


@cache
def load_exec_library(compiler_name: str = "") -> ExecLibrary:
    """Return the library of this process. Raise UnsupportedError without a compiler."""
    with library_file(compile_exec_library(compiler_name)) as path:
        return ExecLibrary(path)


def _compile(compiler: Compiler, publish: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="zinc-rt-") as folder:
        output = Path(folder) / "exec.so"
        files = [str(FOLDER / name) for name in SOURCES]
        if publish:
            path = Path(folder) / "publish.ll"
            path.write_text(publish, encoding="ascii")
            files += [*FOR_IR, str(path)]
        run_compiler(
            compiler, (*FLAGS, f"-I{HEADERS}", "-o", str(output), *files), "the execution contract's library"
        )
        return output.read_bytes()
