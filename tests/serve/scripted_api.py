"""The pages over an API that answers by script: what no model of random weights says, when a test wants it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from zinc_rt.serve.page.page import make_router

WAIT = ": wait"  # a line of a script: until the test lets it go on


@dataclass
class ApiScript:
    """`answers`: for a last message, the lines of the stream. `scripted_page`: of other paths, text, JSON or a
    response. `asked`: the bodies that came. `gone`: how many clients left before the end."""

    answers: dict[str, list[str]] = field(default_factory=dict)
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "scripted"}])
    pages: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    gone: int = 0
    going: bool = False


@dataclass
class ScriptedSite:
    """The address of the server and its current script."""

    url: str = ""
    script: ApiScript = field(default_factory=ApiScript)


@contextlib.contextmanager
def listening_site() -> Iterator[ScriptedSite]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    site = ScriptedSite(f"http://127.0.0.1:{port}/")
    http = uvicorn.Server(uvicorn.Config(scripted_app(site), port=port, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=http.run, daemon=True)
    thread.start()
    while not http.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield site
    http.should_exit = http.force_exit = True
    thread.join()


def text_chunks(*words: str) -> list[str]:
    """Send the lines of an answer as separate chunks."""
    return [delta_line(role="assistant", content=""), *(delta_line(content=word) for word in words), *end_lines()]


def delta_line(*, logprobs: list[dict[str, Any]] | None = None, **delta: Any) -> str:
    """A line of the stream."""
    result = {"index": 0, "delta": delta, "finish_reason": None}
    return data_line(choices=[result if logprobs is None else {**result, "logprobs": {"content": logprobs}}])


def end_lines(reason: str = "stop", **more: Any) -> list[str]:
    return [
        data_line(choices=[{"index": 0, "delta": {}, "finish_reason": reason}]),
        data_line(choices=[], **more),
        "data: [DONE]",
    ]


def usage_record(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def data_line(**body: Any) -> str:
    return f"data: {json.dumps({'object': 'chat.completion.chunk', **body})}"


def scripted_app(site: ScriptedSite) -> FastAPI:
    app = FastAPI()
    app.include_router(make_router())

    def check_key(request: Request) -> JSONResponse | None:
        key = site.script.key
        if not key or request.headers.get("authorization") == f"Bearer {key}":
            return None
        return JSONResponse({"error": {"message": "This server wants a key.", "code": "invalid_api_key"}}, 401)

    @app.get("/v1/models")
    async def list_models(request: Request) -> JSONResponse:
        return check_key(request) or JSONResponse({"object": "list", "data": site.script.models})

    @app.post("/v1/chat/completions", response_model=None)
    async def stream_completion(request: Request) -> StreamingResponse | JSONResponse:
        script, body = site.script, await request.json()
        script.asked.append(body)
        lines = script.answers.get(body["messages"][-1]["content"])
        if lines is None:
            return JSONResponse({"error": {"message": "The queue is full."}}, 503, headers={"retry-after": "3"})
        return StreamingResponse(stream_lines(script, lines), media_type="text/event-stream")

    @app.get("/{path:path}")
    async def scripted_page(path: str) -> Response:
        page = site.script.pages.get(path)
        if page is None:
            return JSONResponse({"error": {"message": f"no path {path}"}}, 404)
        if isinstance(page, Response):
            return page
        return Response(page) if isinstance(page, str) else JSONResponse(page)

    return app


async def stream_lines(script: ApiScript, lines: list[str]) -> AsyncIterator[str]:
    try:
        for line in lines:
            if line != WAIT:
                yield f"{line}\n\n"
                continue
            while not script.going:
                await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        script.gone += 1
        raise
