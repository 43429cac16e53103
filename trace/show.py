"""Print parts of a log: the values of a node after a step, the memory plan, sizes by record.

Values are read from the log if it contains them, otherwise recomputed from its contents.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import statistics as figures
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.cli.output import format_size
from zinc_rt.engine.devices import choose_tier
from zinc_rt.engine.resident import NUMPY_DTYPES, parse_capacity
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.files import write_atomically
from zinc_rt.host.terminal import Part, Table
from zinc_rt.host.terminal import number_column as number_column
from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.ir.serial import from_bytes
from zinc_rt.mem.plan import MemoryPlan, plan_memory
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.rebuilt import RebuiltModel, hash_value, make_opener, read_value
from zinc_rt.trace.tape import RecordedStep, Tape, outputs_by_name, read_tape, require_inputs
from zinc_rt.trace.weight_sources import find_sources

PLANS_SCHEMA = "zinc-rt-plans/1"
ENDS = 6  # elements shown at either end
NEAR = 5  # names that a message offers


@dataclass(frozen=True, slots=True)
class StepValue:
    """The value of a node in one buffer: the rows counted by the step. `node`: its index among the graph's
    calls."""

    step: int
    node: int
    title: str
    buffer: str
    array: np.ndarray
    origin: str  # in words


def select_values(
    log: LogReader,
    pattern: str,
    step: int | None = None,
    *,
    tier: str = "t_cpu",
    model: str | None = None,
    advance: Callable[[int], None] = lambda steps: None,
) -> list[StepValue]:
    """Return the values of the nodes selected by `pattern`: a label, a buffer, a node's number, or a
    pattern of labels or buffers with a star. `step`: default the last. A log of level full contains
    them; for one of level inputs the steps up to it are replayed on `tier`. Raises UsageError for a
    missing step or node, InputError for a log with too little data."""
    tape = read_tape(log)
    index = _find_step(log, tape, step)
    graph = tape.graphs[index.graph].graph
    chosen = _select_nodes(graph, pattern)
    kept = _read_logged_values(log, graph, index, chosen)
    if kept is not None:
        return kept
    require_inputs(log, tape)
    opener = make_opener(choose_tier(tier, simulate=True))
    step_values: list[StepValue] = []
    with RebuiltModel(log, tape, find_sources(log, tape, model), opener, tapped=True) as rebuilt:
        for item in tape.steps[: tape.steps.index(index) + 1]:
            variant = rebuilt.run(item)
            advance(1)
        same = [hash_value(read_value(variant, o.buffer, index)) == o.sha256 for o in index.outputs]
        origin = (
            f"computed again on {rebuilt.backend.spec.tier}; "
            + (f"{sum(same)} of {len(same)} recorded outputs of this step have the same bits"
               if same else "no output of this step was recorded")
        )  # fmt: skip
        for number, node in chosen:
            for name in _list_results(graph, node):
                array = read_value(variant, name, index).copy()
                step_values.append(StepValue(index.number, number, repr(node), name, array, origin))
    return step_values


def format_value(value: StepValue) -> Iterator[str]:
    """Return lines with the shape, both ends, minimum, maximum, mean, and the number of non-finite values."""
    array = value.array
    dtype = {"float32": "f32", "int32": "i32"}.get(array.dtype.name, array.dtype.name)
    yield f"step {value.step}, node {value.node}  {value.title} -> {value.buffer}"
    yield f"  {dtype} {list(array.shape)}, {value.origin}"
    if not array.size:
        yield "empty: the step counted no rows of it"
        return
    finite = np.isfinite(array)
    bad = int(array.size - finite.sum())
    if finite.any():
        numbers = array[finite].astype(np.float64)
        minimum, maximum = (
            tuple(map(int, np.unravel_index(find(np.where(finite, array, fill)), array.shape)))
            for find, fill in ((np.argmin, array[finite].max()), (np.argmax, array[finite].min()))
        )
        yield (
            f"  min {array[minimum]:.9g} at {list(minimum)}, max {array[maximum]:.9g} at {list(maximum)}, "
            f"mean {numbers.mean():.9g}, rms {np.sqrt(np.square(numbers).mean()):.9g}"
        )
    if bad:
        first = tuple(map(int, np.unravel_index(int(np.argmin(finite)), array.shape)))
        yield f"  not finite: {bad} of {array.size}, the first at {list(first)}: {array[first]}"
    else:
        yield f"  not finite: none of {array.size}"
    flat = array.reshape(-1)
    yield f"  first {_format_row(flat[:ENDS])}"
    if flat.size > ENDS:
        yield f"  last  {_format_row(flat[-ENDS:])}"


def export(values_of: list[StepValue], log: LogReader, path: Path) -> None:
    """Write an .npz with each array by buffer name, and `meta`, a JSON text with the log, the step, nodes
    and their origin."""
    meta = {
        "log": str(log.path),
        "tier": log.header.get("tier"),
        "step": values_of[0].step,
        "values": {v.buffer: {"node": v.node, "title": v.title, "origin": v.origin} for v in values_of},
    }
    arrays = {value.buffer: value.array for value in values_of}
    write_atomically(path, lambda file: np.savez(file, meta=np.array(json.dumps(meta)), **arrays))  # type: ignore[arg-type]


def _format_row(array: np.ndarray) -> str:
    return "  ".join(f"{item:.9g}" for item in array.tolist())


def _find_step(log: LogReader, tape: Tape, number: int | None) -> RecordedStep:
    if not tape.steps:
        raise InputError(f"{log.path}: the log contains no steps", next="zinc-rt-replay --info lists its contents")
    if number is None:
        return tape.steps[-1]
    selected = next((step for step in tape.steps if step.number == number), None)
    if selected is None:
        raise UsageError(f"--step {number}: the log has steps {tape.steps[0].number} to {tape.steps[-1].number}")
    return selected


def _select_nodes(graph: OpGraph, pattern: str) -> list[tuple[int, Node]]:
    """Return the named nodes with their positions in the graph. Raises UsageError with similar names."""
    nodes = [node for node in graph.nodes if node.op is not Op.BARRIER]
    if pattern.isdigit():
        if int(pattern) >= len(nodes):
            raise UsageError(f"--show {pattern}: {graph.name} only has nodes 0 to {len(nodes) - 1}")
        return [(int(pattern), nodes[int(pattern)])]

    def is_selected(node: Node) -> bool:
        names = (node.label, *node.outputs)
        return pattern in names or (
            "*" in pattern and any(fnmatch.fnmatchcase(name, pattern) for name in names if name)
        )

    chosen = [(number, node) for number, node in enumerate(nodes) if is_selected(node)]
    if not chosen:
        names = {name for node in nodes for name in (node.label, *node.outputs) if name}
        near = difflib.get_close_matches(pattern, sorted(names), NEAR, 0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "--show '*' shows them all"
        raise UsageError(f"--show {pattern}: no node of {graph.name} has that name", next=hint)
    return chosen


def _list_results(graph: OpGraph, node: Node) -> list[str]:
    """Return the node's outputs except state, which later steps change."""
    return [name for name in node.outputs if name and graph.buffers[name].role in ("activation", "output")]


