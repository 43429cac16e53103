"""The memory of a context, computed from a model's graph: cached keys and values by page group, recurrent state.

A page group is a set of cache buffers with equal lifetime: those of full-attention layers, and those of layers
with a sliding window of W tokens. A page id is shared by all layers of its group, so each group has one pool and
one page table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zinc_rt.ir.graph import BufferSpec, Node, OpGraph
from zinc_rt.ir.op import OPS
from zinc_rt.mem.plan import count_buffer_bytes

RECURRENT = "state.ssm_"  # state that carries over from token to token, a row a sequence


@dataclass(frozen=True, slots=True)
class PageGroupSpec:
    """The caches of the layers with the same window.

    `window`: in tokens, 0 for full attention. `bytes_per_token`: of all `layers` together, keys and values.
    """

    name: str
    window: int
    layers: int
    bytes_per_token: int

    def count_page_bytes(self, page_tokens: int) -> int:
        return page_tokens * self.bytes_per_token


def groups_of(graph: OpGraph) -> tuple[PageGroupSpec, ...]:
    """Return a graph's page groups, in the order of their tables; empty if no layer has a cache."""
    tables = {name: index for index, name in enumerate(sorted(s.name for s in graph.by_role("table")))}
    windows = [0] * len(tables)
    caches: list[dict[str, BufferSpec]] = [{} for _ in tables]
    for node, table in _list_paged_nodes(graph):
        group = tables[table]
        window = node.attrs.get("window", 0)
        assert isinstance(window, int)
        windows[group] = max(windows[group], window)
        owned = (graph.buffers[name] for name in node.outputs)
        caches[group].update({spec.name: spec for spec in owned if spec.role == "state"})
    return tuple(
        PageGroupSpec(
            f"window-{window}" if window else "full",
            window,
            len({spec.name.partition("[")[2] for spec in owned.values()}),
            sum(count_buffer_row_bytes(spec) for spec in owned.values()),
        )
        for window, owned in zip(windows, caches, strict=True)
    )


def count_state_row_bytes(graph: OpGraph) -> int:
    """Return the bytes of one sequence's recurrent state in all layers; 0 for a model without recurrent state."""
    return sum(count_buffer_row_bytes(spec) for spec in graph.by_role("state") if spec.name.startswith(RECURRENT))


def count_recurrent_layers(graph: OpGraph) -> int:
    """Return the number of layers with recurrent state."""
    return len({spec.name.partition("[")[2] for spec in graph.by_role("state") if spec.name.startswith(RECURRENT)})


def count_buffer_row_bytes(spec: BufferSpec) -> int:
    """Return the bytes of one row of a buffer: one token's keys, one sequence's state."""
    return count_buffer_bytes(spec, {}) // int(spec.shape[0])


def _list_paged_nodes(graph: OpGraph) -> Iterator[tuple[Node, str]]:
    """Return the nodes that read a page table, each with the table."""
    for node in graph.nodes:
        for port, name in zip(OPS[node.op].inputs, node.inputs, strict=False):
            if port.name == "page_table":
                yield node, name
