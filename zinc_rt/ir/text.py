"""The human-readable text form of a graph: one declaration or node per line, complete. See docs/ir.md."""

from __future__ import annotations

import json
import re

from zinc_rt.host.errors import InputError
from zinc_rt.ir.graph import ABSENT, Node, OpGraph, is_buffer_name

HEAD = "zinc-rt-ir 1"
ABSENT_MARK = "-"


def to_text(graph: OpGraph) -> str:
    """Format the graph as text. Raise InputError for names and values that the text form cannot represent."""
    lines = [HEAD, f"graph {_quote_text(graph.name)} {graph.stage}"]
    for spec in graph.buffers.values():
        shape = ", ".join(_check_word(dim) if isinstance(dim, str) else str(dim) for dim in spec.shape)
        lines.append(f"buffer {_check_buffer_name(spec.name)} [{shape}] {_check_word(spec.dtype)} {spec.role}")
    lines.extend(_format_node(node) for node in graph.nodes)
    return "\n".join(lines) + "\n"


def _format_node(node: Node) -> str:
    def format_names(operands: tuple[str, ...]) -> str:
        return ", ".join(ABSENT_MARK if name == ABSENT else _check_buffer_name(name) for name in operands)

    outputs = f"{format_names(node.outputs)} = " if node.outputs else ""
    line = f"{outputs}{node.op.name}({format_names(node.inputs)})"
    if node.attrs:
        line += (
            " {"
            + ", ".join(f"{_check_word(name)}={_format_literal(value)}" for name, value in node.attrs.items())
            + "}"
        )
    if node.layer is not None:
        line += f" layer {node.layer}"
    if node.label:
        line += f" label {_quote_text(node.label)}"
    return line


def _quote_text(text: str) -> str:
    return json.dumps(text)


def _check_word(word: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word) or word in ("true", "false", "inf", "nan"):
        raise InputError(f"{word!r} cannot be written as a word in the text form")
    return word


def _check_buffer_name(name: str) -> str:
    if not is_buffer_name(name):
        raise InputError(f"{name!r} is not a buffer name; expected a name like model.attn.q_weight[3]")
    return name


def _format_literal(value: object) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is str:
        return _quote_text(value)
    if type(value) is float or (type(value) is int and is_representable(value)):
        return repr(value)  # the shortest decimal that reads back as the same number
    raise InputError(f"{value!r} of type {type(value).__name__} cannot be written in the text form")


def is_representable(number: int) -> bool:
    """Return whether a number fits in 64 bits, as in the byte form."""
    return -(2**63) <= number < 2**63
