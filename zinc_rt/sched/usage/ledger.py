"""The ledger: exact usage per tenant from the scheduler, and the runner's totals.

The scheduler counts by tenant; the runner counts its work without knowledge of tenants. `balance.py` has the
equations between them for any range of steps. A step only copies its counts; sums are computed over blocks of
steps.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.usage import latency
from zinc_rt.sched.usage.balance import PAGE_STEPS, Sums, find_unbalanced

BLOCK = 32  # steps kept apart until they are summed
RESERVED = ":"  # begins the names of accounts that are no tenants
CACHE, FREE = ":cache", ":free"  # pages that are idle in the cache, pages that hold nothing
PEAK = "kv_pages_peak"  # most pages paid for at once: the one counter that does not add up, but takes the larger


class StepKind(IntEnum):
    """The quantities of a step that are counted by tenant: four kinds of input tokens, four of logit rows, and
    the occupied slots.
    The counter's name is the member's name in lower case."""

    PROMPT_TOKENS_COMPUTED = 0
    TOKENS_RECOMPUTED = auto()  # computed once before, and lost by an eviction or a failed step
    DECODE_INPUTS = auto()
    DRAFT_INPUTS = auto()
    TOKENS_GENERATED = auto()
    DRAFT_REJECTED = auto()
    ROWS_DISCARDED = auto()  # of a request that had failed, or whose reader is slow: nobody was given the token
    PROMPT_ROWS = auto()
    SLOT_STEPS = auto()


INPUT_KINDS = slice(StepKind.PROMPT_TOKENS_COMPUTED, StepKind.DRAFT_INPUTS + 1)


class DrawnTokens(NamedTuple):
    """The tokens that a step sampled. `tenants`: i64 [n]; `later`: bool [n], not the first of its answer;
    `took_ns`: i64 [n], the time since the arrival of the request, or since its last token if `later`."""

    tenants: np.ndarray
    later: np.ndarray
    took_ns: np.ndarray


@dataclass(slots=True)
class StepUsage:
    """The work of one step. `counts`: i64 [StepKind, tenants]; `pages`: i64 [page groups, accounts], the
    pages that each account pays for: tenants, then isolation groups, cache, free. `drawn`: None if no token was
    drawn; `add` keeps its arrays."""

    counts: np.ndarray
    pages: np.ndarray
    drawn: DrawnTokens | None = None


class RunnerCounts(NamedTuple):
    """A runner's work since it started. A failed step is not counted in it or for any tenant."""

    steps: int = 0
    input_tokens: int = 0
    logit_rows: int = 0
    slot_steps: int = 0  # slots that were bound, in the step or not
    device_ns: int = 0

    def after(self, input_tokens: int, logit_rows: int, slots: int, device_ns: int) -> RunnerCounts:
        """Return the counts after one more step."""
        steps, tokens, rows, slot_steps, nanoseconds = self
        return RunnerCounts(
            steps + 1, tokens + input_tokens, rows + logit_rows, slot_steps + slots, nanoseconds + device_ns
        )


@dataclass(frozen=True, slots=True)
class LedgerDelta:
    """The counts since the previous delta: (account, counter) -> amount, the device's side of the same steps,
    and the steps [first_step, last_step)."""

    usage: dict[tuple[str, str], int]
    device: dict[str, int]
    first_step: int
    last_step: int

    def __bool__(self) -> bool:
        return bool(self.usage or self.device)


