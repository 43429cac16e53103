"""Endpoints for tenants, their keys, caches and sessions. Changes last until the process ends; permanent
changes belong in the configuration file."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse

from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.replies import ErrorReply
from zinc_rt.serve.config.file import validate_settings
from zinc_rt.serve.config.settings import KeySettings, TenantSettings
from zinc_rt.serve.engine.served_model import ServedModel, hash_session_name
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.tenants.auth import Admin, require_scope
from zinc_rt.serve.tenants.keys import new_key
from zinc_rt.serve.tenants.tenant_changes import change_tenants
from zinc_rt.serve.tenants.tenant_json import (
    SCHEMA,
    make_key_document,
    make_tenant_document,
    parse_tenant,
    parse_tenant_change,
)

_REFUSALS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorReply, "description": "refused"}}


def _describe_body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _remove_properties(schema: dict[str, Any], *names: str, required: bool = True) -> dict[str, Any]:
    """Return a body's schema without the fields that the path already sets."""
    left = {name: item for name, item in schema["properties"].items() if name not in names}
    reduced = {"type": "object", "additionalProperties": False, "properties": left}
    return {**reduced, "required": ["id"]} if required else reduced


NEW_KEY = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Za-z0-9-]{1,32}$"},
        "scopes": {"type": "array", "items": {"enum": ["inference", "usage", "admin"]}, "minItems": 1},
        "expires": {"type": ["string", "null"], "format": "date-time"},
    },
}


def make_router(server: InferenceServer) -> APIRouter:
    """Return the routes, for keys with the scope admin."""
    routes = APIRouter(
        route_class=BodyRoute,
        prefix="/v1/tenants",
        tags=["admin"],
        dependencies=[Depends(require_scope("admin"))],
        responses=_REFUSALS,
    )
    _add_tenant_routes(routes, server)
    _add_key_routes(routes, server)
    _add_cache_routes(routes, server)
    return routes


def _add_tenant_routes(routes: APIRouter, server: InferenceServer) -> None:
    tenancy = server.tenancy

    @routes.get("")
    async def list_tenants() -> dict[str, Any]:
        """List the tenants."""
        return {
            "object": "list",
            "data": [make_tenant_document(server, tenant) for tenant in tenancy.config.tenants],
        }

    @routes.post("", status_code=201, openapi_extra=_describe_body(_remove_properties(SCHEMA, "keys")))
    async def create_tenant(request: Request) -> dict[str, Any]:
        """Create a tenant."""
        tenant = parse_tenant(await _read_json(request), tenancy.config.defaults)
        await change_tenants(server, lambda now: _add_tenant(now, tenant))
        tenancy.generated.add(tenant.id)
        return make_tenant_document(server, tenant)

    @routes.get("/{id}")
    async def get_tenant(id: str) -> dict[str, Any]:
        """Return the settings of a tenant."""
        return make_tenant_document(server, tenancy.find_tenant(id))

    @routes.patch("/{id}", openapi_extra=_describe_body(_remove_properties(SCHEMA, "keys", "id", required=False)))
    async def change_tenant(id: str, request: Request) -> dict[str, Any]:
        """Change the given settings of a tenant."""
        body = await _read_json(request)
        await change_tenants(
            server, lambda now: _replace_tenant(now, parse_tenant_change(tenancy.find_tenant(id), body))
        )
        return make_tenant_document(server, tenancy.find_tenant(id))

    @routes.delete("/{id}")
    async def remove_tenant(
        id: str, caller: Admin, running: str = Query("finish", pattern="^(finish|cancel)$")
    ) -> dict[str, Any]:
        """Remove a tenant.

        Its running requests continue, or are cancelled with running=cancel. Its keys and cached prefixes are
        deleted; its usage records remain.
        """
        tenant = tenancy.find_tenant(id)
        if len(tenancy.config.tenants) == 1:
            raise ServeError(409, f"{id} is the only tenant; a server needs at least one", code="last_tenant")
        _require_admin_key(server, [tenant for tenant in tenancy.config.tenants if tenant.id != id])
        numbers = [(model, model.core.find_tenant(id)) for model in server.models.values()]
        await change_tenants(server, lambda now: tuple(item for item in now if item.id != id))
        tenancy.generated.discard(id)
        left = 0
        for model, number in numbers:
            await _forget(server, model, number)
            left += _stop_requests(model, number, cancel=running == "cancel")
        return {"id": tenant.id, "object": "tenant.deleted", "deleted": True, "running": left}


def _add_key_routes(routes: APIRouter, server: InferenceServer) -> None:
    tenancy = server.tenancy

    @routes.get("/{id}/keys")
    async def list_keys(id: str) -> dict[str, Any]:
        """List the keys of a tenant, without their secrets."""
        return {"object": "list", "data": [make_key_document(key) for key in tenancy.find_tenant(id).keys]}

    @routes.post("/{id}/keys", status_code=201, openapi_extra=_describe_body(NEW_KEY))
    async def create_key(id: str, request: Request) -> JSONResponse:
        """Create a key. It is shown in this response only."""
        body = await _read_json(request, empty={})
        text, kept = new_key(str(body.get("id", "")) if isinstance(body, dict) else "")
        fields = {"id": kept.id, "sha256": kept.sha256, **(body if isinstance(body, dict) else {"body": body})}
        key, errors = validate_settings(KeySettings, fields)
        if key is None or "sha256" in body:
            location, reason = errors[0] if errors else (("sha256",), "sha256: the server computes it")
            raise ServeError(400, reason, param=str(location[0]), code="invalid_value")
        async with tenancy.changing:
            tenant = tenancy.find_tenant(id)
            if key.id in tenancy.keys:
                raise ServeError(409, f"id: key {key.id} already exists", param="id", code="key_exists")
            _set_keys(server, replace(tenant, keys=(*tenant.keys, key)))
            tenancy.made_keys.add(key.id)
        return JSONResponse({**make_key_document(key), "key": text}, 201, headers={"cache-control": "no-store"})

    @routes.delete("/{id}/keys/{key}")
    async def revoke_key(id: str, key: str) -> dict[str, Any]:
        """Revoke a key. New requests with it are rejected; running requests continue."""
        async with tenancy.changing:
            tenant = tenancy.find_tenant(id)
            left = tuple(item for item in tenant.keys if item.id != key)
            if len(left) == len(tenant.keys):
                raise ServeError(404, f"tenant {id} has no key {key[:64]!r}", code="key_not_found")
            _set_keys(server, replace(tenant, keys=left))
        return {"id": key, "object": "key.deleted", "deleted": True}


