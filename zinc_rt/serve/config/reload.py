"""Reload the configuration file while requests run: tenants, keys, groups, limits, queues, loadable models.

Settings that cannot change in a running process (address, device, ledger, resident models) are reported and
keep their values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from dataclasses import dataclass, fields, replace

from zinc_rt.host.errors import ZincError
from zinc_rt.serve.config.file import read_config
from zinc_rt.serve.config.settings import Config, ServerSettings, TenantSettings
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.tenants.tenancy import Tenancy
from zinc_rt.serve.tenants.tenant_changes import change

AT_START = ("device", "ledger", "log", "classes")  # sections that are read once
ADDRESS = (  # of `server`
    "host", "port", "max_connections", "connections_per_address", "header_s", "idle_s", "client_timeout_s",
    "client_timeout_steps", "cors", "strict_parameters", "metrics_open", "router_key",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """The result of a reload. `applied`: sections that changed; `at_start`: sections that change after a
    restart."""

    applied: tuple[str, ...]
    at_start: tuple[str, ...]


async def reload(server: InferenceServer) -> ReloadResult:
    """Apply the configuration file.

    Raises ServeError 400 with every error of the file, and 409 if the tenants do not fit the current use;
    nothing changes in either case.
    """
    if server.config.file is None:
        raise ServeError(
            409, "the server was started without --config, so there is no file to reload", code="no_file"
        )
    try:
        read = await asyncio.to_thread(read_config, server.config.file)
    except ZincError as error:
        raise ServeError(400, error.message, code="invalid_configuration") from error
    before = server.tenancy.config
    await change(
        server, lambda now: make_applied_config(now, apply_reloadable(server.tenancy, read), server.models)
    )
    now = server.tenancy.config
    changed = [field.name for field in fields(Config) if getattr(now, field.name) != getattr(before, field.name)]
    return ReloadResult(tuple(changed), tuple(list_restart_settings(now, read)))


def apply_reloadable(tenancy: Tenancy, read: Config) -> Config:
    """Return the file's configuration with the tenants and keys that were created through endpoints."""
    names = {tenant.id: tenant for tenant in tenancy.config.tenants}
    tenants = [_merge_keys(tenant, names.get(tenant.id), tenancy.made_keys) for tenant in read.tenants]
    ids = {tenant.id for tenant in tenants}
    came = [tenant for tenant in tenancy.config.tenants if tenant.id in tenancy.generated and tenant.id not in ids]
    return replace(read, tenants=(*tenants, *came))


def _merge_keys(tenant: TenantSettings, before: TenantSettings | None, changed: set[str]) -> TenantSettings:
    known = {key.id for key in tenant.keys}
    came = () if before is None else tuple(key for key in before.keys if key.id in changed and key.id not in known)
    return replace(tenant, keys=(*tenant.keys, *came))


def make_applied_config(now: Config, read: Config, resident: Container[str]) -> Config:
    """Return the configuration that a running process can adopt."""
    kept = {name: getattr(now, name) for name in AT_START}
    address = {name: getattr(now.server, name) for name in ADDRESS}
    models = [model for model in now.models if model.id in resident]
    models += [model for model in read.models if model.id not in resident]
    return replace(read, **kept, server=replace(read.server, **address), models=tuple(models), file=now.file)


def list_restart_settings(now: Config, read: Config) -> list[str]:
    """Return the names of the settings that only change after a restart."""
    names = [name for name in AT_START if getattr(now, name) != getattr(read, name)]
    names += [
        f"server.{field.name}"
        for field in fields(ServerSettings)
        if getattr(now.server, field.name) != getattr(read.server, field.name)
    ]
    there = {model.id: model for model in read.models}
    names += [f"models.{model.id}" for model in now.models if there.get(model.id) != model]
    return names
