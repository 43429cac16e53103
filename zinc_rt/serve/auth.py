"""Who asks, and what that opens: the FastAPI dependencies that endpoints name.

    @router.get("/v1/models")
    async def models(caller: Inference) -> ...

A server without any key knows one caller, the first tenant, from this machine only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from zinc_rt.serve.config import Scope, ServerSettings
from zinc_rt.serve.config_checks import is_loopback
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.keys import Caller
from zinc_rt.serve.tenancy import Tenancy

EVERYTHING: frozenset[Scope] = frozenset({"inference", "usage", "admin"})
_bearer = HTTPBearer(auto_error=False, scheme_name="key", description="A tenant's key: zrt_ID_SECRET")


async def caller(
    request: Request, bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None
) -> Caller:
    """Raises ServeError 401 without a key that is known, 403 where another site's page asks through a browser."""
    tenancy: Tenancy = request.app.state.server.tenancy
    if not tenancy.keys:
        _from_here(request, tenancy.config.server)
        local = request.client is None or is_loopback(request.client.host)
        scopes = EVERYTHING if local else EVERYTHING - {"admin"}
        return Caller(tenancy.config.tenants[0].id, "", scopes)
    if bearer is None:
        raise _unknown("no key: send it as `Authorization: Bearer zrt_...`")
    found = tenancy.keys.caller(bearer.credentials)
    if found is None:
        raise _unknown("this key is not known here")
    if tenancy.keys.expired(found.key):
        raise _unknown(f"key {found.key} has expired")
    return found


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


def _from_here(request: Request, settings: ServerSettings) -> None:
    """Without keys the loopback is the lock: a page of another site must not reach through a visitor's browser, by
    a form it posts (Origin) or a name of its own that it points here (Host)."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    if not settings.insecure and not is_loopback(_name(host)):
        raise ServeError(403, f"Host {host[:80]!r} is not this machine", "permission_error", code="foreign_host")
    if origin is not None and origin.partition("//")[2] != host and origin not in settings.cors:
        raise ServeError(403, f"pages of {origin[:80]!r} may not ask", "permission_error", code="foreign_origin")


def _name(host: str) -> str:
    """Of a Host header, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
