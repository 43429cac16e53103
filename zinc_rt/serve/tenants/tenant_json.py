"""JSON of tenants: responses use a nested form; requests may use that form or the file's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter

from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.serve.config.file import validate_settings, with_defaults
from zinc_rt.serve.config.settings import KeySettings, TenantLimits, TenantSettings
from zinc_rt.serve.config.values import find_class_name
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError

# Where the nested form has a setting.
NESTED = {
    ("slots", "guaranteed"): "slots_guaranteed", ("slots", "max"): "slots_max",
    ("kv", "reserved"): "kv_reserved", ("kv", "max"): "kv_max",
    ("queue", "max"): "queue_max",
    ("rates", "prefill", "rate"): "prefill_rate", ("rates", "prefill", "burst"): "prefill_burst",
    ("rates", "decode", "rate"): "decode_rate", ("rates", "decode", "burst"): "decode_burst",
    ("rates", "requests_per_minute"): "requests_per_minute",
    ("group",): "isolation_group",
}  # fmt: skip
SHOWN = frozenset({"used", "parked", "waiting", "level"})  # what is shown and not set
SCHEMA = TypeAdapter(TenantSettings).json_schema(mode="validation")


def make_tenant_document(server: InferenceServer, tenant: TenantSettings) -> dict[str, Any]:
    """Return a tenant with its current use, in total and per resident model."""
    models = {
        model.id: _count_held_resources(model.core.scheduler, number)
        for model in server.models.values()
        if (number := _find_number(model.core.scheduler, tenant.id)) is not None
    }
    total = {
        name: sum(model[name] for model in models.values()) for name in ("slots", "kv_pages", "parked", "waiting")
    }
    levels = [model["levels"] for model in models.values()]
    return {
        "id": tenant.id,
        "object": "tenant",
        "created": server.tenancy.created[tenant.id],
        "class": find_class_name(tenant.priority),
        "weight": tenant.weight,
        "slots": {"guaranteed": tenant.slots_guaranteed, "max": tenant.slots_max, "used": total["slots"]},
        "kv": {
            "reserved": tenant.kv_reserved,
            "max": tenant.kv_max,
            "used": total["kv_pages"],
            "parked": total["parked"],
        },
        "rates": {
            "requests_per_minute": tenant.requests_per_minute,
            "prefill": _format_rate(tenant.prefill_rate, tenant.prefill_burst, [level[0] for level in levels]),
            "decode": _format_rate(tenant.decode_rate, tenant.decode_burst, [level[1] for level in levels]),
            "on_limit": tenant.on_limit,
        },
        "queue": {"waiting": total["waiting"], "max": tenant.queue_max},
        "share": max((model["share"] for model in models.values()), default=0.0),
        "group": tenant.isolation_group,
        "models": None if tenant.models is None else list(tenant.models),
        "max_context": tenant.max_context,
        "max_tokens": tenant.max_tokens,
        "deadline_max_s": tenant.deadline_max_s,
        "session_pin_pages": tenant.session_pin_pages,
        "cache_ttl_s": tenant.cache_ttl_s,
        "keys": [make_key_document(key) for key in tenant.keys],
        "by_model": models,
    }


def make_key_document(key: KeySettings) -> dict[str, Any]:
    """Return a key without its secret or digest."""
    expires = None if key.expires is None else key.expires.isoformat()
    return {"id": key.id, "object": "key", "scopes": list(key.scopes), "expires": expires}


def _find_number(scheduler: Scheduler, name: str) -> int | None:
    return next((index for index, tenant in enumerate(scheduler.tenants) if tenant.name == name), None)


def _count_held_resources(scheduler: Scheduler, number: int) -> dict[str, Any]:
    usage, now_ns = scheduler.usage(number), scheduler.clock_ns()
    pools = scheduler.cache.pools
    shares = [charge / pool.pool.count for charge, pool in zip(usage.pages, pools, strict=True)]
    return {
        "slots": usage.slots,
        "kv_pages": sum(usage.pages),
        "parked": usage.parked,
        "waiting": usage.waiting,
        "share": round(max(usage.slots / scheduler.limits.slots, *shares), 6),
        "levels": [None if item is None else int(item.level(now_ns)) for item in scheduler.buckets[number]],
    }


def _format_rate(rate: int | None, burst: int | None, levels: list[int | None]) -> dict[str, int | None] | None:
    if rate is None:
        return None
    return {
        "rate": rate,
        "burst": rate if burst is None else burst,
        "level": min((level for level in levels if level is not None), default=None),
    }


# --- from a body


def parse_tenant(body: Any, defaults: TenantLimits) -> TenantSettings:
    """Return a new tenant. Raises ServeError 400 with the invalid setting."""
    fields = _flatten(body)
    tenant = _validate_tenant(fields)
    return with_defaults(tenant, fields, defaults)


def parse_tenant_change(tenant: TenantSettings, body: Any) -> TenantSettings:
    """Return the tenant with the changes of a body. Raises ServeError 400 with the invalid setting."""
    fields = _flatten(body)
    if fields.get("id", tenant.id) != tenant.id:
        raise ServeError(400, "id: the id of a tenant cannot change", param="id")
    plain = TypeAdapter(TenantSettings).dump_python(tenant, by_alias=True)
    return _validate_tenant({**plain, **fields})


def _validate_tenant(values: dict[str, Any]) -> TenantSettings:
    settings, errors = validate_settings(TenantSettings, values)
    if settings is None:
        (location, message), *others = errors
        more = f" (and {len(others)} more)" if others else ""
        raise ServeError(
            400, f"{message}{more}", param=".".join(str(item) for item in location), code="invalid_value"
        )
    return settings


def _flatten(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ServeError(400, "the body is not a JSON object: expected a tenant's settings")
    if "keys" in body:
        raise ServeError(400, "keys: create keys with POST /v1/tenants/ID/keys", param="keys")
    fields: dict[str, Any] = {}
    for name, value in body.items():
        fields |= _read_nested_settings((name,), value)
    return fields


def _read_nested_settings(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the settings at a location of the nested form; elsewhere, the setting itself."""
    if place in NESTED:
        return {NESTED[place]: value}
    inside = any(known[: len(place)] == place for known in NESTED)
    if inside and isinstance(value, Mapping):
        settings: dict[str, Any] = {}
        for name, item in value.items():
            if name not in SHOWN:
                settings |= _read_nested_settings((*place, str(name)), item)
        return settings
    if inside and value is None:
        return {setting: None for known, setting in NESTED.items() if known[: len(place)] == place}
    return {place[-1] if place[-1] in _SETTINGS else ".".join(place): value}


_SETTINGS = frozenset({"class", "id", *(field.name for field in fields(TenantSettings))} - {"priority"})
