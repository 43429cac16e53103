"""Tenants and priority classes: guarantees and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.share import WEIGHT_UNITS, to_weight_units

SECOND_NS = 1_000_000_000
MS_NS = 1_000_000
BANDS = 3  # of age; a request that has waited so many goes up a class, once


class Priority(IntEnum):
    """Priority classes; the lower number is more urgent."""

    INTERACTIVE = 0
    STANDARD = 1
    BATCH = 2


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """`age_ns`: the length of one waiting band. `floor_share`: one in this many slots is kept for the class
    while it has requests in the last band; 0: none. `floor_slots`: this many, whatever the share.

    Latency budgets, None for none: `gap_ns` limits a step in which a request of the class decodes;
    `first_token_ns`, from a request's arrival, limits the other work of steps until its first token.
    """

    age_ns: int
    weight: int
    floor_share: int
    floor_slots: int | None = None
    first_token_ns: int | None = None
    gap_ns: int | None = None


CLASSES = {
    Priority.INTERACTIVE: PriorityClass(
        2 * SECOND_NS, WEIGHT_UNITS, 0, first_token_ns=100 * MS_NS, gap_ns=30 * MS_NS
    ),
    Priority.STANDARD: PriorityClass(10 * SECOND_NS, WEIGHT_UNITS, 4),
    Priority.BATCH: PriorityClass(60 * SECOND_NS, WEIGHT_UNITS // 4, 16),
}


Classes = Mapping[Priority, PriorityClass]


def with_budgets(classes: Classes, *, gap_ms: float | None = None, first_token_ms: float | None = None) -> Classes:
    """Return the classes with other latency budgets for interactive and standard requests, in milliseconds.
    None: as they are; 0: none. Raises UsageError for a negative or infinite budget."""
    for name, ms in (("gap", gap_ms), ("first token", first_token_ms)):
        if ms is not None and not 0 <= ms < 1e9:
            raise UsageError(f"{name} budget {ms:g} ms: expected a positive number, or 0 for no budget")
    result = dict(classes)
    for priority in (Priority.INTERACTIVE, Priority.STANDARD):
        row = result[priority]
        result[priority] = replace(
            row,
            gap_ns=to_budget_ns(gap_ms, row.gap_ns),
            first_token_ns=to_budget_ns(first_token_ms, row.first_token_ns),
        )
    return result


def to_budget_ns(ms: float | None, default: int | None) -> int | None:
    """Return a budget in nanoseconds: the default if `ms` is None, no budget if it is 0."""
    return default if ms is None else round(ms * MS_NS) or None


def compute_floors(slots: int, classes: Classes = CLASSES) -> dict[Priority, int]:
    """Return the slots that each class keeps against higher ones; none with fewer than 4 slots."""
    if slots < 4:
        return dict.fromkeys(classes, 0)
    return {item: _compute_floor(slots, row) for item, row in classes.items()}


def _compute_floor(slots: int, row: PriorityClass) -> int:
    if row.floor_slots is not None:
        return row.floor_slots
    return max(1, slots // row.floor_share) if row.floor_share else 0


@dataclass(frozen=True, slots=True)
class Tenant:
    """`weight` of its share; `slots_guaranteed` are always available, `slots_max` is never exceeded; `pages`:
    a quota per page group, defaults if empty; `prefill`, `decode`: (tokens per second, burst)."""

    name: str
    priority: Priority = Priority.STANDARD
    weight: float = 1.0
    slots_guaranteed: int = 0
    slots_max: int | None = None
    pages: tuple[PageQuota, ...] = ()
    prefill: tuple[int, int] | None = None
    decode: tuple[int, int] | None = None
    queue_max: int = 1024
    session_pin_pages: int = 0  # pages of its sessions' last turns that are kept from being taken
    cache_ttl_ns: int | None = None  # how long a cached page that nobody uses stays

    @property
    def weight_units(self) -> int:
        return to_weight_units(self.weight)


def list_isolation_groups(tenants: Sequence[Tenant]) -> list[str]:
    """Return the names of all groups whose tenants may share pages, by number."""
    groups = [quota.group for tenant in tenants for quota in tenant.pages if quota.group is not None]
    return [str(group) for group in range(max(groups, default=-1) + 1)]


def check_tenants(tenants: Sequence[Tenant], slots: int) -> None:
    """Raise UsageError for contradictory guarantees; page quotas are checked when they are set."""
    guaranteed = sum(tenant.slots_guaranteed for tenant in tenants)
    if guaranteed > slots:
        raise UsageError(
            f"{guaranteed} slots are guaranteed, but there are only {slots}",
            next=f"guarantee at most {slots} together",
        )
    for tenant in tenants:
        if tenant.slots_max is not None and tenant.slots_max < tenant.slots_guaranteed:
            raise UsageError(
                f"tenant {tenant.name}: slots_guaranteed {tenant.slots_guaranteed} exceeds slots_max "
                f"{tenant.slots_max}",
                next="raise slots_max, or lower slots_guaranteed",
            )
        try:
            to_weight_units(tenant.weight)
        except ValueError as error:
            raise UsageError(f"tenant {tenant.name}: {error}") from error
