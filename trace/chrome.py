"""A log as a timeline in the format of Chrome and Perfetto: steps, dispatches, waits, host gaps, faults."""

from __future__ import annotations

from typing import Any

from zinc_rt.ir.op import Op
from zinc_rt.ir.serial import from_bytes
from zinc_rt.trace import records
from zinc_rt.trace.events import (
    HOST,
    QUEUES,
    STREAMS,
    dispatch_slices,
    document,
    instant,
    named,
    node_title,
    slice_of,
)
from zinc_rt.trace.reader import LogReader


def timeline(log: LogReader) -> str:
    """JSON. Times are the recorder's: a step begins at its submission and ends when the host saw the end. A log
    with times has a track a queue besides, with a slice for each node and in it one for each dispatch, by the
    tier's own clock."""
    header = log.header
    device = header.get("device", {})
    simulated = ", simulated" if device.get("simulated") else ""
    events: list[dict[str, Any]] = [
        named("process_name", HOST, f"{header.get('tier')}{simulated} on {device.get('name')}"),
        named("thread_name", HOST, "host"),
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
                labels[record.graph] = _labels(log, record)
            case records.Wrote():
                written += record.size_bytes
            case records.Replayed():
                if record.stream not in streams:
                    streams[record.stream] = STREAMS + len(streams)
                    events.append(named("thread_name", streams[record.stream], f"stream {record.stream}"))
                open_steps[record.step] = record
                events.append(
                    slice_of("host gap", HOST, ended, record.at_seconds - ended, {"bytes written": written})
                )
                written = 0
            case records.TimesRecord() if record.step in open_steps:
                begun = open_steps[record.step]
                queue = QUEUES + streams[begun.stream]
                if queue not in queues:
                    queues.add(queue)
                    events.append(named("thread_name", queue, f"queue of {begun.stream}, by {record.clock}"))
                placed = [
                    (
                        name_of(labels.get(begun.graph, []), node),
                        kernel,
                        record.at_seconds + start / 1e9,
                        record.at_seconds + end / 1e9,
                    )
                    for node, kernel, start, end in record.dispatches
                ]
                events += dispatch_slices(placed, queue, {"step": record.step, "simulated": record.simulated})
            case records.Retired() if record.step in open_steps:
                begun = open_steps.pop(record.step)
                about = {
                    "step": record.step,
                    "key": list(begun.key),
                    "tokens": begun.counts[0],
                    "sequences": begun.counts[1],
                    "rows": begun.counts[2],
                }
                start = record.at_seconds - record.seconds
                name = graphs.get(begun.graph, "?")
                events.append(slice_of(name, streams[begun.stream], start, record.seconds, about))
                waited = record.at_seconds - begun.at_seconds
                events.append(slice_of("wait", HOST, begun.at_seconds, waited, {"step": record.step}))
                ended = record.at_seconds
            case records.EventRecord():
                events.append(instant(record.name, record.at_seconds, {"detail": record.detail}))
            case records.FaultRecord():
                events.append(instant("fault", record.at_seconds, {"text": record.text, "step": record.step}))
    for left in open_steps.values():
        events.append(instant(f"step {left.step} never ended", left.at_seconds, {"key": list(left.key)}))
    return document(events, {"log": str(log.path)})


def name_of(labels: list[str], node: int) -> str:
    """A slice's name: "" for what is no node's; a number where the log lacks the graph."""
    return "" if node < 0 else labels[node] if node < len(labels) else f"node {node}"


def _labels(log: LogReader, record: records.GraphCreated) -> list[str]:
    """What its nodes are called, in the order of its calls. None where the log lacks the graph."""
    if not log.has(record.ir):
        return []
    nodes = from_bytes(log.blob(record.ir), name=f"{log.path}, graph {record.graph}").nodes
    return [node_title(node) for node in nodes if node.op is not Op.BARRIER]
