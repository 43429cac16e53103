"""Latencies as counters of the ledger: histograms that add up over minutes, models, tenants and processes.

A bucket is a counter such as `inter_token_latency.187`: the number of durations from 2^(187/8) ns up to, and
without, 2^(188/8) ns. The buckets of a sum are the sums of the buckets, so quantiles of any range are computed on
request. A quantile is the geometric middle of its bucket: within 4.5 % of the duration with that rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

PER_OCTAVE = 8
LOWEST, HIGHEST = (
    80,
    320,
)  # the first holds everything below 2^10.125 ns (1.1 us), the last from 2^40 ns (18 min) on
BUCKETS = HIGHEST - LOWEST + 1
FIRST_TOKEN, INTER_TOKEN = "time_to_first_token", "inter_token_latency"
KINDS = (FIRST_TOKEN, INTER_TOKEN)
ERROR = 2 ** (0.5 / PER_OCTAVE) - 1  # of a quantile, relative to the duration with that rank
SHARES = (50, 99)
_EDGES = np.array([math.ceil(2 ** (bucket / PER_OCTAVE)) for bucket in range(LOWEST + 1, HIGHEST + 1)], np.int64)


def find_buckets(durations_ns: np.ndarray) -> np.ndarray:
    """Return the buckets of durations, i64 [n] nanoseconds -> i64 [n], each below BUCKETS."""
    return np.searchsorted(_EDGES, durations_ns, side="right")


def name_counter(kind: str, bucket: int) -> str:
    """Return the name of a bucket's counter. `bucket` is one of `find_buckets`."""
    return f"{kind}.{LOWEST + bucket}"


def is_latency(counter: str) -> bool:
    """Return whether a counter is a bucket."""
    return counter.partition(".")[0] in KINDS


def compute_quantile_ns(counters: Mapping[str, int], kind: str, share: float) -> float | None:
    """Return the duration in nanoseconds that is not exceeded by a fraction `share` (0 to 1) of the counted
    durations, within ERROR; None if none was counted.
    """
    buckets = _list_buckets(counters, kind)
    rank, seen = math.ceil(share * sum(buckets.values())), 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= max(1, rank):
            return 2.0 ** ((bucket + 0.5) / PER_OCTAVE)
    return None


def quality(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return an account's quality of service for reports: `count`, `p50_ms` and `p99_ms` of both latencies, None
    without a token; `prefix_hit_rate`, the fraction of prompt tokens that came from the prefix cache, None without
    a prompt.
    """
    result: dict[str, Any] = {}
    for kind in KINDS:
        values = {
            f"p{share}_ms": _to_milliseconds(compute_quantile_ns(counters, kind, share / 100)) for share in SHARES
        }
        result[kind] = {"count": sum(_list_buckets(counters, kind).values()), **values}
    cached, computed = counters.get("prompt_tokens_cached", 0), counters.get("prompt_tokens_computed", 0)
    result["prefix_hit_rate"] = cached / (cached + computed) if cached + computed else None
    return result


def remove_latencies(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters that are not buckets."""
    return {counter: value for counter, value in counters.items() if not is_latency(counter)}


def format_counters(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return an account's counters for reports, with its `quality` in place of the buckets."""
    return {**remove_latencies(counters), **quality(counters)}


def _list_buckets(counters: Mapping[str, int], kind: str) -> dict[int, int]:
    """The buckets of a kind by number. A name without a bucket number, as in a damaged file, is not a bucket."""
    result = ((counter.partition("."), value) for counter, value in counters.items())
    return {int(number): value for (name, _, number), value in result if name == kind and number.isdecimal()}


def _to_milliseconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
