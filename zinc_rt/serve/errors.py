"""What a client is told of a failure: OpenAI's error body, its type, and the HTTP status."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.host.errors import UsageError

_PREFIX = re.compile(r"^(Input should be|\w+ should have) ")  # of pydantic's sentences
_TYPE_TAGS = frozenset({"str", "int", "float", "bool", "none", "dict", "list"})


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

    def json(self) -> bytes:
        """The same as ASCII, whatever the message quotes."""
        return json.dumps(self.body()).encode()

    def headers(self) -> dict[str, str]:
        """Retry-After, in whole seconds, where trying again may help; how to be known, for who is not."""
        found, wait = {"www-authenticate": "Bearer"} if self.status == 401 else {}, self.retry_after_seconds
        return found if wait is None else {**found, "retry-after": str(max(1, math.ceil(wait)))}


def unavailable(message: str, code: str, retry_after_seconds: float = 1.0) -> ServeError:
    """503: nothing is wrong with the request."""
    return ServeError(
        503, message, "service_unavailable_error", code=code, retry_after_seconds=retry_after_seconds
    )


def not_offered(what: str, instead: str) -> ServeError:
    """501: well-formed, and not built in."""
    return ServeError(501, f"{what} is not offered: {instead}", "not_implemented_error", code="not_implemented")


def of_usage(error: UsageError, parameters: Sequence[str]) -> ServeError:
    """400 for a value the engine does not take. Its message begins with the name of what is wrong."""
    first = error.message.partition(" ")[0].rstrip(":")
    return ServeError(400, error.message, param=first if first in parameters else None)


def of_validation(errors: Sequence[dict[str, Any]]) -> ServeError:
    """400 for a body that is not what its schema says. Of several faults the first is told; of the ways in which a
    value fits none of its types, that which came the furthest."""
    begin = _param(errors[0]["loc"])
    first = max((each for each in errors if _param(each["loc"]).startswith(begin)), key=lambda e: len(e["loc"]))
    kind, place = first["type"], _param(first["loc"])
    if kind == "json_invalid":
        return ServeError(400, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if kind == "unknown_parameter":
        name = first["ctx"]["name"]
        return ServeError(400, first["msg"], param=name, code="unknown_parameter")
    if kind == "missing" and not place:
        return ServeError(400, "the body is missing: wanted a JSON object")
    if kind == "missing":
        return ServeError(400, f"{place}: required", param=place, code="missing_required_parameter")
    if kind == "model_attributes_type" and not place:
        return ServeError(400, "the body: wanted a JSON object", code="invalid_value")
    same = [each["msg"] for each in errors if _param(each["loc"]) == place]
    wanted = " or ".join(dict.fromkeys(_PREFIX.sub("", message) for message in same))
    return ServeError(400, f"{place or 'the body'}: wanted {wanted}", param=place or None, code="invalid_value")


def _param(location: Sequence[int | str]) -> str:
    """messages[0].content of ("body", "messages", 0, "content", "str"): the tags of unions are left out."""
    name = ""
    for part in location[1:]:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part not in _TYPE_TAGS and part.isidentifier() and part.islower():
            name += f".{part}" if name else part
    return name
