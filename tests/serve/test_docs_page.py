"""The endpoint list at /docs and the icon."""

from __future__ import annotations

import urllib.request

import pytest
from embedded_server import RunningServer


def fetch_page(site: RunningServer, path: str) -> tuple[str, str, str]:
    with urllib.request.urlopen(site.url + path, timeout=60) as reply:
        return (
            reply.read().decode(),
            reply.headers["content-type"],
            reply.headers.get("content-security-policy", ""),
        )


@pytest.mark.rest
def test_page_lists_every_endpoint_of_the_openapi_document(serving: RunningServer) -> None:
    text, kind, policy = fetch_page(serving, "/docs")
    assert kind.startswith("text/html") and "script-src 'none'" in policy
    document = serving.http.config.app.openapi()  # type: ignore[union-attr]
    assert "/v1/chat/completions" in document["paths"]
    assert not [path for path in document["paths"] if f"<code>{path}</code>" not in text]
    assert "https://" not in text.replace("https://github.com", "")  # loads nothing from elsewhere


def test_icon_is_served_as_svg(serving: RunningServer) -> None:
    text, kind, _ = fetch_page(serving, "/favicon.ico")
    assert kind == "image/svg+xml" and text.startswith("<svg")
