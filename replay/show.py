"""Print a log as text, and as JSON lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from zinc_rt.cli.output import format_size, printable
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.tape import Tape, read_tape


def describe_log(log: LogReader) -> Iterator[str]:
    """Describe the origin and contents of a log, and whether it is complete."""
    header = log.header
    counts = Counter(record.NAME for record in log)
    tape = read_tape(log)
    yield f"log       {log.path}, {format_size(log.size_bytes)}, level {tape.level}, {_describe_integrity(log)}"
    yield from _describe_machine(header)
    yield f"records   {', '.join(f'{count} {name}' for name, count in sorted(counts.items())) or 'none'}"
    yield from _describe_content(tape)
    for event in tape.events:
        yield f"event     {event.at_seconds:.3f} s {printable(event.name)}: {printable(event.detail)}"
    for fault in tape.faults:
        bundle = f"; bundle {printable(fault.bundle)}" if fault.bundle else ""
        first = (fault.text or "?").splitlines()[0]
        yield f"fault     step {fault.step}: {printable(first)}{bundle}"


def _describe_integrity(log: LogReader) -> str:
    if not log.problems:
        return "whole"
    return "not closed" if not log.closed else f"{len(log.problems)} problems"


def _describe_machine(header: dict[str, Any]) -> Iterator[str]:
    device, model = header.get("device", {}), header.get("model", {})
    simulated = ", simulated" if device.get("simulated") else ""
    yield f"tier      {header.get('tier')} on {device.get('name')}, {device.get('arch')}{simulated}"
    path = printable(str(model.get("path")))
    prefill = header.get("prefill_ordering")
    yield f"model     {path}, {model.get('architecture')}, sha256 {model.get('digest')}"
    yield (
        f"how       {header.get('ordering')}{f', prompts {prefill}' if prefill else ''}, ctx {header.get('ctx')}, "
        f"version {header.get('version')}, started {header.get('started')}"
    )
    if header.get("argv"):
        yield f"command   {printable(' '.join(header['argv']))}"


def _describe_content(tape: Tape) -> Iterator[str]:
    for number, recorded in tape.graphs.items():
        keys = sorted({step.key for step in tape.steps if step.graph == number})
        tapped = ", tapped" if recorded.tapped else ""
        yield (
            f"graph {number}   {recorded.graph.name}, {recorded.graph.stage}, {len(recorded.graph.nodes)} nodes, "
            f"keys {', '.join(map(str, keys)) or 'none'}{tapped}"
        )
    if tape.kernels:
        arch = next(iter(tape.kernels.values())).arch
        yield f"kernels   {len(tape.kernels)} of {arch}: {', '.join(sorted(tape.kernels))}"
    held = sum(1 for weight in tape.weights.values() if weight.blob)
    yield f"weights   {len(tape.weights)}, {held} of them stored in the log"
    tokens = sum(step.counts[0] for step in tape.steps)
    ended = [step.seconds for step in tape.steps if step.seconds is not None]
    yield f"steps     {len(tape.steps)}, {len(ended)} ended, {tokens} tokens, {sum(ended):.3f} s"


def to_json_lines(log: LogReader) -> Iterator[str]:
    """Return the header and every record as JSON lines: fields, and bytes in hex."""
    yield json.dumps({"kind": "Header", **log.header})
    for record in log:
        fields, data = records.to_fields(record)
        if data:
            fields["data"] = data.hex()
        yield json.dumps({"kind": record.NAME, **fields})
