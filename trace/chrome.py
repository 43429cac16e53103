"""Convert a log to a timeline for Chrome and Perfetto: steps, dispatches, waits, host gaps, faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from zinc_rt.host.chrome_trace import (
    make_complete_event,
    make_document,
    make_instant,
    make_process_name,
    make_thread_name,
)
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.serial import from_bytes
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader

# Thread ids: the steps of a stream at STREAMS + its number, its dispatches at QUEUES + that
HOST, STREAMS, QUEUES = 1, 2, 1000
MICRO = 1e6


def build_timeline(log: LogReader) -> dict[str, Any]:
    """Build the timeline.

    Times are the recorder's: a step begins at its submission and ends when the host observed the end. A
    log with times also has a track per queue, with a slice for each node that contains a slice for each
    dispatch, by the tier's clock.
    """
    header = log.header
    device = header.get("device", {})
    simulated = ", simulated" if device.get("simulated") else ""
    events: list[dict[str, Any]] = [
        make_process_name(f"{header.get('tier')}{simulated} on {device.get('name')}", HOST),
        make_thread_name(HOST, "host"),
    ]
    streams: dict[str, int] = {}
    queues: set[int] = set()
    graphs: dict[int, str] = {}
    labels: dict[int, list[str]] = {}
    open_steps: dict[int, records.Replayed] = {}
    written = 0
    ended = 0.0
    for record in log:
        match record:
            case records.GraphCreated():
                graphs[record.graph] = record.name
                labels[record.graph] = _find_labels(log, record)
            case records.Wrote():
                written += record.size_bytes
            case records.Replayed():
                if record.stream not in streams:
                    streams[record.stream] = STREAMS + len(streams)
                    events.append(make_thread_name(streams[record.stream], f"stream {record.stream}"))
                open_steps[record.step] = record
                events.append(
                    make_slice("host gap", HOST, ended, record.at_seconds - ended, {"bytes written": written})
                )
                written = 0
            case records.TimesRecord() if record.step in open_steps:
                open_step = open_steps[record.step]
                queue = QUEUES + streams[open_step.stream]
                if queue not in queues:
                    queues.add(queue)
                    events.append(make_thread_name(queue, f"queue of {open_step.stream}, by {record.clock}"))
                placed = [
                    (
                        find_name(labels.get(open_step.graph, []), node),
                        kernel,
                        record.at_seconds + start / 1e9,
                        record.at_seconds + end / 1e9,
                    )
                    for node, kernel, start, end in record.dispatches
                ]
                events += make_dispatch_slices(placed, queue, {"step": record.step, "simulated": record.simulated})
            case records.Retired() if record.step in open_steps:
                open_step = open_steps.pop(record.step)
                about = {
                    "step": record.step,
                    "key": list(open_step.key),
                    "tokens": open_step.counts[0],
                    "sequences": open_step.counts[1],
                    "rows": open_step.counts[2],
                }
                start = record.at_seconds - record.seconds
                name = graphs.get(open_step.graph, "?")
                events.append(make_slice(name, streams[open_step.stream], start, record.seconds, about))
                waited = record.at_seconds - open_step.at_seconds
                events.append(make_slice("wait", HOST, open_step.at_seconds, waited, {"step": record.step}))
                ended = record.at_seconds
            case records.EventRecord() if record.name != records.PLAN:
                events.append(
                    make_instant(record.name, HOST, record.at_seconds * MICRO, {"detail": record.detail})
                )
            case records.FaultRecord():
                events.append(
                    make_instant(
                        "fault", HOST, record.at_seconds * MICRO, {"text": record.text, "step": record.step}
                    )
                )
    for left in open_steps.values():
        events.append(
            make_instant(f"step {left.step} never ended", HOST, left.at_seconds * MICRO, {"key": list(left.key)})
        )
    return make_document(events, {"log": str(log.path)})


def find_name(labels: list[str], node: int) -> str:
    """Return the name of a slice: "" for a dispatch without a node, a number if the graph is not in the log."""
    return "" if node < 0 else labels[node] if node < len(labels) else f"node {node}"


def _find_labels(log: LogReader, record: records.GraphCreated) -> list[str]:
    """Return the names of its nodes in the order of calls, or None if the graph is not in the log."""
    if not log.has(record.ir):
        return []
    nodes = from_bytes(log.read_blob(record.ir), name=f"{log.path}, graph {record.graph}").nodes
    return [format_node_title(node) for node in nodes if node.op is not Op.BARRIER]


def make_slice(name: str, thread: int, start: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    """Build a slice of a track from seconds on the timeline."""
    return make_complete_event(name, thread, start * MICRO, seconds * MICRO, args)


def format_node_title(node: Node) -> str:
    """Return the label and the op of a node, because several nodes may share a label."""
    return f"{node.label or node.outputs[0]} {node.op.name.lower()}"


def make_dispatch_slices(
    dispatches: Iterable[tuple[str, str, float, float]], thread: int, about: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Convert (node, kernel, begin, end in seconds), in order, to a slice for each node that contains a
    slice for each dispatch. Dispatches added by the plan have no node and no enclosing slice."""
    group: list[tuple[str, str, float, float]] = []
    for dispatch in (*dispatches, ("", "", 0.0, 0.0)):
        if group and dispatch[0] != group[0][0]:
            name, start, end = group[0][0], group[0][2], group[-1][3]
            if name:
                yield make_slice(name, thread, start, end - start, {**about, "dispatches": len(group)})
            for _, kernel, begin, stop in group:
                yield make_slice(kernel, thread, begin, stop - begin, {**about, "node": name})
            group = []
        if dispatch[1]:
            group.append(dispatch)
