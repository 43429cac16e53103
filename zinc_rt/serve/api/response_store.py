"""The responses that clients can refer to by id, in memory: a tenant's last ones, within limits."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from zinc_rt.serve.errors import ServeError

MAX_RESPONSES = 256  # of a tenant
MAX_BYTES = 16 << 20  # of a tenant's conversations, as JSON
MAX_TENANTS = 1024  # with stored responses; the one that was unused for longest is forgotten


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """`response`: the body that the client got. `conversation`: all items of input and output up to it, those of
    earlier responses included. `input_count`: how many of them are its own input, before its output."""

    response: dict[str, Any]
    conversation: tuple[dict[str, Any], ...]
    input_count: int
    bytes: int

    @property
    def input_items(self) -> list[dict[str, Any]]:
        """Return the items of its own input."""
        end = len(self.conversation) - len(self.response["output"])
        return list(self.conversation[end - self.input_count : end])


class ResponseStore:
    """The stored responses by tenant and id. Used in the event loop."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, OrderedDict[str, StoredResponse]] = OrderedDict()

    def add(
        self, tenant: str, response: dict[str, Any], conversation: tuple[dict[str, Any], ...], input_count: int
    ) -> None:
        """Keep a complete response. The tenant's oldest ones go if there is no room."""
        size = len(json.dumps(conversation))
        kept = self._tenants.setdefault(tenant, OrderedDict())
        self._tenants.move_to_end(tenant)
        kept[response["id"]] = StoredResponse(response, conversation, input_count, size)
        while len(kept) > MAX_RESPONSES or sum(item.bytes for item in kept.values()) > MAX_BYTES:
            kept.popitem(last=False)
        if len(self._tenants) > MAX_TENANTS:
            self._tenants.popitem(last=False)

    def find(self, tenant: str, id: str, param: str | None = None) -> StoredResponse:
        """Return a response of the tenant. Raises ServeError 404."""
        kept = self._tenants.get(tenant)
        found = None if kept is None else kept.get(id)
        if found is None:
            message = f"no response {id[:80]!r}: it was not stored, was deleted, or is too old"
            raise ServeError(404, message, param=param, code="response_not_found")
        return found

    def delete(self, tenant: str, id: str) -> None:
        """Forget a response of the tenant. Raises ServeError 404."""
        self.find(tenant, id)
        del self._tenants[tenant][id]
