"""A shadow device that computes nothing, but tracks the token at each position of each page and the tokens of
each state row and penalty row. It reads each step as kernels would, and reports incorrect reads and
writes.

Its tokens are a function of seed, choice and position, so each answer is known in advance. Every token that a
request reads must be from its own prefix: a foreign page, row or record is reported in the step that reads
it, with its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zinc_rt.ir.slot_record import RECORD, SlotFlag, SlotState
from zinc_rt.sched.kv.kv_cache import UNSET, ZERO, PageGroup
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.usage.ledger import RunnerCounts

NOBODY = -1
DECODED = np.uint64(1 + (1 << 40))  # added to a decoded token instead of 1, if orderings differ
SHOWN = 8  # findings of a step; the rest is counted


def draw_token(seed: int, choice: int, position: int, vocab: int = 1 << 15) -> int:
    """Return the token that a request samples at a position. It does not depend on the batch."""
    mixed = (seed * 0x9E3779B97F4A7C15 + choice * 0xC2B2AE3D27D4EB4F + position * 0x165667B19E3779F9) % (1 << 64)
    return ((mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 % (1 << 64) >> 33) % vocab


@dataclass(slots=True)
class RegisteredRequest:
    """A request's prompt and sampled tokens; `prefix[p]`: the cache content for position p."""

    number: int
    choice: int
    start: int  # of its namespace: what other tenants' caches hold is other
    tokens: np.ndarray
    prefix: np.ndarray
    count: int
    seen: int  # sum over its tokens, in any order
    decoded_from: int  # the length of its prompt

    @property
    def name(self) -> str:
        return f"request {self.number}" + (f", choice {self.choice}" if self.choice else "")


@dataclass(slots=True)
class _ShadowPool:
    """One page group's memory: by location (page * page_tokens + token): the prefix written there, its writer and
    its position.
    """

    value: np.ndarray
    writer: np.ndarray
    position: np.ndarray

    @classmethod
    def of(cls, places: int) -> _ShadowPool:
        return cls(np.zeros(places, np.uint64), np.full(places, NOBODY, np.int64), np.zeros(places, np.int32))


