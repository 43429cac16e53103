"""A graph file: the finished graphs and plans of a model for one tier and chip, saved to ship with the model.

It has the entries of the graph store (engine/graph_store.py) in one file, and in addition what the architecture's
code would compute: the model's own graphs, the places of their weights in the GGUF file, and the tables of angles.
Opening a model with it runs no code of model/arch/. Unlike an entry of the cache, a file that does not fit is an
error: it names the first property that differs. See docs/exec.md.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.backends.base import Backend
from zinc_rt.engine.graph_store import StoredGraphs, describe_planning, read_key
from zinc_rt.host.errors import InputError, UsageError, error_first_line
from zinc_rt.host.files import write_atomically
from zinc_rt.host.input_files import make_read_error
from zinc_rt.host.version import __version__, digest_planning_source
from zinc_rt.ir import serial
from zinc_rt.ir.dtypes import count_row_bytes
from zinc_rt.ir.graph import Stage
from zinc_rt.ir.verify import verify_graph
from zinc_rt.kernels.weight import Weight
from zinc_rt.model.builder import ROPE_FACTORS, Model, SequenceLimits
from zinc_rt.model.gguf import GGUFFile, digest_metadata
from zinc_rt.model.pooling import RankHead

MAGIC = b"ZGF\0"
VERSION = 1
SUFFIX = ".zgf"
ALIGNMENT = 64  # of every entry
STAGES: tuple[Stage, ...] = ("decode", "prefill")
HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u4"),
        ("size_bytes", "<u8"),  # of the file
        ("sha256", "V32"),  # of everything after this field
        ("head_bytes", "<u8"),  # of the JSON text that follows the header
        ("entries", "<u8"),  # records that follow the text
    ]
)
HASHED_FROM = 48
RECORD = np.dtype([("name", "V32"), ("offset", "<u8"), ("size_bytes", "<u8")])


def digest_shape(gguf: GGUFFile) -> str:
    """Return the sha256 (hex) of everything in a model file that determines its graphs and tables: the
    architecture's metadata, the tensors' names, types and shapes, and the factors of RoPE. Two fine-tunes of one
    model have the same shape."""
    keys = ("general.architecture", *(key for key in gguf.metadata if key.startswith(f"{gguf.architecture}.")))
    total = hashlib.sha256(digest_metadata({key: gguf.metadata[key] for key in keys}))
    for tensor in sorted(gguf.tensors.values(), key=lambda tensor: tensor.name):
        total.update(f"{tensor.name}\0{tensor.dtype}\0{tensor.shape}\0".encode())
        if tensor.name in ROPE_FACTORS:
            total.update(tensor.data.tobytes())
    return total.hexdigest()


def list_requirements(gguf: GGUFFile, backend: Backend, **decides: object) -> dict[str, object]:
    """Return the properties that must be the same where a file is saved and where it is used, by name."""
    return {
        "planning code": digest_planning_source(),
        "model shape": digest_shape(gguf),
        **describe_planning(backend),
        **decides,
    }


class GraphWriter:
    """Collects the graphs that a model's variants plan, to write them into a file. It takes the place of a graph
    store: see EngineOptions.store."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}
        self._stored: StoredGraphs | None = None

    def of(self, gguf: GGUFFile, backend: Backend, **decides: object) -> StoredGraphs:
        self._stored = StoredGraphs(self, list_requirements(gguf, backend, **decides), "the file")
        return self._stored

    def map_entry(self, name: str) -> memoryview | None:
        entry = self._entries.get(name)
        return None if entry is None else memoryview(entry)

    def store(self, name: str, payload: bytes | memoryview) -> None:
        self._entries[name] = bytes(payload)

    def write(self, path: str | Path, models: Mapping[Stage, Model]) -> int:
        """Write the file atomically, with the models of the stages. Return its size in bytes. Raise
        OutputError."""
        stored = self._stored
        if stored is None:
            raise ValueError("no graph was planned")
        for stage, model in models.items():
            for name, table in model.constants.items():
                content = np.ascontiguousarray(table, "<f4").tobytes()
                known = stored.read("table", name)
                if known is not None and known != content:
                    raise ValueError(f"{name} differs between the stages")
                stored.add("table", name, content)
            stored.add("model", stage, _encode_model(model))
        model = next(iter(models.values()))
        head = {
            "saved by": __version__,
            "model": model.gguf.name,
            "limits": asdict(model.limits),
            "requires": {name: repr(value) for name, value in stored.decides.items()},
            "contents": [_parse_key(entry) for entry in self._entries.values()],
        }
        file_bytes = _encode_file(head, self._entries)
        write_atomically(path, lambda file: file.write(file_bytes))
        return len(file_bytes)


