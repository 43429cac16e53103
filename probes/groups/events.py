"""P13: KFD events without involvement of a GPU."""

from __future__ import annotations

import errno

from zinc_rt.kmd.events import EventKind
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.refusals import catch_errno
from zinc_rt.probes.outcome import T1, Outcome, check, match_failed_call, passed, symptom
from zinc_rt.probes.probe import fails, probe, proves


@probe("P13", "event page", (T1,), hazard=0, needs=("P09",))
@proves(
    "events of all kinds can be created, set, waited for and destroyed",
    passes_when="a wait times out before SET_EVENT and ends after it, auto-reset clears, an unknown id is EINVAL",
)
@fails(
    match_failed_call("CREATE_EVENT", errno.EINVAL),
    (
        "the kernel rejects the event page: its handle is not a mapped GTT buffer, or the process "
        "already registered one"
    ),
    "one KFD user per process; otherwise compare the kernel with those in docs/probes.md",
)
@fails(
    match_failed_call("CREATE_EVENT", errno.ENOSPC), "all 4095 event slots are used", "close other users of KFD"
)
@fails(
    symptom("early", "no-event", "not-consumed", "wrong-errno"),
    "this kernel's events differ from the documentation",
    "completion by polled fences does not need them; please report kernel and message",
)
def probe_event_page(c: ProbeContext) -> Outcome:
    events = (c.gpu, c.process.events)[1]
    signal = events.create(EventKind.SIGNAL)
    check(not events.wait([signal], 0.0), "early", "a new event is signalled")
    check(not events.wait([signal], 0.01), "early", "a new event is signalled within 10 ms")
    events.set(signal)
    check(bool(events.wait([signal], 1.0)), "no-event", "SET_EVENT does not end a wait")
    check(not events.wait([signal], 0.0), "not-consumed", "a wait does not clear an auto-reset event")
    kept = events.create(EventKind.SIGNAL, auto_reset=False)
    events.set(kept)
    check(
        bool(events.wait([kept], 1.0)) and bool(events.wait([kept], 0.0)),
        "no-event",
        "an event without auto-reset does not stay set",
    )
    events.reset(kept)
    check(not events.wait([kept], 0.0), "not-consumed", "RESET_EVENT does not clear an event")
    memory, reset = events.create(EventKind.MEMORY), events.create(EventKind.HW_EXCEPTION)
    check(not events.wait([memory, reset], 0.0), "early", "a MEMORY or HW_EXCEPTION event is signalled")
    for item in (reset, memory, kept, signal):
        item.destroy()
    unknown = catch_errno(lambda: events.wait([signal], 0.0))
    check(unknown == errno.EINVAL, "wrong-errno", f"a wait for a destroyed event: errno {unknown}, not EINVAL")
    return passed(kinds=3)
