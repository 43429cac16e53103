"""Write images: files with buffers, graphs and programs of t_cpu_native, which exec/c/image.c opens.

An image holds what `build` makes of a lowered graph, with offsets into named buffers instead of addresses: the
tasks, their arguments, and where an address has to be written into them. Weights stay in the model file.
docs/exec-c.md describes the format.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.backends.cpu.sharing import share
from zinc_rt.backends.cpu.tasks import TaskSplitting, choose_claims, encode_dims
from zinc_rt.exec import Buffer
from zinc_rt.kernels.launch import COUNTS, Operand, Ref, Stride, Temp
from zinc_rt.kernels.native.build import digest_sources
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph
from zinc_rt.lower.dispatch_plan import RESIDENT, dispatch_plan

VERSION = 1
MAGIC = b"ZRTX"
CHECKED_FROM = 12  # the byte after the checksum
NO_BUFFER = 0xFFFFFFFF  # a relocation into the program's own block
ZEROS, MAPPED_FILE, CONSTANT = range(3)  # kinds of a buffer
SAMPLES, SAMPLE_BYTES = 64, 4096  # of a model file, which tell it from another one with an equal header
SECTIONS: dict[str, np.dtype[Any]] = {  # the records of image.c, in its order
    "files": np.dtype([("name", "<u4"), ("crc32", "<u4"), ("size_bytes", "<u8"), ("header_bytes", "<u8")]),
    "buffers": np.dtype([("name", "<u4"), ("kind", "<u4"), ("size_bytes", "<u8"), ("source", "<u8")]),
    "graphs": np.dtype([("name", "<u4"), ("variants", "<u4")]),
    "variants": np.dtype(
        [("key", "<u8"), ("ports", "<u4"), ("tasks", "<u4"), ("relocations", "<u4"), ("counts_buffer", "<u4"),
         ("counts_offset", "<u8"), ("block_bytes", "<u8")]
    ),
    "ports": np.dtype([("name", "<u4"), ("buffer", "<u4"), ("offset_bytes", "<u8"), ("size_bytes", "<u8")]),
    "tasks": np.dtype(
        [("kernel", "<u4"), ("arguments_bytes", "<u4"), ("arguments_offset", "<u8"), ("source", "<u8"),
         ("dims", "<u4", 3), ("barrier", "<u4"), ("least", "<u4"), ("most", "<u4")]
    ),
    "relocations": np.dtype([("at", "<u8"), ("addend", "<u8"), ("buffer", "<u4"), ("reserved", "<u4")]),
    "groups": np.dtype([("name", "<u4"), ("members", "<u4"), ("units", "<u4"), ("reserved", "<u4")]),
    "members": np.dtype([("buffer", "<u4"), ("reserved", "<u4"), ("offset_bytes", "<u8"), ("unit_bytes", "<u8")]),
    "properties": np.dtype([("name", "<u4"), ("reserved", "<u4"), ("value", "<i8")]),
}  # fmt: skip
HEADER = np.dtype(
    [("magic", "S4"), ("version", "<u4"), ("crc32", "<u4"), ("label", "<u4"), ("size_bytes", "<u8"),
     ("kernels", "S64"), ("counts", "<u8", len(SECTIONS) + 2)]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MappedWeights:
    """The mapped bytes of a model file, which weights are views of. `address`: of the mapping's first byte."""

    path: Path
    content: np.ndarray
    header_bytes: int

    @property
    def address(self) -> int:
        return int(self.content.ctypes.data)


@dataclass(frozen=True, slots=True)
class StatePart:
    """A range of a buffer that belongs to a group of units: `unit_bytes` for each unit, one after another."""

    buffer: int
    offset_bytes: int
    unit_bytes: int