def _read_logged_values(
    log: LogReader, graph: OpGraph, step: RecordedStep, chosen: list[tuple[int, Node]]
) -> list[StepValue] | None:
    """Return the values from the log; None if one is missing. Raises UsageError if there is nothing to show."""
    outputs = outputs_by_name(step.outputs)
    names = [(number, node, name) for number, node in chosen for name in _list_results(graph, node)]
    if not names:
        raise UsageError(f"{chosen[0][1]!r} produces only state, which a log does not contain")
    values = []
    for number, node, name in names:
        output = outputs.get(name)
        if output is None or not output.blob or not log.has(output.blob):
            return None
        array = np.frombuffer(log.read_blob(output.blob), NUMPY_DTYPES[output.dtype]).reshape(output.shape)
        values.append(
            StepValue(
                step.number,
                number,
                repr(node),
                name,
                array,
                f"as left by {log.header.get('tier')}, stored in the log",
            )
        )
    return values


SHOWN = 12  # placements of one allocation


def list_memory_plans(log: LogReader) -> Iterator[tuple[tuple[int, ...], MemoryPlan]]:
    """Return the key and the memory plan of every variant. A plan is a function of graph, key and tapping, so it
    is recomputed here."""
    graphs: dict[int, tuple[OpGraph, bool]] = {}
    for record in log:
        if isinstance(record, records.GraphCreated):
            graphs[record.graph] = (from_bytes(log.read_blob(record.ir)), record.tapped)
        elif isinstance(record, records.VariantAdded) and record.graph in graphs:
            graph, tapped = graphs[record.graph]
            plan = plan_memory(graph, capacity=parse_capacity(record.key), tap=tapped)
            yield record.key, plan


