from __future__ import annotations

import threading
from collections.abc import Hashable

import pytest
from fake_backend import DeadBackend, FakeBackend

from zinc_rt.exec import Graph, GraphCache, InFlight, Stream


@pytest.fixture
def backend():
    backend = FakeBackend()
    yield backend
    backend.close()


def do_nothing() -> None:
    pass


class GraphShelf:
    """A cache that records which graphs were built and dropped."""

    def __init__(self, backend: FakeBackend, max_graphs: int) -> None:
        self.backend = backend
        self.built: list[Hashable] = []
        self.dropped: list[tuple[Hashable, Graph]] = []
        self.cache = GraphCache(max_graphs, dropped=lambda key, graph: self.dropped.append((key, graph)))

    def get(self, key: Hashable) -> Graph:
        def build_graph() -> Graph:
            self.built.append(key)
            graph = Graph(str(key), self.backend)
            graph.add((1,), do_nothing)
            return graph

        return self.cache.get(key, build_graph)


def test_graph_is_built_once_and_reused(backend):
    shelf = GraphShelf(backend, 2)
    first = shelf.get("a")
    assert shelf.get("a") is first
    assert shelf.get(("a", 1)) is not first
    assert shelf.built == ["a", ("a", 1)] and shelf.dropped == []


def test_least_recently_used_graph_is_evicted_and_reported(backend):
    shelf = GraphShelf(backend, 2)
    shelf.get("a")
    second = shelf.get("b")
    shelf.get("a")
    shelf.get("c")
    assert shelf.dropped == [("b", second)]
    assert shelf.cache.keys == ("a", "c")
    assert shelf.get("b") is not second
    assert shelf.built == ["a", "b", "c", "b"]


def test_eviction_happens_before_the_new_graph_is_built(backend):
    events: list[str] = []
    cache = GraphCache(1, dropped=lambda key, graph: events.append(f"dropped {key}"))
    for key in ("a", "b"):
        cache.get(key, lambda key=key: events.append(f"built {key}") or Graph(key, backend))
    assert events == ["built a", "dropped a", "built b"]


def test_graph_in_flight_stays_and_the_next_one_is_evicted(backend):
    release = threading.Event()
    shelf = GraphShelf(backend, 2)
    held = shelf.get("a")
    held.add((2,), lambda: release.wait(60) and None)
    held.replay((2,), Stream("main"))
    assert held.busy()
    other = shelf.get("b")
    shelf.get("c")
    assert shelf.dropped == [("b", other)] and shelf.cache.keys == ("a", "c")
    release.set()
    held.wait(60)
    assert not held.busy()
    shelf.get("d")
    assert shelf.cache.keys == ("c", "d")


def test_build_is_rejected_while_every_graph_is_in_flight():
    shelf = GraphShelf(DeadBackend(), 2)
    for key in "ab":
        shelf.get(key).replay((1,), Stream("main"))
    with pytest.raises(InFlight, match="all 2 have a replay in flight"):
        shelf.get("c")
    assert shelf.built == ["a", "b"] and shelf.dropped == []


def test_failed_build_leaves_nothing_in_the_cache(backend):
    shelf = GraphShelf(backend, 2)

    def raise_error() -> Graph:
        raise FloatingPointError("no such graph")

    with pytest.raises(FloatingPointError):
        shelf.cache.get("a", raise_error)
    assert shelf.cache.keys == ()
    shelf.get("a")
    assert shelf.built == ["a"]


def test_zero_capacity_cache_is_rejected():
    with pytest.raises(ValueError, match="at least 1 graph, not 0"):
        GraphCache(0)
