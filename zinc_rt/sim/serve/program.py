"""Run any Linux program with the simulated device as /dev/kfd, /dev/dri and sysfs: `zinc-rt sim -- PROGRAM
ARGS`.

The library of preload/ is interposed between the program and its C library. It is compiled at first use
and cached by the hash of its sources.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from zinc_rt.host.errors import InputError, NothingRan
from zinc_rt.host.files import cache_folder
from zinc_rt.sim.serve.client import SimClient
from zinc_rt.sim.serve.socket_path import find_program_folder

SOURCES = Path(__file__).with_name("preload")
PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
INLINED_SHOWN = 3
FLAGS = ("-O2", "-shared", "-fPIC", "-pthread", "-U_FORTIFY_SOURCE", "-fno-builtin")


def build_library(sources: Sequence[Path] = ()) -> Path:
    """Return the shared library that LD_PRELOAD names. `sources`: its C files and headers, by default those of the
    simulated device. Raises NothingRan without a C compiler, InputError if compilation fails.
    """
    sources = sources or sorted(SOURCES.glob("*.[ch]"))
    text = b"".join(source.read_bytes() for source in sources)
    built = cache_folder() / "preload" / f"{hashlib.sha256(text).hexdigest()[:16]}.so"
    if built.is_file():
        return built
    words = find_compiler()
    if words is None:
        raise NothingRan("no C compiler found (cc, gcc, clang or zig)", next="pip install 'zinc-rt[asm]'")
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent) as folder:
        result = Path(folder) / "preload.so"
        files = [str(source) for source in sources if source.suffix == ".c"]
        line = [*words, *FLAGS, *files, "-o", str(result), "-ldl"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InputError(f"{' '.join(words)} failed to compile {files[0]}: {done.stderr.strip()[:500]}")
        result.replace(built)
    return built


def find_compiler() -> list[str] | None:
    """Return the first words of the compiler's command line."""
    for name in ("cc", "gcc", "clang"):
        if which := shutil.which(name):
            return [which]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return None


def run_program(words: Sequence[str], client: SimClient, *, stdout: TextIO | None = None) -> int:
    """Run a program with the device of `client`. Return its exit code, or 128 + N if signal N ended it. Its
    standard output goes to `stdout`, by default that of this process.

    Raises InputError if the program cannot be started.
    """
    folder, prepare = find_program_folder(client.path), partial(_prepare_child, os.getpid())
    try:
        environment = make_environment(client, folder)
        with _ForwardedSignals() as signals:
            try:
                child = subprocess.Popen(
                    list(words), env=environment, stdout=_find_descriptor(stdout), preexec_fn=prepare
                )
            except OSError as error:
                raise InputError(f"{words[0]}: {error.strerror or error}") from None
            signals.forward_to(child)
            code = child.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


class AddressNames:
    """Adds FILE:LINE to code addresses in sentences, if addr2line and the program's debug information exist."""

    PLACE = re.compile(r"(?:(?<= at )|(?<= from ))([^ ()]+)\+0x([0-9a-f]+)")

    def __init__(self, words: Sequence[str]) -> None:
        self._files = {Path(word).name: word for word in words if _is_file(word)}
        self._tool = shutil.which("addr2line")
        self._known: dict[str, str] = {}

    def add_to(self, sentence: str) -> str:
        return self.PLACE.sub(lambda match: self._known.get(match[0]) or self._look_up(match), sentence)

    def _look_up(self, match: re.Match[str]) -> str:
        text, file = match[0], self._files.get(match[1])
        if self._tool is not None and file is not None:
            address = hex(int(match[2], 16) - 1)  # of the call, not of the instruction after it
            line = [self._tool, "-i", "-e", file, address]  # -i: the calls of inlined functions too
            done = subprocess.run(line, capture_output=True, text=True, check=False).stdout.splitlines()
            places = [Path(row.partition(" ")[0]).name for row in done if not row.startswith("??")]
            if places:
                text = f"{' from '.join(places[:INLINED_SHOWN])} ({match[0]})"
        self._known[match[0]] = text
        return text


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except OSError:  # of a word that is too long for a name
        return False


