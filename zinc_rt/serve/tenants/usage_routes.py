"""Usage of a tenant: its counters by model and time, and for an admin the device totals of the same ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from zinc_rt.host.errors import UsageError, ZincError
from zinc_rt.sched.usage.balance import find_unbalanced
from zinc_rt.sched.usage.database import UNREADABLE, make_input_error, open_to_read
from zinc_rt.sched.usage.latency import format_counters, quality, remove_latencies
from zinc_rt.sched.usage.ledger_store import LedgerStore
from zinc_rt.sched.usage.query import END, UsageResult, find_usage
from zinc_rt.serve.api.replies import ErrorReply
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError, make_unavailable_error
from zinc_rt.serve.tenants.auth import Anybody

WORDS = ("model", "day", "minute")
Time = Annotated[str | None, Query(max_length=40)]


def make_router(server: InferenceServer) -> APIRouter:
    """Return the route. A tenant's key with the scope usage reads its own usage, an admin key all usage."""
    routes = APIRouter(tags=["usage"], responses={"4XX": {"model": ErrorReply, "description": "refused"}})

    @routes.get("/v1/tenants/{id}/usage")
    async def get_usage(
        id: str,
        caller: Anybody,
        first: Annotated[str | None, Query(alias="from", max_length=40)] = None,
        to: Time = None,
        group_by: Annotated[str, Query(max_length=40)] = "model",
    ) -> dict[str, Any]:
        """Return the counters of a time range in UTC, by model, day or minute, with the quantiles of the time to
        the first token and between tokens, and the hit rate of the prefix cache. Removed tenants are included."""
        if not caller.can_see(id):
            message = f"key {caller.key or '(none)'} has no access to the usage of {id[:64]!r}"
            raise ServeError(403, message, "permission_error", code="insufficient_scope")
        words = [word for word in group_by.split(",") if word]
        if unknown := [word for word in words if word not in WORDS]:
            allowed = ", ".join(WORDS)
            raise ServeError(400, f"group_by: unknown {unknown[0]!r}: expected any of {allowed}", param="group_by")
        since, before = _parse_minute("from", first, 0), _parse_minute("to", to, END)
        if server.store is None:
            if first or to or set(words) - {"model"}:
                message = (
                    "no ledger is configured (ledger.path): usage is available only since the start, by model"
                )
                raise ServeError(400, message, param="from", code="no_ledger")
            return _describe_usage_since_start(server, id, admin=caller.admin)
        return await asyncio.to_thread(
            _describe_stored_usage, server.store, id, words, since, before, admin=caller.admin
        )

    return routes


def _describe_usage_since_start(server: InferenceServer, id: str, *, admin: bool) -> dict[str, Any]:
    groups, total = [], Counter[str]()
    totals: dict[str, Any] = {}
    for model in server.models.values():
        counters = model.core.ledger.usage(id)
        total.update(counters)
        groups.append({"model": model.id, **format_counters(+counters)})
        if admin:
            tenants, device = model.core.ledger.sums()
            totals.setdefault("books", {})[model.id] = _make_ledger_document(tenants, device)
    first = datetime.fromtimestamp(server.started_at, UTC).isoformat(timespec="seconds")
    about = {"object": "usage", "tenant": id, "from": first, "to": None, "ledger": None, "lag_s": 0.0}
    return {**about, "usage": remove_latencies(+total), **quality(total), "groups": groups, **totals}


def _describe_stored_usage(
    store: LedgerStore, id: str, words: list[str], since: int, before: int, *, admin: bool
) -> dict[str, Any]:
    store.settle()
    try:
        with closing(open_to_read(store.path)) as database:
            usage = find_usage(database, first_minute=since, before_minute=before, group_by=("tenant", *words))
    except UNREADABLE as error:
        raise make_unavailable_error(make_input_error(store.path, error).message, "ledger") from error
    except UsageError as error:
        raise ServeError(400, error.message) from error
    except ZincError as error:
        raise make_unavailable_error(error.message, "ledger") from error
    groups = [group for group in usage.groups if group.key[0] == id]
    total = Counter[str]()
    for group in groups:
        total.update(group.counters)
    if peaks := [group.counters["kv_pages_peak"] for group in groups if "kv_pages_peak" in group.counters]:
        total["kv_pages_peak"] = max(peaks)
    body = {
        "object": "usage",
        "tenant": id,
        "from": _format_minute(usage.first),
        "to": _format_minute(usage.last),
        "ledger": store.path.name,
        "lag_s": store.health().lag_s,
        "usage": remove_latencies(total),
        **quality(total),
        "groups": [
            {**dict(zip(words, group.key[1:], strict=True)), **format_counters(group.counters)} for group in groups
        ],
    }
    return {**body, **({"books": _sum_usage(usage)} if admin else {})}


def _sum_usage(usage: UsageResult) -> dict[str, Any]:
    """Return the sum over all tenants and models in the same range."""
    return {"all": _make_ledger_document(usage.usage, usage.device)}


def _make_ledger_document(tenants: Any, device: Any) -> dict[str, Any]:
    """Return both sides of the ledger and the lines that do not balance. Such a line is an error."""
    return {
        "tenants": remove_latencies(tenants),
        "device": dict(device),
        "unbalanced": find_unbalanced(tenants, device),
    }


def _parse_minute(name: str, text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        message = f"{name}: {text!r} is not a time: expected 2026-11-23, or 2026-11-23T14:30, in UTC"
        raise ServeError(400, message, param=name) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() // 60)


def _format_minute(minute: int | None) -> str | None:
    return None if minute is None else datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%MZ")
