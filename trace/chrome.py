"""A log as a timeline in the Trace Event format that Chrome and Perfetto read: steps, waits, host gaps, faults."""

from __future__ import annotations

import json
from typing import Any

from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader

HOST, DEVICE = 1, 2  # thread ids; a stream's row is DEVICE + its number
MICRO = 1e6


def timeline(log: LogReader) -> str:
    """JSON. Times are the recorder's: a step begins at its submission and ends when the host saw the end. No tier
    has timestamps of single nodes, so a step is the finest slice."""
    header = log.header
    events: list[dict[str, Any]] = [
        _named("process_name", HOST, f"{header.get('tier')} on {header.get('device', {}).get('name')}"),
        _named("thread_name", HOST, "host"),
    ]
    streams: dict[str, int] = {}
    graphs: dict[int, str] = {}
    open_steps: dict[int, records.Replayed] = {}
    written = 0
    ended = 0.0
    for record in log:
        match record:
            case records.GraphCreated():
                graphs[record.graph] = record.name
            case records.Wrote():
                written += record.size_bytes
            case records.Replayed():
                if record.stream not in streams:
                    streams[record.stream] = DEVICE + len(streams)
                    events.append(_named("thread_name", streams[record.stream], f"stream {record.stream}"))
                open_steps[record.step] = record
                events.append(
                    _slice("host gap", HOST, ended, record.at_seconds - ended, {"bytes written": written})
                )
                written = 0
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
                events.append(_slice(name, streams[begun.stream], start, record.seconds, about))
                waited = record.at_seconds - begun.at_seconds
                events.append(_slice("wait", HOST, begun.at_seconds, waited, {"step": record.step}))
                ended = record.at_seconds
            case records.Event():
                events.append(_instant(record.name, record.at_seconds, {"detail": record.detail}))
            case records.Fault():
                events.append(_instant("fault", record.at_seconds, {"text": record.text, "step": record.step}))
    for left in open_steps.values():
        events.append(_instant(f"step {left.step} never ended", left.at_seconds, {"key": list(left.key)}))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"log": str(log.path)}})


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": 1, "tid": thread, "args": {"name": name}}


def _slice(name: str, thread: int, start: float, seconds: float, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start * MICRO,
        "dur": max(0.0, seconds) * MICRO,
        "args": about,
    }


def _instant(name: str, at: float, about: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "name": name, "pid": 1, "tid": HOST, "ts": at * MICRO, "s": "t", "args": about}
