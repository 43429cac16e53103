"""Convert the configured tenants to the scheduler's form: fractions to pages, names to numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.tenant import CLASSES, SECOND_NS, Classes, Priority, PriorityClass, Tenant, to_budget_ns
from zinc_rt.serve.config.settings import Config, TenantLimits, TenantSettings
from zinc_rt.serve.config.values import find_class_name


def make_scheduler_tenants(config: Config, pages: Sequence[int]) -> tuple[Tenant, ...]:
    """Return all tenants, in the order of the configuration. `pages`: the size of each page group's pool of
    the model."""
    groups = {group.id: number for number, group in enumerate(config.groups)}
    return tuple(make_scheduler_tenant(tenant, pages, groups) for tenant in config.tenants)


def make_scheduler_tenant(tenant: TenantSettings, pages: Sequence[int], groups: dict[str, int]) -> Tenant:
    """Return a tenant for a model with these pool sizes. `groups`: numbers of isolation groups by name."""
    group = None if tenant.isolation_group is None else groups[tenant.isolation_group]
    return Tenant(
        tenant.id,
        tenant.priority,
        tenant.weight,
        tenant.slots_guaranteed,
        tenant.slots_max,
        tuple(make_page_quota(tenant, count, group) for count in pages),
        _make_bucket(tenant.prefill_rate, tenant.prefill_burst),
        _make_bucket(tenant.decode_rate, tenant.decode_burst),
        tenant.queue_max,
        tenant.session_pin_pages,
        None if tenant.cache_ttl_s is None else int(tenant.cache_ttl_s * SECOND_NS),
    )


def make_scheduler_classes(config: Config) -> Classes:
    """Return the scheduler's classes with the configured changes."""
    classes: dict[Priority, PriorityClass] = {}
    for priority, row in CLASSES.items():
        limits = getattr(config.classes, find_class_name(priority))
        age_ns = row.age_ns if limits.age_s is None else int(limits.age_s * SECOND_NS)
        floor_slots = row.floor_slots if limits.floor_slots is None else limits.floor_slots
        first_token_ns = to_budget_ns(limits.first_token_ms, row.first_token_ns)
        gap_ns = to_budget_ns(limits.gap_ms, row.gap_ns)
        classes[priority] = replace(
            row, age_ns=age_ns, floor_slots=floor_slots, first_token_ns=first_token_ns, gap_ns=gap_ns
        )
    return classes


def make_page_quota(limits: TenantLimits, pages: int, group: int | None = None) -> PageQuota:
    """Return the quota in pages. A fraction is rounded down; a maximum is at least one page."""
    maximum = max(1, _to_page_count(limits.kv_max, pages))
    return PageQuota(_to_page_count(limits.kv_reserved, pages), None if maximum >= pages else maximum, group)


def _to_page_count(share: float, pages: int) -> int:
    return int(share * pages) if isinstance(share, float) else share


def _make_bucket(rate: int | None, burst: int | None) -> tuple[int, int] | None:
    """Return the token bucket of a rate. The default burst is one second's tokens."""
    return None if rate is None else (rate, rate if burst is None else burst)
