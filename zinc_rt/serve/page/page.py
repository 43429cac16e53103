"""The browser pages: one self-contained file each, which connects to this server only."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

FILES = {"/": "chat.html", "/engine": "engine.html"}
METHODS = ["GET", "HEAD"]
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect width="16" height="16" rx="4" fill="#0b6e75"/>'
    '<path d="M4.5 4.5h7l-7 7h7" fill="none" stroke="#fff" stroke-width="1.8"/></svg>'
)


def make_router() -> APIRouter:
    """Return the routes of the pages and of the icon. They need no key because they contain no data."""
    routes = APIRouter(include_in_schema=False)
    for path, name in FILES.items():
        routes.add_api_route(path, _make_page(name), methods=METHODS)
    routes.add_api_route("/docs", _render_endpoints, methods=METHODS)
    routes.add_api_route("/favicon.ico", _serve_icon, methods=METHODS)
    return routes


async def _render_endpoints(request: Request) -> Response:
    """Return the list of endpoints as a page, rendered from the server's OpenAPI document."""
    text = await asyncio.to_thread(_render_document, request.app.openapi, str(request.base_url).rstrip("/"))
    return Response(text, media_type="text/html; charset=utf-8", headers=_make_headers(text))


def _render_document(make_document: Callable[[], dict[str, Any]], address: str) -> str:
    from jinja2 import Environment

    template = (Path(__file__).parent / "docs.html.jinja").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(document=make_document(), address=address)


async def _serve_icon() -> Response:
    return Response(ICON, media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})


def _make_page(name: str) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        text, headers = read(name)
        return Response(text, media_type="text/html; charset=utf-8", headers=headers)

    return page


@cache
def read(name: str) -> tuple[str, dict[str, str]]:
    """Return a page's text and its headers."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return text, _make_headers(text)


def _make_headers(text: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": make_policy(text),
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def make_policy(page: str) -> str:
    """Return the Content-Security-Policy of a page: it may run its own script and style, identified by hash,
    and connect to this server.

    Trusted Types are required without any policy: passing a string to the HTML parser fails, so model output
    is never interpreted as markup.
    """
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src {_hash_blocks(page, 'script')}",
            f"style-src {_hash_blocks(page, 'style')}",
            "img-src 'self' data:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash_blocks(page: str, tag: str) -> str:
    inline = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    if not inline:
        return "'none'"
    digests = (hashlib.sha256(item.encode()).digest() for item in inline)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