@dataclass(slots=True)
class ImageWriter:
    """Collects an image's records. `label`: what else must be equal for state to be exchanged between images, such
    as the ordering."""

    label: str
    files: Sequence[MappedWeights]
    _rows: dict[str, list[Any]] = field(init=False, default_factory=lambda: {name: [] for name in SECTIONS})
    _strings: bytearray = field(init=False, default_factory=bytearray)
    _offsets: dict[str, int] = field(init=False, default_factory=dict)
    _blob: bytearray = field(init=False, default_factory=bytearray)
    _constants: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._add_string(self.label)
        for number, file in enumerate(self.files):
            name, size = self._add_string(str(file.path.resolve())), file.content.nbytes
            crc = sample_file(file.content, file.header_bytes)
            self._rows["files"].append((name, crc, size, file.header_bytes))
            self._add_buffer(f"file {number}", MAPPED_FILE, size, number)

    def add_buffer(self, name: str, size_bytes: int) -> int:
        """Add a zeroed buffer and return its number."""
        return self._add_buffer(name, ZEROS, size_bytes, 0)

    def add_graph(self, name: str) -> None:
        """Add a graph; the programs added next belong to it."""
        self._rows["graphs"].append([self._add_string(name), 0])

    def add_group(self, name: str, units: int, parts: Iterable[StatePart]) -> None:
        """Add a group of equal units of state, such as the pages of one pool."""
        members = [(part.buffer, 0, part.offset_bytes, part.unit_bytes) for part in parts]
        self._rows["groups"].append((self._add_string(name), len(members), units, 0))
        self._rows["members"] += members

    def add_property(self, name: str, value: int) -> None:
        self._rows["properties"].append((self._add_string(name), 0, value))

    def add_program(
        self, key: int, lowered: LoweredGraph, weights: Mapping[str, Buffer], allocations: Mapping[str, int]
    ) -> None:
        """Add a program. `weights`: resident operands by name, whose storage is a Weight; `allocations`: the
        image's buffer of each allocation of the memory plan. Its ports are the graph's buffers of the roles step,
        output, table and state."""
        steps, block_bytes = share(dispatch_plan(lowered), lowered.graph)
        locate = partial(self._locate, lowered, weights, allocations)
        relocations = []
        for item in steps:
            step, launch = item.dispatch, item.dispatch.launch
            values = []
            for number, operand in enumerate(launch.buffers):
                if operand is not None:
                    buffer, value = locate(step.temps, operand)
                    values.append(value if buffer is None else 0)
                    if buffer is not None:
                        relocations.append((step.arguments_offset + 8 * number, value, buffer, 0))
            arguments = launch.pack_kernarg(partial(_take_next, iter(values)))
            row = (self._add_string(launch.kernel), len(arguments), step.arguments_offset, self._store(arguments))
            self._rows["tasks"].append(
                (*row, encode_dims(step), int(item.barrier), *choose_claims(step, TaskSplitting()))
            )
        counts, offset = locate({}, Ref(COUNTS))
        names = [
            spec.name for role in ("step", "output", "table", "state") for spec in lowered.graph.by_role(role)
        ]
        for name in names:
            placement = lowered.plan.placements[name]
            self._rows["ports"].append(
                (
                    self._add_string(name),
                    allocations[placement.allocation],
                    placement.offset_bytes,
                    placement.size_bytes,
                )
            )
        self._rows["relocations"] += relocations
        self._rows["variants"].append((key, len(names), len(steps), len(relocations), counts, offset, block_bytes))
        self._rows["graphs"][-1][1] += 1

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        tables = [np.array([tuple(row) for row in self._rows[name]], dtype) for name, dtype in SECTIONS.items()]
        strings, blob = _pad(self._strings), _pad(self._blob)
        header = np.zeros((), HEADER)
        header["magic"], header["version"], header["label"] = MAGIC, VERSION, self._add_string(self.label)
        header["kernels"] = digest_sources().encode()
        header["counts"] = [*map(len, tables), len(strings), len(blob)]
        body = b"".join((*(table.tobytes() for table in tables), strings, blob))
        header["size_bytes"] = HEADER.itemsize + len(body)
        header["crc32"] = zlib.crc32(header.tobytes()[CHECKED_FROM:] + body)
        return header.tobytes() + body

    def _add_buffer(self, name: str, kind: int, size_bytes: int, source: int) -> int:
        self._rows["buffers"].append((self._add_string(name), kind, size_bytes, source))
        return len(self._rows["buffers"]) - 1

    def _add_string(self, text: str) -> int:
        if text not in self._offsets:
            self._offsets[text] = len(self._strings)
            self._strings += text.encode() + b"\0"
        return self._offsets[text]

    def _store(self, content: bytes) -> int:
        offset = len(self._blob)
        self._blob += _pad(content)
        return offset

    def _locate(
        self,
        lowered: LoweredGraph,
        weights: Mapping[str, Buffer],
        allocations: Mapping[str, int],
        temps: Mapping[str, int],
        operand: Operand,
    ) -> tuple[int | None, int]:
        """Return the buffer and the offset of an operand; for a stride None and its value."""
        if isinstance(operand, Temp):
            return NO_BUFFER, temps[operand.name]
        spec = lowered.graph.buffers.get(operand.name)
        if spec is not None and spec.role in RESIDENT:
            weight: Weight = weights[operand.name].storage
            if isinstance(operand, Stride):
                return None, weight.raw.strides[operand.axis]
            buffer, offset = self._find_weight(operand.name, weight.raw)
            return buffer, offset + operand.offset_bytes
        assert isinstance(operand, Ref), f"{operand.name} is no weight: its strides are its shape's"
        placement = lowered.plan.placements[operand.name]
        return allocations[placement.allocation], placement.offset_bytes + operand.offset_bytes

    def _find_weight(self, name: str, raw: np.ndarray) -> tuple[int, int]:
        """Return the buffer and the offset of a weight: in a model file, or of a copy in the image."""
        for number, file in enumerate(self.files):
            offset = raw.ctypes.data - file.address
            if 0 <= offset < file.content.nbytes:
                return number, offset
        if name not in self._constants:
            if not raw.flags.c_contiguous:
                raise ValueError(f"{name} is neither in the model file nor contiguous")
            self._constants[name] = self._add_buffer(name, CONSTANT, raw.nbytes, self._store(raw.tobytes()))
        return self._constants[name], 0


def sample_file(content: np.ndarray, header_bytes: int) -> int:
    """Return a checksum of a model file's header and of samples of its data, as image.c computes it."""
    data = content[header_bytes:]
    piece = min(len(data), SAMPLE_BYTES)
    crc = zlib.crc32(content[:header_bytes].data)
    for number in range(SAMPLES):
        start = (len(data) - piece) * number // (SAMPLES - 1)
        crc = zlib.crc32(data[start : start + piece].data, crc)
    return crc


def _take_next(values: Iterator[int], operand: Operand) -> int:
    return next(values)


def _pad(content: bytes | bytearray) -> bytes:
    return bytes(content) + bytes(-len(content) % 8)