@dataclass(frozen=True, slots=True)
class GraphFile:
    """An open graph file. Create it with `open_graph_file`. `saved_by`: the version of ZINC_RT; `model`: the name
    of the model file; `limits`: those of the saved graphs; `requires`: see `list_requirements`, each by its repr;
    `contents`: content, graph and capacity of each entry."""

    path: Path
    size_bytes: int
    saved_by: str
    model: str
    limits: SequenceLimits
    requires: Mapping[str, str]
    contents: tuple[tuple[str, str, str], ...]
    _entries: Mapping[str, memoryview]

    def map_entry(self, name: str) -> memoryview | None:
        return self._entries.get(name)

    def store(self, name: str, payload: bytes | memoryview) -> None:
        """Ignore a graph that the file does not have: it is planned at each start."""

    def of(self, gguf: GGUFFile, backend: Backend, **decides: object) -> StoredGraphs:
        """Return the graphs for a model on a backend. Raise InputError if the file was saved for another one."""
        wanted = list_requirements(gguf, backend, **decides)
        for name in dict.fromkeys((*wanted, *self.requires)):
            have, need = self.requires.get(name, "nothing"), repr(wanted[name]) if name in wanted else "nothing"
            if have != need:
                raise InputError(
                    f"{self.path}: saved for another {name}: {_shorten(have)}; this run has {_shorten(need)}",
                    next="save it again with these options: zinc-rt serve --save-graphs",
                )
        return StoredGraphs(self, wanted, str(self.path), foreign=True)

    def load_model(self, stored: StoredGraphs, gguf: GGUFFile, stage: Stage) -> Model:
        """Return the model of a stage with the weights of `gguf`. Raise InputError for a malformed entry."""

        def read_table(name: str, shape: tuple[int, ...]) -> np.ndarray:
            return np.frombuffer(_need(stored.read("table", name), name), "<f4").reshape(shape)

        try:
            model = _decode_model(_need(stored.read("model", stage), stage), gguf, self.limits, read_table)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise _refuse_file(
                self.path, f"its model of stage {stage} is malformed: {error_first_line(error)}"
            ) from error
        verify_graph(model.graph)
        return model

    def check_limits(self, limits: SequenceLimits) -> None:
        """Check that a run asks for the saved limits. Raise UsageError that names the first one that differs."""
        for field in fields(limits):
            have, need = getattr(self.limits, field.name), getattr(limits, field.name)
            if have != need:
                raise UsageError(
                    f"{self.path}: saved for {field.name} {have}, but this run asks for {need}",
                    next=f"use {field.name} {have}, or save the file again with these options",
                )


