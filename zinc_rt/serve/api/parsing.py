"""Parse request bodies. Large ones are parsed in a process of their own, because nothing else runs in the event
loop meanwhile.

The number of values is limited too, not only that of bytes: a million empty lists are two megabytes of text, and
seconds of work for whoever reads them.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from zinc_rt.serve.api.schema import STRICT
from zinc_rt.serve.errors import ServeError, convert_validation_errors

INLINE_BYTES = 256 << 10  # of a body that the event loop parses itself
INLINE_VALUES = 8192  # that it may have at most
MAX_VALUES = 1 << 16  # of any body, besides token ids
MIN_ID_LIMIT = 1 << 18  # token ids that every body may have; more if a model's context is longer
PARSE_SECONDS = 2.0  # of CPU time, for the largest body

UNREADABLE_BODY = "the body cannot be read: expected JSON in UTF-8"

Body = TypeVar("Body")
ModelBody = TypeVar("ModelBody", bound=BaseModel)


def is_quickly_parsed(data: bytes) -> bool:
    """Return whether parsing takes the event loop a few milliseconds at most. Each value but the first follows one
    of these characters; those inside texts are counted too."""
    return len(data) <= INLINE_BYTES and sum(map(data.count, (b",", b"[", b"{", b":"))) <= INLINE_VALUES


def parse_body(data: bytes, kind: type[Body], *, max_ids: int, strict: bool) -> Body | Any:
    """Return the body as `kind` if that is a pydantic model, else as what JSON has.

    `max_ids`: of all lists of integers together. `strict`: reject unknown parameters. Raises ServeError 400.
    """
    try:
        value = json.loads(data)
    except json.JSONDecodeError as error:
        raise ServeError(400, f"the body is not JSON: {error.msg}") from None
    except (ValueError, RecursionError):  # bytes that are not UTF-8, a number or a nesting without end
        raise ServeError(400, UNREADABLE_BODY) from None
    check_size(value, max_ids)
    if not issubclass(kind, BaseModel):
        return value
    STRICT.set(strict)
    return validate_body(value, kind)


def validate_body(value: Any, kind: type[ModelBody]) -> ModelBody:
    """Return the body as a pydantic model. Raises ServeError 400."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        raise convert_validation_errors([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from None


def check_size(value: Any, max_ids: int) -> None:
    """Raise ServeError 400 for more than MAX_VALUES values or `max_ids` token ids."""
    values, ids, pending = 0, 0, [value]
    while pending:
        item = pending.pop()
        if isinstance(item, list) and item and set(map(type, item)) == {int}:
            ids += len(item)
        elif isinstance(item, list | dict):
            values += len(item)
            pending += item.values() if isinstance(item, dict) else item
        if values > MAX_VALUES:
            raise ServeError(400, f"the body has more than {MAX_VALUES:,} values", code="too_many_values")
        if ids > max_ids:
            message = f"the body has more than {max_ids:,} token ids"
            raise ServeError(400, message, code="context_length_exceeded")
