"""Timed steps as a timeline for Chrome and Perfetto: the host's steps, and a track of the queue's dispatches."""

from __future__ import annotations

from typing import Any

from zinc_rt.host.chrome_trace import document, process_name, thread_name
from zinc_rt.perf.profile.steps import MeasuredSteps, TimedStep, placed_ns
from zinc_rt.trace.chrome import HOST, QUEUES, dispatch_slices, node_title, slice_seconds

NANO = 1e-9


def timeline(measured: MeasuredSteps, where: str) -> dict[str, Any]:
    """Build the timeline. `where`: tier and device. A device's clock is aligned with the host's at each step's
    end."""
    first = measured.steps[0]
    events: list[dict[str, Any]] = [
        process_name(where, HOST),
        thread_name(HOST, "host"),
        thread_name(QUEUES, f"queue main, by {first.times.clock}"),
    ]
    for number, step in enumerate(measured.steps):
        start = (step.began_ns - first.began_ns) * NANO
        about = {"step": number, "tokens": measured.tokens}
        events.append(slice_seconds(f"step {number}", HOST, start, step.nanoseconds * NANO, about))
        events += dispatch_slices(_placed(step, first.began_ns), QUEUES, {"step": number})
    return document(events, {"clock": first.times.clock, "simulated": first.times.simulated})


def _placed(step: TimedStep, zero_ns: int) -> list[tuple[str, str, float, float]]:
    shift = placed_ns(step) - zero_ns
    return [
        (
            "" if each.node is None else node_title(each.node),
            each.kernel,
            (each.began_ns + shift) * NANO,
            (each.ended_ns + shift) * NANO,
        )
        for each in step.times.dispatches
    ]
