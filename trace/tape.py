"""Convert a log to the input of a replay: graphs, weights, and steps in order with the preceding writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.host.errors import InputError
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import SYMBOLS
from zinc_rt.ir.serial import from_bytes
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader

KEY_NUMBERS = range(3, len(SYMBOLS) + 1)  # the most tokens, sequences and rows; entries of page tables, or implied


@dataclass(slots=True)
class RecordedStep:
    """One submission. `outputs`: the recorded outputs after it. `seconds` is None if it never ended. `plan`: the
    detail of its plan's event, "" if no scheduler planned it."""

    number: int
    graph: int
    key: tuple[int, ...]
    stream: str
    counts: tuple[int, ...]
    at_seconds: float
    writes: list[records.Wrote]
    outputs: list[records.Output] = field(default_factory=list)
    seconds: float | None = None
    plan: str = ""


@dataclass(frozen=True, slots=True)
class RecordedGraph:
    """A graph of the log."""

    graph: ir.OpGraph
    tapped: bool


@dataclass(slots=True)
class Tape:
    header: dict[str, Any]
    graphs: dict[int, RecordedGraph] = field(default_factory=dict)
    weights: dict[str, records.WeightRecord] = field(default_factory=dict)
    kernels: dict[str, records.KernelRecord] = field(default_factory=dict)
    steps: list[RecordedStep] = field(default_factory=list)
    unused: list[records.Wrote] = field(default_factory=list)  # after the last step
    events: list[records.EventRecord] = field(default_factory=list)
    faults: list[records.FaultRecord] = field(default_factory=list)

    @property
    def level(self) -> str:
        return str(self.header.get("level", ""))

    def find_role(self, name: str) -> str:
        """Return the role of a weight or constant."""
        return next(
            (g.graph.buffers[name].role for g in self.graphs.values() if name in g.graph.buffers), "weight"
        )


def read_tape(log: LogReader) -> Tape:
    """Read a log's records in order. Raises InputError for records that contradict each other."""
    tape = Tape(log.header)
    steps: dict[int, RecordedStep] = {}
    plan = ""
    for record in log:
        match record:
            case records.GraphCreated():
                graph = from_bytes(log.read_blob(record.ir), name=f"{log.path}, graph {record.graph}")
                tape.graphs[record.graph] = RecordedGraph(graph, record.tapped)
            case records.WeightRecord():
                tape.weights[record.name] = record
            case records.KernelRecord():
                tape.kernels[record.name] = record
            case records.Wrote():
                for part in record.pieces:
                    _check_graph(log, tape, record.graph, part.buffer, record.key)
                tape.unused.append(record)
            case records.Replayed():
                _check_graph(log, tape, record.graph, "", record.key)
                step = steps[record.step] = RecordedStep(
                    record.step,
                    record.graph,
                    record.key,
                    record.stream,
                    record.counts,
                    record.at_seconds,
                    tape.unused,
                    plan=plan,
                )
                tape.steps.append(step)
                tape.unused, plan = [], ""
            case records.Output() if record.step in steps:
                _check_graph(log, tape, steps[record.step].graph, record.buffer)
                steps[record.step].outputs.append(record)
            case records.Retired() if record.step in steps:
                steps[record.step].seconds = record.seconds
            case records.EventRecord(name=records.PLAN):
                plan = record.detail
            case records.EventRecord():
                tape.events.append(record)
            case records.FaultRecord():
                tape.faults.append(record)
    return tape


def _check_graph(log: LogReader, tape: Tape, graph: int, buffer: str, key: tuple[int, ...] = (1, 1, 1)) -> None:
    """Check a record's references. Raises InputError for a graph or buffer that the log does not define."""
    if graph not in tape.graphs:
        if not log.damage:
            raise InputError(f"{log.path}: a record refers to graph {graph}, which is not in the log")
    elif buffer and buffer not in tape.graphs[graph].graph.buffers:
        raise InputError(f"{log.path}: a record refers to {buffer}, which is not in graph {graph}")
    if len(key) not in KEY_NUMBERS or min(key) < 1:
        raise InputError(f"{log.path}: {key} is not a valid graph key")


def require_inputs(log: LogReader, tape: Tape) -> None:
    """Check that a log can be replayed. Raises InputError for a log with too little data or no steps, and
    for one with damage before its end, because effects of the missing data could not be distinguished
    from errors of the run."""
    name = log.path
    if log.damage:
        raise InputError(
            f"{name}: {log.damage[0]}, and a step may need the missing data",
            next="zinc-rt-replay --info lists what is left; copy the log again",
        )
    if tape.level == "digest":
        raise InputError(
            f"{name}: cannot be replayed, because it was recorded at level digest, without the written data",
            next="record with --level inputs",
        )
    if not tape.steps:
        raise InputError(f"{name}: the log contains no steps", next="zinc-rt-replay --info lists its contents")


def read_data(log: LogReader, write: records.Wrote) -> bytes:
    """Return the bytes that the host wrote. Raises InputError if the log does not contain them."""
    data = log.read_blob(write.blob) if write.blob else write.data
    if len(data) != write.size_bytes:
        raise InputError(f"{log.path}: {len(data)} bytes for {write.buffer}, but {write.size_bytes} were written")
    return data


def read_pieces(log: LogReader, write: records.Wrote) -> Iterator[tuple[str, int, bytes]]:
    """Return (buffer, offset in it, bytes) of every buffer that a write covers. Raises InputError as
    data_of does."""
    data, offset = read_data(log, write), 0
    for part in write.pieces:
        yield part.buffer, part.offset_bytes, data[offset : offset + part.size_bytes]
        offset += part.size_bytes


def outputs_by_name(outputs: Iterable[records.Output]) -> dict[str, records.Output]:
    return {output.buffer: output for output in outputs}
