"""Per-tenant limits, checked once for each request before it reaches the engine.

Token rates delay requests. Requests per minute and queue depths refuse them: 429 if the tenant exceeds its
own limit, 503 if the server is full, each with Retry-After.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from zinc_rt.sched.bucket import Bucket
from zinc_rt.sched.tenant import Priority
from zinc_rt.serve.config.settings import QueueDepths, TenantSettings
from zinc_rt.serve.config.values import find_class_name
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.errors import ServeError, make_unavailable_error

if TYPE_CHECKING:
    from zinc_rt.serve.engine.served_model import ServedModel

MINUTE = 60
JITTER = 0.2  # of a time to wait, so that those who were refused together do not come back together


class RequestRate:
    """A token bucket of requests per minute, refilled evenly. Its capacity is one minute's requests."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._bucket = Bucket(per_minute, per_minute * MINUTE, time.monotonic_ns())  # a request is MINUTE of it

    @property
    def left(self) -> int:
        return int(max(0, self._bucket.level(time.monotonic_ns()) // MINUTE))

    def take(self) -> float:
        """Take one request from the bucket, or return the seconds until one is available."""
        now_ns = time.monotonic_ns()
        lacking = MINUTE - self._bucket.level(now_ns)
        if lacking > 0:
            return lacking / self.per_minute
        self._bucket.charge(MINUTE, now_ns)
        return 0.0

    def seconds_until_full(self) -> float:
        """Return the seconds until the bucket is full."""
        return MINUTE - self._bucket.level(time.monotonic_ns()) / self.per_minute


def apply_limits(
    ask: EngineRequest, tenant: TenantSettings, model: ServedModel, depths: QueueDepths
) -> EngineRequest:
    """Return the request with the tenant's limits applied. Raises ServeError if it is not permitted."""
    if tenant.models is not None and ask.model not in tenant.models:
        raise ServeError(
            403,
            (
                f"tenant {tenant.id} may not use model {ask.model!r}; its models are "
                f"{', '.join(tenant.models) or 'none'}"
            ),
            "permission_error",
            "model",
            "model_not_allowed",
        )
    if ask.priority is not None and ask.priority < tenant.priority:
        raise ServeError(
            403,
            f"class {find_class_name(ask.priority)} is above that of tenant {tenant.id}, "
            f"{find_class_name(tenant.priority)}",
            "permission_error",
            "priority",
            "class_not_allowed",
        )
    ask = _shorten_to_limits(ask, tenant)
    _check_rates(tenant, model)
    priority = tenant.priority if ask.priority is None else ask.priority
    _check_queues(tenant, priority, model, depths)
    if ask.fail_fast and ask.deadline_seconds is not None:
        _check_wait(ask.deadline_seconds, priority, model)
    return ask


def _shorten_to_limits(ask: EngineRequest, tenant: TenantSettings) -> EngineRequest:
    maximum, prompt = ask.sampling.max_tokens, len(ask.tokens)
    if tenant.max_context is not None:
        if prompt >= tenant.max_context:
            raise ServeError(
                400,
                (
                    f"the prompt has {prompt}; the limit of tenant {tenant.id} with the answer is "
                    f"{tenant.max_context}"
                ),
                param="messages",
                code="context_length_exceeded",
            )
        maximum = min(maximum, tenant.max_context - prompt)
    if tenant.max_tokens is not None:
        maximum = min(maximum, tenant.max_tokens)
    deadlines = [item for item in (ask.deadline_seconds, tenant.deadline_max_s) if item is not None]
    sampling = replace(ask.sampling, max_tokens=maximum, min_tokens=min(ask.sampling.min_tokens, maximum))
    return replace(ask, sampling=sampling, deadline_seconds=min(deadlines, default=None))


def _check_rates(tenant: TenantSettings, model: ServedModel) -> None:
    """Reject the request if a token rate is exceeded, for tenants with `on_limit: reject`."""
    if tenant.on_limit != "reject":
        return
    number = model.core.find_tenant(tenant.id)
    now_ns = model.core.scheduler.clock_ns()
    for bucket in model.core.scheduler.buckets[number]:
        if bucket is not None and (level := bucket.level(now_ns)) <= 0:
            message = f"tenant {tenant.id} exceeded its rate of {bucket.rate} tokens per second"
            raise make_rate_limit_error(message, "rate_limit_exceeded", (1 - level) / bucket.rate)


def _check_queues(tenant: TenantSettings, priority: Priority, model: ServedModel, depths: QueueDepths) -> None:
    scheduler = model.core.scheduler
    number = model.core.find_tenant(tenant.id)
    free = max(0, scheduler.limits.slots - sum(scheduler.bound))
    mine = free if tenant.slots_max is None else min(free, max(0, tenant.slots_max - scheduler.bound[number]))
    arriving = sum(count for (whose, _), count in model.arriving.items() if whose == number)
    waiting = scheduler.queues.waiting(number) + arriving
    if waiting >= tenant.queue_max + mine:
        message = f"{waiting} requests of tenant {tenant.id} are waiting; the limit is {tenant.queue_max}"
        raise make_rate_limit_error(message, "quota_exceeded", estimate_seconds(model, waiting))
    maximum = getattr(depths, find_class_name(priority))
    ahead = _count_requests_ahead(model, [priority])
    if ahead >= maximum + free:
        message = f"{ahead} requests of class {find_class_name(priority)} are waiting; the limit is {maximum}"
        raise make_unavailable_error(message, "overloaded", add_jitter(estimate_seconds(model, ahead)))


def _check_wait(deadline_seconds: float, priority: Priority, model: ServedModel) -> None:
    """Reject a `fail_fast` request whose expected wait exceeds its deadline."""
    ahead = _count_requests_ahead(model, [item for item in Priority if item <= priority])
    wait = estimate_seconds(model, ahead) if ahead else 0.0
    if wait > deadline_seconds:
        raise ServeError(
            504,
            f"the expected wait is {wait:.1f} s, longer than the deadline of {deadline_seconds:g} s",
            "timeout_error",
            code="deadline_exceeded",
            retry_after_seconds=add_jitter(wait),
        )


def _count_requests_ahead(model: ServedModel, classes: Collection[Priority]) -> int:
    """Return the number of waiting requests of these classes."""
    arriving = sum(count for (_, priority), count in model.arriving.items() if priority in classes)
    return arriving + sum(model.core.scheduler.queues.by_class[priority] for priority in classes)


def estimate_seconds(model: ServedModel, requests: int) -> float:
    """Return the time to process `requests` requests, from the rate of the last minute; 1 if that is unknown."""
    per_second, generated = model.metrics.compute_tokens_per_second(), model.metrics.generated_tokens
    if not per_second:
        return 1.0
    return max(1.0, requests * generated.sum / max(1, int(generated.counts.sum())) / per_second)


def add_jitter(seconds: float) -> float:
    return max(1.0, seconds * random.uniform(1 - JITTER, 1 + JITTER))


def make_rate_limit_error(message: str, code: str, seconds: float) -> ServeError:
    """Return a 429 error: the tenant exceeded its own limit."""
    return ServeError(429, message, "rate_limit_error", code=code, retry_after_seconds=max(1, math.ceil(seconds)))


# --- what each answer says of it


def make_rate_headers(
    tenant: TenantSettings, rate: RequestRate | None, models: Iterable[ServedModel]
) -> dict[str, str]:
    """Return OpenAI's x-ratelimit-... headers: the tenant's requests per minute, and the prompt tokens of its
    most used bucket."""
    headers: dict[str, str] = {}
    if rate is not None:
        headers |= _format_headers("requests", rate.per_minute, rate.left, rate.seconds_until_full())
    if tenant.prefill_rate is not None:
        buckets = [(model.core.scheduler, model.core.find_tenant(tenant.id)) for model in models]
        now_ns = time.monotonic_ns()
        levels = [
            (bucket.level(now_ns), bucket) for s, index in buckets if (bucket := s.buckets[index][0]) is not None
        ]
        if levels:
            level, bucket = min(levels, key=lambda level: level[0])
            headers |= _format_headers(
                "tokens", bucket.burst, int(max(0, level)), (bucket.burst - level) / bucket.rate
            )
    return headers


def _format_headers(what: str, limit: int, left: int, full_in: float) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{what}": str(limit),
        f"x-ratelimit-remaining-{what}": str(left),
        f"x-ratelimit-reset-{what}": f"{max(0.0, full_in):.3f}s",
    }
