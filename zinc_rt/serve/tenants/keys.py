"""Keys: `zrt_<id>_<secret>`, shown once, kept as the SHA-256 of the secret.

The id finds a key's row; the digest is compared in constant time, also where there is no such row.
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
    """Who asks. `key`: the id of the key, "" where the server has none."""

    tenant: str
    key: str
    scopes: frozenset[Scope]

    @property
    def admin(self) -> bool:
        return "admin" in self.scopes

    def may_see(self, tenant: str) -> bool:
        """Whether what that tenant used is its business."""
        return self.admin or (self.tenant == tenant and "usage" in self.scopes)


def new_key(
    id: str = "", scopes: Iterable[Scope] = ("inference", "usage"), expires: datetime | None = None
) -> tuple[str, KeySettings]:
    """A key to hand out, once, and what the server keeps of it."""
    id = id or secrets.token_hex(4)
    secret = base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode().rstrip("=").lower()
    return f"{PREFIX}_{id}_{secret}", KeySettings(id, digest_of(secret), tuple(scopes), expires)


def digest_of(secret: str) -> str:
    """What is kept of a secret. It has 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


class Keyring:
    """All keys by id. Lives in the event loop; replaced as a whole when a configuration is read again."""

    def __init__(self, tenants: Iterable[TenantSettings]) -> None:
        self._rows = {key.id: (tenant.id, key) for tenant in tenants for key in tenant.keys}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, id: str) -> bool:
        return id in self._rows

    def caller(self, text: str) -> Caller | None:
        """Who has this key; None for nobody. An expired key still has an owner: see `expired`."""
        prefix, _, rest = text.partition("_")
        id, _, secret = rest.partition("_")
        row = self._rows.get(id) if prefix == PREFIX else None
        wanted = NO_DIGEST if row is None else row[1].sha256
        same = hmac.compare_digest(digest_of(secret), wanted)
        if row is None or not same:
            return None
        return Caller(row[0], id, frozenset(row[1].scopes))

    def expired(self, id: str) -> bool:
        expires = self._rows[id][1].expires
        return expires is not None and expires <= datetime.now(UTC)
