"""Compare two programs timed alternately in one run: their ratio, its spread, and whether the machine was idle
enough.

A ratio uses the fastest run of each, because disturbances only slow a run; the spread is over the rounds, whose
two runs are consecutive. An unreliable result is BLOCKED instead of getting a verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.perf.native.bandwidth import has_settled

MIN_ROUNDS = 5
MOVED = 0.10  # of read bandwidth, between rounds
LOAD_BESIDE_US = 0.5  # load average beyond our own threads

Speeds = Mapping[str, Sequence[float]]  # of each setting, tok/s a round


@dataclass(frozen=True, slots=True)
class RunConditions:
    """The state of the machine before each round and after the last."""

    read_gbs: Sequence[float]
    load: Sequence[float]
    threads: int

    def explain_noise(self) -> str:
        """Return why a ratio is unreliable; empty if it is reliable."""
        reasons = []
        if has_settled(self.read_gbs) > MOVED:
            reasons.append(
                f"read bandwidth moved by {has_settled(self.read_gbs):.0%} between rounds "
                f"({min(self.read_gbs):.1f} to {max(self.read_gbs):.1f} GB/s), allowed {MOVED:.0%}"
            )
        allowed = self.threads + LOAD_BESIDE_US
        if max(self.load) > allowed:
            reasons.append(f"load average {max(self.load):.2f}, allowed {allowed:g} on {self.threads} threads")
        return "; ".join(reasons)


def find_best_setting(theirs: Speeds) -> str:
    """Return the setting with the fastest run, because a comparison with a slower setting would be unfair."""
    return max(theirs, key=lambda name: max(theirs[name]))


def compute_ratio(ours: Sequence[float], theirs: Speeds) -> float:
    """Return the ratio of ours to theirs at its best setting, using the fastest run of each."""
    return max(ours) / max(theirs[find_best_setting(theirs)])


def make_pair_results(ours: Sequence[float], theirs: Speeds) -> dict[str, Any]:
    """Return the measure of a result: samples and derived figures. `theirs` is {} without a baseline."""
    measure: dict[str, Any] = {
        "tokens_per_second": max(ours),
        "median": statistics.median(ours),
        "runs": list(ours),
        "theirs": {name: list(speeds) for name, speeds in theirs.items()},
    }
    if theirs:
        best = find_best_setting(theirs)
        rounds = [a / b for a, b in zip(ours, theirs[best], strict=True)]
        measure |= {
            "setting": best,
            "their_tokens_per_second": max(theirs[best]),
            "their_median": statistics.median(theirs[best]),
            "ratio": compute_ratio(ours, theirs),
            "ratio_of_medians": statistics.median(ours) / statistics.median(theirs[best]),
            "ratio_low": min(rounds),
            "ratio_high": max(rounds),
        }
    return measure


def find_blocking_reasons(conditions: RunConditions, rounds: int, peer_problem: str, *, needs_peer: bool) -> str:
    """Return every reason why a result cannot have a verdict; empty if it can."""
    reasons = [conditions.explain_noise()]
    if rounds < MIN_ROUNDS:
        reasons.append(f"{rounds} rounds, expected {MIN_ROUNDS} or more")
    if needs_peer:
        reasons.append(peer_problem)
    return "; ".join(reason for reason in reasons if reason)
