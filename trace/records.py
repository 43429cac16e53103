"""The record types of a log, one dataclass per kind. Buffers are identified by their IR names, never by
address."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal

Level = Literal["digest", "inputs", "full"]  # how much a log keeps
LEVELS: tuple[Level, ...] = ("digest", "inputs", "full")
BLOB, INDEX = 1, 2  # kinds that are no events
PLAN = "plan"  # the event with a scheduler's plan of the step that follows (plans.py)
TIMED = struct.Struct("<iIQQ")  # node, kernel, began and ended in ns


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record of a log. KIND is its number in the file, NAME its name in texts and JSON (docs/zlog.md).

    `data` is the binary part of the payload, for kinds that carry bytes.
    """

    KIND: ClassVar[int] = 0
    NAME: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class GraphCreated(LogRecord):
    """A graph of the engine. `ir` is the digest of the blob with its byte form (docs/ir.md)."""

    KIND: ClassVar[int] = 16
    NAME: ClassVar[str] = "GraphCreated"
    graph: int
    name: str
    stage: str
    ir: str
    tapped: bool = False


@dataclass(frozen=True, slots=True)
class VariantAdded(LogRecord):
    """A graph built for `key`: the maximum number of tokens, sequences and rows per step."""

    KIND: ClassVar[int] = 17
    NAME: ClassVar[str] = "VariantAdded"
    graph: int
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The part of a write that belongs to one buffer; `sha256` is set if only digests are stored."""

    buffer: str
    offset_bytes: int
    size_bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Wrote(LogRecord):
    """A write by the host into a buffer. The bytes are `data`, or the blob `blob`, or only the digest
    `sha256` is stored.

    `parts` lists the buffers of a write that covers several, with their bytes concatenated (format 2).
    Without parts the write covers one buffer.
    """

    KIND: ClassVar[int] = 18
    NAME: ClassVar[str] = "Wrote"
    graph: int
    key: tuple[int, ...]
    buffer: str
    offset_bytes: int
    size_bytes: int
    sha256: str = ""
    blob: str = ""
    parts: tuple[WrittenPart, ...] = ()
    data: bytes = b""

    @property
    def pieces(self) -> tuple[WrittenPart, ...]:
        """Return every buffer that the write covers."""
        return self.parts or (
            WrittenPart(self.buffer, self.offset_bytes, self.size_bytes, self.sha256 or self.blob),
        )


@dataclass(frozen=True, slots=True)
class Replayed(LogRecord):
    """The submission of step `step`. `counts`: its tokens, sequences, rows and (format 2) table entries."""

    KIND: ClassVar[int] = 19
    NAME: ClassVar[str] = "Replayed"
    step: int
    graph: int
    key: tuple[int, ...]
    stream: str
    counts: tuple[int, ...]
    at_seconds: float  # since recording began


@dataclass(frozen=True, slots=True)
class Retired(LogRecord):
    """The end of a step. `seconds`: from submission until the host observed the end."""

    KIND: ClassVar[int] = 20
    NAME: ClassVar[str] = "Retired"
    step: int
    seconds: float
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Output(LogRecord):
    """A value after a step: the sha256 of the rows counted by the step, and `blob` if they were stored.
    `node` is its index in the graph, -1 for a value that is not the result of a node."""

    KIND: ClassVar[int] = 21
    NAME: ClassVar[str] = "Output"
    step: int
    buffer: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    node: int = -1
    label: str = ""
    blob: str = ""


@dataclass(frozen=True, slots=True)
class WeightRecord(LogRecord):
    """A resident weight or constant: the sha256 of its bytes in the file, and `blob` if they were stored."""

    KIND: ClassVar[int] = 22
    NAME: ClassVar[str] = "Weight"
    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    blob: str = ""


@dataclass(frozen=True, slots=True)
class EventRecord(LogRecord):
    """A named event: a tier selected, a request opened, a probe started."""

    KIND: ClassVar[int] = 23
    NAME: ClassVar[str] = "Event"
    name: str
    detail: str
    at_seconds: float


@dataclass(frozen=True, slots=True)
class FaultRecord(LogRecord):
    """A failed replay. `bundle` is the folder of the hang report, if any."""

    KIND: ClassVar[int] = 24
    NAME: ClassVar[str] = "Fault"
    step: int
    text: str
    bundle: str
    at_seconds: float


@dataclass(frozen=True, slots=True)
class KernelRecord(LogRecord):
    """Machine code dispatched by a graph: the sha256 of the loaded code, which `blob` contains."""

    KIND: ClassVar[int] = 25
    NAME: ClassVar[str] = "Kernel"
    name: str
    arch: str
    sha256: str
    blob: str = ""


@dataclass(frozen=True, slots=True)
class TimesRecord(LogRecord):
    """Begin and end of each dispatch of a step (format 3). `at_seconds`: the begin of the first dispatch;
    times of a device clock are shifted so that the last dispatch ends when the host observed the end.
    `data`: a TIMED record for each dispatch, in order, with the kernel as an index into `kernels`, the
    node as an index into the graph's calls (-1 for dispatches added by the plan), and ns since the
    first begin."""

    KIND: ClassVar[int] = 26
    NAME: ClassVar[str] = "Times"
    step: int
    clock: str
    simulated: bool
    at_seconds: float
    kernels: tuple[str, ...]
    data: bytes = b""

    @property
    def dispatches(self) -> Iterator[tuple[int, str, int, int]]:
        """Return (node, kernel, begin, end in ns) of each dispatch. Raises ValueError for malformed bytes."""
        try:
            for node, kernel, start, ended in TIMED.iter_unpack(self.data):
                yield node, self.kernels[kernel], start, ended
        except (struct.error, IndexError) as error:
            raise ValueError(f"times of step {self.step}: {error}") from error


KINDS: dict[int, type[LogRecord]] = {
    cls.KIND: cls
    for cls in (
        GraphCreated,
        VariantAdded,
        Wrote,
        Replayed,
        Retired,
        Output,
        WeightRecord,
        EventRecord,
        FaultRecord,
        KernelRecord,
        TimesRecord,
    )
}


def to_fields(record: LogRecord) -> tuple[dict[str, Any], bytes]:
    """Return JSON-ready fields and the binary part."""
    values = {name: getattr(record, name) for name in _field_names(record.KIND)}
    data = values.pop("data", b"")
    if "parts" in values:
        values["parts"] = [asdict(part) for part in values["parts"]]
    return values, data


@cache
def _field_names(kind: int) -> tuple[str, ...]:
    return tuple(field.name for field in fields(KINDS[kind]))


def from_fields(kind: int, values: dict[str, Any], data: bytes) -> LogRecord:
    """Build a record from its fields. Raises ValueError for an unknown kind, a missing or unknown field,
    or bytes that the kind does not carry."""
    cls = KINDS.get(kind)
    if cls is None:
        raise ValueError(f"record kind {kind} is unknown")
    known = {field.name for field in fields(cls)}
    if data:
        values = {**values, "data": data}
    if unknown := set(values) - known:
        raise ValueError(f"{cls.NAME} has no field {sorted(unknown)[0]}")
    try:
        return cls(**{name: _read(value) for name, value in values.items()})
    except TypeError as error:
        raise ValueError(f"{cls.NAME}: {error}") from error


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(WrittenPart(**item) if isinstance(item, dict) else item for item in value)
    return value
