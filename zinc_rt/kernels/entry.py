"""One row of a kernel table: the nodes that a kernel supports, and the reason if it rejects one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op

Rejects = Callable[[Node, OpGraph], str | None]


def rejects_nothing(node: Node, graph: OpGraph) -> str | None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One row of a table. `code` is executed by the tier: the computation itself on T-CPU, a function that yields
    launches elsewhere. An entry equals only itself, which keeps table look-ups fast."""

    op: Op
    code: Any
    orderings: frozenset[str]
    weight_dtypes: frozenset[str] | None = None  # None: every type ggml can dequantise
    variant: str = ""
    rejects: Rejects = field(default=rejects_nothing)
    cache_dtypes: frozenset[str] = frozenset({"f32"})  # of cached keys and values
