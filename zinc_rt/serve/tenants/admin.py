"""Endpoints of who runs the server: drain it, have it read its configuration again."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from zinc_rt.serve.api.replies import ErrorReply
from zinc_rt.serve.config import reload as reloading
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.tenants.auth import needs


def router(server: InferenceServer) -> APIRouter:
    """The routes, for keys with the scope admin."""
    made = APIRouter(
        prefix="/v1/admin",
        tags=["admin"],
        dependencies=[Depends(needs("admin"))],
        responses={"4XX": {"model": ErrorReply, "description": "refused"}},
    )
    draining: set[asyncio.Task[bool]] = set()

    @made.post("/drain", status_code=202)
    async def drain(seconds: Annotated[float | None, Query(ge=0, le=1e7)] = None) -> dict[str, Any]:
        """Take nothing new from now on, and give what runs so long. The process stays, for a signal to end it."""
        running = server.requests
        allowed = server.tenancy.config.server.drain_s if seconds is None else seconds
        if not draining:
            draining.add(asyncio.ensure_future(server.drain(allowed)))
            await asyncio.sleep(0)
        return {"status": "draining", "running": running, "seconds": allowed}

    @made.post("/reload")
    async def reload() -> dict[str, Any]:
        """Read the configuration's file again: all of it is applied, or nothing."""
        done = await reloading.reload(server)
        return {"status": "reloaded", "applied": list(done.applied), "at_start": list(done.at_start)}

    return made
