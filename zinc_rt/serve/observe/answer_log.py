"""A line of the log for each answer: whose, how long, how it ended."""

from __future__ import annotations

import logging

from zinc_rt.sched.request import Request, State
from zinc_rt.serve.observe.logs import LOGGER
from zinc_rt.serve.observe.model_metrics import RequestTimes


def tell_answer(
    model: str, tenant: str, request_id: str, request: Request, times: RequestTimes, now_ns: int
) -> None:
    """Of one choice that is over. Called in the engine's thread: it only queues the line."""
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
        "completion_tokens": request.made,
        "ended": request.state.value,
        "reason": request.reason,
        "queue_ms": _ms(times.arrived_ns, times.admitted_ns),
        "first_token_ms": _ms(times.arrived_ns, times.first_ns),
        "ms": _ms(times.arrived_ns, now_ns),
    }
    LOGGER.log(level, "answer", extra=about)


def _ms(begin_ns: int, end_ns: int) -> float | None:
    """None where it has not come so far."""
    return round((end_ns - begin_ns) / 1e6, 3) if end_ns else None
