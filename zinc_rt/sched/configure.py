"""Change quotas while requests run, atomically."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.request import Request, State
from zinc_rt.sched.state import SchedulerState
from zinc_rt.sched.tenant import Tenant, check_tenants


def check_quotas(s: SchedulerState, tenants: Sequence[Tenant]) -> None:
    """Raise UsageError, with the largest value that fits, for quotas that contradict each other."""
    check_tenants(tenants, s.limits.slots)
    known = [tenant.name for tenant in s.tenants]
    if [tenant.name for tenant in tenants[: len(known)]] != known:
        raise UsageError(
            f"the list must begin with the existing tenants {', '.join(known)}, in this order",
            next="list all of them, then the new tenants",
        )
    for group, spec in enumerate(s.cache.groups):
        quotas = [find_quota(tenant, group) for tenant in tenants]
        reserved = sum(quota.reserved for quota in quotas)
        if reserved > spec.pages:
            raise UsageError(
                f"{reserved} pages of group {spec.name} are reserved, but the pool has only {spec.pages}",
                next=f"reserve at most {spec.pages} together",
            )


def find_quota(tenant: Tenant, group: int) -> PageQuota:
    return tenant.pages[group] if tenant.pages else PageQuota()


def configure(s: SchedulerState, tenants: Sequence[Tenant]) -> None:
    """Apply new quotas. Raises UsageError, and changes nothing, if pages in use prevent a reservation."""
    before = list(s.tenants)
    changed: list[int] = []
    # lower ones first, so that what one gives up another may have
    order = sorted(range(len(tenants)), key=lambda index: _is_reserving_more(before, tenants, index))
    try:
        for index in order:
            s.cache.set_quotas(index, [find_quota(tenants[index], group) for group in range(len(s.cache.groups))])
            changed.append(index)
    except UsageError:
        for index in reversed(changed):
            old = before[index] if index < len(before) else None
            quotas = [find_quota(old, group) if old else PageQuota() for group in range(len(s.cache.groups))]
            s.cache.set_quotas(index, quotas)
        raise
    s.tenants = list(tenants)
    for index in range(len(before), len(tenants)):
        s.queues.add_tenant()
        s.candidates.add_tenant()
        s.bound.append(0)
        s.parked.append(0)
        s.buckets.append(s.make_buckets(tenants[index]))
    for index, (old, new) in enumerate(zip(before, tenants, strict=False)):
        if (old.prefill, old.decode) != (new.prefill, new.decode):
            s.buckets[index] = s.make_buckets(new)
    if len(tenants) > len(before):
        s.slot_steps = np.concatenate([s.slot_steps, np.zeros(len(tenants) - len(before), np.int64)])
        s.slots.set_tenants(len(tenants))
    s.begin_accounts()
    s.service.set_weights({number: tenant.weight_units for number, tenant in enumerate(tenants)})
    s.update_tenants()
    for index in range(len(tenants)):
        _shrink(s, index)
        s.candidates.update(index)
    for request in list(s.requests()):  # what was accepted under other quotas, and can never run under these
        if not s.cache.can_ever_fit(request.tenant, request.most_placed):
            s.end(request, State.FAILED, "quota_lowered")


def _is_reserving_more(before: Sequence[Tenant], tenants: Sequence[Tenant], index: int) -> bool:
    new = sum(quota.reserved for quota in tenants[index].pages)
    return new > (sum(quota.reserved for quota in before[index].pages) if index < len(before) else 0)


def _shrink(s: SchedulerState, tenant: int) -> None:
    """Enforce a tenant's new limits: its requests lose slots, then pages, the latest first."""
    maximum = s.tenants[tenant].slots_max
    mine = sorted((r for r in s.running() if r.tenant == tenant), key=lambda r: (-r.number, -r.choice))
    while maximum is not None and s.bound[tenant] > maximum:
        s.park(mine.pop(0))
    if s.collector is not None and s.collector.tenant == tenant and _has_too_much(s, tenant):
        s.stop_collecting()
    while _has_too_much(s, tenant) and s.pins.drop_oldest(tenant):
        pass
    holders: list[Request] = [*s.parked_requests, *s.running()]
    for request in sorted((r for r in holders if r.tenant == tenant), key=lambda r: (-r.number, -r.choice)):
        if not _has_too_much(s, tenant):
            return
        s.evict(request)


def _has_too_much(s: SchedulerState, tenant: int) -> bool:
    return any(
        pool.find_quota(tenant).most is not None
        and pool.count_charge(tenant) > (pool.find_quota(tenant).most or 0)
        for pool in s.cache.pools
    )
