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
from zinc_rt.ir.text import ABSENT_MARK, HEAD, is_representable

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


def parse_text(text: str, *, name: str = "graph") -> OpGraph:
    """Raises InputError naming the line. Blank lines and lines that begin with # are skipped."""
    return GraphTextParser(text, name).graph()


class GraphTextParser:
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
                    raise self._raise_error(f"expected {HEAD!r}, saw {line.strip()!r}")
                seen_head = True
                continue
            self._tokens = self._split_line(line)
            if title is None:
                title = self._parse_title()
            elif self._is_declaration():
                spec = self._parse_buffer()
                if spec.name in buffers:
                    raise self._raise_error(f"{spec.name} is already declared")
                buffers[spec.name] = spec
            else:
                nodes.append(self._parse_node())
            if self._tokens:
                raise self._raise_error(f"expected the end of the line, saw {self._tokens[0][1]!r}")
        if title is None:
            raise self._raise_error(f"ends without {'a graph line' if seen_head else repr(HEAD)}")
        return OpGraph(*title, MappingProxyType(buffers), tuple(nodes))

    def _raise_error(self, token: str) -> InputError:
        return InputError(f"{self._name}, line {self._line}: {token}")

    def _split_line(self, line: str) -> list[tuple[str, str]]:
        tokens, index = [], 0
        end = len(line.rstrip())
        while index < end:
            match = _TOKEN.match(line, index, end)
            if match is None:
                raise self._raise_error(f"column {index + 1}: cannot read {line[index:end]!r}")
            tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
            index = match.end()
        return tokens

    # Each of these takes what it wants from the front of the line.

    def _next_line(self) -> tuple[str, str]:
        return self._tokens[0] if self._tokens else ("end", "end of line")

    def _take_token(self, kind: str, expected: str, *, value: str | None = None) -> str:
        saw_kind, saw = self._next_line()
        if saw_kind != kind or (value is not None and saw != value):
            raise self._raise_error(f"expected {expected}, saw {saw!r}")
        return self._tokens.pop(0)[1]

    def _try_token(self, kind: str, value: str) -> bool:
        if self._next_line() != (kind, value):
            return False
        self._tokens.pop(0)
        return True

    def _take_mark(self, mark: str) -> None:
        self._take_token("mark", repr(mark), value=mark)

    def _take_one_of(self, values: tuple[Any, ...], expected: str) -> Any:
        word = self._take_token("name", expected)
        if word not in values:
            raise self._raise_error(f"expected {expected}, one of {', '.join(values)}, saw {word!r}")
        return word

    def _take_string(self, expected: str) -> str:
        raw = self._take_token("string", expected)
        try:
            text: str = json.loads(raw)
        except ValueError as error:
            raise InputError(f"{self._name}, line {self._line}: {raw} is not a JSON string: {error}") from error
        return text

    def _take_int(self, expected: str) -> int:
        raw = self._take_token("int", expected)
        if len(raw) > 20 or not is_representable(int(raw)):
            raise self._raise_error(f"{raw} is longer than 64 bits")
        return int(raw)

    def _parse_title(self) -> tuple[str, Stage]:
        self._take_token("name", "'graph'", value="graph")
        return self._take_string("the graph's name in quotes"), self._take_one_of(get_args(Stage), "a stage")

    def _is_declaration(self) -> bool:
        return self._tokens[0] == ("name", "buffer") and ("mark", "=") not in self._tokens

    def _parse_buffer(self) -> BufferSpec:
        self._tokens.pop(0)
        name = self._parse_buffer_name()
        self._take_mark("[")
        shape: list[Dim] = []
        while not self._try_token("mark", "]"):
            if shape:
                self._take_mark(",")
            is_symbol = self._next_line()[0] == "name"
            shape.append(self._take_token("name", "a symbol") if is_symbol else self._take_int("a dimension"))
        dtype = self._take_token("name", "a dtype")
        return BufferSpec(name, tuple(shape), dtype, self._take_one_of(get_args(Role), "a role"))

    def _parse_buffer_name(self) -> str:
        name = self._take_token("name", "a buffer name")
        if not is_buffer_name(name):
            raise self._raise_error(f"{name!r} is not a buffer name; expected a name like model.attn.q_weight[3]")
        return name

    def _parse_operands(self) -> tuple[str, ...]:
        operands: list[str] = []
        while True:
            operands.append(ABSENT if self._try_token("mark", ABSENT_MARK) else self._parse_buffer_name())
            if not self._try_token("mark", ","):
                return tuple(operands)

    def _parse_node(self) -> Node:
        outputs: tuple[str, ...] = ()
        if ("mark", "=") in self._tokens[: self._find_mark("(")]:
            outputs = self._parse_operands()
            self._take_mark("=")
        op = self._take_token("name", "an opcode")
        if op not in Op.__members__:
            raise self._raise_error(f"unknown opcode {op!r}")
        self._take_mark("(")
        inputs: tuple[str, ...] = ()
        if not self._try_token("mark", ")"):
            inputs = self._parse_operands()
            self._take_mark(")")
        attrs = self._parse_attrs() if self._try_token("mark", "{") else MappingProxyType({})
        layer = self._take_int("a layer number") if self._try_token("name", "layer") else None
        label = self._take_string("a label in quotes") if self._try_token("name", "label") else ""
        return Node(Op[op], inputs, outputs, attrs, layer, label)

    def _find_mark(self, mark: str) -> int:
        if ("mark", mark) not in self._tokens:
            raise self._raise_error(
                f"expected 'buffer', or an opcode and its operands in parentheses, saw {self._next_line()[1]!r}"
            )
        return self._tokens.index(("mark", mark))

    def _parse_attrs(self) -> Attrs:
        attrs: dict[str, int | float | bool | str] = {}
        while not self._try_token("mark", "}"):
            if attrs:
                self._take_mark(",")
            name = self._take_token("name", "an attribute")
            if name in attrs:
                raise self._raise_error(f"attribute {name} is given twice")
            self._take_mark("=")
            attrs[name] = self._parse_value()
        return MappingProxyType(attrs)

    def _parse_value(self) -> int | float | bool | str:
        kind, raw = self._next_line()
        match kind:
            case "string":
                return self._take_string("a value")
            case "int":
                return self._take_int("a value")
            case "float":
                self._tokens.pop(0)
                if math.isinf(float(raw)) and raw != "-inf":
                    raise self._raise_error(f"{raw} is beyond a double")
                return float(raw)
        if kind == "name" and raw in ("true", "false"):
            self._tokens.pop(0)
            return raw == "true"
        if kind == "name" and raw in ("inf", "nan"):
            self._tokens.pop(0)
            return float(raw)
        raise self._raise_error(f"expected a number, a string, true or false, saw {raw!r}")
