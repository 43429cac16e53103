"""Dominant shares give the published example; service counters bound what one tenant gets beyond another."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.sched.bucket import NS, Bucket
from zinc_rt.sched.share import WEIGHT_UNITS, ServiceCounters, Shares, is_less_served, to_weight_units


def fill_shares(capacities: tuple[int, ...], demands: list[tuple[int, ...]], weights: list[int]) -> list[int]:
    """Return the tasks of each tenant if the smallest share is always served next until nothing fits."""
    shares, tasks = Shares(capacities), [0] * len(demands)
    held = [[0] * len(capacities) for _ in demands]
    open_to = set(range(len(demands)))
    while open_to:
        minimum = min(open_to)
        for tenant in open_to:
            if is_less_served(
                shares.of(held[tenant], weights[tenant]), shares.of(held[minimum], weights[minimum])
            ):
                minimum = tenant
        used = [sum(item[n] for item in held) for n in range(len(capacities))]
        if any(u + d > c for u, d, c in zip(used, demands[minimum], capacities, strict=True)):
            open_to.discard(minimum)
            continue
        held[minimum] = [h + d for h, d in zip(held[minimum], demands[minimum], strict=True)]
        tasks[minimum] += 1
    return tasks


def test_published_drf_example_is_reproduced() -> None:
    """Section 4.1: 9 CPUs and 18 GB, tasks of (1, 4) and (3, 1): three of the first and two of the second."""
    assert fill_shares((9, 18), [(1, 4), (3, 1)], [WEIGHT_UNITS] * 2) == [3, 2]


def test_weight_of_two_gets_twice_the_share() -> None:
    assert fill_shares((30, 30), [(1, 1), (1, 1)], [2 * WEIGHT_UNITS, WEIGHT_UNITS]) == [20, 10]


def test_equal_shares_of_different_resources_are_equal() -> None:
    shares = Shares((7, 21))
    one, other = shares.of((1, 0), WEIGHT_UNITS), shares.of((0, 3), WEIGHT_UNITS)
    assert not is_less_served(one, other) and not is_less_served(other, one)


@pytest.mark.parametrize("weight", [0, -1, 0.0001, 2000, float("nan")])
def test_out_of_range_weight_is_rejected(weight: float) -> None:
    with pytest.raises(ValueError):
        to_weight_units(weight)


def test_two_busy_tenants_differ_by_at_most_two_charges() -> None:
    """The bound of the virtual token counter, whatever each asks for at a time."""
    choice, largest = random.Random(3), 512
    service = ServiceCounters({0: WEIGHT_UNITS, 1: WEIGHT_UNITS})
    for _ in range(2000):
        tenant = min((0, 1), key=lambda item: service.counters[item])
        service.charge(tenant, choice.randint(1, largest))
        assert abs(service.to_tokens(0) - service.to_tokens(1)) <= 2 * largest


def test_idle_tenant_returns_without_credit() -> None:
    service = ServiceCounters({0: WEIGHT_UNITS, 1: WEIGHT_UNITS, 2: 2 * WEIGHT_UNITS})
    service.charge(0, 1000)
    service.charge(2, 1000)
    service.lift(1, busy=[0, 2])
    assert service.to_tokens(1) == service.to_tokens(2) == 500
    service.lift(0, busy=[1, 2])
    assert service.to_tokens(0) == 1000


def test_debt_delays_without_rounding_loss() -> None:
    bucket = Bucket(rate=3, burst=10, filled_ns=0)
    bucket.charge(25, 0)
    assert not bucket.is_allowed(5 * NS)
    at = bucket.allows_from_ns(5 * NS)
    assert at == 5 * NS + 1
    assert not bucket.is_allowed(at - 1) and bucket.is_allowed(at)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.lists(st.integers(0, 10**9), max_size=20))
def test_polling_a_bucket_does_not_change_it(rate: int, charge: int, steps: list[int]) -> None:
    asked, quiet = Bucket(rate, 10**7, 0), Bucket(rate, 10**7, 0)
    for item in (asked, quiet):
        item.charge(10**7 + charge, 0)
    now = 0
    for step in steps:
        now += step
        asked.is_allowed(now)
    assert asked.allows_from_ns(now) == quiet.allows_from_ns(now)
