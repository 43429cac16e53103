"""Authentication and authorization: the FastAPI dependencies of the endpoints.

    @router.get("/v1/models")
    async def models(caller: Inference) -> ...

A server without keys accepts requests from this machine only, as the first tenant.
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


async def authenticate(connection: HTTPConnection, tenancy: Tenancy) -> Caller:
    """Return the caller. Raises ServeError 401 without a valid key, 403 for a browser request from another
    site. An address that sends many wrong keys waits for its 401: see FailedKeys."""
    try:
        return _find_owner(connection, tenancy)
    except ServeError as error:
        if error.status == 401 and connection.client is not None:
            await tenancy.failed_keys.delay(connection.client.host)
        raise


def _find_owner(connection: HTTPConnection, tenancy: Tenancy) -> Caller:
    if not tenancy.locked:
        _require_loopback(connection, tenancy.config.server)
        local = connection.client is None or is_loopback(connection.client.host)
        return Caller(tenancy.config.tenants[0].id, "", EVERYTHING if local else EVERYTHING - {"admin"})
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if not key and (other := connection.headers.get("x-api-key", "")):  # Anthropic's
        scheme, key = "bearer", other
    if scheme.lower() != "bearer" or not key:
        raise _make_key_error("missing API key: send it as `Authorization: Bearer zrt_...`")
    caller = tenancy.keys.find_caller(key.strip())
    if caller is None:
        raise _make_key_error("unknown key")
    if tenancy.keys.is_expired(caller.key):
        raise _make_key_error(f"key {caller.key} has expired")
    return caller


async def find_caller(request: Request, documented: Annotated[object, Depends(_bearer)] = None) -> Caller:
    """Return the caller of a request. See `authenticate`. For a request with a body it is determined once,
    before the body is read."""
    known: Caller | None = getattr(request.state, "caller", None)
    if known is None:
        known = request.state.caller = await authenticate(request, request.app.state.server.tenancy)
    return known


def require_scope(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """Return the dependency of endpoints that require a scope. Raises ServeError 403."""

    async def check_scope(authenticated: Annotated[Caller, Depends(find_caller)]) -> Caller:
        if scope not in authenticated.scopes:
            raise ServeError(
                403,
                f"key {authenticated.key or '(none)'} lacks the scope {scope}: "
                f"it has {', '.join(sorted(authenticated.scopes))}",
                "permission_error",
                code="insufficient_scope",
            )
        return authenticated

    return check_scope


Anybody = Annotated[Caller, Depends(find_caller)]  # with any key
Inference = Annotated[Caller, Depends(require_scope("inference"))]
Admin = Annotated[Caller, Depends(require_scope("admin"))]


def _make_key_error(message: str) -> ServeError:
    return ServeError(401, message, code="invalid_api_key")


def _require_loopback(connection: HTTPConnection, settings: ServerSettings) -> None:
    """Check the Origin and Host headers of a server without keys.

    Such a server accepts loopback connections only. The check rejects requests that another site makes
    through a visitor's browser, with a form (Origin) or by DNS rebinding (Host).
    """
    host = connection.headers.get("host", "")
    origin = connection.headers.get("origin")
    if not settings.insecure and not is_loopback(_strip_port(host)):
        raise ServeError(
            403, f"Host {host[:80]!r} is not a name of this machine", "permission_error", code="foreign_host"
        )
    if origin is not None and origin.partition("//")[2] != host and origin not in settings.cors:
        raise ServeError(
            403, f"pages of {origin[:80]!r} are not allowed", "permission_error", code="foreign_origin"
        )


def _strip_port(host: str) -> str:
    """Return the host name of a Host header, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
