"""POST /v1/admin/trace: the last steps of a model as a timeline for Perfetto or chrome://tracing.

It has tracks for steps, slots, queues, pages and requests. Each request has its number, as in a .zlog and the
answer log, and its x-request-id. Tenant names are included; prompts, answers and tokens are not.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from zinc_rt.sched.step_timeline import build_timeline
from zinc_rt.sched.step_trace import STEPS
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import make_unavailable_error
from zinc_rt.serve.tenants.auth import require_scope

WAIT_SECONDS = 10.0  # for the step that runs to end


def make_router(server: InferenceServer) -> APIRouter:
    """Return the route, for keys with the scope admin."""
    routes = APIRouter(tags=["admin"], dependencies=[Depends(require_scope("admin"))])

    @routes.post("/v1/admin/trace")
    async def get_trace(
        steps: Annotated[int, Query(ge=1, le=STEPS)] = STEPS, model: str | None = None
    ) -> JSONResponse:
        """Return the last `steps` of a model, by default the first resident model, in Chrome's Trace Event
        format."""
        served = server.model(model or next(iter(server.models), ""))
        try:
            kept = await asyncio.wait_for(server.call(lambda: served.core.copy_last_steps(steps)), WAIT_SECONDS)
        except TimeoutError:
            raise make_unavailable_error(f"no step has ended for {WAIT_SECONDS:g} s", "engine_busy") from None

        def make_timeline() -> dict[str, Any]:
            return build_timeline(kept, served.request_ids.of)

        return JSONResponse(await run_in_threadpool(make_timeline))

    return routes
