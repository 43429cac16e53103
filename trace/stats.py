"""What a log's bytes went into, and how long its steps took."""

from __future__ import annotations

import statistics as figures
from collections import defaultdict
from collections.abc import Iterator

from zinc_rt.cli.output import readable_size
from zinc_rt.host.terminal import Part, Table, number
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader


def statistics(log: LogReader) -> Iterator[Part]:
    """Lines: bytes by kind of record, bytes a token, seconds a step by graph and key."""
    count: dict[str, int] = defaultdict(int)
    bytes_of: dict[str, int] = defaultdict(int)
    for kind, taken in log.sizes():
        name = "blobs" if kind == records.BLOB else records.KINDS[kind].NAME
        count[name] += 1
        bytes_of[name] += taken
    yield f"{log.path}  {readable_size(log.size_bytes)}, level {log.header.get('level')}"
    rows = [
        (name, count[name], bytes_of[name], f"{bytes_of[name] / log.size_bytes:.1%}")
        for name in sorted(bytes_of, key=lambda name: -bytes_of[name])
    ]
    yield Table(("record", *map(number, ("count", "bytes", "share"))), rows)
    yield from _steps(log)


def _steps(log: LogReader) -> Iterator[str]:
    tokens = 0
    blobs: set[str] = set()  # that steps brought, not graphs and weights
    seconds: dict[tuple[int, tuple[int, ...]], list[float]] = defaultdict(list)
    where: dict[int, tuple[int, tuple[int, ...]]] = {}
    names: dict[int, str] = {}
    for record in log:
        match record:
            case records.GraphCreated():
                names[record.graph] = record.name
            case records.Replayed():
                where[record.step] = (record.graph, record.key)
                tokens += record.counts[0]
            case records.Retired() if record.step in where:
                seconds[where[record.step]].append(record.seconds)
        if isinstance(record, records.Wrote | records.Output) and record.blob:
            blobs.add(record.blob)
    stepwise = [cls.KIND for cls in (records.Wrote, records.Replayed, records.Output, records.Retired)]
    if tokens:
        fields = sum(taken for kind, taken in log.sizes() if kind in stepwise)
        kept = sum(log.blob_bytes(blob) for blob in blobs)
        yield f"{tokens} tokens, {(fields + kept) / tokens:.0f} bytes a token beside graphs and weights"
    for (graph, key), taken in seconds.items():
        yield (
            f"{names.get(graph, '?')} {','.join(map(str, key))}: {len(taken)} steps, median "
            f"{1e3 * figures.median(taken):.3f} ms, longest {1e3 * max(taken):.3f} ms"
        )