def format_memory_maps(log: LogReader) -> Iterator[str]:
    """Return the memory map of every variant."""
    for key, plan in list_memory_plans(log):
        yield from _format_map(plan, key, plan.tap)


def describe_memory_maps(log: LogReader) -> dict[str, Any]:
    """Return the memory plan of every variant for JSON, each in the format of `inspect --plan-json`."""
    return {"schema": PLANS_SCHEMA, "plans": [plan.as_dict() for _, plan in list_memory_plans(log)]}


def _format_map(plan: MemoryPlan, key: tuple[int, ...], tapped: bool) -> Iterator[str]:
    shape = ",".join(map(str, key))
    yield f"{plan.graph} {shape}{', tapped' if tapped else ''}: {format_size(plan.total_bytes)}"
    for name, allocation in plan.allocations.items():
        inside = sorted(
            (location.offset_bytes, location.size_bytes, buffer)
            for buffer, location in plan.placements.items()
            if location.allocation == name
        )
        yield f"  {allocation.heap.value:<12} {allocation.size_bytes:>12}  {name}, {len(inside)} buffers"
        for offset, size_bytes, buffer in inside[:SHOWN]:
            yield f"    {offset:#10x} {size_bytes:>12}  {buffer}"
        if len(inside) > SHOWN:
            yield f"    and {len(inside) - SHOWN} more"


def format_statistics(log: LogReader) -> Iterator[Part]:
    """Return lines with bytes by kind of record, bytes per token, seconds per step by graph and key."""
    count: dict[str, int] = defaultdict(int)
    bytes_of: dict[str, int] = defaultdict(int)
    for kind, taken in log.list_sizes():
        name = "blobs" if kind == records.BLOB else records.KINDS[kind].NAME
        count[name] += 1
        bytes_of[name] += taken
    yield f"{log.path}  {format_size(log.size_bytes)}, level {log.header.get('level')}"
    rows = [
        (name, count[name], bytes_of[name], f"{bytes_of[name] / log.size_bytes:.1%}")
        for name in sorted(bytes_of, key=lambda name: -bytes_of[name])
    ]
    yield Table(("record", *map(number_column, ("count", "bytes", "share"))), rows)
    yield from _format_steps(log)


def _format_steps(log: LogReader) -> Iterator[str]:
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
        fields = sum(taken for kind, taken in log.list_sizes() if kind in stepwise)
        kept = sum(log.blob_size(blob) for blob in blobs)
        yield (
            f"{tokens} tokens, {(fields + kept) / tokens:.0f} bytes per token in addition to graphs and weights"
        )
    for (graph, key), taken in seconds.items():
        yield (
            f"{names.get(graph, '?')} {','.join(map(str, key))}: {len(taken)} steps, median "
            f"{1e3 * figures.median(taken):.3f} ms, longest {1e3 * max(taken):.3f} ms"
        )
