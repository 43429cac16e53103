"""What the tests of the execution contract's C library share: hosts' folders, and the example hosts."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from zinc_rt.backends.amd.publish import STORE_FENCE
from zinc_rt.backends.exec_library import load_exec_library
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.image import LIBRARY, write_host_folder
from zinc_rt.exec.abi import ExecLibrary
from zinc_rt.golden.embedded import FOLDER as GOLDEN
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.native.build import find_compiler, make_environment
from zinc_rt.model.gguf import read_gguf

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CTX, SLOTS, PROMPT, COUNT = 64, 2, [1, 2, 3], 24
SECOND = 10**9
RING_DW = 64
x86 = pytest.mark.skipif(
    platform.machine() not in STORE_FENCE, reason="rings need a host with a known store fence"
)


@cache
def load_library() -> ExecLibrary:
    """Return the library; skip with the reason without a compiler. Source that does not compile is an error."""
    try:
        find_compiler()
    except UnsupportedError as error:
        pytest.skip(str(error))
    return load_exec_library()


def open_engine(model: str | Path, ordering: str = "canonical-1", kv_type: str = "f32") -> Engine:
    """Open a model that ships with the package, by its name, or a file."""
    load_library()
    path = model if isinstance(model, Path) else GOLDEN / f"{model}.gguf"
    backend = open_backend(choose_tier("t_cpu_native", "auto"), ordering)
    return Engine(read_gguf(path), backend, ctx=CTX, slots=SLOTS, kv_type=kv_type)


def write_folder(folder: Path, model: str | Path = "qwen3-q", ordering: str = "canonical-1") -> Path:
    with open_engine(model, ordering) as engine:
        write_host_folder(engine, folder)
    return folder


@cache
def load_host() -> ModuleType:
    """Return examples/exec_host.py."""
    spec = importlib.util.spec_from_file_location("example_exec_host", EXAMPLES / "exec_host.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compile_host(folder: Path) -> Path:
    """Compile examples/exec_host.c as its first lines describe."""
    program = folder / "exec_host"
    options = ("-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{folder}", str(EXAMPLES / "exec_host.c"))
    link = (f"-L{folder}", f"-l{LIBRARY[3:-3]}", f"-Wl,-rpath,{folder}", "-o", str(program))
    command = (*find_compiler().command, *options, *link)
    done = subprocess.run(command, capture_output=True, text=True, env=make_environment(), timeout=300)
    assert done.returncode == 0, done.stderr
    return program


def run_host(program: Path, folder: Path, *arguments: object) -> list[int]:
    """Return the tokens that the C host prints."""
    done = subprocess.run([program, folder, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [int(token) for token in done.stdout.split()]


@dataclass(slots=True)
class PlainRing:
    """A ring in plain memory, read by `consume` in place of a command processor."""

    words: np.ndarray
    registers: np.ndarray  # u64: wptr, doorbell, rptr, fence

    @staticmethod
    def make(start_dw: int = 0, fence: int = 0) -> PlainRing:
        return PlainRing(
            np.zeros(RING_DW, np.uint32), np.array([start_dw, start_dw, start_dw % RING_DW, fence], np.uint64)
        )

    def describe(self, **others: int) -> dict[str, int]:
        at = self.registers.ctypes.data
        wptr, fence = int(self.registers[0]), int(self.registers[3])
        return {
            "ring": self.words.ctypes.data,
            "ring_dw": RING_DW,
            **dict(zip(("wptr", "doorbell", "rptr", "fence"), range(at, at + 32, 8), strict=True)),
            "wptr_dw": wptr,
            "fence_value": fence,
            "full_timeout_ns": 10**7,
            "fence_va": 0xABCD_0000_1000,
            **others,
        }

    def published(self, start_dw: int) -> list[int]:
        assert self.registers[0] == self.registers[1]
        return [int(self.words[index % RING_DW]) for index in range(start_dw, int(self.registers[0]))]

    def consume(self, fence: int) -> None:
        self.registers[2], self.registers[3] = int(self.registers[0]) % RING_DW, fence


def adopt_dwords(library: ExecLibrary, graph: int, key: int, ring: int, count: int, **others: int) -> None:
    words = (ctypes.c_uint32 * count)(*range(100, 100 + count))
    fields = {
        "kind": 2,
        "ring": ring,
        "dwords": ctypes.addressof(words),
        "dword_count": count,
        "fence_at": 2,
        "fence_end": count,
    }
    library.call("graph_adopt", graph, key, {**fields, **others})


class RingGate:
    """Holds streams back until it is opened, by an event of a ring in plain memory."""

    def __init__(self, library: ExecLibrary, context: int) -> None:
        self._library, self._memory = library, PlainRing.make()
        ring = library.call("stream_open_ring", context, "gate", self._memory.describe())
        graph, self._event = (
            library.call("graph_create", context, "gate", 1),
            library.call("event_create", context),
        )
        adopt_dwords(library, graph, 1, ring, 4)
        library.call("graph_replay", graph, 1, ring)
        library.call("event_record", self._event, ring)

    def close(self, stream: int) -> None:
        """Make what is submitted to the stream next wait."""
        self._library.call("stream_wait", stream, self._event)

    def open(self) -> None:
        self._memory.consume(1)
