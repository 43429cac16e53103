"""The current tenants of a server: those of its configuration and those created since.

It is used in the event loop. Changes are applied to all schedulers, each between two steps, or to none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from zinc_rt.serve.config.settings import Config, TenantSettings
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.http.limits import RequestRate, apply_limits, make_rate_headers, make_rate_limit_error
from zinc_rt.serve.tenants.failed_keys import FailedKeys
from zinc_rt.serve.tenants.keys import Keyring
from zinc_rt.serve.tenants.session_table import SessionTable

if TYPE_CHECKING:
    from zinc_rt.serve.engine.served_model import ServedModel


class Tenancy:
    """`config`: the current configuration. `keys`: the keyring. `locked`: requests need a key, even after the
    last key is deleted. `changing`: serializes changes."""

    def __init__(self, config: Config) -> None:
        self.changing = asyncio.Lock()
        self.failed_keys = FailedKeys()
        self.generated: set[str] = set()  # tenants that endpoints made, and keys: no file has them
        self.made_keys: set[str] = set()
        self.created: dict[str, int] = {}  # second since 1970
        self._sessions: dict[str, SessionTable] = {}
        self.locked = config.keyed
        self._rates: dict[str, RequestRate] = {}
        self.replace(config)

    def replace(self, config: Config) -> None:
        """Replace the tenants, their keys and limits. Rates that do not change keep their state."""
        self.config = config
        self.keys = Keyring(config.tenants)
        self._tenants = {tenant.id: tenant for tenant in config.tenants}
        self.locked = self.locked or config.keyed
        before, self._rates = self._rates, {}
        now = int(time.time())
        self.created = {tenant.id: self.created.get(tenant.id, now) for tenant in config.tenants}
        self._sessions = {name: known for name, known in self._sessions.items() if name in self._tenants}
        for tenant in config.tenants:
            if (requests_per_minute := tenant.requests_per_minute) is not None:
                known = before.get(tenant.id)
                self._rates[tenant.id] = (
                    known
                    if known and known.per_minute == requests_per_minute
                    else RequestRate(requests_per_minute)
                )

    def find_tenant(self, name: str) -> TenantSettings:
        """Return a tenant by name, "" for the first. Raises ServeError 404."""
        settings = self._tenants.get(name) if name else self.config.tenants[0]
        if settings is None:
            raise ServeError(404, f"unknown tenant {name[:64]!r}", code="tenant_not_found")
        return settings

    def find_sessions(self, name: str) -> SessionTable:
        return self._sessions.setdefault(name, SessionTable())

    def allowed(self, ask: EngineRequest, model: ServedModel) -> EngineRequest:
        """Return the request with the tenant's limits applied, and count it. Raises ServeError 403, 429, 503."""
        tenant = self.find_tenant(ask.tenant)
        ask = apply_limits(ask, tenant, model, self.config.queue)
        rate = self._rates.get(tenant.id)
        if rate is not None and (wait := rate.take()):
            message = f"tenant {tenant.id} exceeded its limit of {rate.per_minute} requests per minute"
            raise make_rate_limit_error(message, "rate_limit_exceeded", wait)
        if ask.session:
            self.find_sessions(tenant.id).count(ask.session)
        return ask

    def headers(self, name: str, models: Iterable[ServedModel]) -> dict[str, str]:
        """Return the rate-limit headers of a tenant; empty if it has no rates."""
        tenant = self._tenants.get(name)
        return {} if tenant is None else make_rate_headers(tenant, self._rates.get(name), models)
