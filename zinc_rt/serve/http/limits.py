"""What a tenant may ask now: checked once for each request, before the engine hears of it.

Rates in tokens shape: a request waits for them. Requests a minute and the depth of a queue refuse, with 429 where
the tenant has used up its own and 503 where the server is full, each with a time after which to try again.
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
from zinc_rt.serve.config.values import name_of_class
from zinc_rt.serve.engine.requests import Ask
from zinc_rt.serve.errors import ServeError, unavailable

if TYPE_CHECKING:
    from zinc_rt.serve.engine.served_model import ServedModel

MINUTE = 60
JITTER = 0.2  # of a time to wait, so that those who were refused together do not come back together


class RequestRate:
    """Requests a minute, refilled evenly: as many at once as a minute has."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._bucket = Bucket(per_minute, per_minute * MINUTE, time.monotonic_ns())  # a request is MINUTE of it

    @property
    def left(self) -> int:
        return int(max(0, self._bucket.level(time.monotonic_ns()) // MINUTE))

    def take(self) -> float:
        """Count a request; or, where there is none left, the seconds until there is."""
        now_ns = time.monotonic_ns()
        lacking = MINUTE - self._bucket.level(now_ns)
        if lacking > 0:
            return lacking / self.per_minute
        self._bucket.charge(MINUTE, now_ns)
        return 0.0

    def full_in(self) -> float:
        """Seconds until nothing of it is used."""
        return MINUTE - self._bucket.level(time.monotonic_ns()) / self.per_minute


def allowed(ask: Ask, tenant: TenantSettings, model: ServedModel, depths: QueueDepths) -> Ask:
    """The request as its tenant may make it: shorter, sooner over. Raises ServeError where it may not at all."""
    if tenant.models is not None and ask.model not in tenant.models:
        raise ServeError(
            403,
            f"model {ask.model!r} is not for tenant {tenant.id}: it may ask {', '.join(tenant.models) or 'none'}",
            "permission_error",
            "model",
            "model_not_allowed",
        )
    if ask.priority is not None and ask.priority < tenant.priority:
        raise ServeError(
            403,
            f"class {name_of_class(ask.priority)} is above that of tenant {tenant.id}, "
            f"{name_of_class(tenant.priority)}",
            "permission_error",
            "priority",
            "class_not_allowed",
        )
    ask = _shorter(ask, tenant)
    _check_rates(tenant, model)
    priority = tenant.priority if ask.priority is None else ask.priority
    _check_queues(tenant, priority, model, depths)
    if ask.fail_fast and ask.deadline_seconds is not None:
        _check_wait(ask.deadline_seconds, priority, model)
    return ask


def _shorter(ask: Ask, tenant: TenantSettings) -> Ask:
    most, prompt = ask.sampling.max_tokens, len(ask.tokens)
    if tenant.max_context is not None:
        if prompt >= tenant.max_context:
            raise ServeError(
                400,
                f"the prompt has {prompt}; tenant {tenant.id} may have {tenant.max_context} with its answer",
                param="messages",
                code="context_length_exceeded",
            )
        most = min(most, tenant.max_context - prompt)
    if tenant.max_tokens is not None:
        most = min(most, tenant.max_tokens)
    deadlines = [each for each in (ask.deadline_seconds, tenant.deadline_max_s) if each is not None]
    sampling = replace(ask.sampling, max_tokens=most, min_tokens=min(ask.sampling.min_tokens, most))
    return replace(ask, sampling=sampling, deadline_seconds=min(deadlines, default=None))


def _check_rates(tenant: TenantSettings, model: ServedModel) -> None:
    """For a tenant that wants to be refused rather than to wait."""
    if tenant.on_limit != "reject":
        return
    number = model.core.tenant_number(tenant.id)
    now_ns = model.core.scheduler.clock_ns()
    for bucket in model.core.scheduler.buckets[number]:
        if bucket is not None and (level := bucket.level(now_ns)) <= 0:
            said = f"tenant {tenant.id} has used its {bucket.rate} tokens a second"
            raise limited(said, "rate_limit_exceeded", (1 - level) / bucket.rate)


def _check_queues(tenant: TenantSettings, priority: Priority, model: ServedModel, depths: QueueDepths) -> None:
    scheduler = model.core.scheduler
    number = model.core.tenant_number(tenant.id)
    free = max(0, scheduler.limits.slots - sum(scheduler.bound))
    mine = free if tenant.slots_max is None else min(free, max(0, tenant.slots_max - scheduler.bound[number]))
    arriving = sum(count for (whose, _), count in model.arriving.items() if whose == number)
    waiting = scheduler.queues.waiting(number) + arriving
    if waiting >= tenant.queue_max + mine:
        said = f"{waiting} requests of tenant {tenant.id} wait already, and {tenant.queue_max} may"
        raise limited(said, "quota_exceeded", seconds_for(model, waiting))
    most = getattr(depths, name_of_class(priority))
    ahead = _ahead(model, [priority])
    if ahead >= most + free:
        said = f"{ahead} requests of class {name_of_class(priority)} wait already, and {most} may"
        raise unavailable(said, "overloaded", jittered(seconds_for(model, ahead)))


def _check_wait(deadline_seconds: float, priority: Priority, model: ServedModel) -> None:
    """For a request that would rather fail than wait beyond its deadline."""
    ahead = _ahead(model, [each for each in Priority if each <= priority])
    wait = seconds_for(model, ahead) if ahead else 0.0
    if wait > deadline_seconds:
        raise ServeError(
            504,
            f"the wait is some {wait:.1f} s, and the deadline {deadline_seconds:g} s",
            "timeout_error",
            code="deadline_exceeded",
            retry_after_seconds=jittered(wait),
        )


def _ahead(model: ServedModel, classes: Collection[Priority]) -> int:
    """How many requests of these classes wait."""
    arriving = sum(count for (_, priority), count in model.arriving.items() if priority in classes)
    return arriving + sum(model.core.scheduler.queues.by_class[priority] for priority in classes)


def seconds_for(model: ServedModel, requests: int) -> float:
    """How long so many requests keep the model busy, by its last minute: 1 where that says nothing."""
    per_second, made = model.metrics.tokens_per_second(), model.metrics.generated_tokens
    if not per_second:
        return 1.0
    return max(1.0, requests * made.sum / max(1, int(made.counts.sum())) / per_second)


def jittered(seconds: float) -> float:
    return max(1.0, seconds * random.uniform(1 - JITTER, 1 + JITTER))


def limited(said: str, code: str, seconds: float) -> ServeError:
    """429: the tenant has used up what is its own."""
    return ServeError(429, said, "rate_limit_error", code=code, retry_after_seconds=max(1, math.ceil(seconds)))


# --- what each answer says of it


def rate_headers(
    tenant: TenantSettings, rate: RequestRate | None, models: Iterable[ServedModel]
) -> dict[str, str]:
    """OpenAI's x-ratelimit-...: a tenant's requests a minute, and its tokens of prompts where fewest are left."""
    found: dict[str, str] = {}
    if rate is not None:
        found |= _headers("requests", rate.per_minute, rate.left, rate.full_in())
    if tenant.prefill_rate is not None:
        buckets = [(model.core.scheduler, model.core.tenant_number(tenant.id)) for model in models]
        now_ns = time.monotonic_ns()
        levels = [(bucket.level(now_ns), bucket) for s, at in buckets if (bucket := s.buckets[at][0]) is not None]
        if levels:
            level, bucket = min(levels, key=lambda each: each[0])
            found |= _headers("tokens", bucket.burst, int(max(0, level)), (bucket.burst - level) / bucket.rate)
    return found


def _headers(what: str, limit: int, left: int, full_in: float) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{what}": str(limit),
        f"x-ratelimit-remaining-{what}": str(left),
        f"x-ratelimit-reset-{what}": f"{max(0.0, full_in):.3f}s",
    }
