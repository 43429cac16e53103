"""A scheduler's plans in a log, and the check that every step was given what was planned.

Each step of a scheduler is preceded by an event `plan`, whose detail is JSON: `sequences` [slot, request, choice,
epoch, first position, tokens], `rows` [slot, position to draw, seed, digest of its mask], `late` the indices of
rows whose mask was late, `copies` [group, source page, target page, tokens], `tables` digests of the changes by
group.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from zinc_rt.engine.runner import PARTS, TABLES
from zinc_rt.host.errors import InputError
from zinc_rt.ir.graph import SYMBOLS, OpGraph
from zinc_rt.ir.slot_record import SlotFlag, check_words, view_records
from zinc_rt.model.sample_graph import COUNTS, RING
from zinc_rt.sched.plan import StepPlan
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.tape import RecordedStep, Tape, read_pieces

COPIED = ("copy.source", "copy.target")
OPEN = "open"  # of a row without a mask
Arrays = dict[str, np.ndarray]  # i32, by buffer


def describe_plan(plan: StepPlan, records: np.ndarray) -> str:
    """Return the detail of a plan's event. `records`: the slots' records, RECORD [slots]."""
    firsts = np.searchsorted(plan.sequence[: plan.tokens], np.arange(plan.sequences + 1))
    sequences = [
        [*_request_ids(records, int(plan.slot[first])), int(plan.position[first]), end - first]
        for first, end in pairwise(firsts.tolist())
    ]
    rows = [
        [
            slot,
            position,
            int(records["seed"][slot]),
            _digest_array(plan.mask_of[row]) if row in plan.mask_of else OPEN,
        ]
        for row, (slot, position) in enumerate(
            zip(plan.row_slot[: plan.rows].tolist(), plan.row_position[: plan.rows].tolist(), strict=True)
        )
    ]
    copies = [[item.group, item.source, item.target, item.tokens] for item in plan.copies]
    tables = [
        _digest_array(np.array([*changes, *changes.values()], np.int32)) if changes else ""
        for changes in plan.table_changes
    ]
    described = {"sequences": sequences, "rows": rows, "late": plan.late, "copies": copies, "tables": tables}
    return json.dumps(described, separators=(",", ":"))


def _request_ids(records: np.ndarray, slot: int) -> list[int]:
    record = records[slot]
    return [slot, int(record["request"]), int(record["choice"]), int(record["epoch"])]


def _digest_array(array: np.ndarray) -> str:
    return f"{zlib.crc32(array.tobytes()):08x}"


def find_plan_differences(log: LogReader, tape: Tape) -> dict[int, str]:
    """Return for each step the first deviation of its data from its plan, or contradiction between its plan and an
    earlier one. Steps without a plan are not checked.
    """
    differences: dict[int, str] = {}
    ends: dict[tuple[int, int], range] = {}  # slot, epoch: the positions where its next tokens may begin
    copies: list[Arrays] = []  # since the last planned step
    for step in tape.steps:
        arrays = _read_written(log, tape, step)
        if not step.plan:
            if COPIED[0] in arrays:
                copies.append(arrays)
            continue
        plan = json.loads(step.plan)
        checks = (
            _describe_copies(plan, copies, int(tape.header["limits"]["page_tokens"])),
            _check_sequences(plan, arrays),
            _check_continuity(plan, ends),
            _check_records(plan, arrays),
            _check_rows(plan, arrays),
            _check_tables(plan, arrays, tape.graphs[step.graph].graph),
        )
        first = next((text for check in checks for text in check), "")
        if first:
            differences[step.number] = first
        copies = []
    return differences


def require_draws(log: LogReader, tape: Tape) -> None:
    """Check that the log has every input of the tokens that were delivered. Raises InputError for the first
    missing input.
    """
    if tape.header.get("one_node"):
        return
    counted: set[int] = set()  # penalty rows that were written
    epochs: dict[int, int] = {}  # by slot, of its last record
    for step in tape.steps:
        graph = tape.graphs[step.graph].graph
        counted |= {write.offset_bytes // write.size_bytes for write in step.writes if write.buffer == COUNTS}
        if RING not in graph.buffers:
            continue
        arrays, sizes = _read_written(log, tape, step), dict(zip(SYMBOLS, step.counts, strict=False))
        for spec in graph.by_role("step"):
            if spec.name not in arrays and all(sizes.get(str(dim), dim) for dim in spec.shape):
                raise _make_missing_error(log, step, f"{spec.name} was not recorded")
        if "sample.record" not in arrays or COUNTS not in graph.buffers:
            continue
        records = view_records(arrays["sample.record"])
        for slot, record in zip(arrays["sample.record_slot"].tolist(), records, strict=True):
            epoch, row = int(record["epoch"]), int(record["penalty_row"])
            if epochs.get(slot) != epoch and record["flags"] & SlotFlag.PENALTIES:
                if row not in counted:
                    raise _make_missing_error(log, step, f"the token counts of slot {slot} were not recorded")
                counted.remove(row)
            epochs[slot] = epoch


def _make_missing_error(log: LogReader, step: RecordedStep, what: str) -> InputError:
    return InputError(
        f"{log.path}: step {step.number} delivers tokens, and {what}",
        next="zinc-rt-replay --info lists what there is; record the run again",
    )


def _read_written(log: LogReader, tape: Tape, step: RecordedStep) -> Arrays:
    """Return the data that the host wrote for a step, by buffer of its block."""
    buffers = tape.graphs[step.graph].graph.buffers
    return {
        buffer: np.frombuffer(data, np.int32).reshape(-1, *map(int, buffers[buffer].shape[1:]))
        for write in step.writes
        if (write.graph, write.key) == (step.graph, step.key)
        for buffer, _, data in read_pieces(log, write)
        if buffers[buffer].role == "step"
    }


def _describe_copies(plan: dict[str, Any], copies: list[Arrays], page_tokens: int) -> Iterator[str]:
    """Return the rows that copy steps moved, in the order of the groups."""
    groups = sorted({group for group, *_ in plan["copies"]})
    for index, buffer in enumerate(COPIED):
        expected = [
            item[1 + index] * page_tokens + token
            for group in groups
            for item in plan["copies"]
            if item[0] == group
            for token in range(item[3])
        ]
        got = [row for arrays in copies for row in arrays[buffer].tolist()]
        if got != expected:
            yield (
                f"the plan copies rows {_shorten_list(expected)} ({buffer}), the steps before it "
                f"{_shorten_list(got)}"
            )


def _check_sequences(plan: dict[str, Any], arrays: Arrays) -> Iterator[str]:
    for name, index in (("slot", 0), ("position", 4)):
        got = arrays.get(PARTS[name])
        if got is None:
            continue
        expected = [
            sequence[index] + (token if name == "position" else 0)
            for sequence in plan["sequences"]
            for token in range(sequence[5])
        ]
        if expected != got.tolist():
            yield f"the plan has {name}s {_shorten_list(expected)}, the step block {_shorten_list(got.tolist())}"


def _check_continuity(plan: dict[str, Any], ends: dict[tuple[int, int], range]) -> Iterator[str]:
    """While a request stays in its slot, each of its steps begins where the last one ended, or at one of its
    drafts. A sequence's drafts are its rows but one."""
    rows = Counter(slot for slot, *_ in plan["rows"])
    for slot, request, choice, epoch, first, tokens in plan["sequences"]:
        known = ends.get((slot, epoch), range(first, first + 1))
        if first not in known:
            where = f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1]}"
            yield (
                f"the plan computes position {first} of request {request}.{choice} in slot {slot}, whose tokens "
                f"so far end at {where}"
            )
        drafts = max(0, rows[slot] - 1)
        ends[slot, epoch] = range(first + tokens - drafts, first + tokens + 1)


