"""A cache of graphs by key, built on first use; the least recently used graph is evicted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from zinc_rt.exec.graph import Graph, InFlight


class GraphCache:
    """A cache of at most `max_graphs` graphs. A graph with a replay in flight is never evicted."""

    def __init__(self, max_graphs: int, *, dropped: Callable[[Hashable, Graph], None] | None = None) -> None:
        if max_graphs < 1:
            raise ValueError(f"a cache holds at least 1 graph, not {max_graphs}")
        self.max_graphs = max_graphs
        self._dropped = dropped
        self._graphs: OrderedDict[Hashable, Graph] = OrderedDict()  # least recently asked for first

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """Return the keys of the cached graphs, least recently used first."""
        return tuple(self._graphs)

    def get(self, key: Hashable, build: Callable[[], Graph]) -> Graph:
        """Return the graph of exactly this key; if there is none, build it.

        A graph is evicted before `build` is called, which may need its memory. Raise InFlight if every graph has a
        replay in flight, and the errors of `build`; then nothing is stored under the key.
        """
        graph = self._graphs.get(key)
        if graph is not None:
            self._graphs.move_to_end(key)
            return graph
        while len(self._graphs) >= self.max_graphs:
            self._drop_one()
        graph = self._graphs[key] = build()
        return graph

    def _drop_one(self) -> None:
        for key, graph in self._graphs.items():
            if not graph.busy():
                del self._graphs[key]
                if self._dropped is not None:
                    self._dropped(key, graph)
                return
        raise InFlight(
            f"cannot add a graph: all {len(self._graphs)} have a replay in flight",
            next="wait for one of them, or raise max_graphs",
        )
