"""Administration endpoints: drain the server, reload the configuration."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.replies import ErrorReply
from zinc_rt.serve.config import reload as reloading
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.tenants.auth import require_scope


def make_router(server: InferenceServer) -> APIRouter:
    """Return the routes, for keys with the scope admin."""
    routes = APIRouter(
        route_class=BodyRoute,
        prefix="/v1/admin",
        tags=["admin"],
        dependencies=[Depends(require_scope("admin"))],
        responses={"4XX": {"model": ErrorReply, "description": "refused"}},
    )
    draining: set[asyncio.Task[bool]] = set()

    @routes.post("/drain", status_code=202)
    async def drain(seconds: Annotated[float | None, Query(ge=0, le=1e7)] = None) -> dict[str, Any]:
        """Stop accepting requests and let running requests continue for `seconds`. The process remains until
        a signal ends it."""
        running = server.requests
        allowed = server.tenancy.config.server.drain_s if seconds is None else seconds
        if not draining:
            draining.add(asyncio.ensure_future(server.drain(allowed)))
            await asyncio.sleep(0)
        return {"status": "draining", "running": running, "seconds": allowed}

    @routes.post("/reload")
    async def reload_configuration() -> dict[str, Any]:
        """Reload the configuration file, atomically."""
        result = await reloading.reload(server)
        return {"status": "reloaded", "applied": list(result.applied), "at_start": list(result.at_start)}

    return routes