def open_graph_file(path: str | Path) -> GraphFile:
    """Map a graph file and check its form and checksum. Raise InputError for a file that is missing, of another
    version, damaged or incomplete."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < HEADER.itemsize:
                raise _refuse_file(path, "it is shorter than a header")
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise make_read_error(path, error) from error
    header = np.frombuffer(content, HEADER, 1)[0]
    if bytes(content[:4]) != MAGIC:
        raise _refuse_file(path, f"it does not begin with {MAGIC!r}: not a graph file")
    if header["version"] != VERSION:
        raise _refuse_file(path, f"format {header['version']}; this build reads {VERSION}")
    if header["size_bytes"] != len(content):
        raise _refuse_file(path, f"it has {len(content)} bytes of {header['size_bytes']}: it is incomplete")
    if hashlib.sha256(content[HASHED_FROM:]).digest() != header["sha256"].tobytes():
        raise _refuse_file(path, "the checksum does not match: it is damaged")
    try:
        begin = HEADER.itemsize + int(header["head_bytes"])
        head = json.loads(bytes(content[HEADER.itemsize : begin]))
        records = np.frombuffer(content, RECORD, int(header["entries"]), begin).tolist()
        if any(offset + size_bytes > len(content) for _, offset, size_bytes in records):
            raise ValueError("an entry exceeds the file")
        return GraphFile(
            path,
            len(content),
            str(head["saved by"]),
            str(head["model"]),
            SequenceLimits(**head["limits"]),
            {str(name): str(value) for name, value in head["requires"].items()},
            tuple((str(content), str(graph), str(capacity)) for content, graph, capacity in head["contents"]),
            {name.hex(): content[offset : offset + size_bytes] for name, offset, size_bytes in records},
        )
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise _refuse_file(path, f"malformed: {error_first_line(error)}") from error


def _refuse_file(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: {reason}", next="save it again: zinc-rt serve --save-graphs")


def _need(entry: memoryview | None, name: str) -> memoryview:
    if entry is None:
        raise ValueError(f"{name} is missing")
    return entry


def _shorten(text: str) -> str:
    return text if len(text) <= 72 else f"{text[:69]}..."


def _encode_file(head: dict[str, Any], entries: Mapping[str, bytes]) -> bytes:
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    end = HEADER.itemsize + len(text) + len(entries) * RECORD.itemsize
    records, body = [], bytearray()
    for name, payload in entries.items():
        body += bytes(-(end + len(body)) % ALIGNMENT)
        records.append((np.void(bytes.fromhex(name)), end + len(body), len(payload)))
        body += payload
    header = np.zeros((), HEADER)
    header["magic"], header["version"], header["size_bytes"] = MAGIC, VERSION, end + len(body)
    header["head_bytes"], header["entries"] = len(text), len(entries)
    rest = header.tobytes()[HASHED_FROM:] + text + np.array(records, RECORD).tobytes() + body
    header["sha256"] = np.void(hashlib.sha256(rest).digest())
    return header.tobytes()[:HASHED_FROM] + rest


def _parse_key(entry: bytes) -> list[str]:
    """Return the content, graph and capacity of an entry, from its key."""
    lines = read_key(entry).split("\n", 3)
    return [line.partition(": ")[2] for line in lines[:3]]


# --- a model without its builder ---------------------------------------------------------------------------------


def _encode_model(model: Model) -> bytes:
    """Return the bytes of a model: the length of the JSON text, the text, and the graph."""
    head, finder = model.rank_head, _WeightFinder(model.gguf)
    about = {
        "layers": model.layers,
        "vocab": model.vocab,
        "width": model.width,
        "pooling": model.pooling,
        "rank_head": None if head is None else _encode_rank_head(head, finder),
        "weights": {name: finder.locate(weight) for name, weight in model.weights.items()},
        "tables": {name: table.shape for name, table in model.constants.items()},
    }
    text = json.dumps(about).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return len(text).to_bytes(4, "little") + text + serial.to_bytes(model.graph)


def _decode_model(data: memoryview, gguf: GGUFFile, limits: SequenceLimits, read_table: Any) -> Model:
    begin = 4 + int.from_bytes(data[:4], "little")
    about = json.loads(bytes(data[4:begin]))
    head, graph = about["rank_head"], serial.from_bytes(data[begin:])
    weights = {name: _find_weight(place, gguf) for name, place in about["weights"].items()}
    tables = {name: read_table(name, tuple(shape)) for name, shape in about["tables"].items()}
    for spec in graph.by_role("weight"):
        if (weights[spec.name].dtype, weights[spec.name].shape) != (spec.dtype, spec.shape):
            raise ValueError(f"{spec.name} is {weights[spec.name].shape}, in the graph {spec.shape}")
    for spec in graph.by_role("constant"):
        if tables[spec.name].shape != spec.shape:
            raise ValueError(f"{spec.name} is {tables[spec.name].shape}, in the graph {spec.shape}")
    return Model(
        gguf=gguf,
        graph=graph,
        weights=weights,
        constants=tables,
        limits=limits,
        layers=int(about["layers"]),
        vocab=int(about["vocab"]),
        width=int(about["width"]),
        pooling=str(about["pooling"]),
        rank_head=None if head is None else _decode_rank_head(head, gguf),
    )


def _encode_rank_head(head: RankHead, finder: _WeightFinder) -> dict[str, Any]:
    values = {field.name: getattr(head, field.name) for field in fields(head)}
    return {name: finder.locate(v) if isinstance(v, Weight) else v for name, v in values.items()}


def _decode_rank_head(values: dict[str, Any], gguf: GGUFFile) -> RankHead:
    found: dict[str, Any] = {n: _find_weight(v, gguf) if isinstance(v, list) else v for n, v in values.items()}
    return RankHead(**found)


class _WeightFinder:
    """Finds the tensors that weights are views of, by address."""

    def __init__(self, gguf: GGUFFile) -> None:
        self._tensors = sorted(
            (_find_address(t.data), t.name, t.nbytes) for t in gguf.tensors.values() if t.nbytes
        )

    def locate(self, weight: Weight) -> list[Any]:
        """Return where a weight is in the file: its tensor, its logical shape, and the offset, shape and strides
        of its bytes in the tensor. Raise ValueError for a weight that is not a view of the file."""
        address = _find_address(weight.raw)
        begin, name, size_bytes = self._tensors[bisect_right(self._tensors, address, key=itemgetter(0)) - 1]
        if not begin <= address < begin + size_bytes:
            raise ValueError("a weight is not a view of the model file")
        return [name, list(weight.shape), address - begin, list(weight.raw.shape), list(weight.raw.strides)]


def _find_address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _find_weight(place: list[Any], gguf: GGUFFile) -> Weight:
    """Return the weight at a place. Raise ValueError for a place outside of its tensor, KeyError for a tensor that
    the file does not have."""
    name, shape, offset, raw_shape, strides = place
    tensor = gguf.tensors[name]
    flat = tensor.data.reshape(-1)
    raw: np.ndarray = np.ndarray(raw_shape, flat.dtype, buffer=flat, offset=offset, strides=strides)
    row_bytes = count_row_bytes(tensor.dtype, shape[-1])
    if raw.shape[:-1] != tuple(shape[:-1]) or raw.shape[-1] * raw.itemsize != row_bytes:
        raise ValueError(f"{name}: {raw_shape} are not the rows of a weight of {shape}")
    return Weight(tensor.dtype, tuple(shape), raw)
