"""The tenants a server has now: those of its configuration and those that came since.

Lives in the event loop. What schedulers must know goes to each of them between two of its steps: to all or none.
"""

from __future__ import annotations

from zinc_rt.serve.config import Config, TenantSettings
from zinc_rt.serve.keys import Keyring


class Tenancy:
    """`config`: as it stands. `keys`: who is who."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.keys = Keyring(config.tenants)

    def tenant(self, name: str) -> TenantSettings | None:
        return next((tenant for tenant in self.config.tenants if tenant.id == name), None)
