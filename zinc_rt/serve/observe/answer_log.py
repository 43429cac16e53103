"""A log line for each answer: its tenant, length, times and finish reason."""

from __future__ import annotations

import logging

from zinc_rt.sched.request import Request, State
from zinc_rt.serve.observe.logs import LOGGER
from zinc_rt.serve.observe.model_metrics import RequestTimes


def log_answer(
    model: str, tenant: str, request_id: str, request: Request, times: RequestTimes, now_ns: int
) -> None:
    """Log a finished choice. It is called in the engine thread, and only queues the line."""
    level = logging.WARNING if request.state is State.FAILED else logging.INFO
    if not LOGGER.isEnabledFor(level):
        return
    about = {
        "request_id": request_id,
        "model": model,
        "tenant": tenant,
        "number": request.number,  # as in traces
        "choice": request.choice,
        "prompt_tokens": request.prompt,
        "cached_tokens": request.cached,
        "completion_tokens": request.generated,
        "ended": request.state.value,
        "reason": request.reason,
        "queue_ms": _elapsed_ms(times.arrived_ns, times.admitted_ns),
        "first_token_ms": _elapsed_ms(times.arrived_ns, times.first_ns),
        "ms": _elapsed_ms(times.arrived_ns, now_ns),
    }
    LOGGER.log(level, "answer", extra=about)


def _elapsed_ms(begin_ns: int, end_ns: int) -> float | None:
    """Return the elapsed milliseconds, or None if the event has not happened."""
    return round((end_ns - begin_ns) / 1e6, 3) if end_ns else None