class UsageLedger:
    """The ledger of one model. `pages`: the pages of each page group by name. `count` and the reading methods
    may be called from any thread; `add` from one."""

    def __init__(self, tenants: Sequence[str], pages: dict[str, int], groups: Sequence[str] = ()) -> None:
        self._pages = dict(pages)
        self._lock = threading.Lock()
        # what the last delta and those before it had, and what was counted since
        self._usage, self._fresh_usage = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        self._device, self._fresh_device = Counter[str](), Counter[str]()
        self._peaks = Counter[str]()  # since then
        self._last = self._settled = RunnerCounts()
        self._set_accounts(tenants, groups)

    def _set_accounts(self, tenants: Sequence[str], groups: Sequence[str]) -> None:
        for name in tenants:
            if name.startswith(RESERVED):
                raise UsageError(
                    f"tenant {name!r}: names that start with {RESERVED!r} are reserved for the ledger"
                )
        self.tenants = tuple(tenants)
        self.accounts = (*tenants, *(f"{RESERVED}group {name}" for name in groups), CACHE, FREE)
        if len(set(self.accounts)) != len(self.accounts):
            raise UsageError("duplicate tenant name", next="use unique names: the ledger counts by name")
        self._held = 0
        self._counts = np.zeros((BLOCK, len(StepKind), len(tenants)), np.int64)
        self._paid = np.zeros((BLOCK, len(self._pages), len(self.accounts)), np.int64)
        self._device_ns = np.zeros(BLOCK, np.int64)
        self._sums, self._page_steps = np.zeros_like(self._counts[0]), np.zeros_like(self._paid[0])
        self._present, self._time = np.zeros((2, len(tenants)), np.int64)
        self._most = np.zeros(len(tenants), np.int64)  # pages paid for at once
        self._drawn: list[DrawnTokens] = []  # of the steps held apart
        self._latencies = Counter[int]()  # by (kind * tenants + tenant) * BUCKETS + bucket

    def configure(self, tenants: Sequence[str], groups: Sequence[str] = ()) -> None:
        """Set the tenants from the next step on. The usage of former tenants remains under their names."""
        with self._lock:
            self._settle()
            self._set_accounts(tenants, groups)

    def clear_step(self) -> StepUsage:
        """Return a step's counts to fill, reused until the tenants change."""
        return StepUsage(np.zeros(self._counts.shape[1:], np.int64), np.zeros(self._paid.shape[1:], np.int64))

    # --- what is counted

    def add(self, step: StepUsage, device: RunnerCounts) -> None:
        """Count a step. `device`: the runner's counts after it, from which the time is computed."""
        with self._lock:
            index = self._held
            self._counts[index] = step.counts
            self._paid[index] = step.pages
            self._device_ns[index] = device.device_ns - self._last.device_ns
            if step.drawn is not None:
                self._drawn.append(step.drawn)
            self._last = device
            self._held += 1
            if self._held == BLOCK:
                self._fold()

    def count(self, counter: str, tenant: int, amount: int = 1) -> None:
        """Count an infrequent event: requests_accepted, requests_finished.length, parks, evictions ..."""
        with self._lock:
            self._fresh_usage[self.tenants[tenant], counter] += amount

    def _fold(self) -> None:
        """Add the pending steps to the sums."""
        steps, self._held = self._held, 0
        counts, paid = self._counts[:steps], self._paid[:steps]
        self._sums += counts.sum(0)
        self._present += (counts[:, StepKind.SLOT_STEPS] > 0).sum(0)
        tokens = counts[:, INPUT_KINDS].sum(1)
        late = ~tokens.any(1)  # steps that only drew late rows
        if late.any():
            tokens[late] = counts[late][:, [StepKind.TOKENS_GENERATED, StepKind.ROWS_DISCARDED]].sum(1)
        busy = np.flatnonzero(tokens.sum(0))
        self._time[busy] += split_time(self._device_ns[:steps], tokens[:, busy]).sum(0)
        self._page_steps += paid.sum(0)
        self._fold_latencies()
        np.maximum(self._most, paid[:, :, : len(self.tenants)].sum(1).max(0, initial=0), out=self._most)

    def _fold_latencies(self) -> None:
        drawn, self._drawn = self._drawn, []
        if drawn:
            later = np.concatenate([item.later for item in drawn]).astype(np.int64)
            tenants = np.concatenate([item.tenants for item in drawn])
            buckets = latency.find_buckets(np.concatenate([item.took_ns for item in drawn]))
            codes = (later * len(self.tenants) + tenants) * latency.BUCKETS + buckets
            result, counts = np.unique(codes, return_counts=True)
            self._latencies.update(dict(zip(result.tolist(), counts.tolist(), strict=True)))

    def _settle(self) -> None:
        """Add the sums to the counters of the corresponding names."""
        self._fold()
        for kind in StepKind:
            self._give(self.tenants, kind.name.lower(), self._sums[kind])
        self._give(self.tenants, "steps_present", self._present)
        for code, count in self._latencies.items():
            location, bucket = divmod(code, latency.BUCKETS)
            which, tenant = divmod(location, len(self.tenants))
            counter = latency.name_counter(latency.KINDS[which], bucket)
            self._fresh_usage[self.tenants[tenant], counter] += count
        self._latencies.clear()
        self._give(self.tenants, "device_ns", self._time)
        for name, now, before in zip(RunnerCounts._fields, self._last, self._settled, strict=True):
            self._fresh_device[name] += now - before
        for group, (name, pages) in enumerate(self._pages.items()):
            self._give(self.accounts, PAGE_STEPS + name, self._page_steps[group])
            self._fresh_device[PAGE_STEPS + name] += pages * (self._last.steps - self._settled.steps)
        self._settled = self._last
        for index in np.flatnonzero(self._most).tolist():
            self._peaks[self.tenants[index]] = max(self._peaks[self.tenants[index]], int(self._most[index]))
        self._most[:] = 0

    def _give(self, accounts: Sequence[str], counter: str, values: np.ndarray) -> None:
        argument, usage = np.flatnonzero(values), self._fresh_usage
        for index, value in zip(argument.tolist(), values[argument].tolist(), strict=True):
            usage[accounts[index], counter] += value
        values[:] = 0

    # --- what was counted

    def usage(self, account: str) -> Counter[str]:
        """Return an account's counters since the start, without the peak; counters that never counted are 0."""
        result = Counter[str]()
        with self._lock:
            self._settle()
            for amounts in (self._usage, self._fresh_usage):
                result.update({counter: value for (name, counter), value in amounts.items() if name == account})
        return result

    def list_by_account(self) -> dict[str, Counter[str]]:
        """Return the counters of all accounts since the start, without the peaks, by name."""
        result: dict[str, Counter[str]] = {}
        with self._lock:
            self._settle()
            for amounts in (self._usage, self._fresh_usage):
                for (name, counter), value in amounts.items():
                    result.setdefault(name, Counter())[counter] += value
        return result

    def sums(self) -> tuple[Sums, Sums]:
        """Return the sums over all accounts, and the device's sums of the same steps: the two sides that
        balance."""
        sums = Counter[str]()
        with self._lock:
            self._settle()
            for amounts in (self._usage, self._fresh_usage):
                for (_, counter), value in amounts.items():
                    sums[counter] += value
            return sums, self._device + self._fresh_device

    def find_problems(self) -> list[str]:
        """Return the currently violated equations."""
        return find_unbalanced(*self.sums())

    def take(self) -> LedgerDelta:
        """Return the counts since the last call, at the end of a step."""
        with self._lock:
            self._settle()
            usage, self._fresh_usage = self._fresh_usage, Counter()
            device, self._fresh_device = self._fresh_device, Counter()
            peaks, self._peaks = self._peaks, Counter()
            self._usage.update(usage)
            self._device.update(device)
            steps = self._device["steps"]
        amounts = {key: value for key, value in usage.items() if value}
        amounts.update({(tenant, PEAK): pages for tenant, pages in peaks.items()})
        return LedgerDelta(amounts, dict(+device), steps - device["steps"], steps)


def split_time(nanoseconds: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Split each step's time by the tenants' tokens: i64 [steps], [steps, tenants] -> [steps, tenants].

    The rounding remainder goes to the largest remainders, so the sum is exact.
    """
    whole, part = np.divmod(tokens * nanoseconds[:, None], np.maximum(1, tokens.sum(1, keepdims=True)))
    left = nanoseconds - whole.sum(1)
    rank = np.argsort(np.argsort(-part, axis=1, kind="stable"), axis=1)
    split: np.ndarray = whole + (rank < left[:, None])
    return split
