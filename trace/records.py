"""What a log says, one dataclass a kind. Buffers have the names the IR gives them, never an address."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal

Level = Literal["digest", "inputs", "full"]  # how much a log keeps
LEVELS: tuple[Level, ...] = ("digest", "inputs", "full")
BLOB, INDEX = 1, 2  # kinds that are no events
TIMED = struct.Struct("<iIQQ")  # node, kernel, began and ended in ns


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of a log. KIND is its number in the file, NAME its name in texts and JSON (docs/zlog.md).

    `data` of a kind that carries bytes is the payload's binary part."""

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
    """A graph was built for `key`: the most tokens, sequences and rows a step may have."""

    KIND: ClassVar[int] = 17
    NAME: ClassVar[str] = "VariantAdded"
    graph: int
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """One buffer's share of a write; `sha256` where only digests are kept."""

    buffer: str
    offset_bytes: int
    size_bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Wrote(LogRecord):
    """The host wrote into a buffer. The bytes are `data`, or the blob `blob`, or only their digest `sha256`.

    `parts` of a write that covers several buffers, their bytes one behind the other. Format 2; without parts it is
    one buffer's."""

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
        """Every buffer it covers."""
        return self.parts or (
            WrittenPart(self.buffer, self.offset_bytes, self.size_bytes, self.sha256 or self.blob),
        )


@dataclass(frozen=True, slots=True)
class Replayed(LogRecord):
    """Step `step` was submitted. `counts`: tokens, sequences, rows and (format 2) table entries it has."""

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
    """A step ended. `seconds`: from submission until the host saw the end."""

    KIND: ClassVar[int] = 20
    NAME: ClassVar[str] = "Retired"
    step: int
    seconds: float
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Output(LogRecord):
    """A value after a step: the sha256 of the rows the step counted; `blob` where they were kept. `node` is its
    place in the graph, -1 for what is no node's result."""

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
    """A resident weight or constant: the sha256 of its bytes as the file has them; `blob` where they are kept."""

    KIND: ClassVar[int] = 22
    NAME: ClassVar[str] = "Weight"
    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    blob: str = ""


@dataclass(frozen=True, slots=True)
class EventRecord(LogRecord):
    """Something with a name: a tier chosen, a request opened, a probe begun."""

    KIND: ClassVar[int] = 23
    NAME: ClassVar[str] = "Event"
    name: str
    detail: str
    at_seconds: float


@dataclass(frozen=True, slots=True)
class FaultRecord(LogRecord):
    """A replay failed. `bundle` names the hang report's folder, where there is one."""

    KIND: ClassVar[int] = 24
    NAME: ClassVar[str] = "Fault"
    step: int
    text: str
    bundle: str
    at_seconds: float


@dataclass(frozen=True, slots=True)
class KernelRecord(LogRecord):
    """Machine code that a graph dispatched: the sha256 of what was loaded, which `blob` holds."""

    KIND: ClassVar[int] = 25
    NAME: ClassVar[str] = "Kernel"
    name: str
    arch: str
    sha256: str
    blob: str = ""


@dataclass(frozen=True, slots=True)
class TimesRecord(LogRecord):
    """When each dispatch of a step began and ended. `at_seconds`: the first one's beginning; of a device's clock
    laid so that the last ended when the host saw the end. `data`: TIMED for each, in order; kernels by their place
    in `kernels`, nodes by theirs among the graph's calls, -1 for the plan's own; ns since the first began. Format
    3."""

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
        """(node, kernel, began, ended in ns). Raises ValueError for bytes that are none."""
        try:
            for node, kernel, began, ended in TIMED.iter_unpack(self.data):
                yield node, self.kernels[kernel], began, ended
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
    """JSON-ready fields, and the binary part."""
    values = {name: getattr(record, name) for name in _names(record.KIND)}
    data = values.pop("data", b"")
    if "parts" in values:
        values["parts"] = [asdict(part) for part in values["parts"]]
    return values, data


@cache
def _names(kind: int) -> tuple[str, ...]:
    return tuple(each.name for each in fields(KINDS[kind]))


def from_fields(kind: int, values: dict[str, Any], data: bytes) -> LogRecord:
    """The record of these fields. Raises ValueError for an unknown kind, a missing or unknown field, or bytes that
    the kind does not carry."""
    cls = KINDS.get(kind)
    if cls is None:
        raise ValueError(f"record kind {kind} is unknown")
    known = {each.name for each in fields(cls)}
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
        return tuple(WrittenPart(**each) if isinstance(each, dict) else each for each in value)
    return value
