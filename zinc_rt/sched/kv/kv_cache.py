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
from itertools import islice

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.kv.pages import NOBODY, PageQuota, Pages, Pool
from zinc_rt.sched.kv.prefix import DIGEST_BYTES, NO_ROW, CachedPage, Match, Namespace, PrefixCache, chain

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
    cached: int = 0  # tokens that were found in the prefix cache
    junction: int = 0  # somebody else will want the state behind so many tokens
    ttl_ns: int | None = None  # of its cache entries
    most: int = 0  # it never has more tokens in place, 0: nobody knows
    room: int = 0  # tokens that its pages have room for
    state: int = NO_ROW  # the row its state is in
    spoilt: bool = False  # that row holds the state behind a step that failed: it is no checkpoint
    spare: int = NO_ROW  # the row to write while others name that one too
    boundary: int = NO_ROW  # the row of its state at the last page boundary, where that is kept rolling
    boundary_entry: CachedPage | None = None  # of the page that ends there


@dataclass(slots=True)
class KvCache:
    """The pages, prefix entries and state rows of one model. `chunk_tokens`: the most tokens of a sequence in a
    step; `state_rows`: 0 for a model without recurrent state; `ctx`: no sequence gets longer, 0: nobody knows.

    Each method does the whole of what it says, or nothing, and says which.
    """

    groups: Sequence[PageGroup]
    page_tokens: int
    chunk_tokens: int
    state_rows: int = 0
    ctx: int = 0
    highest_first: bool = False  # as Pool has it
    pools: list[Pages] = field(init=False)
    prefix: PrefixCache = field(init=False)
    rows: Pool | None = field(init=False)
    _windows: list[int] = field(init=False)  # groups that give pages back as they go on
    _of_row: dict[int, CachedPage] = field(init=False)  # a checkpoint's row: whose state it is

    def __post_init__(self) -> None:
        self._of_row = {}
        self._windows = [number for number, group in enumerate(self.groups) if group.window]
        self.rows = Pool(self.state_rows, first=1, taken_from_cache=self._rows_taken) if self.state_rows else None
        self.prefix = PrefixCache(
            self.page_tokens,
            [group.window for group in self.groups],
            recurrent=self.rows is not None,
            forget_row=self._forget_row,
            cache=lambda group, pages: self.pools[group].pool.cache(pages),
            uncache=lambda group, page: self.pools[group].pool.uncache(page),
        )
        self.pools = [
            Pages(
                group.pages,
                taken_from_cache=partial(self.prefix.pages_taken, number),
                highest_first=self.highest_first,
            )
            for number, group in enumerate(self.groups)
        ]

    @property
    def turns_pages(self) -> bool:
        """Whether something happens to a sequence at each page boundary: a window moves on, a state is kept."""
        return bool(self._windows) or self.rows is not None

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
        self,
        tenant: int,
        within: Namespace,
        tokens: np.ndarray,
        digests: bytes,
        match: Match,
        *,
        spare: int = 0,
        ttl_ns: int | None = None,
        most: int = 0,
    ) -> Holding | None:
        """Of the prompt the matched pages are shared, the others and one more promised. None where they, or a row,
        cannot be had, or, beyond the tenant's reservation, fewer than `spare` pages would be left."""
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
            cached=match.pages * self.page_tokens,
            junction=match.met * self.page_tokens if match.met > match.pages else 0,
            ttl_ns=ttl_ns,
            most=most,
        )
        if not self.hold(holding, match.state_row if match.pages else ZERO, spare=spare):
            return None
        self.prefix.counts.asked += len(tokens)
        self.prefix.counts.hit += holding.cached
        return holding

    def open(self, tenant: int) -> Holding:
        """Return the holding of a sequence that takes pages as it goes on: nothing is promised, cached or shared.
        `cover`, `slide` and `release` are for it, too."""
        none: list[list[int]] = [[] for _ in self.pools]
        return Holding(tenant, Namespace(b""), bytearray(), none, [0] * len(none), 0, 0, 0, None)

    def hold(self, holding: Holding, state: int, *, spare: int = 0) -> bool:
        """References to what its tables name, the promise of what is to come, a row to write. All or nothing."""
        tenant = holding.tenant
        promised = [self._to_promise(holding, group) for group in range(len(self.pools))]
        shared = [[page for page in table if page != UNSET] for table in holding.tables]
        for pool, pages, more in zip(self.pools, shared, promised, strict=True):
            fresh = sum(not pool.refers(tenant, page) for page in pages) if pages else 0
            if not pool.can(tenant, more + fresh, spare=spare):
                return False
        if self.rows is not None:
            self.name(state)  # before another row is taken: that could be it
            row = self.rows.take()
            if row is None:
                self.unname(state)
                return False
            holding.state, holding.spare = state, row
        for pool, pages, more in zip(self.pools, shared, promised, strict=True):
            if pages:
                pool.share(pages, tenant)
            pool.promise(tenant, more)
        holding.promised = promised
        holding.room = min(map(len, holding.tables)) * self.page_tokens
        return True

    def _to_promise(self, holding: Holding, group: int) -> int:
        """Pages until the prompt and one token more are in place, at most as many as the group then holds at
        once."""
        table, behind = holding.tables[group], holding.prompt + 1
        tokens = min(behind, self.ctx or behind, holding.most or behind)
        to_come = -(-tokens // self.page_tokens) - len(table)
        return max(0, min(to_come, self._most_live(group, tokens) - sum(page != UNSET for page in table)))

    def need(self, tokens: int) -> list[int]:
        """Pages that a sequence of so many tokens holds at once at most, by group."""
        return [self._most_live(group, tokens) for group in range(len(self.pools))]

    def _most_live(self, group: int, tokens: int) -> int:
        whole = -(-tokens // self.page_tokens)
        window = self.groups[group].window
        ahead = max(self.chunk_tokens, self.page_tokens)
        return min(whole, -(-(window + ahead) // self.page_tokens) + 1) if window else whole

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
            count = wanted - len(table)
            if count > 0:
                promised = min(count, holding.promised[group])
                holding.promised[group] -= promised
                table += pool.take(holding.tenant, count, promised=promised)
        holding.room = wanted * self.page_tokens
        return True

    def grow(self, holding: Holding) -> bool:
        """One page more in every group, beyond what was promised; False where one is lacking."""
        if len(self.pools) > 1 or holding.promised[0]:
            return self.cover(holding, holding.room + 1)
        page = self.pools[0].grow(holding.tenant)
        if page == NOBODY:
            return False
        holding.tables[0].append(page)
        holding.room += self.page_tokens
        return True

    def step_rows(self, holding: Holding) -> tuple[int, int]:
        """(source, target) of its next step. It writes its spare row where it has one: others name its state."""
        return holding.state, holding.state if holding.spare == NO_ROW else holding.spare

    def ran(
        self, holding: Holding, tokens: np.ndarray, count: int, *, keep: bool = False, rolling: bool = False,
        now_ns: int = 0,
    ) -> None:  # fmt: skip
        """A step has computed the first `count` of `tokens`. Its full pages are cached, those that its windows
        have left are given back. At a page boundary `keep` makes the state a checkpoint, `rolling` holds it until
        the next boundary; both where a row is free for that."""
        holding.computed = count
        if count // self.page_tokens > holding.registered:
            self._register(holding, tokens, now_ns)
        if self.rows is not None:
            if holding.spare != NO_ROW:
                self.unname(holding.state)
                holding.state, holding.spare = holding.spare, NO_ROW
            if count % self.page_tokens == 0 and (rolling or keep):
                self._keep_state(holding, rolling=rolling)
        self.slide(holding)

    def slide(self, holding: Holding) -> None:
        """Give back the pages that `holding.computed` tokens have moved out of every window."""
        for group in self._windows:
            self._slide(holding, group)

    def _register(self, holding: Holding, tokens: np.ndarray, now_ns: int) -> None:
        size, first, full = self.page_tokens, holding.registered, holding.computed // self.page_tokens
        fresh = np.ascontiguousarray(tokens[first * size : full * size], "<i4")
        have = len(holding.digests) // DIGEST_BYTES
        if full > have:
            after = bytes(holding.digests[-DIGEST_BYTES:])
            holding.digests += chain(fresh[(have - first) * size :], size, holding.within, after=after)
        holding.last = self.prefix.register(
            bytes(holding.digests[first * DIGEST_BYTES : full * DIGEST_BYTES]),
            fresh.tobytes(),
            holding.last,
            [table[first:full] for table in holding.tables],
            now_ns=now_ns,
            ttl_ns=holding.ttl_ns,
        )
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
                self.unname(holding.boundary)
            self.rows.share(holding.state)
            holding.boundary, holding.boundary_entry = holding.state, holding.last
        elif not self._checkpoint(holding.last, holding.state):
            self.rows.release(spare)
            return
        holding.spare = spare

    def give_up_spare(self, holding: Holding) -> None:
        """No other names its state's row any more."""
        self.unname(holding.spare)
        holding.spare = NO_ROW

    def _checkpoint(self, entry: CachedPage | None, row: int) -> bool:
        """The row is the state behind that page from now on, unless there is one, or the page is in no cache."""
        assert self.rows is not None
        if entry is None or entry.state_row != NO_ROW or not self.prefix.holds(entry) or self.rows.cached[row]:
            return False
        entry.state_row = row
        self._of_row[row] = entry
        self.rows.cache([row])
        return True

    def _rows_taken(self, rows: list[int]) -> None:
        for row in rows:
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
        left_behind = []
        for at in range(min(first, len(table)) - 1, -1, -1):
            if table[at] == UNSET:
                break
            left_behind.append(table[at])
            table[at] = UNSET
        pool.release(left_behind, holding.tenant)
        more = self._to_promise(holding, group) - holding.promised[group]
        if more > 0:  # no more than was just given back
            pool.promise(holding.tenant, more)
            holding.promised[group] += more

    # --- the end

    def release(self, holding: Holding) -> None:
        """Nothing of it is held any more. Its full pages stay as cache, and so does its state at a page
        boundary."""
        if self.rows is not None:
            if holding.boundary != NO_ROW:
                self._checkpoint(holding.boundary_entry, holding.boundary)
            if holding.computed % self.page_tokens == 0 and holding.state != ZERO and not holding.spoilt:
                self._checkpoint(holding.last, holding.state)
            for row in (holding.boundary, holding.state, holding.spare):
                self.unname(row)
        for pool, table, promised in zip(self.pools, holding.tables, holding.promised, strict=True):
            release_table(pool, table, holding.tenant)
            pool.promise(holding.tenant, -promised)

    # --- the cache as a whole

    def sweep(self, now_ns: int, most: int) -> int:
        """Drop idle entries that nobody has used for their time to live, among the `most` that are taken next.
        How many there were."""
        swept = 0
        for group, pool in enumerate(self.pools):
            for page in list(islice(pool.pool.idle_ids(), most)):
                if pool.pool.cached[page]:
                    entry = self.prefix.of(group, page)
                    if entry.ttl_ns is not None and entry.last_use_ns + entry.ttl_ns <= now_ns:
                        self.prefix.drop(entry)
                        swept += 1
        return swept

    def forget(self) -> None:
        """What the device held is lost: nothing is cached. The caller has released every holding."""
        self.prefix.clear()

    def name(self, row: int) -> None:
        if self.rows is not None and row not in (ZERO, NO_ROW):
            self.rows.share(row)

    def unname(self, row: int) -> None:
        if self.rows is not None and row not in (ZERO, NO_ROW):
            self.rows.release(row)


def release_table(pool: Pages, table: list[int], tenant: int) -> None:
    """From the last to the first, so that the deepest of a chain is taken before those it stands on."""
    pool.release([page for page in reversed(table) if page != UNSET], tenant)
