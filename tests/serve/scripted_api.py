"""The pages over an API that answers by script: what a model of random weights never says, when a test wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from zinc_rt.serve.page import router

WAIT = ": wait"  # a line of a script: until the test says go


@dataclass
class Script:
    """`answers`: for a last message, the lines of the stream. `asked`: the bodies that came. `gone`: how many clients
    left before the end."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "scripted"}])
    key: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    gone: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)


def chunk(**delta: Any) -> str:
    """A line of the stream with a delta."""
    return data(choices=[{"index": 0, "delta": delta, "finish_reason": None}])


def end(reason: str = "stop", **more: Any) -> list[str]:
    return [data(choices=[{"index": 0, "delta": {}, "finish_reason": reason}]), data(choices=[], **more), "data: [DONE]"]


def data(**body: Any) -> str:
    return f"data: {json.dumps({'object': 'chat.completion.chunk', **body})}"


def scripted(script: Script) -> FastAPI:
    app = FastAPI()
    app.include_router(router())

    @app.get("/v1/models")
    async def models(request: Request) -> JSONResponse:
        if script.key and request.headers.get("authorization") != f"Bearer {script.key}":
            return JSONResponse({"error": {"message": "This server wants a key.", "code": "invalid_api_key"}}, 401)
        return JSONResponse({"object": "list", "data": script.models})

    @app.post("/v1/chat/completions", response_model=None)
    async def completions(request: Request) -> StreamingResponse | JSONResponse:
        body = await request.json()
        script.asked.append(body)
        lines = script.answers.get(body["messages"][-1]["content"])
        if lines is None:
            return JSONResponse({"error": {"message": "The queue is full."}}, 503, headers={"retry-after": "3"})

        async def stream() -> AsyncIterator[str]:
            try:
                for line in lines:
                    if line == WAIT:
                        script.go.clear()
                        await script.go.wait()
                    else:
                        yield f"{line}\n\n"
            except asyncio.CancelledError:
                script.gone += 1
                raise

        return StreamingResponse(stream(), media_type="text/event-stream")

    return app
