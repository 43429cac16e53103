"""What requests hold of a model's memory: pages in every group, cached prefixes, rows of recurrent state.

A request is admitted with all pages of its prompt promised, takes them chunk by chunk, and gives back what its
windows left behind. Only full, computed pages are ever shared, and nobody writes to them; a fork copies the last,
partial page and nothing else. Parking is keeping a Holding; evicting is releasing it: its full pages stay as
cache.

A state row that one sequence alone refers to is written in place. A step that starts from a row which others name
too (a checkpoint, a capsule) writes the sequence's spare row: so a snapshot is another name for a row, and copies
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from zinc_rt.errors import UsageError
from zinc_rt.sched.pages import PageQuota, Pages
from zinc_rt.sched.pool import Pool
from zinc_rt.sched.prefix import DIGEST_BYTES, NO_ROW, CachedPage, Match, Namespace, PrefixCache, chain

UNSET = -1  # in a table: no page, or one that its window has left behind
ZERO = 0  # the row of a sequence that has computed nothing: all zeros, never a target


@dataclass(frozen=True, slots=True)
class PageGroup:
    """Cache buffers that live equally long. `window`: how many tokens back their layers look, 0: all."""

    name: str
    pages: int
    window: int = 0


@dataclass(frozen=True, slots=True)
class PageCopy:
    """The first `tokens` rows of a page are to be copied to another before the next step."""

    group: int
    source: int
    target: int
    tokens: int


@dataclass(slots=True, eq=False)
class Holding:
    """Of one sequence. `tables`: page ids by group and page number; `computed`: tokens whose keys and values are
    in place; `prompt`: how many tokens it was promised pages for. Rows are NO_ROW without recurrent state."""

    tenant: int
    within: Namespace
    digests: bytearray
    tables: list[list[int]]
    promised: list[int]
    prompt: int
    computed: int
    registered: int  # full pages that the cache was offered
    last: CachedPage | None  # the entry of the last of those
    room: int = 0  # tokens that its pages have room for
    state: int = NO_ROW  # the row its state is in
    spare: int = NO_ROW  # the row to write while others name that one too
    boundary: int = NO_ROW  # the row of its state at the last page boundary, where that is kept rolling
    boundary_entry: CachedPage | None = None  # of the page that ends there


@dataclass(slots=True, eq=False)
class Capsule:
    """A sequence at one position, to go on from any number of times: references to its full pages, pages of its
    own for the rest, and a state row that nobody writes."""

    tenant: int
    within: Namespace
    tokens: np.ndarray
    digests: bytes
    tables: list[list[int]]
    last: CachedPage | None
    state: int = NO_ROW

    @property
    def computed(self) -> int:
        return len(self.tokens)


@dataclass(slots=True)
class KvCache:
    """The pages, prefix entries and state rows of one model. `chunk_tokens`: the most tokens of a sequence in a
    step; `state_rows`: 0 for a model without recurrent state.

    Each method does the whole of what it says, or nothing, and says which.
    """

    groups: Sequence[PageGroup]
    page_tokens: int
    chunk_tokens: int
    state_rows: int = 0
    pools: list[Pages] = field(init=False)
    prefix: PrefixCache = field(init=False)
    rows: Pool | None = field(init=False)
    _windows: list[int] = field(init=False)  # groups that give pages back as they go on
    _of_row: dict[int, CachedPage] = field(init=False)  # a checkpoint's row: whose state it is

    def __post_init__(self) -> None:
        self._of_row = {}
        self._windows = [number for number, group in enumerate(self.groups) if group.window]
        self.rows = Pool(self.state_rows, first=1, taken_from_cache=self._row_taken) if self.state_rows else None
        self.prefix = PrefixCache(
            self.page_tokens,
            [group.window for group in self.groups],
            recurrent=self.rows is not None,
            forget_row=self._forget_row,
            uncache=lambda group, page: self.pools[group].pool.uncache(page),
        )
        self.pools = [
            Pages(group.pages, taken_from_cache=partial(self.prefix.page_taken, number))
            for number, group in enumerate(self.groups)
        ]

    # --- admission

    def set_quotas(self, tenant: int, quotas: Iterable[PageQuota]) -> None:
        """One a group. Raises UsageError, with none changed, where one cannot be kept."""
        changed: list[tuple[Pages, PageQuota]] = []
        try:
            for pool, quota in zip(self.pools, quotas, strict=True):
                before = pool.quota(tenant)
                pool.set_quota(tenant, quota)
                changed.append((pool, before))
        except UsageError:
            for pool, before in changed:
                pool.set_quota(tenant, before)
            raise

    def could_ever(self, tenant: int, tokens: int) -> bool:
        """Whether so many tokens, prompt and answer, would fit if the tenant were alone."""
        return all(pool.ever(tenant, self._most_live(group, tokens)) for group, pool in enumerate(self.pools))

    def admit(
        self, tenant: int, within: Namespace, tokens: np.ndarray, digests: bytes, match: Match
    ) -> Holding | None:
        """Of the prompt the matched pages are shared, the others and one more promised. None where they, or a row,
        cannot be had."""
        tables = [[UNSET] * match.pages for _ in self.pools]
        for group, table in enumerate(tables):
            for at in self.prefix.needed(group, match.pages):
                table[at] = match.entries[at].pages[group]
        holding = Holding(
            tenant,
            within,
            bytearray(digests),
            tables,
            [0] * len(tables),
            len(tokens),
            computed=match.pages * self.page_tokens,
            registered=match.pages,
            last=match.entries[-1] if match.entries else None,
        )
        return holding if self._bind(holding, match.state_row if match.pages else ZERO) else None

    def _bind(self, holding: Holding, state: int) -> bool:
        """References to what its tables name, the promise of what is to come, a row to write. All or nothing."""
        tenant = holding.tenant
        promised = [self._to_promise(holding, group) for group in range(len(self.pools))]
        for pool, table, more in zip(self.pools, holding.tables, promised, strict=True):
            fresh = sum(page != UNSET and not pool.refers(tenant, page) for page in table)
            if not pool.can(tenant, more + fresh):
                return False
        if self.rows is not None:
            self._name(state)  # before another row is taken: that could be it
            spare = self.rows.take()
            if spare is None:
                self._unname(state)
                return False
            holding.state, holding.spare = state, spare
        for pool, table, more in zip(self.pools, holding.tables, promised, strict=True):
            for page in table:
                if page != UNSET:
                    pool.share(page, tenant)
            pool.promise(tenant, more)
        holding.promised = promised
        holding.room = min(map(len, holding.tables)) * self.page_tokens
        return True

    def _to_promise(self, holding: Holding, group: int) -> int:
        """Pages until the prompt and one token more are in place, at most as many as the group then holds at
        once."""
        table, tokens = holding.tables[group], holding.prompt + 1
        to_come = -(-tokens // self.page_tokens) - len(table)
        return max(0, min(to_come, self._most_live(group, tokens) - sum(page != UNSET for page in table)))

    def _most_live(self, group: int, tokens: int) -> int:
        """How many of a sequence's pages a group holds at once at most, until it has so many tokens."""
        whole = -(-tokens // self.page_tokens)
        window = self.groups[group].window
        return min(whole, -(-(window + self.chunk_tokens) // self.page_tokens) + 1) if window else whole

    # --- a step

    def cover(self, holding: Holding, tokens: int) -> bool:
        """Pages for the first `tokens` tokens, out of the promise while it lasts; False where one is lacking."""
        if tokens <= holding.room:
            return True
        wanted = -(-tokens // self.page_tokens)
        for pool, table, promised in zip(self.pools, holding.tables, holding.promised, strict=True):
            beyond = wanted - len(table) - promised
            if beyond > 0 and not pool.can(holding.tenant, beyond):
                return False
        for group, (pool, table) in enumerate(zip(self.pools, holding.tables, strict=True)):
            while len(table) < wanted:
                promised_one = holding.promised[group] > 0
                holding.promised[group] -= promised_one
                table.append(pool.take(holding.tenant, promised=promised_one))
        holding.room = wanted * self.page_tokens
        return True

    def step_rows(self, holding: Holding) -> tuple[int, int]:
        """(source, target) of its next step."""
        state = holding.state
        in_place = self.rows is not None and state != ZERO and self.rows.private(state)
        return state, state if in_place else holding.spare

    def ran(
        self, holding: Holding, tokens: Sequence[int], count: int, *, keep: bool = False, rolling: bool = False,
        now_ns: int = 0,
    ) -> None:  # fmt: skip
        """A step has computed the first `count` of `tokens`. Its full pages are cached, those that its windows
        have left are given back. At a page boundary `keep` makes the state a checkpoint, `rolling` holds it until
        the next boundary; both where a row is free for that."""
        full_before = holding.computed // self.page_tokens
        source, target = self.step_rows(holding)
        holding.computed = count
        if count // self.page_tokens > full_before:
            self._register(holding, tokens, now_ns)
        if self.rows is not None:
            if target == source:
                self._give_up_spare(holding)
            else:
                self._unname(source)
                holding.state, holding.spare = target, NO_ROW
            if count % self.page_tokens == 0 and (rolling or keep):
                self._keep_state(holding, rolling=rolling)
        for group in self._windows:
            self._slide(holding, group)

    def _register(self, holding: Holding, tokens: Sequence[int], now_ns: int) -> None:
        size, full = self.page_tokens, holding.computed // self.page_tokens
        fresh = np.array(tokens[holding.registered * size : full * size], "<i4")
        have = len(holding.digests) // DIGEST_BYTES
        if full > have:
            after = bytes(holding.digests[-DIGEST_BYTES:])
            missing = fresh[(have - holding.registered) * size :]
            holding.digests += chain(missing, size, holding.within, after=after)
        for at in range(holding.registered, full):
            raw = fresh[(at - holding.registered) * size :][:size].tobytes()
            digest = bytes(holding.digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES])
            pages = [table[at] for table in holding.tables]
            entry, new = self.prefix.register(digest, raw, holding.last, pages, now_ns=now_ns)
            if new:
                for pool, page in zip(self.pools, pages, strict=True):
                    pool.pool.cache(page)
            holding.last = entry
        holding.registered = full

    def _keep_state(self, holding: Holding, *, rolling: bool) -> None:
        """The state of now under a second name, and another row for the sequence to go on to."""
        assert self.rows is not None
        if rolling and holding.boundary != NO_ROW and self.rows.private(holding.boundary):
            spare: int | None = holding.boundary  # the last one's row, which nobody wants any more
            holding.boundary = NO_ROW
        else:
            spare = self.rows.take()
        if spare is None:
            return
        if rolling:
            if holding.boundary != NO_ROW:
                self._unname(holding.boundary)
            self.rows.share(holding.state)
            holding.boundary, holding.boundary_entry = holding.state, holding.last
        elif not self._checkpoint(holding.last, holding.state):
            self.rows.release(spare)
            return
        holding.spare = spare

    def _give_up_spare(self, holding: Holding) -> None:
        """No other names its state's row any more."""
        self._unname(holding.spare)
        holding.spare = NO_ROW

    def _checkpoint(self, entry: CachedPage | None, row: int) -> bool:
        """The row is the state behind that page from now on, unless there is one, or the page is in no cache."""
        assert self.rows is not None
        if entry is None or entry.state_row != NO_ROW or not self.prefix.holds(entry) or self.rows.cached[row]:
            return False
        entry.state_row = row
        self._of_row[row] = entry
        self.rows.cache(row)
        return True

    def _row_taken(self, row: int) -> None:
        self._of_row.pop(row).state_row = NO_ROW

    def _forget_row(self, row: int) -> None:
        assert self.rows is not None
        del self._of_row[row]
        self.rows.uncache(row)

    def _slide(self, holding: Holding, group: int) -> None:
        """Give back the pages that no later token looks at; what is still to come of the prompt is promised
        anew."""
        pool, table = self.pools[group], holding.tables[group]
        window = self.groups[group].window
        first = max(0, holding.computed - window + 1) // self.page_tokens
        for at in range(min(first, len(table)) - 1, -1, -1):
            if table[at] == UNSET:
                break
            pool.release(table[at], holding.tenant)
            table[at] = UNSET
        more = self._to_promise(holding, group) - holding.promised[group]
        if more > 0:  # no more than was just given back
            pool.promise(holding.tenant, more)
            holding.promised[group] += more

    # --- the end, and more than one

    def release(self, holding: Holding) -> None:
        """Nothing of it is held any more. Its full pages stay as cache, and so does its state at a page
        boundary."""
        if self.rows is not None:
            if holding.boundary != NO_ROW:
                self._checkpoint(holding.boundary_entry, holding.boundary)
            if holding.computed % self.page_tokens == 0 and holding.state != ZERO:
                self._checkpoint(holding.last, holding.state)
            for row in (holding.boundary, holding.state, holding.spare):
                self._unname(row)
        for pool, table, promised in zip(self.pools, holding.tables, holding.promised, strict=True):
            _release_pages(pool, table, holding.tenant)
            pool.promise(holding.tenant, -promised)

    def snapshot(self, holding: Holding, tokens: np.ndarray) -> tuple[Capsule, list[PageCopy]] | None:
        """A capsule of a sequence between two steps, and what is to be copied for it before the next; None where a
        page or a row is lacking. `tokens`: those computed so far."""
        spare: int | None = NO_ROW
        if self.rows is not None and holding.spare == NO_ROW:
            spare = self.rows.take()
        copied = None
        if spare is not None:
            copied = self._copy_of_partial(holding.tenant, holding.tables, holding.computed)
        if spare is None or copied is None:
            self._unname(NO_ROW if spare is None else spare)
            return None
        if spare != NO_ROW:
            holding.spare = spare
        self._name(holding.state)
        tables, copies = copied
        digests = bytes(holding.digests[: holding.registered * DIGEST_BYTES])
        kept = np.array(tokens[: holding.computed], np.int32)
        capsule = Capsule(holding.tenant, holding.within, kept, digests, tables, holding.last, holding.state)
        return capsule, copies

    def restore(self, capsule: Capsule, *, prompt: int = 0) -> tuple[Holding, list[PageCopy]] | None:
        """A sequence that goes on from the capsule, which stays, and what is to be copied for it. `prompt`: how
        many tokens it is promised pages for, at least its own. None where a page or a row is lacking."""
        full, rest = divmod(capsule.computed, self.page_tokens)
        holding = Holding(
            capsule.tenant,
            capsule.within,
            bytearray(capsule.digests),
            [table[:full] for table in capsule.tables],
            [0] * len(capsule.tables),
            max(prompt, capsule.computed),
            computed=capsule.computed,
            registered=full,
            last=capsule.last,
        )
        if not self._bind(holding, capsule.state):
            return None
        copies = []
        if rest:
            self.cover(holding, capsule.computed)  # of its promise
            copies = [
                PageCopy(group, capsule.tables[group][full], table[full], rest)
                for group, table in enumerate(holding.tables)
            ]
        return holding, copies

    def fork(
        self, holding: Holding, tokens: np.ndarray, count: int
    ) -> tuple[list[Holding], list[PageCopy]] | None:
        """`count` further sequences at the same position; None, and nothing done, where one lacks a page or a row.
        What is copied is copied from the sequence itself: the capsule between them is gone."""
        had_spare = holding.spare != NO_ROW
        taken = self.snapshot(holding, tokens)
        if taken is None:
            return None
        capsule, _ = taken
        made = [self.restore(capsule, prompt=holding.prompt) for _ in range(count)]
        self.drop(capsule)
        whole = [each for each in made if each is not None]
        if len(whole) < count:
            for restored, _ in whole:
                self.release(restored)
            if not had_spare:
                self._give_up_spare(holding)
            return None
        full = holding.computed // self.page_tokens
        copies = [
            PageCopy(copy.group, holding.tables[copy.group][full], copy.target, copy.tokens)
            for _, each in whole
            for copy in each
        ]
        return [each for each, _ in whole], copies

    def drop(self, capsule: Capsule) -> None:
        """Nobody goes on from it any more."""
        for pool, table in zip(self.pools, capsule.tables, strict=True):
            _release_pages(pool, table, capsule.tenant)
        self._unname(capsule.state)

    def _copy_of_partial(
        self, tenant: int, tables: list[list[int]], computed: int
    ) -> tuple[list[list[int]], list[PageCopy]] | None:
        """References to the full pages, a fresh page for the tokens behind them, and what goes there."""
        full, rest = divmod(computed, self.page_tokens)
        if rest and not all(pool.can(tenant, 1) for pool in self.pools):
            return None
        made: list[list[int]] = []
        copies: list[PageCopy] = []
        for group, (pool, table) in enumerate(zip(self.pools, tables, strict=True)):
            shared = table[:full]
            for page in shared:
                if page != UNSET:
                    pool.share(page, tenant)
            if rest:
                shared.append(pool.take(tenant))
                copies.append(PageCopy(group, table[full], shared[-1], rest))
            made.append(shared)
        return made, copies

    def _name(self, row: int) -> None:
        if self.rows is not None and row not in (ZERO, NO_ROW):
            self.rows.share(row)

    def _unname(self, row: int) -> None:
        if self.rows is not None and row not in (ZERO, NO_ROW):
            self.rows.release(row)


def _release_pages(pool: Pages, table: list[int], tenant: int) -> None:
    """From the last to the first, so that the deepest of a chain is taken before those it stands on."""
    for page in reversed(table):
        if page != UNSET:
            pool.release(page, tenant)
