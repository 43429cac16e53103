"""The ASGI application of an InferenceServer: its routes, and its error responses."""

from __future__ import annotations

import asyncio
from collections import Counter
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from zinc_rt.serve.api import (
    embeddings,
    messages,
    model_routes,
    native,
    not_offered,
    openai,
    responses,
    slot_state,
)
from zinc_rt.serve.api.bodies import BoundedBodies, is_json
from zinc_rt.serve.api.document import ApiDocument
from zinc_rt.serve.api.parsing import UNREADABLE_BODY
from zinc_rt.serve.api.response_store import ResponseStore
from zinc_rt.serve.api.sse import ClientDisconnected, make_error_response
from zinc_rt.serve.api.web_socket import WebSocketRequests
from zinc_rt.serve.engine.model_loader import ModelLoader
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError, convert_validation_errors
from zinc_rt.serve.http.headers import ReplyHeaders
from zinc_rt.serve.observe import metrics, routing, trace
from zinc_rt.serve.observe.events import EVENTS
from zinc_rt.serve.observe.logs import RequestLog
from zinc_rt.serve.page import page
from zinc_rt.serve.tenants import admin, tenant_routes, usage_routes


def make_app(server: InferenceServer) -> FastAPI:
    """Return the FastAPI application; `app.state.server` is the server."""
    api = FastAPI(title="ZINC_RT", version=version("zinc-rt"), docs_url=None, redoc_url=None, openapi_url=None)
    document = api.state.document = ApiDocument(api, server)
    api.openapi = document.make  # type: ignore[method-assign]
    api.add_route("/openapi.json", document.answer, include_in_schema=False)
    api.state.server, api.state.loader, api.state.responses = server, ModelLoader(server), ResponseStore()
    for module in (openai, embeddings, messages, responses, model_routes, not_offered, native, slot_state):
        api.include_router(module.router)
    statuses: Counter[int] = Counter()
    api.include_router(metrics.make_router(server, statuses))
    api.include_router(trace.make_router(server))
    api.include_router(routing.make_router(server))
    for item in (tenant_routes, usage_routes, admin):
        api.include_router(item.make_router(server))
    api.include_router(page.make_router())
    api.add_middleware(BoundedBodies, server=server)
    api.add_middleware(ReplyHeaders, server=server)
    if origins := server.config.server.cors:
        api.add_middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["*"], allow_headers=["*"])
    api.add_exception_handler(ServeError, _handle_serve_error)
    api.add_exception_handler(RequestValidationError, _handle_validation_error)
    api.add_exception_handler(HTTPException, _handle_not_found)
    api.add_exception_handler(ClientDisconnected, _handle_disconnect)
    api.add_exception_handler(Exception, _handle_unexpected_error)
    api.add_middleware(RequestLog, responses=statuses)
    api.add_middleware(WebSocketRequests, server=server)  # the outermost: added last
    return api


async def _handle_serve_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServeError)
    caller = getattr(request.state, "caller", None)
    if error.status == 429 and caller is not None:
        EVENTS.report("tenant_limited", caller.tenant, tenant=caller.tenant, code=error.code)
    return make_error_response(error, request.scope)


async def _handle_validation_error(request: Request, error: Exception) -> Response:
    """Respond to a body that does not match its schema with 400, not 422."""
    assert isinstance(error, RequestValidationError)
    of_body = any(error["loc"][:1] == ("body",) for error in error.errors())
    if of_body and not is_json(request):
        kind = request.headers.get("content-type", "")[:64] or "(none)"
        return make_error_response(
            ServeError(415, f"content-type {kind}: expected application/json", code="unsupported_type"),
            request.scope,
        )
    return make_error_response(convert_validation_errors(error.errors()), request.scope)


async def _handle_not_found(request: Request, error: Exception) -> Response:
    """Respond to an unknown path or method."""
    assert isinstance(error, HTTPException)
    message = {
        400: UNREADABLE_BODY,
        404: f"no such path: {request.method} {request.url.path[:128]}",
        405: f"{request.url.path[:128]} does not take {request.method}",
    }.get(error.status_code, str(error.detail))
    response = make_error_response(
        ServeError(error.status_code, message, code="not_found" if error.status_code == 404 else None),
        request.scope,
    )
    response.headers.update(error.headers or {})
    if error.status_code == 405:  # FastAPI names the methods of the path's first route alone
        methods = await asyncio.to_thread(request.app.state.document.list_methods, request.url.path)
        response.headers["allow"] = ", ".join(methods) or response.headers["allow"]
    return response


async def _handle_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it; logs do


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    """Respond to an internal error. The traceback is only in the log."""
    id = request.state.request_id
    message = f"internal error; see the server log, request {id}"
    response = make_error_response(ServeError(500, message, "server_error", code="internal_error"), request.scope)
    response.headers["x-request-id"] = id  # outside of the middleware
    return response
