"""Write timelines in Chrome's Trace Event format, which chrome://tracing and https://ui.perfetto.dev read.

Entries are plain dictionaries of one process. A track is a thread id, named by `make_thread_name`. Times are
microseconds on the timeline.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from zinc_rt.host.files import write_atomically

Entry = dict[str, Any]


def make_document(entries: Iterable[Entry], other: Entry) -> Entry:
    """Build the content of a file. `other`: metadata of the whole timeline."""
    return {"traceEvents": [*entries], "displayTimeUnit": "ms", "otherData": other}


def write_chrome(content: Entry, path: str | os.PathLike[str]) -> None:
    """Write the file atomically. Raise OutputError with the reason."""
    write_atomically(path, lambda file: file.write(json.dumps(content).encode()))


def make_process_name(name: str, thread: int | None = None) -> Entry:
    tid = {} if thread is None else {"tid": thread}
    return {"ph": "M", "name": "process_name", "pid": 1, **tid, "args": {"name": name}}


def make_thread_name(thread: int, name: str) -> Entry:
    return {"ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": {"name": name}}


def make_complete_event(name: str, thread: int, start_us: float, duration_us: float, args: Entry) -> Entry:
    """Build a slice of a track."""
    timing = {"ts": start_us, "dur": max(0.0, duration_us)}
    return {"ph": "X", "name": name, "pid": 1, "tid": thread, **timing, "args": args}


def make_instant(name: str, thread: int, at_us: float, args: Entry) -> Entry:
    return {"ph": "i", "name": name, "pid": 1, "tid": thread, "ts": at_us, "s": "t", "args": args}


def make_counter(name: str, at_us: float, values: Entry) -> Entry:
    """Build a sample of a counter track with this name."""
    return {"ph": "C", "name": name, "pid": 1, "ts": at_us, "args": values}


def make_span(
    category: str, name: str, number: int, thread: int, start_us: float, end_us: float, args: Entry
) -> Iterator[Entry]:
    """Build both ends of an asynchronous span. Spans with one `number` are nested."""
    for phase, at_us in (("b", start_us), ("e", end_us)):
        head = {"ph": phase, "cat": category, "name": name, "id": number}
        yield {**head, "pid": 1, "tid": thread, "ts": at_us, "args": dict(args)}
