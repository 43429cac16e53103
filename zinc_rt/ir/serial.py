"""The flat byte form of a graph: fixed-size little-endian records, read in place. See docs/ir.md.

The conversion is lossless, including the bits of floats. Reading checks the form (every count, index and reserved
field); ir.verify checks the graph's meaning.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.ir.graph import ABSENT, Attrs, BufferSpec, Dim, Node, OpGraph, Role, Stage
from zinc_rt.ir.op import Op, with_absent

MAGIC = b"ZIR\0"
VERSION = 1
NONE = 0xFFFFFFFF  # no layer; an absent operand
SECTIONS = ("buffers", "nodes", "operands", "attrs", "dims", "strings", "text")

HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u4"),
        ("size_bytes", "<u8"),  # of the whole form
        ("sha256", "V32"),  # of everything after this field
        ("name", "<u4"),  # string numbers, here and below, unless said otherwise
        ("stage", "<u4"),  # index in graph.Stage
        *((section, "<u4") for section in SECTIONS),  # records in each; bytes for text
        ("reserved", "<u4"),
    ]
)
HASHED_FROM = 48
RECORDS = {
    "buffers": np.dtype([("name", "<u4"), ("dtype", "<u4"), ("role", "<u4"), ("dims", "<u4"), ("rank", "<u4")]),
    "nodes": np.dtype(
        [
            ("op", "<u4"),
            ("layer", "<u4"),
            ("label", "<u4"),
            ("first_operand", "<u4"),  # inputs, then outputs
            ("inputs", "<u4"),
            ("outputs", "<u4"),
            ("first_attr", "<u4"),
            ("attrs", "<u4"),
        ]
    ),
    "operands": np.dtype("<u4"),  # buffer numbers
    "attrs": np.dtype([("name", "<u4"), ("kind", "<u4"), ("value", "V8")]),
    "dims": np.dtype([("kind", "<u4"), ("reserved", "<u4"), ("value", "<u8")]),
    "strings": np.dtype("<u4"),  # where each ends in the text
    "text": np.dtype("u1"),
}
ALIGNMENT = 8  # every section begins on a multiple
NUMBER, SYMBOL = 0, 1  # kinds of a dimension
ROLES, STAGES = get_args(Role), get_args(Stage)

_PACK: dict[type, tuple[int, str]] = {int: (0, "<q"), float: (1, "<d"), bool: (2, "<Q"), str: (3, "<Q")}
_UNPACK = {kind: (type_, layout) for type_, (kind, layout) in _PACK.items()}


def to_bytes(graph: OpGraph) -> bytes:
    """Serialise a graph. Raise InputError for content that the format cannot represent: an undeclared operand, an
    unknown role, a foreign type."""
    return _Writer(graph).encode()


def from_bytes(data: bytes | bytearray | memoryview, *, name: str = "graph") -> OpGraph:
    """Deserialise a graph from a copy of `data`. Errors call it `name`. Raise InputError for malformed data."""
    return _Reader(data, name).graph()


class _Writer:
    def __init__(self, graph: OpGraph) -> None:
        self._graph = graph
        self._strings: dict[str, int] = {}
        self._rows: dict[str, list[Any]] = {section: [] for section in SECTIONS}
        self._numbers = {name: number for number, name in enumerate(graph.buffers)}

    def encode(self) -> bytes:
        graph = self._graph
        if graph.stage not in STAGES:
            raise InputError(f"graph {graph.name}: cannot save stage {graph.stage!r}")
        header = np.zeros((), HEADER)
        header["name"], header["stage"] = self._add_string(graph.name), STAGES.index(graph.stage)
        for key, spec in graph.buffers.items():
            self._add_buffer(key, spec)
        for node in graph.nodes:
            self._add_node(node)
        try:
            encoded = [text.encode() for text in self._strings]
        except UnicodeEncodeError as error:
            raise InputError(f"graph {graph.name}: cannot save {error.object!r} as UTF-8") from error
        self._rows["strings"] = list(np.cumsum([len(text) for text in encoded], dtype=np.int64))
        tables = {section: np.array(rows, RECORDS[section]) for section, rows in self._rows.items()}
        tables["text"] = np.frombuffer(b"".join(encoded), RECORDS["text"])
        for section, table in tables.items():
            header[section] = len(table)
        body = b"".join(_pad(tables[section].tobytes()) for section in SECTIONS)
        header["magic"], header["version"] = MAGIC, VERSION
        header["size_bytes"] = HEADER.itemsize + len(body)
        hashed = header.tobytes()[HASHED_FROM:] + body
        header["sha256"] = np.void(hashlib.sha256(hashed).digest())
        return header.tobytes() + body

    def _add_string(self, text: object) -> int:
        if type(text) is not str:
            raise InputError(f"graph {self._graph.name}: cannot save {text!r} as a string")
        return self._strings.setdefault(text, len(self._strings))

    def _add_buffer(self, key: str, spec: BufferSpec) -> None:
        if key != spec.name or spec.role not in ROLES:
            raise InputError(f"graph {self._graph.name}: cannot save {spec} under the name {key!r}")
        first = len(self._rows["dims"])
        for dim in spec.shape:
            if isinstance(dim, str):
                self._rows["dims"].append((SYMBOL, 0, self._add_string(dim)))
            elif type(dim) is int and 0 <= dim < 2**63:
                self._rows["dims"].append((NUMBER, 0, dim))
            else:
                raise InputError(f"{spec.name}: cannot save dimension {dim!r}")
        self._rows["buffers"].append(
            (
                self._add_string(spec.name),
                self._add_string(spec.dtype),
                ROLES.index(spec.role),
                first,
                len(spec.shape),
            )
        )

    def _add_node(self, node: Node) -> None:
        has_layer = type(node.layer) is int and 0 <= node.layer < NONE
        if node.op not in Op.__members__.values() or not (node.layer is None or has_layer):
            raise InputError(f"graph {self._graph.name}: cannot save opcode {node.op!r}, layer {node.layer!r}")
        operands, attrs = self._rows["operands"], self._rows["attrs"]
        first_operand, first_attr = len(operands), len(attrs)
        for name in (*node.inputs, *node.outputs):
            if name != ABSENT and name not in self._numbers:
                raise InputError(f"{node!r}: cannot save {name!r}, which is not declared")
            operands.append(NONE if name == ABSENT else self._numbers[name])
        for name, value in node.attrs.items():
            attrs.append((self._add_string(name), *self._add_attr(node, name, value)))
        self._rows["nodes"].append(
            (
                int(node.op),
                NONE if node.layer is None else node.layer,
                self._add_string(node.label),
                first_operand,
                len(node.inputs),
                len(node.outputs),
                first_attr,
                len(node.attrs),
            )
        )

    def _add_attr(self, node: Node, name: str, value: object) -> tuple[int, bytes]:
        if type(value) not in _PACK:
            raise InputError(f"{node!r}: cannot save {name} = {value!r} of type {type(value).__name__}")
        kind, layout = _PACK[type(value)]
        try:
            return kind, struct.pack(layout, self._add_string(value) if isinstance(value, str) else value)
        except struct.error as error:
            raise InputError(f"{node!r}: cannot save {name} = {value!r}, which exceeds 64 bits") from error


class _Reader:
    def __init__(self, data: bytes | bytearray | memoryview, name: str) -> None:
        self._name = name
        view = memoryview(data).cast("B").toreadonly()
        if len(view) < HEADER.itemsize:
            raise self._make_error(f"{len(view)} bytes; expected at least the header's {HEADER.itemsize}")
        self._header = np.frombuffer(view, HEADER, 1)[0]
        if bytes(view[:4]) != MAGIC:
            raise self._make_error(f"magic is {bytes(view[:4])!r}, expected {MAGIC!r}")
        if self._read_field("version") != VERSION:
            raise self._make_error(f"version is {self._read_field('version')}; this build reads {VERSION}")
        expected = HEADER.itemsize + sum(
            _round_up_size(self._read_field(section) * RECORDS[section].itemsize) for section in SECTIONS
        )
        if not len(view) == expected == self._read_field("size_bytes"):
            raise self._make_error(
                f"has {len(view)} bytes, but the header states {self._read_field('size_bytes')} and "
                "has records for "
                f"{expected}"
            )
        if hashlib.sha256(view[HASHED_FROM:]).digest() != bytes(view[HASHED_FROM - 32 : HASHED_FROM]):
            raise self._make_error("the checksum does not match: the file is damaged")
        if self._read_field("reserved"):
            raise self._make_error(f"reserved header field is {self._read_field('reserved')}, expected 0")
        self._tables: dict[str, np.ndarray] = {}
        index = HEADER.itemsize
        for section in SECTIONS:
            count, record = self._read_field(section), RECORDS[section]
            self._tables[section] = np.frombuffer(view, record, count, index)
            end = index + count * record.itemsize
            index += _round_up_size(count * record.itemsize)
            if any(view[end:index]):
                raise self._make_error(f"padding after {section} is not zero")
        self._strings = self._read_strings()

    def graph(self) -> OpGraph:
        buffers: dict[str, BufferSpec] = {}
        for row in self._tables["buffers"].tolist():
            spec = self._read_buffer(*row)
            if spec.name in buffers:
                raise self._make_error(f"buffer {spec.name} appears twice")
            buffers[spec.name] = spec
        names = tuple(buffers)
        nodes = tuple(self._read_node(names, *row) for row in self._tables["nodes"].tolist())
        stage = self._check_choice(STAGES, self._read_field("stage"), "stage")
        return OpGraph(self._find_string(self._read_field("name")), stage, MappingProxyType(buffers), nodes)

    def _make_error(self, saw: str) -> InputError:
        return InputError(f"{self._name}: {saw}", next="save the graph again")

    def _read_field(self, name: str) -> int:
        return int(self._header[name])

    def _check_choice(self, values: tuple[Any, ...], number: int, what: str) -> Any:
        if number >= len(values):
            raise self._make_error(f"{what} {number} is out of range: there are {len(values)}")
        return values[number]

    def _read_rows(self, section: str, first: int, count: int) -> list[Any]:
        table = self._tables[section]
        if first + count > len(table):
            raise self._make_error(
                f"{section} {first} to {first + count} are out of range: there are {len(table)}"
            )
        return table[first : first + count].tolist()

    def _read_strings(self) -> tuple[str, ...]:
        text = self._tables["text"].tobytes()
        strings: list[str] = []
        begin = 0
        for end in self._tables["strings"].tolist():
            if not begin <= end <= len(text):
                raise self._make_error(
                    f"string {len(strings)} begins at {begin} and ends at {end}, but the text has {len(text)} "
                    "bytes"
                )
            try:
                strings.append(text[begin:end].decode())
            except UnicodeDecodeError as error:
                raise self._make_error(f"string {len(strings)} is not UTF-8") from error
            begin = end
        if begin != len(text):
            raise self._make_error(f"{len(text) - begin} bytes of text belong to no string")
        return tuple(strings)

    def _find_string(self, number: int) -> str:
        text: str = self._check_choice(self._strings, number, "string")
        return text

    def _read_buffer(self, name: int, dtype: int, role: int, dims: int, rank: int) -> BufferSpec:
        shape = tuple(self._read_dim(*row) for row in self._read_rows("dims", dims, rank))
        return BufferSpec(
            self._find_string(name), shape, self._find_string(dtype), self._check_choice(ROLES, role, "role")
        )

    def _read_dim(self, kind: int, reserved: int, value: int) -> Dim:
        if reserved or kind not in (NUMBER, SYMBOL) or value >= 2**63:
            raise self._make_error(f"invalid dimension of kind {kind}, reserved {reserved}, value {value}")
        return value if kind == NUMBER else self._find_string(value)

    def _read_node(
        self,
        names: tuple[str, ...],
        op: int,
        layer: int,
        label: int,
        first_operand: int,
        inputs: int,
        outputs: int,
        first_attr: int,
        attrs: int,
    ) -> Node:
        if op not in Op.__members__.values():
            raise self._make_error(f"opcode {op} is unknown to this build")
        operands = tuple(
            ABSENT if number == NONE else self._check_choice(names, number, "buffer")
            for number in self._read_rows("operands", first_operand, inputs + outputs)
        )
        return Node(
            Op(op),
            with_absent(op, operands[:inputs]),
            operands[inputs:],
            self._read_attrs(self._read_rows("attrs", first_attr, attrs)),
            None if layer == NONE else layer,
            self._find_string(label),
        )

    def _read_attrs(self, rows: list[tuple[int, int, bytes]]) -> Attrs:
        attrs: dict[str, int | float | bool | str] = {}
        for name, kind, raw in rows:
            if kind not in _UNPACK:
                raise self._make_error(f"attribute of kind {kind}")
            type_, layout = _UNPACK[kind]
            (value,) = struct.unpack(layout, raw)
            if type_ is bool and value > 1:
                raise self._make_error(f"a truth value of {value}")
            read: dict[type, Callable[[Any], int | float | bool | str]] = {bool: bool, str: self._find_string}
            key = self._find_string(name)
            if key in attrs:
                raise self._make_error(f"attribute {key} appears twice")
            attrs[key] = read.get(type_, type_)(value)
        return MappingProxyType(attrs)


def _round_up_size(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def _pad(data: bytes) -> bytes:
    return data.ljust(_round_up_size(len(data)), b"\0")
