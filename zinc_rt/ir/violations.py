"""Violations reported by the verifier: the node, the rule and the actual value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.host.errors import ZincError
from zinc_rt.ir.graph import Node, OpGraph

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    saw: str
    node: int | None = None  # index in graph.nodes; None: about a buffer or the graph
    where: str = ""  # opcode, layer and label, or the buffer's name

    def __str__(self) -> str:
        index = self.where if self.node is None else f"node {self.node} {self.where}"
        return f"{index}: {self.rule}: {self.saw}" if index else f"{self.rule}: {self.saw}"


def make_node_violation(index: int, node: Node, rule: str, saw: str) -> Violation:
    return Violation(rule, saw, index, repr(node))


class VerifyError(ZincError):
    """Raised if a graph violates rules. `violations` holds all of them; the message shows the first."""

    def __init__(self, graph: OpGraph, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        count = len(self.violations)
        lines = [f"graph {graph.name}: {count} finding{'' if count == 1 else 's'}"]
        lines += [f"  {violation}" for violation in self.violations[:SHOWN]]
        if count > SHOWN:
            lines.append(f"  and {count - SHOWN} more")
        super().__init__("\n".join(lines))
