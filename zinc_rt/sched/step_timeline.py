"""The last steps of a scheduler as a timeline for Chrome and Perfetto, with slots and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from zinc_rt.host.chrome_trace import (
    make_complete_event,
    make_counter,
    make_document,
    make_instant,
    make_process_name,
    make_span,
    make_thread_name,
)
from zinc_rt.ir.slot_record import SlotState
from zinc_rt.sched.step_trace import StepEvent, StepNumbers, StepTrace
from zinc_rt.sched.tenant import Priority

_STEPS, _SLOTS = 1, 10  # thread ids: a slot's at _SLOTS + its number; the counters are tracks by their names


def build_timeline(trace: StepTrace, id_of: Callable[[int], str] = lambda number: "") -> dict[str, Any]:
    """Return the content of the file."""
    about = {"steps": trace.before + trace.count, "steps_kept": len(trace.kept)}
    return make_document(make_chrome_events(trace, id_of), about)


def make_chrome_events(
    trace: StepTrace, id_of: Callable[[int], str] = lambda number: ""
) -> Iterator[dict[str, Any]]:
    """Return Trace Event entries: tracks of steps, slots, class queues, page groups, and requests from
    arrival to end. `id_of`: maps a request number to the client's id, which is shown in addition."""
    for entry in _make_entries(trace, id_of):
        about = entry.get("args", {})
        if "request" in about and (id := id_of(about["request"])):
            about["request_id"] = id
        yield entry


def _make_entries(trace: StepTrace, id_of: Callable[[int], str]) -> Iterator[dict[str, Any]]:
    kept = trace.kept
    starts, ends = trace.numbers[kept, 0], trace.numbers[kept, 1]
    zero = _find_zero(trace, starts)
    yield make_process_name("scheduler")
    yield make_thread_name(_STEPS, "steps")
    for number, row in enumerate(trace.numbers[kept].tolist(), trace.before + trace.count - len(kept)):
        about = StepNumbers(*row)._asdict()
        start, end = about.pop("start_ns"), about.pop("end_ns")
        yield make_complete_event(f"step {number}", _STEPS, (start - zero) / 1000, (end - start) / 1000, about)
    for item in Priority:
        yield from _make_counter(f"waiting, {item.name.lower()}", starts - zero, {"": trace.waiting[kept, item]})
    for group, name in enumerate(trace.groups):
        pages = {"free": trace.free[kept, group], "idle": trace.idle[kept, group]}
        yield from _make_counter(f"pages, {name}", starts - zero, pages)
    for slot in range(trace.phase.shape[1]):
        yield make_thread_name(_SLOTS + slot, f"slot {slot}")
        yield from _make_slot_slices(trace, slot, kept, starts - zero, ends - zero)
    for event in trace.events:
        if event.at_ns >= zero:
            yield _make_instant(event, zero)
    yield from _make_request_spans(trace, zero, id_of)


def _make_request_spans(trace: StepTrace, zero: int, id_of: Callable[[int], str]) -> Iterator[dict[str, Any]]:
    """Build one span per request, for all its choices, if both ends are recorded: in a queue, then from its first
    slot on.
    """
    arrived: dict[int, int] = {}
    admitted: dict[int, int] = {}
    ended: dict[int, int] = {}
    for event in trace.events:
        if event.what == "end":
            ended[event.request] = event.at_ns
        elif event.what in ("arrive", "admit"):
            {"arrive": arrived, "admit": admitted}[event.what].setdefault(event.request, event.at_ns)
    for number in arrived.keys() & ended.keys():
        begin, end = arrived[number], ended[number]
        name = id_of(number) or f"request {number}"
        bound = admitted.get(number, end)
        for part, first, last in ((name, begin, end), ("waits", begin, bound), ("runs", bound, end)):
            if first >= zero and (last > first or part is name):
                args = {"request": number}
                yield from make_span(
                    "request", part, number, _STEPS, (first - zero) / 1000, (last - zero) / 1000, args
                )


def _find_zero(trace: StepTrace, starts: np.ndarray) -> int:
    """Return the start of the timeline: the first recorded step, or events before the very first step."""
    if not len(starts):
        return 0
    first = int(starts[0])
    return min(first, trace.events[0].at_ns) if trace.events and trace.count == len(starts) else first


def _make_slot_slices(
    trace: StepTrace, slot: int, kept: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Build a slice for the time that a request has the slot, with a nested slice for each phase."""
    phases = trace.phase[kept, slot]
    bindings = np.where(phases > 0, trace.epoch[kept, slot], -1)
    for first, last in _find_runs(bindings):
        if bindings[first] < 0:
            continue
        start, end, location = int(starts[first]), int(ends[last]), (kept[first], slot)
        request, choice = int(trace.request[location]), int(trace.choice[location])
        tenant = trace.tenants[trace.tenant[location]]
        about = {"tenant": tenant, "request": request, "choice": choice, "steps": last - first + 1}
        name = f"{tenant} {request}.{choice}" if choice else f"{tenant} {request}"
        yield make_complete_event(name, _SLOTS + slot, start / 1000, (end - start) / 1000, about)
        for begin, until in _find_runs(phases[first : last + 1]):
            start, end = int(starts[first + begin]), int(ends[first + until])
            phase = SlotState(int(phases[first + begin])).name.lower()
            yield make_complete_event(
                phase, _SLOTS + slot, start / 1000, (end - start) / 1000, {"steps": until - begin + 1}
            )


def _find_runs(values: np.ndarray) -> Iterator[tuple[int, int]]:
    """Return the first and last index of each run of equal values."""
    edges = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
    return ((first, after - 1) for first, after in pairwise(edges) if after > first)


def _make_counter(name: str, at_ns: np.ndarray, values: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """Build a counter track with an entry for each change."""
    table = np.stack(list(values.values()), 1)
    for first, _ in _find_row_runs(table):
        about = {key or "count": int(value) for key, value in zip(values, table[first], strict=True)}
        yield make_counter(name, int(at_ns[first]) / 1000, about)


def _find_row_runs(table: np.ndarray) -> Iterator[tuple[int, int]]:
    changes = (table[1:] != table[:-1]).any(1)
    return _find_runs(np.concatenate(([0], np.cumsum(changes))) if len(table) else np.zeros(0))


def _make_instant(event: StepEvent, zero: int) -> dict[str, Any]:
    about = {"request": event.request, **({"amount": event.amount} if event.amount else {})}
    thread = _STEPS if event.slot < 0 else _SLOTS + event.slot
    return make_instant(event.what, thread, (event.at_ns - zero) / 1000, about)
