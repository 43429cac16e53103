"""Fairness: dominant shares of resources in use, service counters of computed tokens.

Space (slots, pages, rows) is shared by dominant resource fairness (Ghodsi et al., NSDI 2011): the tenant with
the smallest dominant share is next. Time is shared by counters of computed tokens, as in the virtual token
counter of Sheng et al. (OSDI 2024): the counter of a tenant that was idle is raised to that of the least
served busy tenant, so that idle tenants accumulate no credit.

All values are integers over a common denominator, so equal shares compare equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import lcm

WEIGHT_UNITS = 1000  # a weight of 1.0


def to_weight_units(weight: float) -> int:
    """Return the weight in WEIGHT_UNITS. Raises ValueError outside 0.001 to 1000."""
    units = round(weight * WEIGHT_UNITS)
    if not 1 <= units <= 1000 * WEIGHT_UNITS:
        raise ValueError(f"weight {weight} is not between 0.001 and 1000")
    return units


class Shares:
    """Dominant shares. `capacities`: the amount of each resource, in the order of the arguments of `of`."""

    def __init__(self, capacities: Sequence[int]) -> None:
        if not capacities or min(capacities) < 1:
            raise ValueError(f"each resource needs a capacity of at least one, not {tuple(capacities)}")
        self.whole = lcm(*capacities)
        self.parts = [self.whole // capacity for capacity in capacities]  # what one of each is of the whole

    def of(self, held: Sequence[int], weight: int) -> tuple[int, int]:
        """Return the dominant share as (numerator, weight). Compare two with `is_less_served`."""
        return max(amount * part for amount, part in zip(held, self.parts, strict=True)), weight


def is_less_served(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Return whether the first weighted share is smaller."""
    return a[0] * b[1] < b[0] * a[1]


class ServiceCounters:
    """Computed tokens of each tenant divided by its weight. Counters never decrease."""

    def __init__(self, weights: Mapping[int, int]) -> None:
        """Create the counters. `weights`: in WEIGHT_UNITS."""
        self._unit = lcm(*weights.values()) if weights else 1
        self._factor = {tenant: self._unit // weight for tenant, weight in weights.items()}
        self.counters = dict.fromkeys(weights, 0)

    def charge(self, tenant: int, tokens: int) -> None:
        """Add computed tokens to a tenant's counter."""
        self.counters[tenant] += tokens * self._factor[tenant]

    def charge_each(self, charges: Iterable[tuple[int, int]]) -> None:
        """Add computed tokens to several tenants' counters: (tenant, tokens)."""
        counters, factor = self.counters, self._factor
        for tenant, tokens in charges:
            counters[tenant] += tokens * factor[tenant]

    def set_weights(self, weights: Mapping[int, int]) -> None:
        """Set new weights, and add new tenants. Counters keep their value in tokens of weight 1."""
        unit = lcm(*weights.values())
        self.counters = {tenant: -(-self.counters.get(tenant, 0) * unit // self._unit) for tenant in weights}
        self._unit = unit
        self._factor = {tenant: unit // weight for tenant, weight in weights.items()}

    def lift(self, tenant: int, busy: Iterable[int]) -> None:
        """Raise the counter of a tenant that was idle; `busy`: the tenants that had work in the meantime."""
        minimum = min((self.counters[other] for other in busy if other != tenant), default=0)
        self.counters[tenant] = max(self.counters[tenant], minimum)

    def to_tokens(self, tenant: int) -> float:
        """Return a tenant's service, in tokens of a tenant of weight 1."""
        return self.counters[tenant] * WEIGHT_UNITS / self._unit
