"""Compare two graphs by what their nodes compute: names of intermediate values and fusion make no difference."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from zinc_rt.ir.graph import ABSENT, Node, OpGraph
from zinc_rt.ir.op import OPS, Op
from zinc_rt.ir.passes.split import split_graph

SAMPLING = frozenset(
    {
        Op.ARGMAX,
        Op.LOAD_REQUEST_STATE,
        Op.LOGITS_ADJUST,
        Op.LOGPROBS,
        Op.SAMPLE,
        Op.SAMPLE_SLOTS,
        Op.STORE_REQUEST_STATE,
        Op.STREAM_OUT,
        Op.TABLE_STORE,
    }
)  # that a step may have after the model's nodes


@dataclass(frozen=True, slots=True)
class _NumberedNode:
    """A node with the number of its computation: equal for equal opcodes, attributes and numbers of operands."""

    node: Node
    number: int
    operands: tuple[int, ...]


class _Numbering:
    """Numbers of computations, common to several graphs."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, computation: Hashable) -> int:
        return self._numbers.setdefault(computation, len(self._numbers))

    def nodes(self, graph: OpGraph) -> Iterator[_NumberedNode]:
        values: dict[str, int] = {}
        for node in split_graph(graph).nodes:
            if node.op is Op.BARRIER:
                continue
            operands = tuple(values.get(name, self.number(("named", name))) for name in node.inputs)
            if node.op is Op.ADD:
                operands = tuple(sorted(operands))
            number = self.number((node.op, tuple(_list_attrs(node).items()), operands))
            values |= {name: self.number((number, at)) for at, name in enumerate(node.outputs) if name != ABSENT}
            yield _NumberedNode(node, number, operands)


def find_graph_difference(want: OpGraph, got: OpGraph) -> str:
    """Return the first computation of `want`, the model's own graph, that `got` lacks, with the attribute or
    operand in which its counterpart differs, or else the first that only `got` has, except sampling. Return "" if
    the graphs are equal."""
    numbering = _Numbering()
    wanted, present = list(numbering.nodes(want)), list(numbering.nodes(got))
    numbers, known = {item.number for item in present}, {item.number for item in wanted}
    extra = [item for item in present if item.number not in known and item.node.op not in SAMPLING]
    for item in wanted:
        if item.number not in numbers:
            same = (
                other for other in extra if (other.node.op, other.node.layer) == (item.node.op, item.node.layer)
            )
            counterpart = max(same, key=lambda other: _count_equal(item, other), default=None)
            if counterpart is None:
                return f"{_place(item.node)} is missing"
            return f"{_place(item.node)}: {_describe(item, counterpart)}"
    return f"{_place(extra[0].node)} is not in the model's graph" if extra else ""


def _list_attrs(node: Node) -> dict[str, object]:
    """Return all attributes in the opcode's order, with their defaults."""
    return {attr.name: node.attrs.get(attr.name, attr.default) for attr in OPS[node.op].attrs}


def _count_equal(item: _NumberedNode, other: _NumberedNode) -> int:
    equal = sum(a == b for a, b in zip(item.operands, other.operands, strict=True))
    mine, theirs = _list_attrs(item.node), _list_attrs(other.node)
    return (
        equal + sum(theirs[name] == value for name, value in mine.items()) + (item.node.label == other.node.label)
    )


def _describe(item: _NumberedNode, other: _NumberedNode) -> str:
    theirs = _list_attrs(other.node)
    for name, value in _list_attrs(item.node).items():
        if theirs[name] != value:
            return f"{name} is {value} in the model's graph and {theirs[name]} in the recorded one"
    ports = [port.name for port in OPS[item.node.op].inputs]
    for at, port in enumerate(ports):
        if item.operands[at] != other.operands[at]:
            names = [each.node.inputs[at] or "absent" for each in (item, other)]
            return f"{port} is {names[0]} in the model's graph and {names[1]} in the recorded one"
    return "differs in the order of its operands"


def _place(node: Node) -> str:
    return f"{node.op.name} {node.label or '/'.join(node.outputs)}" + (
        "" if node.layer is None else f" of layer {node.layer}"
    )
