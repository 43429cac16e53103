"""The ledger's sums: exact over any range of steps, and able to say which line does not balance."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.usage import latency
from zinc_rt.sched.usage.balance import LINES, find_unbalanced
from zinc_rt.sched.usage.ledger import (
    CACHE,
    FREE,
    PEAK,
    DrawnTokens,
    RunnerCounts,
    StepKind,
    StepUsage,
    UsageLedger,
    split_time,
)

PAGES = {"full": 12, "window": 5}


def make_step(ledger: UsageLedger, counts: list[list[int]], pages: list[list[int]]) -> StepUsage:
    result = ledger.clear_step()
    result.counts[:], result.pages[:] = counts, pages
    return result


steps = st.lists(
    st.tuples(
        st.lists(
            st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=len(StepKind), max_size=len(StepKind)
        ),
        st.integers(0, 10**12),
        st.integers(0, 3),
    ).filter(lambda step: any(map(sum, step[0][:4]))),
    max_size=80,
)


def count_run(ledger: UsageLedger, device: RunnerCounts, counts: list[list[int]], took_ns: int) -> RunnerCounts:
    result = make_step(ledger, counts, [[1, 2, 3, 4, 2], [0, 0, 1, 1, 3]])
    inputs, rows = (sum(map(sum, counts[part])) for part in (slice(0, 4), slice(4, 8)))
    device = device.after(inputs, rows, sum(counts[StepKind.SLOT_STEPS]), took_ns)
    ledger.add(result, device)
    return device


@pytest.mark.rest
@settings(max_examples=60, deadline=None)
@given(steps)
def test_every_range_balances_without_loss(steps: list[tuple[list[list[int]], int, int]]) -> None:
    ledger, device = UsageLedger(["a", "b", "c"], PAGES), RunnerCounts()
    usage: dict[tuple[str, str], int] = {}
    for counts, took_ns, then in steps:
        device = count_run(ledger, device, counts, took_ns)
        if then == 1:
            assert not ledger.find_problems()
        if then == 2:
            delta = ledger.take()
            sides: dict[str, int] = {}
            for (account, counter), value in delta.usage.items():
                sides[counter] = sides.get(counter, 0) + value
                if not counter.endswith("_peak"):
                    usage[account, counter] = usage.get((account, counter), 0) + value
            assert not find_unbalanced(sides, delta.device)
            assert delta.last_step == device.steps
    for (account, counter), value in ledger.take().usage.items():
        if not counter.endswith("_peak"):
            usage[account, counter] = usage.get((account, counter), 0) + value
    for tenant, name in enumerate("abc"):
        for kind in StepKind:
            assert usage.get((name, kind.name.lower()), 0) == sum(step[0][kind][tenant] for step in steps)
        present = sum(step[0][StepKind.SLOT_STEPS][tenant] > 0 for step in steps)
        assert usage.get((name, "steps_present"), 0) == present
    assert usage.get((FREE, "page_steps.full"), 0) == 2 * len(steps)
    assert usage.get((CACHE, "page_steps.window"), 0) == len(steps)
    assert not ledger.take(), "nothing was counted since"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 600), min_size=1, max_size=40), st.integers(0, 600 * 10**9))
def test_step_time_is_split_exactly(tokens: list[int], took_ns: int) -> None:
    if not sum(tokens):
        return
    (parts,) = split_time(np.array([took_ns]), np.array([tokens])).tolist()
    assert sum(parts) == took_ns
    for part, count in zip(parts, tokens, strict=True):
        assert abs(part * sum(tokens) - took_ns * count) < sum(tokens)
    assert all(not part for part, count in zip(parts, tokens, strict=True) if not count)


def test_largest_remainders_get_the_rest() -> None:
    assert split_time(np.array([10, 11]), np.array([[1, 1, 4], [1, 1, 4]])).tolist() == [[2, 2, 6], [2, 2, 7]]


def test_peak_covers_steps_since_last_delta() -> None:
    ledger, device = UsageLedger(["a"], {"full": 9}), RunnerCounts()
    for pages in (3, 7, 2):
        result = make_step(ledger, [[1]] * len(StepKind), [[pages, 0, 9 - pages]])
        device = device.after(4, 4, 1, 5)
        ledger.add(result, device)
    assert ledger.take().usage["a", "kv_pages_peak"] == 7
    ledger.add(result, device.after(4, 4, 1, 5))
    assert ledger.take().usage["a", "kv_pages_peak"] == 2


def test_removed_tenant_keeps_its_usage() -> None:
    ledger = UsageLedger(["a", "b"], {"full": 4})
    result = make_step(ledger, [[1, 2]] * len(StepKind), [[1, 2, 0, 1]])
    device = RunnerCounts().after(12, 12, 3, 100)
    ledger.add(result, device)
    ledger.configure(["b", "c"], ["team"])
    result = make_step(ledger, [[5, 7]] * len(StepKind), [[1, 1, 1, 1, 0]])
    ledger.add(result, device.after(48, 48, 12, 100))
    ledger.count("parks", 1)
    assert not ledger.find_problems()
    assert ledger.usage("a")["decode_inputs"] == 1 and ledger.usage("b")["decode_inputs"] == 7
    assert ledger.usage("c") == {**ledger.usage("c"), "parks": 1, "slot_steps": 7}
    assert ledger.usage(":group team") == {"page_steps.full": 1}
    assert {tenant for tenant, counter in ledger.take().usage if counter == PEAK} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("counter", "line"),
    [
        ("recomputed", None),
        ("tokens_recomputed", "L1"),
        ("rows_discarded", "L2"),
        ("slot_steps", "L3"),
        ("page_steps.full", "L4"),
        ("device_ns", "L5"),
        ("tokens_delivered", "L6"),
    ],
)
def test_unbalanced_equation_reports_the_amount(counter: str, line: str | None) -> None:
    ledger = UsageLedger(["a"], {"full": 4})
    ledger.add(make_step(ledger, [[1]] * len(StepKind), [[1, 1, 2]]), RunnerCounts().after(4, 4, 1, 100))
    ledger.count("tokens_delivered", 0)
    assert not ledger.find_problems() and len(LINES) == 6
    ledger.count(counter, 0)
    problems = ledger.find_problems()
    assert [reason.partition(":")[0] for reason in problems] == ([line] if line else [])
    assert line is None or counter in problems[0]


@pytest.mark.parametrize("tenants", [["a", "a"], [":free"]])
def test_ambiguous_names_are_rejected(tenants: list[str]) -> None:
    with pytest.raises(UsageError):
        UsageLedger(tenants, {"full": 4})


# --- latencies ------------------------------------------------------------------------------------------------


def count_durations(kind: str, durations_ns: list[int]) -> Counter[str]:
    return Counter(
        latency.name_counter(kind, bucket) for bucket in latency.find_buckets(np.array(durations_ns)).tolist()
    )


def test_buckets_are_eighths_of_powers_of_two() -> None:
    """By exact integers: the bucket b of d nanoseconds is the one with 2^b <= d^8 < 2^(b + 1)."""
    pick = random.Random(2)
    edges = [math.isqrt(math.isqrt(math.isqrt(1 << bucket))) for bucket in range(latency.LOWEST, latency.HIGHEST)]
    durations = [edge + by for edge in edges for by in (0, 1, 2)] + [
        pick.randrange(1024, 1 << 40) for _ in range(999)
    ]
    for duration, bucket in zip(durations, latency.find_buckets(np.array(durations)).tolist(), strict=True):
        exact = duration**8
        assert (
            exact < 1 << latency.LOWEST or 1 << latency.LOWEST + bucket <= exact < 1 << latency.LOWEST + bucket + 1
        )
    assert latency.find_buckets(np.array([0, 1, 1 << 40, 1 << 62])).tolist() == [0, 0, *[latency.BUCKETS - 1] * 2]


def test_quantiles_are_within_the_stated_error_and_sums_merge() -> None:
    draw = np.random.default_rng(4)
    parts = [np.exp(draw.normal(17, spread, count)).astype(np.int64) for spread, count in ((1, 5000), (2, 300))]
    both = np.sort(np.concatenate(parts))
    merged = Counter[str]()
    for part in parts:
        merged.update(count_durations(latency.INTER_TOKEN, part.tolist()))
    merged.update(count_durations(latency.FIRST_TOKEN, [10**9]))  # another kind, in the same counters
    for share in (0.001, 0.5, 0.9, 0.99, 1.0):
        exact = int(both[math.ceil(share * len(both)) - 1])
        quantile_ns = latency.compute_quantile_ns(merged, latency.INTER_TOKEN, share)
        assert quantile_ns is not None and abs(quantile_ns / exact - 1) <= latency.ERROR < 0.045, share
    quality = latency.quality({**merged, "prompt_tokens_cached": 1, "prompt_tokens_computed": 3, "parks": 9})
    assert quality["inter_token_latency"]["count"] == 5300 and quality["prefix_hit_rate"] == 0.25
    assert quality["time_to_first_token"]["p50_ms"] == pytest.approx(1000, rel=latency.ERROR)
    assert latency.remove_latencies({**merged, "parks": 9}) == {"parks": 9}
    nothing = {"count": 0, "p50_ms": None, "p99_ms": None}
    assert latency.quality({}) == {**dict.fromkeys(latency.KINDS, nothing), "prefix_hit_rate": None}


def test_latencies_are_counted_by_tenant_across_a_change_of_tenants() -> None:
    ledger, device = UsageLedger(["a", "b"], {"full": 4}), RunnerCounts()
    output = make_step(ledger, [[1, 2]] * len(StepKind), [[1, 2, 0, 1]])
    output.drawn = DrawnTokens(np.array([1, 0, 1]), np.array([True, False, True]), np.array([5000, 7000, 9000]))
    ledger.add(output, device := device.after(12, 12, 3, 100))
    ledger.configure(["b"])
    output = make_step(ledger, [[1]] * len(StepKind), [[1, 0, 3]])
    output.drawn = DrawnTokens(np.array([0]), np.array([False]), np.array([5000]))
    ledger.add(output, device.after(4, 4, 1, 100))
    result = {
        name: Counter({key: n for key, n in counts.items() if latency.is_latency(key)})
        for name, counts in ledger.list_by_account().items()
    }
    assert result["a"] == count_durations(latency.FIRST_TOKEN, [7000])
    assert result["b"] == count_durations(latency.INTER_TOKEN, [5000, 9000]) + count_durations(
        latency.FIRST_TOKEN, [5000]
    )
    taken = {key: value for key, value in ledger.take().usage.items() if latency.is_latency(key[1])}
    assert sum(taken.values()) == 4 and not ledger.take()
