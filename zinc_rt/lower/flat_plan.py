"""The flat byte format of a graph's memory plan and dispatches: fixed-size little-endian records, read in place.

Unlike a pickle, reading creates only numbers and strings, and checks every count, index and range, so that a
damaged file cannot produce a device address. The graph has a separate format (ir/serial.py); this one refers to it
by its digest and to its nodes and buffers by number. See docs/exec.md.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.ir.graph import SYMBOLS, OpGraph
from zinc_rt.kernels.launch import Grid, Launch, Operand, Ref, Stride, Temp
from zinc_rt.lower.dispatch_plan import Dispatch, DispatchPlan, GridInBlock
from zinc_rt.lower.lowered_graph import Barrier
from zinc_rt.lower.planned_graph import PlannedGraph
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.mem.plan import Allocation, BufferPlacement, MemoryPlan

MAGIC = b"ZDP\0"
VERSION = 2
NONE, IS_BARRIER = 0xFFFFFFFF, 0xFFFFFFFE  # in a node's place: a dispatch of the plan's own; no dispatch
IS_SYMBOL = 1 << 63  # of a grid's dimension: the rest is a number in SYMBOLS, or an offset in the plan's block
HEAPS = tuple(BufferHeap)

HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u4"),
        ("sha256", "V32"),  # of everything after this field
        ("graph", "V32"),  # sha256 of the graph's own form
        ("name", "<u4"),  # of the dispatches; string numbers, here and below
        ("ordering", "<u4"),
        ("tap", "<u4"),
        ("alignment", "<u4"),
        ("arena_floor_bytes", "<u8"),
        ("temps_bytes", "<u8"),
        ("specs_offset", "<u8"),
        ("grids_offset", "<u8"),
        ("size_bytes", "<u8"),  # of the plan's block
        ("counts", "<u4", 12),  # of records in each section
    ]
)
HASHED_FROM = 40
SECTIONS: dict[str, np.dtype[Any]] = {
    "capacity": np.dtype([("symbol", "<u4"), ("reserved", "<u4"), ("most", "<u8")]),
    "allocations": np.dtype([("name", "<u4"), ("heap", "<u4"), ("size_bytes", "<u8"), ("payload_bytes", "<u8")]),
    "placements": np.dtype(  # of each buffer of the graph, in its order
        [("allocation", "<u4"), ("reserved", "<u4"), ("offset_bytes", "<u8"), ("size_bytes", "<u8")]
    ),
    "steps": np.dtype(
        [
            ("node", "<u4"),
            ("kernel", "<u4"),
            ("operands", "<u4"),  # how many of that section's are this step's; they follow one another
            ("constants", "<u4"),
            ("temps", "<u4"),
            ("merged", "<u4"),
            ("arguments_offset", "<u8"),
            *((f"wanted_{axis}", "<u8") for axis in "xyz"),  # the launch's grid
            *((f"grid_{axis}", "<u8") for axis in "xyz"),  # the dispatch's
        ]
    ),
    "operands": np.dtype([("kind", "<u4"), ("name", "<u4"), ("value", "<u8")]),
    "constants": np.dtype([("kind", "<u8"), ("value", "V8")]),
    "temps": np.dtype([("name", "<u4"), ("reserved", "<u4"), ("offset_bytes", "<u8")]),
    "merged": np.dtype([("node", "<u4"), ("reserved", "<u4")]),  # the other nodes of merged launches
    "grids": np.dtype([("x", "<u8"), ("y", "<u8"), ("z", "<u8")]),
    "strings": np.dtype("<u8"),  # where each ends in the text
    "text": np.dtype("u1"),
    "padding": np.dtype("u1"),  # to a multiple of 8
}
ABSENT, REF, TEMP, STRIDE, MADE = range(5)  # kinds of an operand; MADE: the temporary that a launch makes
INTEGER, REAL = range(2)  # kinds of a constant


def to_bytes(program: PlannedGraph, graph_sha256: bytes) -> bytes:
    """Serialise a program without its graph. Raise InputError for content that the format cannot represent."""
    return _Writer(program).encode(graph_sha256)


def from_bytes(
    data: bytes | memoryview, graph: OpGraph, graph_sha256: bytes, *, name: str = "plan"
) -> PlannedGraph:
    """Read the program of a graph with that digest. Raise InputError for invalid content.

    `name` is the name of the data in errors.
    """
    return _Reader(data, graph, graph_sha256, name).program()


class _Writer:
    def __init__(self, program: PlannedGraph) -> None:
        self._program = program
        self._strings: dict[str, int] = {}
        self._rows: dict[str, list[Any]] = {section: [] for section in SECTIONS}
        self._nodes = {id(node): number for number, node in enumerate(program.graph.nodes)}

    def encode(self, graph_sha256: bytes) -> bytes:
        program, rows = self._program, self._rows
        memory, plan = program.plan, program.dispatches
        if list(memory.placements) != list(program.graph.buffers) or memory.graph != program.graph.name:
            raise InputError(f"{memory.graph}: the memory plan belongs to another graph")
        rows["capacity"] = [(self._add_string(symbol), 0, maximum) for symbol, maximum in memory.capacity.items()]
        numbers = {allocation: number for number, allocation in enumerate(memory.allocations)}
        rows["allocations"] = [
            (self._add_string(name), HEAPS.index(item.heap), item.size_bytes, item.payload_bytes)
            for name, item in memory.allocations.items()
        ]
        rows["placements"] = [
            (numbers[placement.allocation], 0, placement.offset_bytes, placement.size_bytes)
            for placement in memory.placements.values()
        ]
        for step in plan.steps:
            self._add_step(step)
        rows["grids"] = [_encode_grid(grid) for grid in plan.grids]
        header = np.zeros((), HEADER)
        header["name"], header["ordering"] = self._add_string(plan.name), self._add_string(program.ordering)
        header["tap"], header["alignment"] = memory.tap, memory.alignment
        header["arena_floor_bytes"] = memory.arena_floor_bytes
        for field in ("temps_bytes", "specs_offset", "grids_offset", "size_bytes"):
            header[field] = getattr(plan, field)
        encoded = [text.encode() for text in self._strings]
        rows["strings"] = list(np.cumsum([len(text) for text in encoded], dtype=np.int64))
        tables = {section: np.array(rows[section], dtype) for section, dtype in SECTIONS.items()}
        tables["text"] = np.frombuffer(b"".join(encoded), np.uint8)
        tables["padding"] = np.zeros(-tables["text"].nbytes % 8, np.uint8)
        header["counts"] = [len(table) for table in tables.values()]
        header["magic"], header["version"], header["graph"] = MAGIC, VERSION, np.void(graph_sha256)
        body = b"".join(table.tobytes() for table in tables.values())
        header["sha256"] = np.void(hashlib.sha256(header.tobytes()[HASHED_FROM:] + body).digest())
        return header.tobytes() + body

    def _add_string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _add_step(self, step: Dispatch | Barrier) -> None:
        rows = self._rows
        if isinstance(step, Barrier):
            rows["operands"] += [(REF, self._add_string(name), 0) for name in step.buffers]
            rows["steps"].append((IS_BARRIER, 0, len(step.buffers), *(0,) * 10))
            return
        launch = step.launch
        rows["operands"] += [self._add_operand(buffer, launch.makes) for buffer in launch.buffers]
        rows["constants"] += [_encode_constant(value) for value in launch.constants]
        rows["temps"] += [(self._add_string(temp), 0, offset) for temp, offset in step.temps.items()]
        rows["merged"] += [(self._nodes[id(node)], 0) for node in step.merged]
        grid = (IS_SYMBOL | step.grid.offset_bytes, 0, 0) if isinstance(step.grid, GridInBlock) else step.grid
        rows["steps"].append(
            (
                NONE if step.node is None else self._nodes[id(step.node)],
                self._add_string(launch.kernel),
                len(launch.buffers),
                len(launch.constants),
                len(step.temps),
                len(step.merged),
                step.arguments_offset,
                *_encode_grid(launch.grid),
                *grid,
            )
        )

    def _add_operand(self, buffer: Operand | None, makes: Temp | None) -> tuple[int, int, int]:
        if buffer is None:
            return ABSENT, 0, 0
        if isinstance(buffer, Ref):
            return REF, self._add_string(buffer.name), buffer.offset_bytes
        if isinstance(buffer, Temp):
            return MADE if buffer == makes else TEMP, self._add_string(buffer.name), buffer.size_bytes
        return STRIDE, self._add_string(buffer.name), buffer.axis


class _Reader:
    def __init__(self, data: bytes | memoryview, graph: OpGraph, graph_sha256: bytes, name: str) -> None:
        self._name, self._graph = name, graph
        view = memoryview(data)
        if len(view) < HEADER.itemsize:
            raise self._make_error(f"{len(view)} bytes; expected at least the header's {HEADER.itemsize}")
        self._header = np.frombuffer(view, HEADER, 1)[0]
        if bytes(view[:4]) != MAGIC or self._header["version"] != VERSION:
            raise self._make_error(f"not a plan of version {VERSION}")
        if hashlib.sha256(view[HASHED_FROM:]).digest() != bytes(self._header["sha256"]):
            raise self._make_error("the checksum does not match")
        if bytes(self._header["graph"]) != graph_sha256:
            raise self._make_error("the plan belongs to another graph")
        counts = self._header["counts"].tolist()
        if HEADER.itemsize + sum(n * dt.itemsize for n, dt in zip(counts, SECTIONS.values(), strict=True)) != len(
            view
        ):
            raise self._make_error("the record counts do not match the length")
        self._tables: dict[str, np.ndarray] = {}
        index = HEADER.itemsize
        for count, (section, dtype) in zip(counts, SECTIONS.items(), strict=True):
            self._tables[section] = np.frombuffer(view, dtype, count, index)
            index += count * dtype.itemsize
        self._strings = self._read_strings()

    def program(self) -> PlannedGraph:
        header, graph = self._header, self._graph
        try:
            memory = self._read_memory()
            memory.check_ranges()
            dispatches = self._read_dispatches(memory)
            ordering = self._strings[int(header["ordering"])]
        except (IndexError, KeyError, ValueError) as error:
            raise self._make_error(f"{type(error).__name__}: {error}") from error
        return PlannedGraph(graph, memory, ordering, dispatches)

    def _make_error(self, saw: str) -> InputError:
        return InputError(f"{self._name}: {saw}", next="plan the graph again")

    def _read_strings(self) -> tuple[str, ...]:
        text = self._tables["text"].tobytes()
        strings: list[str] = []
        begin = 0
        for end in self._tables["strings"].tolist():
            if not begin <= end <= len(text):
                raise self._make_error(
                    f"string {len(strings)} ends at byte {end}, but the text section has {len(text)} bytes"
                )
            strings.append(str(text[begin:end], "utf-8", "replace"))
            begin = end
        return tuple(strings)

    def _read_memory(self) -> MemoryPlan:
        header, strings = self._header, self._strings
        capacity = {strings[symbol]: maximum for symbol, _, maximum in self._tables["capacity"].tolist()}
        names, allocations = [], {}
        for name, heap, size_bytes, payload_bytes in self._tables["allocations"].tolist():
            names.append(strings[name])
            allocations[strings[name]] = Allocation(HEAPS[heap], size_bytes, payload_bytes)
        placements = {
            buffer: BufferPlacement(names[allocation], offset_bytes, size_bytes)
            for buffer, (allocation, _, offset_bytes, size_bytes) in zip(
                self._graph.buffers, self._tables["placements"].tolist(), strict=True
            )
        }
        return MemoryPlan(
            self._graph.name,
            MappingProxyType(capacity),
            int(header["alignment"]),
            bool(header["tap"]),
            MappingProxyType(allocations),
            MappingProxyType(placements),
            int(header["arena_floor_bytes"]),
        )

    def _read_dispatches(self, memory: MemoryPlan) -> DispatchPlan:
        header = self._header
        size_bytes = int(header["size_bytes"])
        operands = _Rows(self._read_operands(memory))
        kinds = _Rows(self._tables["operands"]["kind"].tolist())
        constants = _Rows(_read_constant(kind, value) for kind, value in self._tables["constants"].tolist())
        temps = _Rows((self._strings[name], offset) for name, _, offset in self._tables["temps"].tolist())
        nodes, strings = self._graph.nodes, self._strings
        merged = _Rows(nodes[node] for node, _ in self._tables["merged"].tolist())
        steps: list[Dispatch | Barrier] = []
        for row in self._tables["steps"].tolist():
            node, kernel, buffers, values, temporary, others, arguments, *six = row
            mine, kind = operands.take(buffers), kinds.take(buffers)
            if node == IS_BARRIER:
                steps.append(Barrier(tuple(item.name for item in mine if isinstance(item, Ref))))
                continue
            makes = next((item for item, of in zip(mine, kind, strict=True) if of == MADE), None)
            assert makes is None or isinstance(makes, Temp)
            launch = Launch(strings[kernel], mine, constants.take(values), _decode_grid(six[:3]), makes)
            places = dict(temps.take(temporary))
            ends = [places[item.name] + item.size_bytes for item in mine if isinstance(item, Temp)]
            if max((arguments + launch.kernarg_bytes, *ends)) > size_bytes:
                raise ValueError(f"a dispatch of {launch.kernel} exceeds the block of {size_bytes} bytes")
            x, y, z = six[3:]
            in_block = GridInBlock(x & ~IS_SYMBOL, launch.grid) if x & IS_SYMBOL else (x, y, z)
            owner = None if node == NONE else nodes[node]
            steps.append(Dispatch(owner, launch, places, arguments, in_block, merged.take(others)))
        for rows in (operands, constants, temps, merged):
            rows.check_all_taken()
        return DispatchPlan(
            strings[int(header["name"])],
            tuple(steps),
            tuple(_decode_grid(dims) for dims in self._tables["grids"].tolist()),
            int(header["temps_bytes"]),
            int(header["specs_offset"]),
            int(header["grids_offset"]),
            size_bytes,
        )

    def _read_operands(self, memory: MemoryPlan) -> list[Operand | None]:
        operands: list[Operand | None] = []
        for kind, name, value in self._tables["operands"].tolist():
            if kind == ABSENT:
                operands.append(None)
                continue
            text = self._strings[name]
            if kind == REF and value > memory.placements[text].size_bytes:
                raise ValueError(f"byte {value} is outside {text}")
            operands.append((Ref, Temp, Stride, Temp)[kind - REF](text, value))
        return operands


class _Rows:
    """A reader of consecutive records."""

    def __init__(self, rows: Any) -> None:
        self._rows = tuple(rows)
        self._at = 0

    def take(self, count: int) -> tuple[Any, ...]:
        begin, self._at = self._at, self._at + count
        if self._at > len(self._rows):
            raise ValueError(f"record {self._at} is out of range: there are {len(self._rows)}")
        return self._rows[begin : self._at]

    def check_all_taken(self) -> None:
        if self._at != len(self._rows):
            raise ValueError(f"{len(self._rows) - self._at} records do not belong to any step")


def _encode_constant(value: int | float) -> tuple[int, bytes]:
    return (REAL, struct.pack("<d", value)) if isinstance(value, float) else (INTEGER, struct.pack("<q", value))


def _read_constant(kind: int, value: bytes) -> int | float:
    constant: int | float = struct.unpack("<d" if kind == REAL else "<q", value)[0]
    return constant


def _encode_grid(grid: Grid) -> tuple[int, ...]:
    return tuple(IS_SYMBOL | SYMBOLS.index(dim) if isinstance(dim, str) else dim for dim in grid)


def _decode_grid(dims: Sequence[int]) -> Grid:
    x, y, z = (SYMBOLS[dim & ~IS_SYMBOL] if dim & IS_SYMBOL else dim for dim in dims)
    return x, y, z
