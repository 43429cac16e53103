"""Errors for clients: OpenAI's error body, its type, and the HTTP status."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.host.errors import UsageError

_PREFIX = re.compile(r"^(Input should be|\w+ should have) ")  # of pydantic's sentences
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_TYPE_TAGS = frozenset({"str", "int", "float", "bool", "none", "dict", "list"})


@dataclass(eq=False)
class ServeError(Exception):
    """A rejected or failed request. `param`: the invalid parameter; `code`: machine-readable code;
    `retry_after_seconds`: when a retry may succeed."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after_seconds: float | None = None

    def __str__(self) -> str:
        return self.message

    def body(self, *, anthropic: bool = False) -> dict[str, Any]:
        """Return the body in OpenAI's format, or in Anthropic's."""
        if anthropic:
            kind = ANTHROPIC_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
            return {"type": "error", "error": {"type": kind, "message": self.message}}
        return {
            "error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code},
        }

    def json(self, *, anthropic: bool = False) -> bytes:
        """Return the body as ASCII JSON, even if the message quotes other characters."""
        return json.dumps(self.body(anthropic=anthropic)).encode()

    def headers(self) -> dict[str, str]:
        """Return the headers: Retry-After in whole seconds, and WWW-Authenticate for unauthorized requests."""
        headers, wait = {"www-authenticate": "Bearer"} if self.status == 401 else {}, self.retry_after_seconds
        return headers if wait is None else {**headers, "retry-after": str(max(1, math.ceil(wait)))}


def make_unavailable_error(message: str, code: str, retry_after_seconds: float = 1.0) -> ServeError:
    """Return a 503 error: the request is valid."""
    return ServeError(
        503, message, "service_unavailable_error", code=code, retry_after_seconds=retry_after_seconds
    )


def make_not_offered_error(what: str, instead: str) -> ServeError:
    """Return a 501 error: the request is valid, but not supported."""
    return ServeError(501, f"{what} is not offered: {instead}", "not_implemented_error", code="not_implemented")


def convert_usage_error(error: UsageError, parameters: Sequence[str]) -> ServeError:
    """Return a 400 error for a value that the engine rejects. The message starts with the parameter name."""
    first = error.message.partition(" ")[0].rstrip(":")
    return ServeError(400, error.message, param=first if first in parameters else None)


def convert_validation_errors(errors: Sequence[dict[str, Any]]) -> ServeError:
    """Return a 400 error for a body that does not match its schema.

    It reports the first fault. If a value matches no type of a union, it reports the alternative that matched
    furthest.
    """
    begin = _format_param(errors[0]["loc"])
    first = max(
        (error for error in errors if _format_param(error["loc"]).startswith(begin)), key=lambda e: len(e["loc"])
    )
    kind, location = first["type"], _format_param(first["loc"])
    if kind == "json_invalid":
        return ServeError(400, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if kind == "unknown_parameter":
        name = first["ctx"]["name"]
        return ServeError(400, first["msg"], param=name, code="unknown_parameter")
    if kind == "union_tag_invalid":
        about = first["ctx"]
        message = f"{location}: type {about['tag']!r:.80} is not supported; expected {about['expected_tags']}"
        return ServeError(400, message, param=location, code="invalid_value")
    if kind == "missing" and not location:
        return ServeError(400, "the body is missing: expected a JSON object")
    if kind == "missing":
        return ServeError(400, f"{location}: required", param=location, code="missing_required_parameter")
    if kind == "model_attributes_type" and not location:
        return ServeError(400, "the body: expected a JSON object", code="invalid_value")
    same = [error["msg"] for error in errors if _format_param(error["loc"]) == location]
    expected = " or ".join(dict.fromkeys(_PREFIX.sub("", message) for message in same))
    return ServeError(
        400, f"{location or 'the body'}: expected {expected}", param=location or None, code="invalid_value"
    )


def _format_param(location: Sequence[int | str]) -> str:
    """Return messages[0].content for ("body", "messages", 0, "content", "str"). Union tags are omitted."""
    name = ""
    for part in location[1:]:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part not in _TYPE_TAGS and part.isidentifier() and part.islower():
            name += f".{part}" if name else part
    return name
