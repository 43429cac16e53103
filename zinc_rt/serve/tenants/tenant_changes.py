"""Change the tenants while requests run. The change applies to every model's scheduler, or to none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.tenant import Priority, Tenant
from zinc_rt.serve.config.checks import find_largest_reserve, find_tenant_problems
from zinc_rt.serve.config.settings import Config, TenantSettings
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.tenants.quotas import make_page_quota, make_scheduler_tenants

Tenants = tuple[TenantSettings, ...]


async def change_tenants(server: InferenceServer, action: Callable[[Tenants], Tenants]) -> None:
    """Apply `action` to the tenants.

    Raises ServeError 400 for a tenant with contradictory settings, 409 if the guarantees do not fit together
    or with the current use; the error has the largest value that fits.
    """
    await change(server, lambda now: replace(now, tenants=action(now.tenants)))


async def change(server: InferenceServer, action: Callable[[Config], Config]) -> None:
    """Replace the configuration except models, device and address. Raises as `change_tenants`."""
    async with server.tenancy.changing:
        now = server.tenancy.config
        config = action(now)
        known = [group.id for group in now.groups]  # a group keeps its number, which its cached pages go by
        groups = (*now.groups, *(group for group in config.groups if group.id not in known))
        config = replace(config, groups=groups)
        _check(config, now, _list_pools(server))
        try:
            await server.call(
                lambda: _configure([model.core.scheduler for model in server.models.values()], config)
            )
        except UsageError as error:
            raise _make_conflict_error(
                f"{error.message}; {error.next}" if error.next else error.message
            ) from error
        server.tenancy.replace(config)


def _check(config: Config, before: Config, pools: Sequence[int]) -> None:
    """Check the new configuration. `pools`: the number of pages per pool, over all models."""
    for tenant in sorted(config.tenants, key=lambda tenant: tenant in before.tenants):  # who changed is told first
        for name, message in find_tenant_problems(config, tenant):
            raise ServeError(400, f"{name}: {message}", param=name)
        for name, maximum in find_largest_reserve(config, tenant):
            raise _make_limit_error(tenant, name, maximum)
        for pages in pools:
            room = pages - sum(
                make_page_quota(item, pages).reserved for item in config.tenants if item is not tenant
            )
            if make_page_quota(tenant, pages).reserved > max(0, room):
                raise _make_limit_error(tenant, "kv_reserved", f"{max(0, room)} of {pages} pages")


def _make_limit_error(tenant: TenantSettings, name: str, maximum: object) -> ServeError:
    message = (
        f"{name}: {getattr(tenant, name)}: at most {maximum} are available to tenant {tenant.id} after the "
        "other guarantees"
    )
    return _make_conflict_error(message, name)


def _list_pools(server: InferenceServer) -> list[int]:
    return [pages for model in server.models.values() for pages in _list_pages(model.core.scheduler)]


def _make_conflict_error(message: str, param: str | None = None) -> ServeError:
    return ServeError(409, message, param=param, code="tenants_contradict")


# --- in the engine's thread


def _configure(schedulers: Sequence[Scheduler], config: Config) -> None:
    """Apply the configuration to all schedulers. If one raises UsageError, all keep their previous tenants."""
    result: list[tuple[Scheduler, list[Tenant]]] = []
    try:
        for scheduler in schedulers:
            before = list(scheduler.tenants)
            _apply_tenants(scheduler, _list_tenants(scheduler, config))
            result.append((scheduler, before))
    except UsageError:
        for scheduler, before in reversed(result):
            _apply_tenants(
                scheduler,
                [*before, *(_make_removed_tenant(tenant) for tenant in scheduler.tenants[len(before) :])],
            )
        raise


def _apply_tenants(scheduler: Scheduler, tenants: Sequence[Tenant]) -> None:
    taken = scheduler.configure(tenants)
    scheduler.receive()
    taken.result()


def _list_tenants(scheduler: Scheduler, config: Config) -> list[Tenant]:
    """Return the scheduler's tenants: existing ones in their order, then new ones. A tenant's number is its
    index and never changes."""
    configured = {tenant.name: tenant for tenant in make_scheduler_tenants(config, _list_pages(scheduler))}
    known = [configured.pop(tenant.name, _make_removed_tenant(tenant)) for tenant in scheduler.tenants]
    return [*known, *configured.values()]


def _list_pages(scheduler: Scheduler) -> list[int]:
    return [group.pages for group in scheduler.cache.groups]


def _make_removed_tenant(tenant: Tenant) -> Tenant:
    """Return the settings of a removed tenant: it accepts no requests, and its running requests have the
    lowest priority."""
    pages = tuple(replace(quota, reserved=0, most=None) for quota in tenant.pages)
    return Tenant(tenant.name, Priority.BATCH, pages=pages)