def _add_cache_routes(routes: APIRouter, server: InferenceServer) -> None:
    tenancy = server.tenancy

    @routes.delete("/{id}/cache")
    async def drop_cache(id: str) -> dict[str, Any]:
        """Drop the cached prefixes of a tenant and of its isolation group."""
        tenancy.find_tenant(id)
        for model in server.models.values():
            await _forget(server, model, model.core.find_tenant(id))
        return {"id": id, "object": "cache.deleted", "deleted": True}

    @routes.get("/{id}/sessions")
    async def list_sessions(id: str) -> dict[str, Any]:
        """List the sessions of a tenant."""
        tenancy.find_tenant(id)
        sessions = tenancy.find_sessions(id).list_sessions()
        data = [
            {
                "id": name,
                "object": "session",
                "requests": item.requests,
                "last_used": item.last,
                "pinned_pages": _count_pinned(server, id, name),
            }
            for name, item in sessions.items()
        ]
        return {"object": "list", "data": data}

    @routes.get("/{id}/sessions/{session:path}")
    async def get_session(id: str, session: str) -> dict[str, Any]:
        """Return one session of a tenant."""
        listed = (await list_sessions(id))["data"]
        match: dict[str, Any] | None = next((item for item in listed if item["id"] == session), None)
        if match is None:
            raise _make_session_error(id, session)
        return match

    @routes.delete("/{id}/sessions/{session:path}")
    async def unpin_session(id: str, session: str) -> dict[str, Any]:
        """Unpin the pages of a session, so that they can be evicted."""
        tenancy.find_tenant(id)
        if not tenancy.find_sessions(id).forget(session):
            raise _make_session_error(id, session)
        for model in server.models.values():
            pins, number = model.core.scheduler.pins, model.core.find_tenant(id)
            await server.call(partial(pins.drop, number, hash_session_name(session)))
        return {"id": session, "object": "session.deleted", "deleted": True}


def _make_session_error(id: str, session: str) -> ServeError:
    return ServeError(404, f"tenant {id} has no session {session[:64]!r}", code="session_not_found")


def _count_pinned(server: InferenceServer, tenant: str, session: str) -> int:
    pins = [(model.core.scheduler.pins, model.core.find_tenant(tenant)) for model in server.models.values()]
    return sum(item.count_pages(number, hash_session_name(session)) for item, number in pins)


async def _forget(server: InferenceServer, model: ServedModel, number: int) -> None:
    model.core.forget_cache(number)
    await server.call(partial(model.core.scheduler.pins.drop_all, number))


def _stop_requests(model: ServedModel, number: int, *, cancel: bool) -> int:
    """Return the number of running requests of a tenant."""
    streams = [stream for stream in list(model.streams.values()) if stream.tenant == number]
    for stream in streams:
        if cancel:
            stream.cancel("tenant_removed")
    return 0 if cancel else len(streams)


def _add_tenant(tenants: tuple[TenantSettings, ...], settings: TenantSettings) -> tuple[TenantSettings, ...]:
    if any(tenant.id == settings.id for tenant in tenants):
        raise ServeError(409, f"id: tenant {settings.id} already exists", param="id", code="tenant_exists")
    return (*tenants, settings)


def _replace_tenant(tenants: tuple[TenantSettings, ...], settings: TenantSettings) -> tuple[TenantSettings, ...]:
    return tuple(settings if tenant.id == settings.id else tenant for tenant in tenants)


def _set_keys(server: InferenceServer, tenant: TenantSettings) -> None:
    tenants = _replace_tenant(server.tenancy.config.tenants, tenant)
    _require_admin_key(server, tenants)
    server.tenancy.replace(replace(server.tenancy.config, tenants=tenants))


def _require_admin_key(server: InferenceServer, tenants: Any) -> None:
    """Raise ServeError 409 if no key with the scope admin would remain."""
    keys = [key for tenant in tenants for key in tenant.keys]
    if (keys or server.tenancy.locked) and not any("admin" in key.scopes for key in keys):
        message = "no key would have the scope admin: create one first"
        raise ServeError(409, message, param="scopes", code="no_admin_key")


async def _read_json(request: Request, empty: Any = None) -> Any:
    """Return the body. Raises ServeError 400, 415."""
    raw = await request.body()
    if not raw and empty is not None:
        return empty
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ServeError(415, f"content-type {kind[:64] or '(none)'}: expected application/json")
    try:
        return await request.json()
    except ValueError as error:
        raise ServeError(400, f"the body is not JSON: {error}") from error
