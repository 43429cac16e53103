"""API keys: `zrt_<id>_<secret>`. The server shows a key once and stores the SHA-256 of its secret.

The id selects the row of the key; the digest is compared in constant time, even if the row does not exist.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from zinc_rt.serve.config.settings import KeySettings, Scope, TenantSettings

PREFIX = "zrt"
SECRET_BYTES = 32
NO_DIGEST = hashlib.sha256(secrets.token_bytes(SECRET_BYTES)).hexdigest()  # of nobody's secret


@dataclass(frozen=True, slots=True)
class Caller:
    """The tenant and scopes of a request. `key`: the id of the key, "" if the server has no keys."""

    tenant: str
    key: str
    scopes: frozenset[Scope]

    @property
    def admin(self) -> bool:
        return "admin" in self.scopes

    def can_see(self, tenant: str) -> bool:
        """Return whether the caller may read that tenant's usage."""
        return self.admin or (self.tenant == tenant and "usage" in self.scopes)


def new_key(
    id: str = "", scopes: Iterable[Scope] = ("inference", "usage"), expires: datetime | None = None
) -> tuple[str, KeySettings]:
    """Return a new key for the client, and its stored form for the server."""
    id = id or secrets.token_hex(4)
    secret = base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode().rstrip("=").lower()
    return f"{PREFIX}_{id}_{secret}", KeySettings(id, digest_secret(secret), tuple(scopes), expires)


def digest_secret(secret: str) -> str:
    """Return the digest of a secret. A secret has 256 random bits, so a slow hash is unnecessary."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


class Keyring:
    """All keys by id. It is used in the event loop; a reload replaces it."""

    def __init__(self, tenants: Iterable[TenantSettings]) -> None:
        self._rows = {key.id: (tenant.id, key) for tenant in tenants for key in tenant.keys}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id: str) -> bool:
        return id in self._rows

    def find_caller(self, text: str) -> Caller | None:
        """Return the owner of a key, or None if the key is unknown. An expired key still has an owner: see
        `is_expired`."""
        prefix, _, rest = text.partition("_")
        id, _, secret = rest.partition("_")
        row = self._rows.get(id) if prefix == PREFIX else None
        expected = NO_DIGEST if row is None else row[1].sha256
        same = hmac.compare_digest(digest_secret(secret), expected)
        if row is None or not same:
            return None
        return Caller(row[0], id, frozenset(row[1].scopes))

    def is_expired(self, id: str) -> bool:
        expires = self._rows[id][1].expires
        return expires is not None and expires <= datetime.now(UTC)
