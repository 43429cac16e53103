"""What the verifier reports: each finding names the node, the rule and what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.errors import ZincError
from zinc_rt.ir.graph import Graph, Node

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    saw: str
    node: int | None = None  # index in graph.nodes; None: about a buffer or the graph
    where: str = ""  # opcode, layer and label, or the buffer's name

    def __str__(self) -> str:
        at = self.where if self.node is None else f"node {self.node} {self.where}"
        return f"{at}: {self.rule}: {self.saw}" if at else f"{self.rule}: {self.saw}"


def at_node(index: int, node: Node, rule: str, saw: str) -> Finding:
    return Finding(rule, saw, index, repr(node))


class VerifyError(ZincError):
    """A graph breaks rules. `findings` holds all of them; the message shows the first."""

    def __init__(self, graph: Graph, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        count = len(self.findings)
        lines = [f"graph {graph.name}: {count} finding{'' if count == 1 else 's'}"]
        lines += [f"  {finding}" for finding in self.findings[:SHOWN]]
        if count > SHOWN:
            lines.append(f"  and {count - SHOWN} more")
        super().__init__("\n".join(lines))
