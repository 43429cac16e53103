"""The OpenAPI document of a server as it is: without keys it asks for none."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from zinc_rt.serve.server import InferenceServer

DATA = {"type": "string", "description": "a chunk as JSON; [DONE] at the end"}
EVENT = {"type": "object", "properties": {"data": DATA}, "required": ["data"]}
EVENTS = {"text/event-stream": {"schema": EVENT}}


def document(app: FastAPI, server: InferenceServer) -> dict[str, Any]:
    """Of /openapi.json."""
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    if not server.tenancy.locked:
        made["components"].pop("securitySchemes", None)
        for operations in made["paths"].values():
            for operation in operations.values():
                operation.pop("security", None)
    return made
