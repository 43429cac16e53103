"""Compile the C kernels for this machine, with a cache."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.files import cache_folder
from zinc_rt.kernels.native import grids
from zinc_rt.kernels.native.levels import list_machine_levels

SOURCES = Path(__file__).parent / "c"
HEADERS = Path(__file__).parent / "include"
FLAGS = (
    "-O3",
    "-std=c23",
    "-ffp-contract=off",  # canonical-1 rounds every product
    "-fno-math-errno",
    "-fno-sanitize=undefined",  # zig adds traps unless disabled
    "-ffreestanding",  # only the compiler's own headers: many machines have no others
    "-nostdlib",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-g0",  # four times smaller
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",  # a kernel may ignore its grid
    "-Werror",
)
COMPILE_SECONDS = 300.0  # on a busy machine


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler. `version`: its own output."""

    command: tuple[str, ...]
    version: str


def list_levels() -> tuple[str, ...]:
    """Return the instruction-set levels of this machine. Raise UnsupportedError if there are no levels."""
    levels = list_machine_levels(platform.machine())
    if not levels:
        raise UnsupportedError(f"no native kernels for {platform.machine()}: only x86-64 and arm64 are supported")
    return levels


@cache
def find_compiler(named: str = "") -> Compiler:
    """Return the compiler. `named`: another clang. Raise UnsupportedError with advice if none works."""
    if named:
        return _suggest_compiler(named)
    spec = find_spec("ziglang")
    if spec is None or not spec.origin:
        raise UnsupportedError(
            "no C compiler: the package ziglang is not installed", next="pip install 'zinc-rt[native]'"
        )
    program = Path(spec.origin).parent / "zig"
    command = (str(program),) if program.is_file() else (sys.executable, "-m", "ziglang")
    version = _run_tool((*command, "version"), "no C compiler", "pip install 'zinc-rt[native]'")
    return Compiler((*command, "cc"), f"zig {version}")


def _suggest_compiler(named: str) -> Compiler:
    advice = "set it to clang 19 or newer, or unset it and pip install 'zinc-rt[native]'"
    message = _run_tool((named, "--version"), f"ZINC_RT_CC={named}", advice).partition("\n")[0]
    if "clang" not in message:
        raise UnsupportedError(f"ZINC_RT_CC={named}: not clang: {message or 'it printed no version'}", next=advice)
    return Compiler((named,), message)


def _run_tool(command: tuple[str, ...], problem: str, advice: str) -> str:
    """Return a program's output. If it does not run, raise UnsupportedError with the problem and advice."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env=make_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(f"{problem}: {error}", next=advice) from None
    return result.stdout.strip()


def list_sources() -> tuple[Path, ...]:
    """Return every C file, in a fixed order."""
    return tuple(sorted(SOURCES.glob("*.c")))


def generate_sources() -> dict[str, str]:
    """Return the names and text of C files that are generated for a compile."""
    return {"grids.c": grids.generate_source(), "sources.c": _generate_digest()}


@cache
def digest_sources() -> str:
    """Return a digest of the kernels' sources, which a library exports as `zrt_sources`. A program that was built
    for one digest can run on any library with the same one, whatever CPU that was compiled for.
    """
    digest = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.c"), *HEADERS.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:63]


def _generate_digest() -> str:
    declaration = '__attribute__((visibility("default"))) extern const char zrt_sources[]'
    return f'{declaration};\nconst char zrt_sources[] = "{digest_sources()}";\n'


def make_key(using: Compiler, level: str, extra: tuple[str, ...] = ()) -> str:
    """Return the key of the library that `compile_library` would produce: its sources, flags, compiler, and this
    CPU's features."""
    digest = hashlib.sha256()
    for name, text in {"sources": digest_sources(), **generate_sources()}.items():
        digest.update(f"{name}\0{text}\0".encode())
    parts = (*FLAGS, *extra, level, using.version, platform.machine(), sys.platform, _read_features())
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()


def compile_library(
    using: Compiler, level: str, extra: tuple[str, ...] = (), files: tuple[Path, ...] | None = None
) -> bytes:
    """Compile the library. `extra`: additional flags after FLAGS. `files`: C files to compile instead of the
    kernels; they can include the kernels' headers.

    Raise UnsupportedError with the compiler's messages.
    """
    target = f"-mcpu={level}" if "zig" in using.version else _march_option(level)
    with tempfile.TemporaryDirectory(prefix="zinc-rt-") as folder:
        output = Path(folder) / "kernels.so"
        if files is None:
            files = (*list_sources(), *_write_generated(Path(folder)))
        options = (*FLAGS, *extra, target, f"-I{HEADERS}", "-o", str(output), *map(str, files))
        run_compiler(using, options, f"the kernels ({level})")
        return output.read_bytes()


def run_compiler(using: Compiler, options: Sequence[str], what: str) -> None:
    """Run the compiler. Raise UnsupportedError with its messages if it fails to compile `what`."""
    try:
        result = subprocess.run(
            [*using.command, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMPILE_SECONDS,
            env=make_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(f"the C compiler could not be started: {error}") from None
    if result.returncode != 0:
        raise UnsupportedError(f"the C compiler failed to compile {what}:\n{result.stderr.strip()[-2000:]}")


def _write_generated(folder: Path) -> list[Path]:
    for name, text in generate_sources().items():
        (folder / name).write_text(text, encoding="ascii")
    return [folder / name for name in generate_sources()]


def _march_option(level: str) -> str:
    flag = "-march" if platform.machine() in ("x86_64", "AMD64") else "-mcpu"
    return f"{flag}={level.replace('x86_64_v', 'x86-64-v')}"


def make_environment() -> dict[str, str]:
    """Return an environment in which zig's cache is below our cache folder instead of the user's home."""
    folder = cache_folder() / "zig"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        folder = Path(tempfile.gettempdir()) / f"zinc-rt-zig-{os.getuid() if hasattr(os, 'getuid') else 0}"
    return {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": str(folder)}


@cache
def _read_features() -> str:
    """Return this CPU's features. Machines that share a home folder may have different CPUs."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    fields = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(fields)))
