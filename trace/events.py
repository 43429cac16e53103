"""Entries of the Trace Event format, as plain dictionaries: names of tracks, slices, instants, dispatches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from zinc_rt.ir.graph import Node

HOST, STREAMS, QUEUES = (
    1,
    2,
    1000,
)  # thread ids: a stream's steps at STREAMS + its number, its dispatches at QUEUES
MICRO = 1e6


def document(events: list[dict[str, Any]], other: dict[str, Any]) -> str:
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": other})


def named(what: str, thread: int, name: str) -> dict[str, Any]:
    """The entry that names a track. `what`: process_name or thread_name."""
    return {"ph": "M", "name": what, "pid": 1, "tid": thread, "args": {"name": name}}


def slice_of(name: str, thread: int, start: float, seconds: float, about: dict[str, Any]) -> dict[str, Any]:
    """A slice of a track. `start`: seconds on the timeline."""
    return {
        "ph": "X",
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start * MICRO,
        "dur": max(0.0, seconds) * MICRO,
        "args": about,
    }


def instant(name: str, at: float, about: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "name": name, "pid": 1, "tid": HOST, "ts": at * MICRO, "s": "t", "args": about}


def node_title(node: Node) -> str:
    """Its label and its op: several nodes may have one label."""
    return f"{node.label or node.outputs[0]} {node.op.name.lower()}"


def dispatch_slices(
    dispatches: Iterable[tuple[str, str, float, float]], thread: int, about: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """(node, kernel, begin, end in seconds) in order: a slice for each node, and in it one for each dispatch. What
    the plan added has no node, and no slice around it."""
    group: list[tuple[str, str, float, float]] = []
    for each in (*dispatches, ("", "", 0.0, 0.0)):
        if group and each[0] != group[0][0]:
            name, start, end = group[0][0], group[0][2], group[-1][3]
            if name:
                yield slice_of(name, thread, start, end - start, {**about, "dispatches": len(group)})
            for _, kernel, begin, stop in group:
                yield slice_of(kernel, thread, begin, stop - begin, {**about, "node": name})
            group = []
        if each[1]:
            group.append(each)
