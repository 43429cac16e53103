"""The OpenAPI document of a running server. A server without keys does not require one in the document."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from starlette.routing import compile_path

from zinc_rt.serve.engine.server import InferenceServer

DATA = {"type": "string", "description": "a chunk as JSON; [DONE] at the end"}
EVENT = {"type": "object", "properties": {"data": DATA}, "required": ["data"]}
EVENTS = {"text/event-stream": {"schema": EVENT}}


class ApiDocument:
    """The document of an application, made once with keys and once without: it takes a quarter of a second."""

    def __init__(self, app: FastAPI, server: InferenceServer) -> None:
        self._app, self._server = app, server
        self._made: dict[bool, dict[str, Any]] = {}
        self._texts: dict[bool, bytes] = {}

    def make(self) -> dict[str, Any]:
        """Return the document. Not for the event loop."""
        locked = self._server.tenancy.locked
        if locked not in self._made:
            self._made[locked] = self._make_document(locked)
        return self._made[locked]

    async def answer(self, request: Request) -> Response:
        """Answer GET /openapi.json."""
        locked = self._server.tenancy.locked
        if locked not in self._texts:
            self._texts[locked] = await asyncio.to_thread(lambda: json.dumps(self.make()).encode())
        return Response(self._texts[locked], media_type="application/json")

    def list_methods(self, path: str) -> list[str]:
        """Return the HTTP methods that the document lists for a path. Not for the event loop."""
        paths = self.make()["paths"]
        matching = (template for template in paths if compile_path(template)[0].match(path))
        return sorted({method.upper() for template in matching for method in paths[template]})

    def _make_document(self, locked: bool) -> dict[str, Any]:
        app = self._app
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        if not locked:
            document["components"].pop("securitySchemes", None)
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation.pop("security", None)
        return document
