"""The ASGI application over a InferenceServer: its routes, and how failures are told."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from zinc_rt.serve import metrics
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.logs import RequestLog
from zinc_rt.serve.server import InferenceServer


def app(server: InferenceServer) -> FastAPI:
    """FastAPI's application; `app.state.server` is the server."""
    made = FastAPI(title="ZINC_RT", docs_url=None, redoc_url=None)
    made.state.server = server
    responses: Counter[int] = Counter()
    made.include_router(metrics.router(server, responses))

    @made.exception_handler(ServeError)
    async def refused(request: Request, error: ServeError) -> JSONResponse:
        return JSONResponse(error.body(), error.status)

    @made.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok"}

    made.add_middleware(RequestLog, responses=responses)  # the outermost: added last
    return made