class _ForwardedSignals:
    """Sends the signals that end this process to the program instead, so that the program ends first. The terminal
    sends SIGINT to both. Has no effect outside the main thread, which cannot handle signals."""

    NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._early: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _ForwardedSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in self.NUMBERS}
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def forward_to(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        for number in self._early:
            child.send_signal(number)

    def _handle(self, number: int, frame: object) -> None:
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)


def make_environment(client: SimClient, folder: Path) -> dict[str, str]:
    """Return the environment of programs with the device of `client`; copy its files to the new folder."""
    preloaded, before = build_library(), os.environ.get("LD_PRELOAD")
    copy_files(client, folder)
    own = {
        "LD_PRELOAD": f"{preloaded} {before}" if before else str(preloaded),
        "ZINC_RT_SIM_SOCKET": str(client.path),
        "ZINC_RT_SIM_ROOT": str(folder),
    }
    return {**os.environ, **own}


def _find_descriptor(stream: TextIO | None) -> int | None:
    """Return None to inherit, also if a stream has no file descriptor."""
    try:
        return None if stream is None or stream is sys.stdout else stream.fileno()
    except OSError:
        return None


def _prepare_child(parent: int) -> None:
    """Prepare the new process: signals have their default action, and the program ends when `parent` is killed."""
    for number in (*_ForwardedSignals.NUMBERS, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before the call
        os._exit(1)


_KFD = "/sys/devices/virtual/kfd/kfd"
_BUS = "/sys/devices/pci0000:00"


def copy_files(client: SimClient, root: Path) -> None:
    """Copy the device's current files below `root`: directories at Linux's paths (/sys/devices), the other
    paths as links to them, as in sysfs."""
    _copy(client, f"{_KFD}/topology", root)
    _copy(client, "/sys/module/amdgpu", root)
    _make_link(root, "/sys/class/kfd/kfd", _KFD)
    (root / "dev/dri").mkdir(parents=True)
    (root / "dev/kfd").touch()
    for address in client.list_dir("/sys/bus/pci/devices"):
        _copy(client, f"/sys/bus/pci/devices/{address}", root, at=f"{_BUS}/{address}")
        _make_link(root, f"/sys/bus/pci/devices/{address}", f"{_BUS}/{address}")
        _make_link(root, f"{_BUS}/{address}/subsystem", "/sys/bus/pci")
        _make_link(root, f"{_BUS}/{address}/driver", "/sys/bus/pci/drivers/amdgpu")
        (root / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True, exist_ok=True)
    for name in client.list_dir("/dev/dri"):
        (root / "dev/dri" / name).touch()
        _copy_drm_node(client, root, name)


def _copy_drm_node(client: SimClient, root: Path, name: str) -> None:
    """Copy renderD128 of a GPU to its PCI device's directory and to the path where programs open it."""
    shown = f"/sys/class/drm/{name}"
    events = client.read_file(f"{shown}/device/uevent").decode().split()
    address = next(line.partition("=")[2] for line in events if line.startswith("PCI_SLOT_NAME="))
    number = client.read_file(f"{shown}/dev").decode().strip()
    node = f"{_BUS}/{address}/drm/{name}"
    location = root / node[1:]
    location.mkdir(parents=True)
    (location / "dev").write_text(f"{number}\n")
    major, minor = number.split(":")
    (location / "uevent").write_text(f"MAJOR={major}\nMINOR={minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor\n")
    _make_link(root, f"{node}/device", f"{_BUS}/{address}")
    _make_link(root, shown, node)
    _make_link(root, f"/sys/dev/char/{number}", node)


def _make_link(root: Path, name: str, to: str) -> None:
    location = root / name[1:]
    location.parent.mkdir(parents=True, exist_ok=True)
    location.symlink_to(os.path.relpath(root / to[1:], location.parent))


def _copy(client: SimClient, path: str, root: Path, *, at: str | None = None) -> None:
    """Copy a directory recursively."""
    location = root / (at or path)[1:]
    location.mkdir(parents=True, exist_ok=True)
    for name in client.list_dir(path):
        try:
            (location / name).write_bytes(client.read_file(f"{path}/{name}"))
        except IsADirectoryError:
            _copy(client, f"{path}/{name}", root, at=f"{at or path}/{name}")
        except PermissionError:
            (location / name).touch(0o000)  # as the device keeps it from its clients
