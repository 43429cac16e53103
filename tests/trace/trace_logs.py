"""Logs for the tests of logs."""

from __future__ import annotations

from pathlib import Path

from zinc_rt.trace.records import EventRecord, GraphCreated, LogRecord, Output, Replayed, Retired, Wrote
from zinc_rt.trace.writer import LogWriter

META = {"tier": "t_cpu", "device": {"name": "test"}}


def make_records(steps: int) -> list[LogRecord]:
    log_records: list[LogRecord] = [GraphCreated(0, "tiny", "both", "ab" * 32)]
    for step in range(steps):
        log_records += [
            Wrote(0, (1, 1, 1), "step.counts", 4 * step, 12, data=bytes(range(12))),
            Replayed(step, 0, (1, 1, 1), "main", (1, 1, 1), 0.5 + step),
            Output(step, "request[slot].logits", "f32", (1, 8), "cd" * 32, 3, "logits"),
            Retired(step, 0.25, 0.75 + step),
        ]
    return [*log_records, EventRecord("end", "of the run", 9.0)]


def write_log(path: Path, steps: int = 3, *, close: bool = True) -> list[LogRecord]:
    written = make_records(steps)
    writer = LogWriter(path, META)
    for number, record in enumerate(written):
        writer.write_blob(b"block %d " % number * 200)
        writer.write(record)
    if close:
        writer.close()
    return written
