"""What a client is told of a failure: OpenAI's error body, its type, and the HTTP status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class ServeError(Exception):
    """A request that is refused or failed. `param` names what was wrong, `code` is for programs;
    `retry_after_seconds` where trying again may help."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after_seconds: float | None = None

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """As OpenAI's API has it."""
        return {
            "error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code},
        }


def unavailable(message: str, code: str, retry_after_seconds: float = 1.0) -> ServeError:
    """503: nothing is wrong with the request."""
    return ServeError(
        503, message, "service_unavailable_error", code=code, retry_after_seconds=retry_after_seconds
    )
