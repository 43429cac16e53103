"""Speculative decoding: drafters, and how many tokens are drafted for each request.

A step computes a decoding request's last token followed by its drafts, and samples a token after each. A sampled
token is emitted if every draft before it equals the token that was sampled in its place, so the emitted tokens are
those of plain decoding, whatever the drafter returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

import numpy as np

from zinc_rt.host.errors import UsageError, ZincError

MOST_DRAFTS = 8  # of a request in a step: no more than the smallest page has tokens
LEAST_ACCEPTED = 0.4  # of the compared drafts; below, a request is not drafted for REST_TOKENS
REST_TOKENS = 256
WINDOW = 32  # compared drafts that the acceptance is averaged over
SAMPLES = 9  # durations of a size of step that its time is the median of
MEASURED_STEPS = 1024  # after so many, all sizes are measured again
PRIOR, PRIOR_WEIGHT = 0.7, 3  # expected acceptance of a new request, counted as so many compared drafts

DEFAULT_DRAFTS = 4
SPELLING = f"off, ngram[:K], mtp[:K] or draft:FILE[:K], K from 1 to {MOST_DRAFTS}"
OFF = "off"


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """`kind`: n-grams of the request, the file's layer for next-token prediction, or a draft model, whose file is
    `file`. `drafts`: the most draft tokens of a request in a step."""

    kind: Literal["ngram", "mtp", "draft"]
    drafts: int = DEFAULT_DRAFTS
    file: str = ""


def parse_speculation(text: str) -> SpeculationOptions | None:
    """Return the options of `ngram[:K]`, `mtp[:K]` or `draft:FILE[:K]`, None for "off". Raises UsageError."""
    kind, _, rest = text.partition(":")
    file, drafts = "", rest
    if kind == "draft":
        before, _, last = rest.rpartition(":")
        file, drafts = (before, last) if before and last.isdigit() else (rest, "")
    known = (kind in ("ngram", "mtp") and (drafts or text == kind)) or (kind == "draft" and file)
    if text == OFF:
        return None
    if not known or (drafts and not (drafts.isdigit() and 1 <= int(drafts) <= MOST_DRAFTS)):
        raise UsageError(f"speculation {text!r}: expected {SPELLING}")
    count = int(drafts) if drafts else DEFAULT_DRAFTS
    return SpeculationOptions("draft" if file else "mtp" if kind == "mtp" else "ngram", count, file)


def expect_step(acceptance: float, drafts: int, *, recurrent: bool) -> tuple[float, float]:
    """Return the mean numbers of tokens that a request gets from a step and of drafts that the step computes for
    it, at most `drafts`, each of which is accepted with probability `acceptance`.

    With recurrent state, the steps after a rejected draft compute the accepted tokens again, in place of drafts,
    until all drafts of a step are accepted.
    """
    shares, tokens, drafted = [1.0, *[0.0] * drafts], 0.0, 0.0  # of steps by the number of recomputed tokens
    for behind, count in enumerate(range(drafts, -1, -1)):
        share = shares[behind]
        drafted += share * count
        tokens += share * sum(acceptance**accepted for accepted in range(count + 1))
        for accepted in range(count if recurrent else 0):  # before the first rejected one
            shares[behind + accepted + 1] += share * acceptance**accepted * (1 - acceptance)
    return tokens / sum(shares), drafted / sum(shares)


class DraftTask(NamedTuple):
    """The request to draft for: `tokens`, i32, are those known, valid during the call; at most `most` drafts. With
    recurrent state, its `slot` has pages for them. `changes`: entries of the first page table, of all slots, that
    the device does not have yet."""

    number: int
    choice: int
    tokens: np.ndarray
    most: int
    slot: int = -1
    changes: Mapping[int, int] = MappingProxyType({})


class Drafter(Protocol):
    """Proposes tokens that may follow. Its proposals change the speed of an answer, never its tokens."""

    def propose(self, tasks: Sequence[DraftTask]) -> Sequence[Sequence[int]]:
        """Return the drafts of each task, possibly none. More than `most`, and ids outside the vocabulary with
        all that follow, are ignored."""

    def forget(self, number: int, choice: int) -> None:
        """Drop what is kept of a request that has ended; it may never have been in a task."""

    def close(self) -> None:
        """Free all resources."""


@dataclass(slots=True)
class DraftLength:
    """The number of tokens to draft for a request, at most `maximum`. It rests while too few are accepted, and
    starts again with one."""

    maximum: int
    limit: int = field(init=False)
    acceptance: float = PRIOR  # share of the compared drafts that was accepted, recent ones count more
    compared: int = 0
    rests_until: int = -1  # the length of the request's tokens

    def __post_init__(self) -> None:
        self.limit = self.maximum

    def current(self, length: int) -> int:
        """Return the number of drafts for a request with `length` tokens."""
        return 0 if length < self.rests_until else self.limit

    def record(self, length: int, drafted: int, accepted: int) -> None:
        """Record a verification of `drafted` tokens, after which the request has `length` tokens. Drafts after the
        first rejected one were not compared."""
        compared = min(drafted, accepted + 1)
        self.compared += compared
        weight = compared / min(WINDOW, self.compared + PRIOR_WEIGHT)
        self.acceptance += (accepted / compared - self.acceptance) * weight
        if self.acceptance < LEAST_ACCEPTED:
            self.limit, self.acceptance, self.compared = 1, PRIOR, 0
            self.rests_until = length + REST_TOKENS
        elif accepted == drafted:
            self.limit = min(self.maximum, max(self.limit, 2 * drafted))


@dataclass(slots=True)
class Speculation:
    """A scheduler's drafter, with the draft length of each request and the measured times of steps.

    `maximum`: drafts of a request in a step. `adaptive`: draft fewer where few are accepted, or where a larger
    step takes too long; else always the maximum. `recurrent`: the model has recurrent state. `draft_ns`: time of
    the drafter per draft token. `drafted`, `accepted`: tokens so far. `failure`: why nothing is drafted any more.
    """

    drafter: Drafter
    maximum: int
    adaptive: bool = True
    recurrent: bool = False
    draft_ns: float = 0.0
    drafted: int = 0
    accepted: int = 0
    failure: str = ""
    _lengths: dict[tuple[int, int], DraftLength] = field(default_factory=dict)
    _times: dict[tuple[int, int], list[int]] = field(default_factory=dict)  # of decodes and tokens each
    _steps: int = 0

    def length(self, number: int, choice: int) -> DraftLength:
        """Return the draft length of a request."""
        key = number, choice
        if key not in self._lengths:
            self._lengths[key] = DraftLength(self.maximum)
        return self._lengths[key]

    def propose(self, tasks: Sequence[DraftTask], clock_ns: Callable[[], int]) -> Sequence[Sequence[int]]:
        """Return the drafter's proposals, and measure their time. After an error of its device, there are none."""
        began_ns = clock_ns()
        try:
            proposals = [] if self.failure else self.drafter.propose(tasks)
        except ZincError as error:
            self.failure, proposals = f"speculation is off, because the drafter failed: {error.message}", []
        if count := sum(map(len, proposals)):
            self.draft_ns += ((clock_ns() - began_ns) / count - self.draft_ns) / WINDOW
        return proposals

    def forget(self, number: int, choice: int) -> None:
        """Drop a request that has ended."""
        self._lengths.pop((number, choice), None)
        self.drafter.forget(number, choice)

    def list_requests(self) -> list[tuple[int, int]]:
        """Return the number and choice of the requests that have a draft length."""
        return list(self._lengths)

    def figures(self) -> dict[str, int]:
        """Return the drafted and the accepted tokens, for a report."""
        return {"drafted_tokens": self.drafted, "accepted_tokens": self.accepted}

    def describe(self) -> str:
        """Return the figures as a sentence, or why nothing is drafted any more."""
        share = f", {self.accepted / self.drafted:.0%}" if self.drafted else ""
        return self.failure or f"{self.drafted} tokens, {self.accepted} accepted{share}"

    def observe(self, decodes: int, tokens: int, took_ns: int) -> None:
        """Record the time of a step of `tokens` tokens of decodes, with their drafts and recomputed tokens."""
        self._steps += 1
        if self._steps % MEASURED_STEPS == 0:
            self._times.clear()
        times = self._times.setdefault((decodes, -(-tokens // decodes)), [])
        times.append(took_ns)
        if len(times) > SAMPLES + 1:
            del times[1]  # the first is ignored: it may have built graphs

    def list_times(self) -> dict[tuple[int, int], int]:
        """Return the measured times of steps in nanoseconds, by the number of decodes and of tokens of each."""
        return {size: median_low(times[1:]) for size, times in self._times.items() if len(times) > 1}

    def choose_count(self, decodes: int, acceptance: float, maximum: int) -> int:
        """Return the number of drafts of each of `decodes` requests, at most `maximum`, with the most expected
        tokens per time. A number that has not been measured is tried, once plain decoding has been."""
        chosen, best = 0, 0.0
        for count in range(maximum + 1):
            times = self._times.get((decodes, count + 1), [])
            if len(times) < 2:
                return count
            tokens, drafted = expect_step(acceptance, count, recurrent=self.recurrent)
            rate = tokens / max(1.0, median_low(times[1:]) + self.draft_ns * decodes * drafted)
            if rate > best:
                chosen, best = count, rate
        return chosen


@dataclass(slots=True)
class NgramDrafter:
    """Drafts what followed the last earlier occurrence of a request's last tokens, in its prompt or its answer.
    Longer matches come first, of `longest` tokens down to `shortest`."""

    longest: int = 4
    shortest: int = 2
    _known: dict[tuple[int, int], _NgramIndex] = field(default_factory=dict)

    def propose(self, tasks: Sequence[DraftTask]) -> Sequence[Sequence[int]]:
        return [self._propose(task) for task in tasks]

    def forget(self, number: int, choice: int) -> None:
        self._known.pop((number, choice), None)

    def close(self) -> None:
        self._known.clear()

    def _propose(self, task: DraftTask) -> list[int]:
        known = self._known.setdefault((task.number, task.choice), _NgramIndex())
        known.extend(task.tokens, self.shortest, self.longest)
        for size in range(min(self.longest, len(task.tokens) - 1), self.shortest - 1, -1):
            end = known.ends.get(tuple(task.tokens[-size:].tolist()))
            if end is not None:
                return self._copy(task.tokens, end, task.most)
        return []

    def _copy(self, tokens: np.ndarray, end: int, count: int) -> list[int]:
        """Return `count` tokens from `end` on; a repetition that reaches the last token goes on."""
        period = len(tokens) - end
        return [int(tokens[end + index % period]) for index in range(count)]


@dataclass(slots=True)
class _NgramIndex:
    """Where each n-gram of a request last ended, except those that end with its last token. `seen`: n-grams that
    end before this position are in `ends`."""

    seen: int = 0
    ends: dict[tuple[int, ...], int] = field(default_factory=dict)

    def extend(self, tokens: np.ndarray, shortest: int, longest: int) -> None:
        """Add the n-grams of `shortest` to `longest` tokens that end before the last token."""
        begin = max(0, self.seen - longest)
        recent = tokens[begin:].tolist()
        for end in range(max(self.seen, shortest), len(tokens)):
            for size in range(shortest, min(longest, end) + 1):
                self.ends[tuple(recent[end - size - begin : end - begin])] = end
        self.seen = max(self.seen, len(tokens))
