"""The ring keeps the last steps, and the timeline shows each slot's requests, the queues and what happened."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from test_ledger_of_schedules import scheduler_of

from zinc_rt.host.chrome_trace import write_chrome
from zinc_rt.host.errors import OutputError
from zinc_rt.ir.slot_record import RECORD, SlotState
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest
from zinc_rt.sched.step_timeline import build_timeline, make_chrome_events
from zinc_rt.sched.step_trace import StepNumbers, StepRecorder, StepTrace
from zinc_rt.sched.tenant import Tenant

FREE, PREFILL, DECODE = SlotState
PHASES = ("prefill", "decode")
MS = 1_000_000


def record_trace(rows: list[list[tuple[int, int, int]]], *, steps: int = 64) -> StepTrace:
    """One step per row: (request, tenant, state) of each slot, with the request's number as epoch; a step takes
    one of every two milliseconds.
    """
    trace, plan = StepTrace(["ada", "bob"], 2, ["full"], steps=steps), StepPlan(8, 2, 1)
    slots = np.zeros(2, RECORD)
    for index, row in enumerate(rows):
        slots["request"], slots["tenant"], states = zip(*row, strict=True)
        slots["epoch"] = slots["request"]
        decodes, prompts = ([slot for slot in (0, 1) if states[slot] == phase] for phase in (DECODE, PREFILL))
        plan.decodes, plan.tokens = len(decodes), len(decodes) + len(prompts)
        plan.slot[: plan.tokens] = decodes + prompts
        start = 10**9 + 2 * index * MS
        trace.record(
            plan, slots, StepNumbers(start, start + MS, 5, 1, 1, 2, 0), [0, index // 2, 1], [7 - index], [0]
        )
    return trace


ROWS = [
    [(1, 0, PREFILL), (0, 0, FREE)],
    [(1, 0, DECODE), (2, 1, PREFILL)],
    [(1, 0, DECODE), (2, 1, PREFILL)],
    [(3, 1, PREFILL), (2, 1, FREE)],
]


def chrome_rows(trace: StepTrace, phase: str = "X") -> list[tuple[str, int, float, float]]:
    return [
        (e["name"], e.get("tid", 0), e["ts"], e.get("dur", 0.0))
        for e in make_chrome_events(trace)
        if e["ph"] == phase
    ]


def test_slot_shows_its_request_and_phase() -> None:
    slots = [item for item in chrome_rows(record_trace(ROWS)) if item[1] >= 10]
    assert slots == [
        ("ada 1", 10, 0.0, 5000.0),
        ("prefill", 10, 0.0, 1000.0),
        ("decode", 10, 2000.0, 3000.0),
        ("bob 3", 10, 6000.0, 1000.0),
        ("prefill", 10, 6000.0, 1000.0),
        ("bob 2", 11, 2000.0, 3000.0),
        ("prefill", 11, 2000.0, 3000.0),
    ]


def test_two_choices_in_one_slot_are_two_slices() -> None:
    trace = record_trace([[(1, 0, DECODE), (0, 0, FREE)]] * 4)
    trace.epoch[2:4, 0], trace.choice[2:4, 0] = 7, 1
    assert [name for name, thread, *_ in chrome_rows(trace) if thread == 10] == [
        "ada 1",
        "decode",
        "ada 1.1",
        "decode",
    ]


def test_counters_are_emitted_only_on_change() -> None:
    events = [e for e in make_chrome_events(record_trace(ROWS)) if e["ph"] == "C"]
    standard = [(e["ts"], e["args"]["count"]) for e in events if e["name"] == "waiting, standard"]
    assert standard == [(0.0, 0), (4000.0, 1)]
    assert [e["args"] for e in events if e["name"] == "waiting, batch"] == [{"count": 1}]
    assert [e["args"]["free"] for e in events if e["name"] == "pages, full"] == [7, 6, 5, 4]


def test_ring_drops_oldest_steps_with_their_events() -> None:
    trace = record_trace(ROWS, steps=2)
    trace.event(10**9, "admit", 1)
    trace.event(10**9 + 5 * MS, "park", 1, slot=0)
    assert [name for name, thread, *_ in chrome_rows(trace) if thread == 1] == ["step 2", "step 3"]
    assert chrome_rows(trace, "i") == [("park", 10, 1000.0, 0.0)]


def test_events_before_the_first_step_are_shown() -> None:
    trace = record_trace(ROWS)
    trace.event(10**9 - MS, "arrive", 1)
    assert chrome_rows(trace, "i") == [("arrive", 1, 0.0, 0.0)]
    assert chrome_rows(trace)[0] == ("step 0", 1, 1000.0, 1000.0)


def test_file_is_json_and_reports_retained_steps(tmp_path: Path) -> None:
    write_chrome(build_timeline(record_trace(ROWS, steps=3)), tmp_path / "t.json")
    written = json.loads((tmp_path / "t.json").read_text())
    assert written["otherData"] == {"steps": 4, "steps_kept": 3}
    assert all({"ph", "pid", "name"} <= event.keys() for event in written["traceEvents"])
    with pytest.raises(OutputError):
        write_chrome(build_timeline(record_trace([])), tmp_path / "no folder" / "t.json")


def test_empty_trace_is_a_timeline_without_steps() -> None:
    assert not chrome_rows(record_trace([])) and not chrome_rows(record_trace([]), "C")


def test_traced_scheduler_shows_requests_and_their_events() -> None:
    scheduler, _, spaces = scheduler_of([Tenant("desk"), Tenant("team")], b"ab")
    trace = StepRecorder(scheduler).trace
    for number, tenant in enumerate((0, 1, 1, 0, 1, 1), 1):
        prompt = [0, 1] * 5
        scheduler.submit(NewRequest(number, tenant, prompt, spaces[tenant], Sampling(4, seed=number)))
    while scheduler.step() is not None or scheduler.live:
        pass
    assert trace.count == scheduler.runner.counts.steps > 4
    assert int(trace.numbers[: trace.count, 2].sum()) == scheduler.runner.counts.input_tokens
    slots = {name for name, thread, *_ in chrome_rows(trace) if thread >= 10 and name not in PHASES}
    assert slots == {"desk 1", "team 2", "team 3", "desk 4", "team 5", "team 6"}
    seen = Counter(event.what for event in trace.events)
    assert seen["arrive"] == seen["end"] == 6 and seen["admit"] >= 6 and seen["hit"]


def test_last_steps_form_a_valid_timeline() -> None:
    trace = record_trace(ROWS, steps=3)
    trace.event(10**9 + 2 * MS, "admit", 1, slot=0)
    trace.event(10**9 + 7 * MS, "end", 3, slot=0)
    last = trace.copy_last(2)
    assert [name for name, thread, *_ in chrome_rows(last) if thread == 1] == ["step 2", "step 3"]
    assert chrome_rows(last, "i") == [("end", 10, 3000.0, 0.0)]
    assert build_timeline(last)["otherData"] == {"steps": 4, "steps_kept": 2}
    assert not chrome_rows(record_trace([]).copy_last(5))
    everything = [chrome_rows(trace.copy_last(99), phase) for phase in "XiC"]
    assert everything == [chrome_rows(trace, phase) for phase in "XiC"]


def test_request_is_a_span_named_by_the_client_id() -> None:
    trace = record_trace(ROWS)
    for index, what in ((0, "arrive"), (2, "admit"), (5, "end")):
        trace.event(10**9 + index * MS, what, 1)
    events = list(make_chrome_events(trace, lambda number: "req-a" if number == 1 else ""))
    spans = [(e["ph"], e["name"], e["ts"]) for e in events if e.get("cat") == "request"]
    assert spans == [
        ("b", "req-a", 0.0), ("e", "req-a", 5000.0), ("b", "waits", 0.0), ("e", "waits", 2000.0),
        ("b", "runs", 2000.0), ("e", "runs", 5000.0),
    ]  # fmt: skip
    ids = {e["args"].get("request_id") for e in events if e.get("args", {}).get("request") == 1}
    assert ids == {"req-a"} and not any("request_id" in e.get("args", {}) for e in events if e["name"] == "bob 2")