def _check_records(plan: dict[str, Any], arrays: Arrays) -> Iterator[str]:
    if "sample.record" not in arrays:
        return
    records = view_records(arrays["sample.record"])
    by_slot = dict(zip(arrays["sample.record_slot"].tolist(), range(len(records)), strict=True))
    for slot, request, choice, epoch, *_ in plan["sequences"]:
        if slot not in by_slot:
            yield f"the record of slot {slot} is not in the step block"
            continue
        record = records[by_slot[slot] : by_slot[slot] + 1]
        if check_words(record)[0] != record["check"][0]:
            yield f"the checksum of the record of slot {slot} is wrong"
        ids = [int(record[name][0]) for name in ("request", "choice", "epoch")]
        if ids != [request, choice, epoch]:
            yield f"the record of slot {slot} is of request {ids[0]}.{ids[1]}, the plan's of {request}.{choice}"
    for slot, _, seed, _ in plan["rows"]:
        if slot in by_slot and int(records["seed"][by_slot[slot]]) != seed:
            got = records["seed"][by_slot[slot]]
            yield f"the plan draws for slot {slot} with seed {seed}, its record has {got}"


def _check_rows(plan: dict[str, Any], arrays: Arrays) -> Iterator[str]:
    if "sample.row_slot" not in arrays:
        return
    for name, index in (("row_slot", 0), ("position", 1)):
        expected, got = [row[index] for row in plan["rows"]], arrays[f"sample.{name}"].tolist()
        if expected != got:
            yield f"the plan's rows have {name} {_shorten_list(expected)}, the step block {_shorten_list(got)}"
    if "sample.mask_row" not in arrays:
        return
    masks = arrays["sample.mask"]
    for row, ((slot, _, _, expected), location) in enumerate(
        zip(plan["rows"], arrays["sample.mask_row"].tolist(), strict=True)
    ):
        if row in plan["late"]:
            if location < 0 or masks[location].any():
                yield f"the mask of slot {slot} was late, and the step does not leave its row out"
        elif expected != (OPEN if location < 0 else _digest_array(masks[location])):
            yield f"the mask of slot {slot} is not the one of the plan"


def _check_tables(plan: dict[str, Any], arrays: Arrays, graph: OpGraph) -> Iterator[str]:
    for group, (expected, names) in enumerate(zip(plan["tables"], TABLES, strict=False)):
        changes = [arrays[name] for name in names if name in arrays]
        got = _digest_array(np.concatenate(changes)) if changes else ""
        if got != expected and names[0] in graph.buffers:
            yield f"the changes of page table {group} are not those of the plan"


def _shorten_list(numbers: list[int], maximum: int = 12) -> str:
    return (
        f"{numbers[:maximum]}"
        if len(numbers) <= maximum
        else f"{numbers[:maximum]} and {len(numbers) - maximum} more"
    )
