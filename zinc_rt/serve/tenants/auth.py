"""Who asks, and what that opens: the FastAPI dependencies that endpoints name.

    @router.get("/v1/models")
    async def models(caller: Inference) -> ...

A server without any key knows one caller, the first tenant, from this machine only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection

from zinc_rt.serve.config.checks import is_loopback
from zinc_rt.serve.config.settings import Scope, ServerSettings
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.tenants.keys import Caller
from zinc_rt.serve.tenants.tenancy import Tenancy

EVERYTHING: frozenset[Scope] = frozenset({"inference", "usage", "admin"})
_bearer = HTTPBearer(auto_error=False, scheme_name="key", description="A tenant's key: zrt_ID_SECRET")


def authenticate(connection: HTTPConnection, tenancy: Tenancy) -> Caller:
    """Raises ServeError 401 without a key that is known, 403 where another site's page asks through a browser."""
    if not tenancy.locked:
        _from_here(connection, tenancy.config.server)
        local = connection.client is None or is_loopback(connection.client.host)
        return Caller(tenancy.config.tenants[0].id, "", EVERYTHING if local else EVERYTHING - {"admin"})
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key:
        raise _unknown("no key: send it as `Authorization: Bearer zrt_...`")
    found = tenancy.keys.caller(key.strip())
    if found is None:
        raise _unknown("this key is not known here")
    if tenancy.keys.expired(found.key):
        raise _unknown(f"key {found.key} has expired")
    return found


async def caller(request: Request, documented: Annotated[object, Depends(_bearer)] = None) -> Caller:
    """Who asks, as `authenticate` has it; of a request with a body once, before that was read."""
    known: Caller | None = getattr(request.state, "caller", None)
    if known is None:
        known = request.state.caller = authenticate(request, request.app.state.server.tenancy)
    return known


def needs(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """The dependency of endpoints that a key must be scoped for. Raises ServeError 403."""

    async def scoped(found: Annotated[Caller, Depends(caller)]) -> Caller:
        if scope not in found.scopes:
            raise ServeError(
                403,
                f"key {found.key or '(none)'} does not open this: it has {', '.join(sorted(found.scopes))}, "
                f"and {scope} is needed",
                "permission_error",
                code="insufficient_scope",
            )
        return found

    return scoped


Anybody = Annotated[Caller, Depends(caller)]  # with any key
Inference = Annotated[Caller, Depends(needs("inference"))]
Admin = Annotated[Caller, Depends(needs("admin"))]


def _unknown(message: str) -> ServeError:
    return ServeError(401, message, code="invalid_api_key")


def _from_here(connection: HTTPConnection, settings: ServerSettings) -> None:
    """Without keys the loopback is the lock: a page of another site must not reach through a visitor's browser, by
    a form it posts (Origin) or a name of its own that it points here (Host)."""
    host = connection.headers.get("host", "")
    origin = connection.headers.get("origin")
    if not settings.insecure and not is_loopback(_name(host)):
        raise ServeError(403, f"Host {host[:80]!r} is not this machine", "permission_error", code="foreign_host")
    if origin is not None and origin.partition("//")[2] != host and origin not in settings.cors:
        raise ServeError(403, f"pages of {origin[:80]!r} may not ask", "permission_error", code="foreign_origin")


def _name(host: str) -> str:
    """Of a Host header, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