class ShadowDevice:
    """A StepRunner that checks plans. `records`: the host's records, read when the plan binds a slot. `findings`:
    incorrect reads and writes, as sentences in order.
    """

    def __init__(
        self,
        slots: int,
        ctx: int,
        page_tokens: int,
        groups: Sequence[PageGroup],
        state_rows: int,
        records: np.ndarray,
        *,
        draw: Callable[[int, int, int], int] = draw_token,
        roles: bool = False,
    ) -> None:
        """`roles`: keys and values depend on whether their token was computed as one of a prompt or as a decoded
        one."""
        self.ctx, self.page_tokens, self.groups, self.state_rows = ctx, page_tokens, tuple(groups), state_rows
        self.records, self.draw, self.roles = records, draw, roles
        self.findings: list[str] = []
        self.steps = 0
        self.counts = RunnerCounts()
        pages_per_slot = -(-ctx // page_tokens)
        self.tables = [np.full((slots, pages_per_slot), UNSET, np.int32) for _ in self.groups]
        self.record = np.zeros(slots, RECORD)
        self._pools = [_ShadowPool.of(group.pages * page_tokens) for group in self.groups]
        self._state = np.zeros(max(1, state_rows), np.uint64)
        self._state_of = np.full(max(1, state_rows), NOBODY, np.int64)
        self._counts: dict[int, int] = {}  # penalty row: sum over the tokens it counts
        self._known: dict[tuple[int, int], RegisteredRequest] = {}
        random = np.random.default_rng(17)
        self._weights = random.integers(1, 1 << 63, ctx, np.uint64) * np.uint64(2) + np.uint64(1)

    # --- who there is

    def register_request(self, number: int, prompt: Sequence[int], *, start: int = 0, choices: int = 1) -> None:
        """Register a request with its prompt. `start`: the initial prefix of its tenant's namespace."""
        for choice in range(choices):
            tokens, prefix = np.zeros(self.ctx, np.int32), np.zeros(self.ctx, np.uint64)
            known = RegisteredRequest(number, choice, start, tokens, prefix, 0, 0, len(prompt))
            self._append(known, prompt)
            self._known[number, choice] = known

    def forget(self, number: int) -> None:
        for key in [key for key in self._known if key[0] == number]:
            del self._known[key]

    def answer_request(self, number: int, choice: int = 0) -> list[int]:
        """Return the tokens so far, prompt first."""
        known = self._known[number, choice]
        return [int(token) for token in known.tokens[: known.count]]

    def has_state_after(self, row: int, page: int) -> bool:
        """Return whether a state row holds the state after the last token of a page of the first group."""
        return bool(self._state[row] == self._pools[0].value[(page + 1) * self.page_tokens - 1])

    def _append(self, known: RegisteredRequest, tokens: Sequence[int]) -> None:
        first, last = known.count, known.count + len(tokens)
        known.tokens[first:last] = tokens
        decoded = self._make_roles(np.arange(first, last) >= known.decoded_from)
        terms = (known.tokens[first:last].astype(np.uint64) + decoded) * self._weights[first:last]
        before = known.prefix[first - 1] if first else np.uint64(known.start * 2 + 1)
        known.prefix[first:last] = np.cumsum(terms, dtype=np.uint64) + before
        known.seen += sum(_hash_token(int(token)) for token in tokens)
        known.count = last

    def _make_roles(self, decoded: np.ndarray) -> np.ndarray:
        """Return the terms by which a token's contents depend on its role, u64: see ShadowDevice."""
        return np.where(decoded & self.roles, DECODED, np.uint64(1))

    # --- a step

    def submit(self, plan: StepPlan) -> StepPlan:
        self.steps += 1
        result = list(self._run(plan))
        self.findings += result[:SHOWN]
        if len(result) > SHOWN:
            self.findings.append(f"step {self.steps}: {len(result) - SHOWN} more")
        return plan

    def collect(self, handle: Any) -> Drawn:
        """Return the step's tokens as the records specify."""
        slots, positions = handle.row_slot[: handle.rows].tolist(), handle.row_position[: handle.rows].tolist()
        seeds, choices = self.record["seed"][slots].tolist(), self.record["choice"][slots].tolist()
        drawn = [self.draw(*item) for item in zip(seeds, choices, positions, strict=True)]
        self.record_drawn(handle, drawn)
        bound = int((self.records["state"] != SlotState.FREE).sum())
        self.counts = self.counts.after(handle.tokens, handle.rows, bound, 0)
        return Drawn(np.array(drawn, np.int32), np.full(handle.rows, -1, np.int32), None)

    def reopen(self) -> bool:
        """Drop all device contents."""
        for pool in self._pools:
            pool.value[:], pool.writer[:] = 0, NOBODY
        for table in self.tables:
            table[:] = UNSET
        self.record[:] = np.zeros(1, RECORD)[0]
        self._state[:], self._state_of[:] = 0, NOBODY
        self._counts.clear()
        return True

    def _run(self, plan: StepPlan) -> Iterator[str]:
        for slot in plan.bound:
            yield from self._bind(slot, plan)
        for launch in plan.list_launches():
            for group, changes in enumerate(launch.plan.table_changes):
                for entry, page in changes.items():
                    self.tables[group].reshape(-1)[entry] = page
        for copy in plan.copies:
            self._copy(copy.group, copy.source, copy.target, copy.tokens)
        spans = list(_list_spans(plan))
        yield from (self._with_step(f"{text}") for text in _sort_sequences(plan))
        for ordinal, (first, last) in enumerate(spans):
            yield from self._check_reads(plan, ordinal, first, last)
        yield from self._check_targets(plan)
        for ordinal, (first, last) in enumerate(spans):
            yield from self._record_writes(plan, ordinal, first, last)
        yield from self._list_rows(plan)

    def _bind(self, slot: int, plan: StepPlan) -> Iterator[str]:
        new, old = self.records[slot], self.record[slot]
        if old["request"] and _request_key(new) != _request_key(old) and new["epoch"] == old["epoch"]:
            yield self._with_step(
                f"slot {slot}, request {new['request']}: bound with epoch {new['epoch']}, which request "
                f"{old['request']} had in this slot: a late token of that request would be accepted"
            )
        self.record[slot] = new
        if new["state"] == SlotState.FREE:  # its request lost the slot before the step
            return
        if new["flags"] & SlotFlag.PENALTIES:
            counted = plan.counts_of.get(slot)
            known = self._known.get(_request_key(new))
            self._counts[int(new["penalty_row"])] = (
                sum(_hash_token(int(t)) for t in counted) if counted is not None else 0
            )
            if counted is None and known is not None and known.count and new["state"] != SlotState.FREE:
                yield self._with_step(
                    f"slot {slot}, {known.name}: bound without counts for its penalty row {new['penalty_row']}"
                )

    def _copy(self, group: int, source: int, target: int, tokens: int) -> None:
        pool, size = self._pools[group], self.page_tokens
        for array in (pool.value, pool.writer, pool.position):
            array[target * size : target * size + tokens] = array[source * size : source * size + tokens]

    def _request_of(self, slot: int) -> RegisteredRequest | None:
        return self._known.get(_request_key(self.record[slot]))

    def _check_reads(self, plan: StepPlan, ordinal: int, first: int, last: int) -> Iterator[str]:
        """Check the cached keys of the previous tokens, the resulting state, and the tokens themselves."""
        slot, begin = int(plan.slot[first]), int(plan.position[first])
        known, host = self._request_of(slot), self.records[slot]
        if _request_key(host) != _request_key(self.record[slot]):
            yield self._with_step(
                f"slot {slot}, request {host['request']}: runs with the record of request "
                f"{self.record[slot]['request']}, which was there before"
            )
            return
        if known is None:
            yield self._with_step(f"slot {slot}: computes for request {host['request']}, which has left it")
            return
        where = f"slot {slot}, {known.name}"
        count = min(last - first, known.count - begin)
        begins_early = begin < known.count if self.state_rows else begin + 1 == known.count
        if count < last - first and (first >= plan.decode_tokens or not begins_early):
            yield self._with_step(
                f"{where}: computes position {begin + last - first - 1}, but has {known.count} tokens"
            )
            return
        token_id = plan.token_id[first : first + count]
        if wrong := np.flatnonzero(token_id != known.tokens[begin : begin + count]).tolist():
            index = begin + wrong[0]
            yield self._with_step(
                f"{where}: token {int(token_id[wrong[0]])} at position {index}, "
                f"expected {int(known.tokens[index])}"
            )
        for group in range(len(self.groups)):
            yield from self._check_page_reads(group, slot, begin, known, where)
        if self.state_rows:
            yield from self._check_state_read(int(plan.state_source[ordinal]), begin, known, where)

    def _check_page_reads(
        self, group: int, slot: int, begin: int, known: RegisteredRequest, where: str
    ) -> Iterator[str]:
        window = self.groups[group].window
        index = np.arange(max(0, begin - window + 1) if window else 0, begin)
        pages = self.tables[group][slot, index // self.page_tokens]
        named = f"{where}, group {self.groups[group].name}"
        if (unset := np.flatnonzero(pages == UNSET)).size:
            yield self._with_step(f"{named}: reads position {index[unset[0]]}, for which its table has no page")
            return
        places = pages * self.page_tokens + index % self.page_tokens
        pool = self._pools[group]
        wrong = np.flatnonzero(pool.value[places] != known.prefix[index])
        if wrong.size:
            first = int(wrong[0])
            page, location = int(pages[first]), int(places[first])
            holds = self._holds(int(pool.writer[location]), int(pool.position[location]))
            yield self._with_step(
                f"{named}: reads position {int(index[first])} in page {page}, which holds {holds}"
            )

    def _holds(self, writer: int, position: int) -> str:
        return "nothing" if writer == NOBODY else f"position {position} of request {writer}"

    def _check_state_read(self, row: int, begin: int, known: RegisteredRequest, where: str) -> Iterator[str]:
        wanted = known.prefix[begin - 1] if begin else np.uint64(0)
        if (self._state[row] == wanted) if begin else (row == ZERO):
            return
        holds = "the zero state" if row == ZERO else self._describe_state(row)
        yield self._with_step(f"{where}: starts at position {begin} from state row {row}, which holds {holds}")

    def _describe_state(self, row: int) -> str:
        writer = int(self._state_of[row])
        return "nothing" if writer == NOBODY else f"another state, written for request {writer}"

    def _check_targets(self, plan: StepPlan) -> Iterator[str]:
        """Check that concurrent sequences of a step write different rows."""
        if not self.state_rows:
            return
        source, target = plan.state_source[: plan.sequences], plan.state_target[: plan.sequences]
        for row, times in zip(*np.unique(target, return_counts=True), strict=True):
            readers = np.flatnonzero((source == row) & (target != row))
            if row == ZERO:
                yield self._with_step(f"state row {ZERO}, the zero state of fresh sequences, would be written")
            elif times > 1:
                yield self._with_step(f"state row {row} is written by {times} sequences of the step")
            elif readers.size:
                yield self._with_step(
                    f"state row {row} is written while sequence {readers[0]} of the step reads it"
                )

    def _record_writes(self, plan: StepPlan, ordinal: int, first: int, last: int) -> Iterator[str]:
        slot = int(plan.slot[first])
        known = self._request_of(slot)
        if known is None:
            return
        index, tokens = plan.position[first:last], plan.token_id[first:last]
        before = known.prefix[index[0] - 1] if index[0] else np.uint64(known.start * 2 + 1)
        decoded = np.ones(plan.tokens, bool)
        for launch in plan.launches:
            decoded[launch.tokens] = launch.role == "decode"
        terms = (tokens.astype(np.uint64) + self._make_roles(decoded[first:last])) * self._weights[index]
        prefix = np.cumsum(terms, dtype=np.uint64) + before
        for group, pool in enumerate(self._pools):
            pages = self.tables[group][slot, index // self.page_tokens]
            if (pages == UNSET).any():
                missing = int(index[np.flatnonzero(pages == UNSET)[0]])
                yield self._with_step(f"slot {slot}, {known.name}: writes position {missing}, which has no page")
                continue
            places = pages * self.page_tokens + index % self.page_tokens
            pool.value[places], pool.writer[places], pool.position[places] = prefix, known.number, index
        if self.state_rows:
            row = int(plan.state_target[ordinal])
            if row != ZERO:
                self._state[row], self._state_of[row] = prefix[-1], known.number

    def _list_rows(self, plan: StepPlan) -> Iterator[str]:
        """Check the sampled rows: after which token, and with whose sampling parameters. The rows of a decode's
        drafts sample one position after the other. A step without tokens samples logits of earlier ones."""
        for row in range(plan.rows):
            token, slot, position = int(plan.logit_row[row]), int(plan.row_slot[row]), int(plan.row_position[row])
            known = self._request_of(slot)
            if plan.tokens and slot != plan.slot[token]:
                yield self._with_step(
                    f"row {row}: logits of slot {int(plan.slot[token])} are sampled by slot {slot}"
                )
            elif plan.tokens and position != plan.position[token] + 1:
                yield self._with_step(
                    f"slot {slot}: samples position {position} after position {int(plan.position[token])}"
                )
            elif known is not None and position != known.count + (drafts := self._count_drafts(plan, row)):
                yield self._with_step(
                    f"slot {slot}, {known.name}: samples token {position}, expected {known.count + drafts}"
                )
            if known is not None and self.record[slot]["flags"] & SlotFlag.PENALTIES:
                counts = int(self.record[slot]["penalty_row"])
                if self._counts.get(counts) != known.seen:
                    yield self._with_step(f"slot {slot}, {known.name}: penalty row {counts} counts other tokens")

    def _count_drafts(self, plan: StepPlan, row: int) -> int:
        """Return how many drafts of its sequence precede a row."""
        return row - int(np.argmax(plan.row_slot == plan.row_slot[row])) if row < plan.decode_rows else 0

    def record_drawn(self, plan: StepPlan, tokens: Sequence[int]) -> None:
        """Record the rows of a step that were sampled by a real device running in parallel; -1 for a row whose
        mask was late."""
        for row, token in ((row, token) for row, token in enumerate(tokens) if token >= 0):
            slot, position = int(plan.row_slot[row]), int(plan.row_position[row])
            known = self._request_of(slot)
            follows = known is not None and (
                not plan.tokens
                or row >= plan.decode_rows
                or known.tokens[position - 1] == plan.token_id[int(plan.logit_row[row])]
            )
            if known is not None and follows and position == known.count < self.ctx:
                self._append(known, [int(token)])
                if self.record[slot]["flags"] & SlotFlag.PENALTIES:
                    self._counts[int(self.record[slot]["penalty_row"])] += _hash_token(int(token))

    def _with_step(self, text: str) -> str:
        return f"step {self.steps}: {text}"


def _request_key(record: np.void) -> tuple[int, int]:
    return int(record["request"]), int(record["choice"])


def _hash_token(token: int) -> int:
    """Mixing makes equal sums of different tokens improbable."""
    return (token + 1) * (token * 2654435761 + 97)


def _list_spans(plan: StepPlan) -> Iterator[tuple[int, int]]:
    """Return the first and last token of each sequence of the step."""
    sequence = plan.sequence[: plan.tokens]
    starts = np.flatnonzero(np.diff(sequence, prepend=-1)).tolist()
    yield from zip(starts, [*starts[1:], plan.tokens][: len(starts)], strict=True)


def _sort_sequences(plan: StepPlan) -> Iterator[str]:
    """Kernels find a sequence's tokens by bisection: adjacent, ascending, each sequence of one slot."""
    sequence, slot = plan.sequence[: plan.tokens], plan.slot[: plan.tokens]
    position = plan.position[: plan.tokens]
    if (np.diff(sequence, prepend=-1) > 1).any() or (np.diff(sequence) < 0).any():
        yield f"the sequences of the step are not in order: {sequence.tolist()}"
        return
    same = np.diff(sequence) == 0
    if wrong := np.flatnonzero(same & (np.diff(slot) != 0)).tolist():
        both = f"{slot[wrong[0]]} and {slot[wrong[0] + 1]}"
        yield f"sequence {int(sequence[wrong[0]])} of the step is of slots {both}"
    elif wrong := np.flatnonzero(same & (np.diff(position) != 1)).tolist():
        index = wrong[0]
        yield f"slot {int(slot[index])}: position {int(position[index])} is followed by {int(position[index + 1])}"
