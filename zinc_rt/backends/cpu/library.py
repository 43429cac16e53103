"""The native library of this process: loaded from the cache, or compiled, tested in a child process, and
cached.

A CPU may report instructions that it does not execute correctly. A library is therefore loaded only after all
its kernels gave the right bits in a separate process; otherwise a lower instruction-set level is tried.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.files import cache_folder
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.host.version import digest_oracle
from zinc_rt.kernels.native import build

SELF_TEST_SECONDS = 120.0
WRONG_BITS = 3  # the self-test's exit
FAILED_TEST = " failed its self-test ("


@dataclass(frozen=True, slots=True)
class Library:
    """The loaded library. `level`: the instruction-set level it was compiled for. `notes`: why no higher level is
    used. `content`: the file."""

    handle: ctypes.CDLL
    level: str
    compiler: str
    notes: tuple[str, ...] = ()
    cached: bool = True
    content: bytes = field(default=b"", repr=False)

    def address(self, kernel: str) -> int:
        """Return the address of a kernel, by the name in a launch."""
        function = getattr(self.handle, f"zrt_{kernel}")
        return ctypes.cast(function, ctypes.c_void_p).value or 0


Compile = Callable[[build.Compiler, str], bytes]
_LOADED: dict[tuple[str, str], Library] = {}  # a library is loaded once


def build_library(compiler_name: str = "", *, report: Callable[[str], None] = lambda line: None) -> Library:
    """Return the library for this machine. `compiler_name` selects another compiler; `report` receives messages
    about slow steps.

    Raise UnsupportedError with the reason if no level computes the right bits, or nothing compiles.
    """
    cache = ObjectCache(cache_folder() / "native")
    where = (compiler_name, str(cache.folder))
    if where not in _LOADED:
        _LOADED[where] = select_library(
            cache, build.find_compiler(compiler_name), build.list_levels(), report=report
        )
    return _LOADED[where]


def select_library(
    cache: ObjectCache,
    compiler: build.Compiler,
    levels: Sequence[str],
    *,
    compile: Compile = build.compile_library,
    check: Callable[[bytes], str] | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> Library:
    """Return the library of the highest level that compiles and passes its self-test, now or in the cache.
    `check`: returns the faults of a library; `run_self_test` by default.

    Raise UnsupportedError with the reason for every level.
    """
    notes: list[str] = []
    for level in levels:
        with _lock_folder(cache.folder):
            loaded = _build_or_load(cache, compiler, level, compile, check or run_self_test, report)
        if isinstance(loaded, str):
            notes.append(loaded)
            report(loaded)
            continue
        content, cached = loaded
        return Library(load(content), level, compiler.version, tuple(notes), cached, content)
    alike = _find_common_error(notes)
    if not alike:
        raise UnsupportedError("no native kernels: " + "; ".join(notes))
    raise UnsupportedError(
        f"no native kernels: every build ({', '.join(levels)}) failed its self-test in the same way ({alike}): "
        "either the oracle (to be checked against the goldens) or the kernel's C source is wrong",
        next="zinc-rt validate --tiers t_cpu",
    )


def _find_common_error(notes: Sequence[str]) -> str:
    """Return the error that all builds have in common, or nothing. Such an error is not caused by one compiler or
    CPU."""
    wrong = {note.partition(FAILED_TEST)[2].removesuffix(")") for note in notes}
    return wrong.pop() if len(notes) > 1 and len(wrong) == 1 else ""


def _build_or_load(
    cache: ObjectCache,
    compiler: build.Compiler,
    level: str,
    compile: Compile,
    check: Callable[[bytes], str],
    report: Callable[[str], None],
) -> tuple[bytes, bool] | str:
    """Return a library that passed its self-test and whether it was cached, or the reason why there is none."""
    key = build.make_key(compiler, level)
    tested = f"{key}.{digest_oracle()}"  # the verdict holds for the oracle that gave it
    content, verdict = cache.load(key), cache.load(tested)
    if verdict:
        return verdict.decode()
    if content is not None and verdict is not None:
        return content, True
    cached = content is not None
    if content is None:
        report(f"compiling the CPU's kernels ({level}), once for this machine ...")
        try:
            content = compile(compiler, level)
        except UnsupportedError as error:
            return str(error)
    problem = check(content)
    line = f"the {level} build{FAILED_TEST}{problem})" if problem else ""
    cache.store(tested, line.encode())
    if problem:
        return line
    if not cached:
        cache.store(key, content)
    return content, cached


def run_self_test(content: bytes) -> str:
    """Return the faults of a library, tested in a child process; empty if there are none."""
    with library_file(content) as path:
        command = [sys.executable, "-m", "zinc_rt.backends.cpu.self_test", str(path)]
        try:
            result = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=SELF_TEST_SECONDS,
                env=dict(os.environ),
            )
        except subprocess.TimeoutExpired:
            return f"it took longer than {SELF_TEST_SECONDS:g} s"
    if result.returncode == 0:
        return ""
    location = result.stdout.strip().rpartition("\n")[2]
    if result.returncode < 0:
        return f"{_describe_signal(-result.returncode)} in {location.removeprefix('running ')}"
    if result.returncode != WRONG_BITS:
        return f"{location}: {result.stderr.strip().rpartition(chr(10))[2] or f'exit {result.returncode}'}"
    return location


def load(content: bytes) -> ctypes.CDLL:
    """Load a library into this process. The file is deleted afterwards if the system allows it."""
    with library_file(content) as path:
        handle = ctypes.CDLL(str(path))
    handle.zrt_run.restype = ctypes.c_int64
    handle.zrt_help.restype = ctypes.c_uint32
    handle.zrt_help.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    handle.zrt_settle.restype = None
    return handle


@contextmanager
def library_file(content: bytes) -> Iterator[Path]:
    """Yield the path of a temporary file with this content, for the loader."""
    descriptor, name = tempfile.mkstemp(prefix="zinc-rt-", suffix=".so")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield Path(name)
    finally:
        with suppress(OSError):  # Windows keeps what is loaded
            Path(name).unlink()


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Hold a lock so that only one of several processes compiles the library. Without lock support there is no
    lock."""
    try:
        import fcntl

        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except (ImportError, OSError):
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _describe_signal(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
