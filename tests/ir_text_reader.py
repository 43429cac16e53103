"""The text form read back: a test's way to know that nothing is lost in it. See docs/ir.md."""

from __future__ import annotations

import json
import math
import re
from types import MappingProxyType
from typing import Any, get_args

from zinc_rt.host.errors import InputError
from zinc_rt.ir.graph import ABSENT, Attrs, BufferSpec, Dim, Node, OpGraph, Role, Stage, is_buffer_name
from zinc_rt.ir.op import Op
from zinc_rt.ir.text import ABSENT_MARK, HEAD, fits

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<float>-?\d+(?:\.\d*(?:e[+-]?\d+)?|e[+-]?\d+)|-inf(?![\w.\[]))
    | (?P<int>-?\d+)
    | (?P<name>[A-Za-z_](?:[A-Za-z0-9_.]|\[[a-z0-9_]+\])*)
    | (?P<mark>[-=(),{}\[\]])
    )""",
    re.VERBOSE | re.ASCII,
)


def from_text(text: str, *, name: str = "graph") -> OpGraph:
    """Raises InputError naming the line. Blank lines and lines that begin with # are skipped."""
    return _Parser(text, name).graph()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._lines = text.split("\n")
        self._line = 0  # counted from 1 while parsing
        self._tokens: list[tuple[str, str]] = []

    def graph(self) -> OpGraph:
        buffers: dict[str, BufferSpec] = {}
        nodes: list[Node] = []
        title: tuple[str, Stage] | None = None
        seen_head = False
        for number, line in enumerate(self._lines, 1):
            self._line = number
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if not seen_head:
                if line.strip() != HEAD:
                    raise self._wrong(f"expected {HEAD!r}, saw {line.strip()!r}")
                seen_head = True
                continue
            self._tokens = self._split(line)
            if title is None:
                title = self._title()
            elif self._is_declaration():
                spec = self._buffer()
                if spec.name in buffers:
                    raise self._wrong(f"{spec.name} is already declared")
                buffers[spec.name] = spec
            else:
                nodes.append(self._node())
            if self._tokens:
                raise self._wrong(f"expected the end of the line, saw {self._tokens[0][1]!r}")
        if title is None:
            raise self._wrong(f"ends without {'a graph line' if seen_head else repr(HEAD)}")
        return OpGraph(*title, MappingProxyType(buffers), tuple(nodes))

    def _wrong(self, saw: str) -> InputError:
        return InputError(f"{self._name}, line {self._line}: {saw}")

    def _split(self, line: str) -> list[tuple[str, str]]:
        tokens, index = [], 0
        end = len(line.rstrip())
        while index < end:
            match = _TOKEN.match(line, index, end)
            if match is None:
                raise self._wrong(f"column {index + 1}: cannot read {line[index:end]!r}")
            tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
            index = match.end()
        return tokens

    # Each of these takes what it wants from the front of the line.

    def _next(self) -> tuple[str, str]:
        return self._tokens[0] if self._tokens else ("end", "end of line")

    def _take(self, kind: str, what: str, *, value: str | None = None) -> str:
        saw_kind, saw = self._next()
        if saw_kind != kind or (value is not None and saw != value):
            raise self._wrong(f"expected {what}, saw {saw!r}")
        return self._tokens.pop(0)[1]

    def _try(self, kind: str, value: str) -> bool:
        if self._next() != (kind, value):
            return False
        self._tokens.pop(0)
        return True

    def _mark(self, mark: str) -> None:
        self._take("mark", repr(mark), value=mark)

    def _one_of(self, values: tuple[Any, ...], what: str) -> Any:
        word = self._take("name", what)
        if word not in values:
            raise self._wrong(f"expected {what}, one of {', '.join(values)}, saw {word!r}")
        return word

    def _string(self, what: str) -> str:
        raw = self._take("string", what)
        try:
            text: str = json.loads(raw)
        except ValueError as error:
            raise InputError(f"{self._name}, line {self._line}: {raw} is not a JSON string: {error}") from error
        return text

    def _int(self, what: str) -> int:
        raw = self._take("int", what)
        if len(raw) > 20 or not fits(int(raw)):
            raise self._wrong(f"{raw} is longer than 64 bits")
        return int(raw)

    def _title(self) -> tuple[str, Stage]:
        self._take("name", "'graph'", value="graph")
        return self._string("the graph's name in quotes"), self._one_of(get_args(Stage), "a stage")

    def _is_declaration(self) -> bool:
        return self._tokens[0] == ("name", "buffer") and ("mark", "=") not in self._tokens

    def _buffer(self) -> BufferSpec:
        self._tokens.pop(0)
        name = self._buffer_name()
        self._mark("[")
        shape: list[Dim] = []
        while not self._try("mark", "]"):
            if shape:
                self._mark(",")
            is_symbol = self._next()[0] == "name"
            shape.append(self._take("name", "a symbol") if is_symbol else self._int("a dimension"))
        dtype = self._take("name", "a dtype")
        return BufferSpec(name, tuple(shape), dtype, self._one_of(get_args(Role), "a role"))

    def _buffer_name(self) -> str:
        name = self._take("name", "a buffer name")
        if not is_buffer_name(name):
            raise self._wrong(f"{name!r} is not a buffer name; expected a name like model.attn.q_weight[3]")
        return name

    def _operands(self) -> tuple[str, ...]:
        operands: list[str] = []
        while True:
            operands.append(ABSENT if self._try("mark", ABSENT_MARK) else self._buffer_name())
            if not self._try("mark", ","):
                return tuple(operands)

    def _node(self) -> Node:
        outputs: tuple[str, ...] = ()
        if ("mark", "=") in self._tokens[: self._index_of("(")]:
            outputs = self._operands()
            self._mark("=")
        op = self._take("name", "an opcode")
        if op not in Op.__members__:
            raise self._wrong(f"unknown opcode {op!r}")
        self._mark("(")
        inputs: tuple[str, ...] = ()
        if not self._try("mark", ")"):
            inputs = self._operands()
            self._mark(")")
        attrs = self._attrs() if self._try("mark", "{") else MappingProxyType({})
        layer = self._int("a layer number") if self._try("name", "layer") else None
        label = self._string("a label in quotes") if self._try("name", "label") else ""
        return Node(Op[op], inputs, outputs, attrs, layer, label)

    def _index_of(self, mark: str) -> int:
        if ("mark", mark) not in self._tokens:
            raise self._wrong(
                f"expected 'buffer', or an opcode and its operands in parentheses, saw {self._next()[1]!r}"
            )
        return self._tokens.index(("mark", mark))

    def _attrs(self) -> Attrs:
        attrs: dict[str, int | float | bool | str] = {}
        while not self._try("mark", "}"):
            if attrs:
                self._mark(",")
            name = self._take("name", "an attribute")
            if name in attrs:
                raise self._wrong(f"attribute {name} is given twice")
            self._mark("=")
            attrs[name] = self._value()
        return MappingProxyType(attrs)

    def _value(self) -> int | float | bool | str:
        kind, raw = self._next()
        match kind:
            case "string":
                return self._string("a value")
            case "int":
                return self._int("a value")
            case "float":
                self._tokens.pop(0)
                if math.isinf(float(raw)) and raw != "-inf":
                    raise self._wrong(f"{raw} is beyond a double")
                return float(raw)
        if kind == "name" and raw in ("true", "false"):
            self._tokens.pop(0)
            return raw == "true"
        if kind == "name" and raw in ("inf", "nan"):
            self._tokens.pop(0)
            return float(raw)
        raise self._wrong(f"expected a number, a string, true or false, saw {raw!r}")
