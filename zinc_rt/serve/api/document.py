"""The OpenAPI document of a running server. A server without keys does not require one in the document."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import compile_path

from zinc_rt.serve.engine.server import InferenceServer

DATA = {"type": "string", "description": "a chunk as JSON; [DONE] at the end"}
EVENT = {"type": "object", "properties": {"data": DATA}, "required": ["data"]}
EVENTS = {"text/event-stream": {"schema": EVENT}}


def make_openapi_document(app: FastAPI, server: InferenceServer) -> dict[str, Any]:
    """Return the document for /openapi.json."""
    openapi = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    if not server.tenancy.locked:
        openapi["components"].pop("securitySchemes", None)
        for operations in openapi["paths"].values():
            for operation in operations.values():
                operation.pop("security", None)
    return openapi


def list_methods(app: FastAPI, path: str) -> list[str]:
    """Return the HTTP methods that the document lists for a path."""
    documented = _list_documented_paths(app)
    return sorted({method for pattern, methods in documented if pattern.match(path) for method in methods})


@cache
def _list_documented_paths(app: FastAPI) -> list[tuple[re.Pattern[str], list[str]]]:
    paths = get_openapi(title=app.title, version=app.version, routes=app.routes)["paths"]
    return [
        (compile_path(template)[0], [method.upper() for method in operations])
        for template, operations in paths.items()
    ]
