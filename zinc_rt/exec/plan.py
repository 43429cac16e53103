"""A plan: replays over several streams, ordered only by data dependencies."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from zinc_rt.exec.fence import Fence, JoinedFence
from zinc_rt.exec.graph import Graph, MissingVariant, ShapeKey
from zinc_rt.exec.stream import Event, Stream


@dataclass(slots=True)
class _Step:
    graph: Graph
    key: ShapeKey
    stream: Stream
    earlier: set[int] = field(default_factory=set)


class Plan:
    """Replays with dependencies, built once and executed many times. Dependencies are submitted first, then in the
    order of `add`."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []

    def add(self, graph: Graph, key: ShapeKey, stream: Stream) -> int:
        """Append a replay and return its step number."""
        self._steps.append(_Step(graph, key, stream))
        return len(self._steps) - 1

    def after(self, step: int, earlier: int) -> None:
        """Make `step` start after `earlier` has finished. Raise ValueError for an unknown step or a cycle."""
        for number in (step, earlier):
            if not 0 <= number < len(self._steps):
                raise ValueError(f"no step {number} in a plan of {len(self._steps)}")
        if self._reaches(earlier, step):
            raise ValueError(
                f"step {step} after step {earlier} creates a cycle: {earlier} already runs after {step}"
            )
        self._steps[step].earlier.add(earlier)

    def _reaches(self, start: int, goal: int) -> bool:
        """Return whether `start` depends on `goal`, directly or indirectly. A step reaches itself."""
        seen: set[int] = set()
        todo = [start]
        while todo:
            number = todo.pop()
            if number == goal:
                return True
            if number not in seen:
                seen.add(number)
                todo.extend(self._steps[number].earlier)
        return False

    def execute(self) -> Fence:
        """Submit every step without waiting. The returned fence is done when all of them are.

        Raise MissingVariant before anything is submitted, ValueError for an empty plan.
        """
        if not self._steps:
            raise ValueError("the plan has no steps; add one first")
        for number, step in enumerate(self._steps):
            if not step.graph.has(step.key):
                raise MissingVariant(
                    f"plan step {number}: graph {step.graph.name} has no variant for key {step.key}; "
                    f"it has {', '.join(map(str, step.graph.keys)) or 'none'}",
                    next="build the variant and add it under this key",
                )
        events: dict[int, Event] = {}
        ends: dict[Stream, Fence] = {}
        for number in self._sort_steps():
            step = self._steps[number]
            for earlier in sorted(step.earlier):
                if self._steps[earlier].stream is not step.stream:
                    step.stream.wait(events[earlier])
            ends[step.stream] = step.graph.replay(step.key, step.stream)
            events[number] = Event()
            events[number].record(step.stream)
        return next(iter(ends.values())) if len(ends) == 1 else JoinedFence(tuple(ends.values()))

    def _sort_steps(self) -> list[int]:
        waiting = [len(step.earlier) for step in self._steps]
        ready = [number for number, count in enumerate(waiting) if count == 0]
        order: list[int] = []
        while ready:
            number = heapq.heappop(ready)
            order.append(number)
            for later, step in enumerate(self._steps):
                if number in step.earlier:
                    waiting[later] -= 1
                    if waiting[later] == 0:
                        heapq.heappush(ready, later)
        return order
