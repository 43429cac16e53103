"""What ran of a kernel on a simulated device: executions of its code, and the memory that instructions accessed.
Hardware cannot report this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CodeExecution:
    """The instructions from byte `start` to byte `end` of a kernel, relative to its entry, which ran `times`
    times, each time in one wave.
    """

    start: int
    end: int
    times: int


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """Memory that the instruction at byte `pc` of a kernel may have accessed: `ranges` as (VA, VA after the last
    byte), each the whole buffer or allocation. LDS and scratch are not included."""

    pc: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class KernelExecution:
    """The executions of one kernel. `kernel` is the description of its first byte, as in CodePlace."""

    kernel: str
    code: tuple[CodeExecution, ...]
    accesses: tuple[MemoryAccess, ...]


def parse_execution(row: Mapping[str, Any]) -> KernelExecution:
    """Return the execution that asdict converted to a JSON object."""
    accesses = (MemoryAccess(access["pc"], _to_pairs(access["ranges"])) for access in row["accesses"])
    return KernelExecution(row["kernel"], tuple(CodeExecution(**item) for item in row["code"]), tuple(accesses))


def _to_pairs(rows: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((low, high) for low, high in rows)
