"""Pinned pages of sessions: the pages of the last turn are kept until the next turn or a timeout.

A pin is a hint: it is dropped before a request of its tenant is refused for lack of pages, and before any
request is evicted.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.sched.kv.kv_cache import UNSET, Holding, KvCache, release_table
from zinc_rt.sched.kv.prefix import NO_ROW
from zinc_rt.sched.timers import Timers


@dataclass(slots=True, eq=False)
class SessionPin:
    tenant: int
    session: int
    tables: list[list[int]]
    row: int = NO_ROW

    @property
    def pages(self) -> int:
        return max(sum(page != UNSET for page in table) for table in self.tables)


class SessionPins:
    """One pin per session; a tenant's oldest pins are dropped first."""

    def __init__(self, cache: KvCache, ttl_ns: int) -> None:
        self._cache, self._ttl_ns = cache, ttl_ns
        self._pins: dict[tuple[int, int], SessionPin] = {}

    def __len__(self) -> int:
        return len(self._pins)

    def list_pins(self) -> list[SessionPin]:
        return list(self._pins.values())

    def pin(self, holding: Holding, session: int, maximum: int, now_ns: int, timers: Timers) -> None:
        """Pin the cached pages of a finished sequence, at most `maximum` over all sessions of its tenant."""
        tenant = holding.tenant
        self.drop(tenant, session)
        pins = [pin for pin in self._pins.values() if pin.tenant == tenant]
        full, entry = holding.registered, holding.last
        if holding.decoded_from is not None:  # no later prompt matches pages of an answer
            while full > holding.decoded_from // self._cache.page_tokens:
                full, entry = full - 1, None if entry is None else entry.previous
        wanted = max((sum(page != UNSET for page in table[:full]) for table in holding.tables), default=0)
        if not 0 < wanted <= maximum:
            return
        used = sum(pin.pages for pin in pins)
        for pin in pins:
            if used + wanted <= maximum:
                break
            used -= pin.pages
            self.drop(tenant, pin.session)
        row = NO_ROW
        if self._cache.rows is not None:
            row = holding.boundary
            if full < holding.registered:
                row = NO_ROW if entry is None or not self._cache.prefix.holds(entry) else entry.state_row
            self._cache.name(row)
        pin = SessionPin(tenant, session, [table[:full] for table in holding.tables], row)
        for pool, table in zip(self._cache.pools, pin.tables, strict=True):
            pool.share([page for page in table if page != UNSET], tenant)
        self._pins[tenant, session] = pin
        timers.at(
            now_ns + self._ttl_ns,
            lambda: self.drop(tenant, session),
            lambda: self._pins.get((tenant, session)) is pin,
        )

    def drop(self, tenant: int, session: int) -> None:
        """Unpin the session's pages."""
        pin = self._pins.pop((tenant, session), None)
        if pin is not None:
            for pool, table in zip(self._cache.pools, pin.tables, strict=True):
                release_table(pool, table, tenant)
            self._cache.release_row_name(pin.row)

    def drop_all(self, tenant: int) -> None:
        """Unpin all sessions of the tenant."""
        for owner, session in list(self._pins):
            if owner == tenant:
                self.drop(owner, session)

    def count_pages(self, tenant: int, session: int) -> int:
        """Return the number of pages pinned for the session."""
        pin = self._pins.get((tenant, session))
        return 0 if pin is None else pin.pages

    def drop_oldest(self, tenant: int | None = None) -> bool:
        """Drop the oldest pin, of the tenant or of any tenant. Return False if there is none."""
        for owner, session in self._pins:
            if tenant is None or owner == tenant:
                self.drop(owner, session)
                return True
        return False
