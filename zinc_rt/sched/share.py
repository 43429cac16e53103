"""Who has how much: dominant shares of what is held, service counters of what was computed.

Space (slots, pages, rows) is shared by dominant resource fairness (Ghodsi et al., NSDI 2011): the tenant with the
least dominant share is next. Time is shared by counters of computed tokens, as the virtual token counter of Sheng
et al. (OSDI 2024) does it: a tenant that comes back from idle is lifted to the least busy one, so that nobody
saves up credit.

All are integers over a common denominator: equal shares are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import lcm

WEIGHT_UNITS = 1000  # a weight of 1.0


def weight_units(weight: float) -> int:
    """Raises ValueError for a weight that is not between 0.001 and 1000."""
    units = round(weight * WEIGHT_UNITS)
    if not 1 <= units <= 1000 * WEIGHT_UNITS:
        raise ValueError(f"a weight is between 0.001 and 1000, not {weight}")
    return units


class Shares:
    """`capacities`: how much there is of each resource, in the order that `of` is given what is held."""

    def __init__(self, capacities: Sequence[int]) -> None:
        if not capacities or min(capacities) < 1:
            raise ValueError(f"each resource has at least one, not {tuple(capacities)}")
        self.whole = lcm(*capacities)
        self.parts = [self.whole // capacity for capacity in capacities]  # what one of each is of the whole

    def of(self, held: Sequence[int], weight: int) -> tuple[int, int]:
        """The dominant share as (numerator, weight): compare two with `less`."""
        return max(amount * part for amount, part in zip(held, self.parts, strict=True)), weight


def less(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether the first weighted share is smaller."""
    return one[0] * other[1] < other[0] * one[1]


class Service:
    """Tokens computed for each tenant, by its weight. Counters never fall."""

    def __init__(self, weights: Mapping[int, int]) -> None:
        """`weights`: in WEIGHT_UNITS."""
        self._unit = lcm(*weights.values()) if weights else 1
        self._factor = {tenant: self._unit // weight for tenant, weight in weights.items()}
        self.counters = dict.fromkeys(weights, 0)

    def charge(self, tenant: int, tokens: int) -> None:
        """The tenant was given so many tokens' work."""
        self.counters[tenant] += tokens * self._factor[tenant]

    def reweigh(self, weights: Mapping[int, int]) -> None:
        """Other weights, and tenants that are new. What was given before keeps its worth in tokens of weight 1."""
        unit = lcm(*weights.values())
        self.counters = {tenant: -(-self.counters.get(tenant, 0) * unit // self._unit) for tenant in weights}
        self._unit = unit
        self._factor = {tenant: unit // weight for tenant, weight in weights.items()}

    def lift(self, tenant: int, busy: Iterable[int]) -> None:
        """It has work again; `busy`: the tenants that had work meanwhile."""
        least = min((self.counters[other] for other in busy if other != tenant), default=0)
        self.counters[tenant] = max(self.counters[tenant], least)

    def in_tokens(self, tenant: int) -> float:
        """What it was given, as tokens of a tenant of weight 1."""
        return self.counters[tenant] * WEIGHT_UNITS / self._unit
