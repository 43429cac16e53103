"""POST /v1/admin/trace: the last steps of a model as a timeline for Perfetto or chrome://tracing.

Tracks of steps, slots, queues, pages and requests; each request by its number, as a .zlog and the log of answers
have it, and by its x-request-id. Tenants' names are in it; prompts, answers and tokens are not.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from zinc_rt.sched.step_timeline import timeline
from zinc_rt.sched.step_trace import STEPS
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import unavailable
from zinc_rt.serve.tenants.auth import needs

WAIT_SECONDS = 10.0  # for the step that runs to end


def router(server: InferenceServer) -> APIRouter:
    """The route, for keys of scope admin."""
    made = APIRouter(tags=["admin"], dependencies=[Depends(needs("admin"))])

    @made.post("/v1/admin/trace")
    async def trace(
        steps: Annotated[int, Query(ge=1, le=STEPS)] = STEPS, model: str | None = None
    ) -> JSONResponse:
        """The last `steps` of a model, by default the first that is resident, in Chrome's Trace Event format."""
        served = server.model(model or next(iter(server.models), ""))
        try:
            kept = await asyncio.wait_for(server.call(lambda: served.core.last_steps(steps)), WAIT_SECONDS)
        except TimeoutError:
            raise unavailable(f"no step has ended for {WAIT_SECONDS:g} s", "engine_busy") from None

        def shown() -> dict[str, Any]:
            return timeline(kept, served.request_ids.of)

        return JSONResponse(await run_in_threadpool(shown))

    return made
