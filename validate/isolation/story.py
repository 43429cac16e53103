"""The trace of each request of a mix, recorded from the steps: where it ran, with which other requests, and which
of its tokens were computed when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from zinc_rt.sched.mixes.mix import RequestKey


@dataclass(frozen=True, slots=True)
class SlotInterval:
    """Tokens [first, last) of a request, computed in one step in one slot."""

    step: int
    slot: int
    first: int
    last: int


@dataclass(slots=True)
class MixTrace:
    """Every uninterrupted run of every request in a slot, and the requests of each step; the first step is 1."""

    of: dict[RequestKey, list[SlotInterval]] = field(default_factory=dict)
    steps: list[list[RequestKey]] = field(default_factory=list)

    def step(
        self, request: list[RequestKey], slot: np.ndarray, sequence: np.ndarray, position: np.ndarray
    ) -> None:
        """Record a step: the request of each slot, and the valid part of the plan's arrays."""
        number = len(self.steps) + 1
        starts = np.flatnonzero(np.diff(sequence, prepend=-1)).tolist()
        ran = []
        for begin, end in zip(starts, [*starts[1:], len(sequence)][: len(starts)], strict=True):
            key = request[int(slot[begin])]
            stretch = SlotInterval(number, int(slot[begin]), int(position[begin]), int(position[end - 1]) + 1)
            self.of.setdefault(key, []).append(stretch)
            ran.append(key)
        self.steps.append(ran)

    def find_neighbours(self, request: RequestKey, step: int) -> list[RequestKey]:
        """Return the other requests of that step."""
        return [item for item in self.steps[step - 1] if item != request]

    def counts(self) -> dict[str, int]:
        """Count the events of requests by kind."""
        counts_by_event = dict.fromkeys(("hits", "forks", "chunks", "pauses", "evictions"), 0)
        for who, stretches in self.of.items():
            if stretches[0].first:
                counts_by_event["forks" if who[1] else "hits"] += 1
            for before, after in pairwise(stretches):
                if after.first < before.last:
                    counts_by_event["evictions"] += 1
                elif after.step > before.step + 1 or after.slot != before.slot:
                    counts_by_event["pauses"] += 1
                else:
                    counts_by_event["chunks"] += after.last - after.first > 1
        return counts_by_event

    def describe_request(self, request: RequestKey, prompt: int, until: int) -> Iterator[str]:
        """Return the events of a request up to a step, in order."""
        stretches = [item for item in self.of.get(request, []) if item.step <= until]
        if not stretches:
            return
        if stretches[0].first:
            what = "forked" if request[1] else "hit"
            yield f"{what}: its first {stretches[0].first} tokens came from the cache, step {stretches[0].step}"
        index = next((index for index, item in enumerate(stretches) if item.last >= prompt), len(stretches) - 1)
        if index:
            yield f"chunked: its prompt took {index + 1} steps, {stretches[0].step} to {stretches[index].step}"
        for before, after in pairwise(stretches):
            moved = (
                f"slot {before.slot} to {after.slot}" if before.slot != after.slot else f"slot {after.slot} again"
            )
            if after.first < before.last:
                text = f"computed again from {after.first} in step {after.step}"
                yield f"evicted: after step {before.step}, {text}, {moved}"
            elif after.step > before.step + 1 or after.slot != before.slot:
                yield f"paused: parked or held after step {before.step}, went on in step {after.step}, {moved}"


def request_name(request: RequestKey) -> str:
    return f"request {request[0]}" + (f", choice {request[1]}" if request[1] else "")
