"""A persistent cache of graphs and plans, so that a start need not rewrite, verify and plan them again.

There are two kinds of files: a graph as a variant runs it (ir/serial.py), of a stage, with the nodes of a
sampling form or without, and the memory plan and dispatches of each capacity (lower/flat_plan.py). The file name
is a digest of everything that determines the content: the model's header, size and time, the limits, the sampling
form, the ordering, the kernel target, the planning code. Outdated files therefore never match. Each file is
validated when it is read; a truncated, damaged, foreign-owned or incompatible file is rebuilt and replaced. An
unwritable folder is not an error: every start then plans anew.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.backends.base import Backend
from zinc_rt.host.errors import InputError
from zinc_rt.host.files import cache_folder
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.ir import serial
from zinc_rt.ir.graph import OpGraph
from zinc_rt.lower import PlannedGraph, flat_plan
from zinc_rt.model.gguf import GGUFFile, header_digest

KEEP_BYTES = 128 << 20  # the least recently used go beyond this; a large model's graph and plan have 0.6 MB


@dataclass(slots=True)
class Starts:
    """Statistics of programs: read from the cache or planned, and the seconds spent, including their graphs."""

    read: int = 0
    planned: int = 0
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return f"{self.read} read from the cache, {self.planned} planned, in {1000 * self.seconds:.0f} ms"

    @contextmanager
    def timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - began


class GraphStore:
    """The files in `folder`; None: in the user's cache folder. `version`: of the planning code
    (code_version.planning_version)."""

    def __init__(self, version: str, folder: Path | None = None, keep_bytes: int = KEEP_BYTES) -> None:
        self._version = version
        self._files = ObjectCache(cache_folder() / "graphs" if folder is None else folder, keep_bytes)

    def of(self, gguf: GGUFFile, backend: Backend, *decides: object) -> StoredGraphs:
        """Return the store of a model on a backend's kernels. `decides`: further inputs that determine the
        graph, by their repr."""
        kernels = backend.kernels
        return StoredGraphs(
            self._files,
            (
                self._version,
                header_digest(gguf),
                gguf.file_bytes,
                gguf.mtime_ns,
                backend.spec.tier,
                backend.device.arch,
                backend.ordering,
                kernels.target,
                kernels.fuses,
                kernels.merging is not None,
                *decides,
            ),
        )


class StoredGraphs:
    """The stored graphs and plans of one model. Missing entries are built and stored."""

    def __init__(self, files: ObjectCache, decides: tuple[object, ...]) -> None:
        self._files = files
        self._decides = decides
        self._given: dict[object, tuple[OpGraph, bytes]] = {}  # the graph, and the digest of its file
        self.starts = Starts()

    def graph(self, what: Hashable, make: Callable[[], OpGraph]) -> OpGraph:
        """Return a graph as variants run it. `what` identifies it by its repr: the stage and the sampling form."""
        key = self._key("graph", what)
        with self.starts.timed():
            graph, form = None, self._files.mapped(key)
            if form is not None:
                with suppress(InputError):  # it is made anew, and replaced
                    graph = serial.from_bytes(form, name=key)
            if form is None or graph is None:
                graph = make()
                form = memoryview(serial.to_bytes(graph))
                self._files.store(key, form)
            self._given[what] = graph, hashlib.sha256(form).digest()
            return graph

    def program(self, what: Hashable, capacity: tuple[int, ...], make: Callable[[], PlannedGraph]) -> PlannedGraph:
        """Return the program of a capacity for the graph that `graph` returned for `what`."""
        graph, digest = self._given[what]
        key = self._key("plan", what, capacity)
        with self.starts.timed():
            form = self._files.mapped(key)
            if form is not None:
                with suppress(InputError):
                    program = flat_plan.from_bytes(form, graph, digest, name=key)
                    self.starts.read += 1
                    return program
            program = make()
            self._files.store(key, flat_plan.to_bytes(program, digest))
            self.starts.planned += 1
            return program

    def _key(self, *what: object) -> str:
        return hashlib.sha256(
            repr((serial.VERSION, flat_plan.VERSION, *self._decides, *what)).encode()
        ).hexdigest()
