"""Compare two logs: report different host inputs, and different outputs for the same inputs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.engine.resident import NUMPY_DTYPES
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.tape import RecordedStep, Tape, outputs_by_name, read_pieces, read_tape

COMPARED = ("tier", "ordering", "prefill_ordering", "ctx", "code", "version", "level", "delta_form", "settings")


@dataclass(slots=True)
class LogDifference:
    """The difference of two logs. `first` describes the first divergence; "" if the common part is equal."""

    lines: list[str] = field(default_factory=list)
    compared: int = 0
    first: str = ""
    bad: dict[str, Any] = field(default_factory=dict)


def diff_logs(first: str | Path, second: str | Path) -> LogDifference:
    """Compare writes and outputs step by step, by digest. Any two levels can be compared."""
    difference = LogDifference()
    with LogReader(first) as a, LogReader(second) as b:
        left, right = read_tape(a), read_tape(b)
        _compare_headers(difference, left, right)
        _compare_weights(difference, left, right)
        for name in sorted(left.kernels.keys() & right.kernels.keys()):
            if left.kernels[name].sha256 != right.kernels[name].sha256:
                difference.lines.append(f"kernel    {name} is another")
        for mine, theirs in zip(left.steps, right.steps, strict=False):
            if not difference.first:
                _compare_inputs(difference, a, b, mine, theirs)
            if not difference.first:
                _compare_outputs(difference, a, b, mine, theirs)
        if len(left.steps) != len(right.steps):
            difference.lines.append(f"steps     {len(left.steps)} and {len(right.steps)}")
        difference.lines += [f"warning   {problem}" for problem in (*a.problems, *b.problems)]
    if difference.first:
        difference.lines.append(f"first     {difference.first}")
    return difference


def _compare_headers(difference: LogDifference, left: Tape, right: Tape) -> None:
    for name in COMPARED:
        mine, theirs = left.header.get(name), right.header.get(name)
        if (mine or "") != (theirs or ""):  # logs without a prefill ordering do not have it
            difference.lines.append(f"{name:<9} {mine} and {theirs}")


def _compare_weights(difference: LogDifference, left: Tape, right: Tape) -> None:
    for name in left.weights.keys() & right.weights.keys():
        difference.compared += 1
        if left.weights[name].sha256 != right.weights[name].sha256 and not difference.first:
            difference.first = f"weight {name} has other bytes"
            difference.bad = {
                "weight": name,
                "one": left.weights[name].sha256,
                "other": right.weights[name].sha256,
            }


def _compare_inputs(
    difference: LogDifference, a: LogReader, b: LogReader, mine: RecordedStep, theirs: RecordedStep
) -> None:
    if mine.counts != theirs.counts:
        difference.first = f"step {mine.number}: counts {mine.counts} and {theirs.counts}"
        difference.bad = {"step": mine.number}
        return
    argument, others = _hash_writes(a, mine), _hash_writes(b, theirs)
    for name in (item for item in argument if item in others):
        difference.compared += 1
        if argument[name] != others[name]:
            difference.first = f"step {mine.number}: the host wrote different bytes to {name[0]}"
            difference.bad = {"step": mine.number, "buffer": name[0]}
            return


def _hash_writes(log: LogReader, step: RecordedStep) -> dict[tuple[str, int, int], str]:
    """Return the SHA-256 of every write, by buffer, offset and length."""
    written: dict[tuple[str, int, int], str] = {}
    for write in step.writes:
        if all(part.sha256 for part in write.pieces):
            digests = [part.sha256 for part in write.pieces]
        else:
            digests = [hashlib.sha256(data).hexdigest() for _, _, data in read_pieces(log, write)]
        for part, digest in zip(write.pieces, digests, strict=True):
            written[part.buffer, part.offset_bytes, part.size_bytes] = digest
    return written


def _compare_outputs(
    difference: LogDifference, a: LogReader, b: LogReader, mine: RecordedStep, theirs: RecordedStep
) -> None:
    others = outputs_by_name(theirs.outputs)
    for output in sorted(mine.outputs, key=lambda output: output.node):
        other = others.get(output.buffer)
        if other is None:
            continue
        difference.compared += 1
        if other.sha256 != output.sha256:
            node = f"node {output.node} {output.label}, " if output.node >= 0 else ""
            difference.first = f"step {mine.number}: {node}{output.buffer} differs"
            difference.bad = {"step": mine.number, "buffer": output.buffer, "node": output.label}
            _compare_elements(difference, a, b, output, other)
            return


def _compare_elements(
    difference: LogDifference, a: LogReader, b: LogReader, output: records.Output, other: records.Output
) -> None:
    """Describe the first differing element, the count and the difference, if both logs contain the bytes with the
    same dtype.
    """
    if (output.dtype, output.shape) != (other.dtype, other.shape):
        difference.first += f": {output.dtype} {list(output.shape)} and {other.dtype} {list(other.shape)}"
        return
    if not (output.blob and other.blob and a.has(output.blob) and b.has(other.blob)):
        difference.lines.append("elements  unknown: record both logs with --level full")
        return
    dtype = NUMPY_DTYPES[output.dtype]
    one, two = (np.frombuffer(log.read_blob(item.blob), dtype) for log, item in ((a, output), (b, other)))
    bad = np.flatnonzero(one.view(np.uint32) != two.view(np.uint32))
    index = int(bad[0])
    element = tuple(int(part) for part in np.unravel_index(index, output.shape))
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(one.astype(np.float64) - two.astype(np.float64)).max())
    difference.bad |= {
        "element": element,
        "one": str(one[index]),
        "other": str(two[index]),
        "differing": bad.size,
        "of": one.size,
        "max_abs_diff": largest,
    }
    text = ", ".join(map(str, element))
    difference.first += (
        f": element [{text}] is {difference.bad['one']} and {difference.bad['other']}; "
        f"{bad.size} of {one.size} differ, by {largest:.3g} at most"
    )
