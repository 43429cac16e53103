"""Compare the device's slot and page tables, read back at a step boundary, with the host's state.

The host writes these tables but never reads them in normal operation, so it would not notice a stale
page-table entry, a record of a previous request or a flipped bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from zinc_rt.engine.model_runner import ModelRunner
from zinc_rt.ir.slot_record import SlotFlag, check_words
from zinc_rt.sched.kv.kv_cache import UNSET
from zinc_rt.sched.scheduler import Scheduler

# Of a binding, what does not change while it lasts: position, tokens and pages are the host's, and newer there.
AUDITED = (
    "epoch", "tenant", "session", "request", "priority", "prompt_len", "limit", "temperature", "top_k", "top_p",
    "min_p", "seed", "choice", "repetition", "presence", "frequency", "penalty_row", "bias_row", "bias_count",
    "logprobs", "stop_count", "min_tokens", "flags",
)  # fmt: skip


def _mask_backpressure(name: str, record: Any) -> Any:
    """Return a field without backpressure, because a paused slot has no rows, so its record is not sent."""
    return int(record[name]) & ~SlotFlag.BACKPRESSURE if name == "flags" else record[name]


def audit_kv(scheduler: Scheduler, runner: ModelRunner) -> list[str]:
    """Return the differences as sentences. No step may be in flight; changes pending for the next step are
    not reported."""
    return [*_audit_tables(scheduler, runner), *_audit_records(scheduler, runner)]


def _audit_tables(scheduler: Scheduler, runner: ModelRunner) -> Iterator[str]:
    pending = scheduler.slots.table_changes
    for group, spec in enumerate(scheduler.cache.groups):
        table = runner.read_page_table(group)
        if table is None:
            continue
        width = table.shape[1]
        for request in scheduler.running():
            holding, slot = request.holding, request.slot
            assert holding is not None
            wanted = np.array(holding.tables[group], np.int32)
            here = table[slot, : len(wanted)]
            for location in np.flatnonzero((here != wanted) & (wanted != UNSET)).tolist():
                if slot * width + location not in pending[group]:
                    where = f"slot {slot}, request {request.number}, group {spec.name}"
                    text = f"page {here[location]} at index {location}, the host expects page {wanted[location]}"
                    yield f"{where}: the device has {text}"
                    break


def _audit_records(scheduler: Scheduler, runner: ModelRunner) -> Iterator[str]:
    stored = runner.read_stored_records()
    if stored is None:
        return
    records, slots = stored
    wrong = check_words(records) != records["check"]
    for slot in slots:
        request, mine, here = scheduler.slots.requests[slot], scheduler.records[slot], records[slot]
        if wrong[slot]:
            yield (
                f"slot {slot}: the checksum of the device's record is wrong: the record was modified after "
                "it was stored"
            )
        elif request is not None and slot not in scheduler.slots.bound:
            names = [name for name in AUDITED if _mask_backpressure(name, here) != _mask_backpressure(name, mine)]
            if names:
                text = f"{names[0]} {here[names[0]]}, the host {mine[names[0]]}"
                yield f"slot {slot}, request {request.number}: the device's record has {text}"
