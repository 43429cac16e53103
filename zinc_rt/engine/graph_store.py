"""A persistent cache of graphs and plans, so that a start need not rewrite, verify and plan them again.

There are two kinds of files: a graph as a variant runs it (ir/serial.py), of a stage, with the nodes of a
sampling form or without, and the memory plan and dispatches of each capacity (lower/flat_plan.py). Each
begins with its key: a line for everything that determines the content, such as the model's header, the
limits, the sampling form, the ordering, the kernels and the planning code. The file name is the key's digest,
so an outdated file has another name. A file is used only if its checksum and its whole key are as expected; a
damaged, renamed or foreign one is refused with its reason, made again and replaced. An unwritable folder is
not an error: every start then plans anew.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Protocol, TypeVar

from zinc_rt.backends.base import Backend
from zinc_rt.host.errors import InputError, ZincError
from zinc_rt.host.files import cache_folder
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.ir import serial
from zinc_rt.ir.graph import OpGraph
from zinc_rt.ir.verify import verify_graph
from zinc_rt.kernels.entry import Entry
from zinc_rt.lower import PlannedGraph, flat_plan
from zinc_rt.model.gguf import GGUFFile, digest_header

KEEP_BYTES = 128 << 20  # the least recently used go beyond this; a large model's graph and plan have 0.6 MB


T = TypeVar("T")
MAGIC = b"ZGS1"  # then the length of the key, u32, the key, and zeros to a multiple of 8


@dataclass(slots=True)
class StartCounters:
    """Statistics of programs: read from the cache, or a graph file, or planned, and the seconds spent, including
    their graphs. `where`: what they were read from. `refused`: the files that were not used, as "NAME: reason"."""

    read: int = 0
    planned: int = 0
    seconds: float = 0.0
    refused: list[str] = field(default_factory=list)
    where: str = "the cache"

    @property
    def text(self) -> str:
        text = f"{self.read} read from {self.where}, {self.planned} planned"
        if self.refused:
            text += f", {len(self.refused)} refused ({self.refused[0]})"
        return f"{text}, in {1000 * self.seconds:.0f} ms"

    @contextmanager
    def timed(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - start


class GraphStore:
    """The files in `folder`; None: in the user's cache folder. `version`: version of the planning code
    (host.version.planning_version).
    """

    def __init__(self, version: str, folder: Path | None = None, keep_bytes: int = KEEP_BYTES) -> None:
        self._version = version
        self.folder = cache_folder() / "graphs" if folder is None else folder
        self._files = ObjectCache(self.folder, keep_bytes)

    def of(self, gguf: GGUFFile, backend: Backend, **decides: object) -> StoredGraphs:
        """Return the store of a model on a backend's kernels. `decides`: further inputs that determine the
        graph, by name, by their repr."""
        return StoredGraphs(
            self._files,
            {
                "planning code": self._version,
                "model header": digest_header(gguf),
                "model files": [(part.size_bytes, part.mtime_ns) for part in gguf.parts],
                **describe_planning(backend),
                **decides,
            },
        )


class Entries(Protocol):
    """Stored bytes by name: the files of a cache, or the entries of a graph file."""

    def map_entry(self, name: str, /) -> memoryview | None: ...
    def store(self, name: str, payload: bytes | memoryview, /) -> None: ...


class StoredGraphs:
    """The stored graphs and plans of one model. Missing and rejected entries are built and stored. `decides`:
    inputs that determine them, by name. `where`: what the entries are read from. `foreign`: they may come from
    another machine, so graphs are verified, and a rejected entry raises InputError.
    """

    def __init__(
        self,
        files: Entries,
        decides: Mapping[str, object],
        where: str = "the cache",
        *,
        foreign: bool = False,
    ) -> None:
        self._files = files
        self.decides = dict(decides)
        self._foreign = foreign
        self._given: dict[object, tuple[OpGraph, bytes]] = {}  # the graph, and the digest of its file
        self.starts = StartCounters(where=where)

    def graph(self, what: Hashable, make: Callable[[], OpGraph]) -> OpGraph:
        """Return a graph in the form that variants run. The repr of `what` identifies it: the stage and the
        sampling form.
        """
        key = self._make_key("graph", what)

        def read_graph(form: memoryview) -> tuple[OpGraph, memoryview]:
            graph = serial.from_bytes(form, name="graph")
            if self._foreign:
                verify_graph(graph)
            return graph, form

        with self.starts.timed():
            result = self._read(key, read_graph)
            if result is None:
                graph = make()
                form = memoryview(serial.to_bytes(graph))
                self._store(key, form)
                result = graph, form
            graph, form = result
            self._given[what] = graph, hashlib.sha256(form).digest()
            return graph

    def program(self, what: Hashable, capacity: tuple[int, ...], make: Callable[[], PlannedGraph]) -> PlannedGraph:
        """Return the program of one capacity for the graph that `graph` returns for `what`."""
        graph, digest = self._given[what]
        key = self._make_key("plan", what, capacity)
        with self.starts.timed():
            program = self._read(key, lambda form: flat_plan.from_bytes(form, graph, digest, name="plan"))
            if program is not None:
                self.starts.read += 1
                return program
            program = make()
            self._store(key, flat_plan.to_bytes(program, digest))
            self.starts.planned += 1
            return program

    def read(self, content: str, what: Hashable) -> memoryview | None:
        """Return the bytes that `add` stored, None if there are none."""
        return self._read(self._make_key(content, what), lambda form: form)

    def add(self, content: str, what: Hashable, form: bytes | memoryview) -> None:
        """Store other bytes than those of graphs and plans."""
        self._store(self._make_key(content, what), form)

    def _read(self, key: str, parse: Callable[[memoryview], T]) -> T | None:
        """Return the content of an entry; None if it does not exist or is rejected."""
        name = _file_name(key)
        try:
            payload = self._files.map_entry(name)
            return None if payload is None else parse(_check_content(payload, key))
        except ZincError as error:
            if self._foreign:
                raise InputError(f"{self.starts.where}: {error.message}", next="save it again") from error
            self.starts.refused.append(f"{name[:16]}: {error.message}")
            return None

    def _store(self, key: str, form: bytes | memoryview) -> None:
        self._files.store(_file_name(key), _make_head(key) + form)

    def _make_key(self, content: str, what: Hashable, capacity: tuple[int, ...] = ()) -> str:
        lines = {"content": content, "graph": what, "capacity": capacity, **self.decides}
        return "".join(f"{name}: {value!r}\n" for name, value in lines.items())


def describe_planning(backend: Backend) -> dict[str, object]:
    """Return what determines a plan except for the model and the planning code, by name."""
    kernels = backend.kernels
    return {
        "graph format": serial.VERSION,
        "plan format": flat_plan.VERSION,
        "tier": backend.spec.tier,
        "chip": backend.device.arch,
        "ordering": backend.ordering,
        "kernels": kernels.target,
        "kernel table": digest_table(kernels.entries),
        "fuses": kernels.fuses,
        "merges": None if kernels.merging is None else kernels.merging.most,
    }


def digest_table(entries: tuple[Entry, ...]) -> str:
    """Return a digest of the rows of a kernel table, which decide the fused nodes and the kernel of each node."""
    rows = [
        (
            e.op.name,
            e.variant,
            sorted(e.orderings),
            e.weight_dtypes and sorted(e.weight_dtypes),
            sorted(e.cache_dtypes),
        )
        for e in entries
    ]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _file_name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _make_head(key: str) -> bytes:
    """Return the bytes before a file's content."""
    text = key.encode()
    head = MAGIC + len(text).to_bytes(4, "little") + text
    return head + bytes(-len(head) % 8)


def read_key(entry: bytes) -> str:
    """Return the key at the beginning of an entry."""
    length = int.from_bytes(entry[len(MAGIC) : len(MAGIC) + 4], "little")
    return entry[len(MAGIC) + 4 :][:length].decode()


def _check_content(payload: memoryview, key: str) -> memoryview:
    """Return the content after a file's key. Raises InputError for another key than expected."""
    head = _make_head(key)
    if payload[: len(head)] != head:
        raise InputError(_describe_difference(bytes(payload[: len(head) + 4096]), key))
    return payload[len(head) :]


def _describe_difference(head: bytes, key: str) -> str:
    """Return how a file's key differs from the expected key, by the first different line."""
    if head[: len(MAGIC)] != MAGIC:
        return f"its key does not begin with {MAGIC!r}: another version of the format"
    size = int.from_bytes(head[len(MAGIC) : len(MAGIC) + 4], "little")
    there = head[len(MAGIC) + 4 :][:size].decode(errors="replace").splitlines()
    for item, other in zip_longest(there, key.splitlines(), fillvalue="nothing"):
        if item != other:
            return f"it was stored for another {other.partition(':')[0]}: {item[:100]}; expected {other[:100]}"
    return "its key has another length"
