"""The KV cache of requests: pages in every group, cached prefixes, rows of recurrent state.

A request is admitted with pages promised for its whole prompt, takes them chunk by chunk, and releases the pages
that its windows have left. Only full, computed pages are shared, and they are never written; a fork copies only
the last, partial page. To preempt a sequence, keep its Holding; to evict it, release the Holding: its full pages
stay cached.

A state row that only one sequence refers to is written in place. If a checkpoint or a capsule also refers to the
row, a step writes the sequence's spare row instead, so a snapshot only adds a reference and copies nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.kv.pages import PageQuota, Pages, Pool
from zinc_rt.sched.kv.prefix import (
    DIGEST_BYTES,
    NO_ROW,
    TOKEN,
    CachedPage,
    Match,
    Namespace,
    PrefixCache,
    digest_chain_bytes,
    make_token_keys,
)

UNSET = -1  # in a table: no page, or one that its window has left behind
ZERO = 0  # the row of a sequence that has computed nothing: all zeros, never a target


@dataclass(frozen=True, slots=True)
class PageGroup:
    """A group of cache buffers with equal lifetime. `window`: tokens that their layers look back, 0: all."""

    name: str
    pages: int
    window: int = 0


@dataclass(frozen=True, slots=True)
class PageCopy:
    """A copy of the first `tokens` rows of a page to another, to be made before the next step."""

    group: int
    source: int
    target: int
    tokens: int


@dataclass(slots=True, eq=False)
class Holding:
    """The KV allocation of a sequence.

    `tables`: page ids by group and page number; `computed`: tokens whose keys and values are stored; `prompt`:
    number of tokens for which pages were promised. Rows are NO_ROW without recurrent state.
    """

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
    decoded_from: int | None = None  # position of the first token in the ordering of decodes: see make_token_keys
    room: int = 0  # tokens that its pages have room for
    state: int = NO_ROW  # the row its state is in
    spoilt: bool = False  # that row holds the state behind a step that failed: it is no checkpoint
    spare: int = NO_ROW  # the row to write while others name that one too
    boundary: int = NO_ROW  # the row of its state at the last page boundary, where that is kept rolling
    boundary_entry: CachedPage | None = None  # of the page that ends there


@dataclass(slots=True)
class KvCache:
    """The pages, prefix entries and state rows of one model.

    `chunk_tokens`: the maximum number of tokens of a sequence in a step; `state_rows`: 0 for a model without
    recurrent state; `ctx`: the maximum length of a sequence, 0 if unknown.

    Each method succeeds completely or changes nothing, and reports which.
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
    turns_pages: bool = field(init=False)  # a sequence needs work at each page boundary: see `record_computed`
    _windows: list[int] = field(init=False)  # groups that give pages back as they go on
    _of_row: dict[int, CachedPage] = field(init=False)  # a checkpoint's row: whose state it is

    def __post_init__(self) -> None:
        self._of_row = {}
        self._windows = [number for number, group in enumerate(self.groups) if group.window]
        self.rows = (
            Pool(self.state_rows, first=1, taken_from_cache=self._forget_taken_rows) if self.state_rows else None
        )
        self.turns_pages = bool(self._windows) or self.rows is not None  # a window moves, or a state is kept
        self.prefix = PrefixCache(
            self.page_tokens,
            [group.window for group in self.groups],
            recurrent=self.rows is not None,
            forget_row=self._forget_row,
            cache=lambda group, pages: self.pools[group].pool.cache(pages),
            uncache=lambda group, page: self.pools[group].pool.mark_uncached(page),
        )
        self.pools = [
            Pages(
                group.pages,
                taken_from_cache=partial(self.prefix.handle_taken_pages, number),
                highest_first=self.highest_first,
            )
            for number, group in enumerate(self.groups)
        ]

    # --- admission

    def set_quotas(self, tenant: int, quotas: Iterable[PageQuota]) -> None:
        """Set one quota per group. Raise UsageError, without changes, if a quota cannot be satisfied."""
        changed: list[tuple[Pages, PageQuota]] = []
        try:
            for pool, quota in zip(self.pools, quotas, strict=True):
                before = pool.find_quota(tenant)
                pool.set_quota(tenant, quota)
                changed.append((pool, before))
        except UsageError:
            for pool, before in changed:
                pool.set_quota(tenant, before)
            raise

    def can_ever_fit(self, tenant: int, tokens: int) -> bool:
        """Return whether this many tokens, prompt and answer, would fit if the tenant were alone."""
        return all(
            pool.can_ever_take(tenant, self._count_most_live(group, tokens))
            for group, pool in enumerate(self.pools)
        )

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
        maximum: int = 0,
        decoded_from: int | None = None,
    ) -> Holding | None:
        """Admit a prompt: share the matched pages, and promise the others and one more. `decoded_from`: see
        Holding.

        Return None if pages or a row are unavailable, or if, beyond the tenant's reservation, fewer than `spare`
        pages would remain.
        """
        tables = [[UNSET] * match.pages for _ in self.pools]
        for group, table in enumerate(tables):
            for index in self.prefix.find_needed(group, match.pages):
                table[index] = match.entries[index].find_page(group)
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
            most=maximum,
            decoded_from=decoded_from,
        )
        if not self.hold(holding, match.state_row if match.pages else ZERO, spare=spare):
            return None
        self.prefix.counts.lookups += len(tokens)
        self.prefix.counts.hit += holding.cached
        return holding

    def open(self, tenant: int) -> Holding:
        """Return the KV allocation of a sequence that takes pages on demand: nothing is promised, cached or
        shared.

        `cover`, `slide` and `release` also work on it.
        """
        none: list[list[int]] = [[] for _ in self.pools]
        return Holding(tenant, Namespace(b""), bytearray(), none, [0] * len(none), 0, 0, 0, None)

    def hold(self, holding: Holding, state: int, *, spare: int = 0) -> bool:
        """Add references to the pages in its tables, promise the remaining pages, and take a state row. All or
        nothing."""
        tenant = holding.tenant
        promised = [self._count_pages_to_reserve(holding, group) for group in range(len(self.pools))]
        shared = [[page for page in table if page != UNSET] for table in holding.tables]
        for pool, pages, more in zip(self.pools, shared, promised, strict=True):
            fresh = sum(not pool.has_reference(tenant, page) for page in pages) if pages else 0
            if not pool.can_take(tenant, more + fresh, spare=spare):
                return False
        if self.rows is not None:
            self.name(state)  # before another row is taken: that could be it
            row = self.rows.take()
            if row is None:
                self.release_row_name(state)
                return False
            holding.state, holding.spare = state, row
        for pool, pages, more in zip(self.pools, shared, promised, strict=True):
            if pages:
                pool.share(pages, tenant)
            pool.reserve(tenant, more)
        holding.promised = promised
        holding.room = min(map(len, holding.tables)) * self.page_tokens
        return True

    def _count_pages_to_reserve(self, holding: Holding, group: int) -> int:
        """Return the number of pages for the rest of the prompt and one more token, limited to those that the
        group holds at once.
        """
        table, behind = holding.tables[group], holding.prompt + 1
        tokens = min(behind, self.ctx or behind, holding.most or behind)
        to_come = -(-tokens // self.page_tokens) - len(table)
        return max(0, min(to_come, self._count_most_live(group, tokens) - sum(page != UNSET for page in table)))

    def count_pages_needed(self, tokens: int) -> list[int]:
        """Return the maximum number of pages that a sequence of this many tokens holds at once, by group."""
        return [self._count_most_live(group, tokens) for group in range(len(self.pools))]

    def _count_most_live(self, group: int, tokens: int) -> int:
        whole = -(-tokens // self.page_tokens)
        window = self.groups[group].window
        ahead = max(self.chunk_tokens, self.page_tokens)
        return min(whole, -(-(window + ahead) // self.page_tokens) + 1) if window else whole

    # --- a step

    def cover(self, holding: Holding, tokens: int) -> bool:
        """Allocate pages for the first `tokens` tokens, using promised pages first. Return False if one is
        unavailable.
        """
        if tokens <= holding.room:
            return True
        wanted = -(-tokens // self.page_tokens)
        for pool, table, promised in zip(self.pools, holding.tables, holding.promised, strict=True):
            beyond = wanted - len(table) - promised
            if beyond > 0 and not pool.can_take(holding.tenant, beyond):
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
        """Allocate one more page in every group, using promised pages first. Return False if one is
        unavailable.
        """
        return self.cover(holding, holding.room + 1)

    def grow_each(self, holdings: Sequence[Holding]) -> bool:
        """Take one more page for each sequence. Return False, without changes, if that is not possible for all at
        once; `grow` may still succeed for some."""
        if len(self.pools) > 1:
            return False
        promised = [holding for holding in holdings if holding.promised[0]]
        pages = self.pools[0].take_each(
            [holding.tenant for holding in holdings], Counter([holding.tenant for holding in promised])
        )
        if not pages:
            return False
        for holding in promised:
            holding.promised[0] -= 1
        for holding, page in zip(holdings, pages, strict=True):
            holding.tables[0].append(page)
            holding.room += self.page_tokens
        return True

    def step_rows(self, holding: Holding) -> tuple[int, int]:
        """Return the (source, target) state rows of the next step. The target is the spare row if the state is
        shared."""
        return holding.state, holding.state if holding.spare == NO_ROW else holding.spare

    def record_computed(
        self, holding: Holding, tokens: np.ndarray, count: int, *, keep: bool = False, rolling: bool = False,
        now_ns: int = 0,
    ) -> None:  # fmt: skip
        """Record that a step has computed the first `count` of `tokens`.

        Cache its full pages and release those that its windows have left. At a page boundary, `keep` turns the
        state into a checkpoint and `rolling` keeps it until the next boundary; both only if a row is free.
        """
        holding.computed = count
        if count // self.page_tokens > holding.registered:
            self._register(holding, tokens, now_ns)
        if self.rows is not None:
            if holding.spare != NO_ROW:
                self.release_row_name(holding.state)
                holding.state, holding.spare = holding.spare, NO_ROW
            if count % self.page_tokens == 0 and (rolling or keep):
                self._keep_state(holding, rolling=rolling)
        self.slide(holding)

    def slide(self, holding: Holding) -> None:
        """Release the pages that are outside every window after `holding.computed` tokens."""
        for group in self._windows:
            self._slide(holding, group)

    def _register(self, holding: Holding, tokens: np.ndarray, now_ns: int) -> None:
        size, first, full = self.page_tokens, holding.registered, holding.computed // self.page_tokens
        keys = make_token_keys(tokens[first * size : full * size], first * size, holding.decoded_from)
        fresh = np.ascontiguousarray(keys, TOKEN).tobytes()
        have, page_bytes = len(holding.digests) // DIGEST_BYTES, TOKEN.itemsize * size
        if full > have:
            link = bytes(holding.digests[-DIGEST_BYTES:]) or holding.within.root
            holding.digests += digest_chain_bytes(fresh[(have - first) * page_bytes :], page_bytes, link)
        holding.last = self.prefix.register(
            bytes(holding.digests[first * DIGEST_BYTES : full * DIGEST_BYTES]),
            fresh,
            holding.last,
            [table[first:full] for table in holding.tables],
            now_ns=now_ns,
            ttl_ns=holding.ttl_ns,
        )
        holding.registered = full

    def _keep_state(self, holding: Holding, *, rolling: bool) -> None:
        """Keep a second reference to the current state, and give the sequence another row for the next step."""
        assert self.rows is not None
        if rolling and holding.boundary != NO_ROW and self.rows.is_private(holding.boundary):
            spare: int | None = holding.boundary  # the last one's row, which nobody wants any more
            holding.boundary = NO_ROW
        else:
            spare = self.rows.take()
        if spare is None:
            return
        if rolling:
            if holding.boundary != NO_ROW:
                self.release_row_name(holding.boundary)
            self.rows.share(holding.state)
            holding.boundary, holding.boundary_entry = holding.state, holding.last
        elif not self._add_checkpoint(holding.last, holding.state):
            self.rows.release(spare)
            return
        holding.spare = spare

    def take_spare(self, holding: Holding, *, remaining: int) -> bool:
        """Have the next step write another row than the state's, which then still holds the state before the step.
        Return False if that would leave fewer than `remaining` rows for others."""
        assert self.rows is not None
        if holding.spare == NO_ROW:
            row = self.rows.take() if self.rows.free + self.rows.idle > remaining else None
            holding.spare = NO_ROW if row is None else row
        return holding.spare != NO_ROW

    def give_up_spare(self, holding: Holding) -> None:
        """Release the spare row, because the state's row is no longer shared."""
        self.release_row_name(holding.spare)
        holding.spare = NO_ROW

    def _add_checkpoint(self, entry: CachedPage | None, row: int) -> bool:
        """Make the row the checkpoint after that page, unless one exists or the page is not cached."""
        assert self.rows is not None
        if entry is None or entry.state_row != NO_ROW or not self.prefix.holds(entry) or self.rows.cached[row]:
            return False
        entry.state_row = row
        self._of_row[row] = entry
        self.rows.cache([row])
        return True

    def _forget_taken_rows(self, rows: list[int]) -> None:
        for row in rows:
            self._of_row.pop(row).state_row = NO_ROW

    def _forget_row(self, row: int) -> None:
        assert self.rows is not None
        del self._of_row[row]
        self.rows.mark_uncached(row)

    def _slide(self, holding: Holding, group: int) -> None:
        """Release the pages that no later token reads; pages for the rest of the prompt are promised again. A page
        that another sequence of the tenant uses is still charged, so fewer pages may become available.
        """
        pool, table = self.pools[group], holding.tables[group]
        window = self.groups[group].window
        first = max(0, holding.computed - window + 1) // self.page_tokens
        left_behind = []
        for index in range(min(first, len(table)) - 1, -1, -1):
            if table[index] == UNSET:
                break
            left_behind.append(table[index])
            table[index] = UNSET
        pool.release(left_behind, holding.tenant)
        more = min(
            self._count_pages_to_reserve(holding, group) - holding.promised[group], pool.room(holding.tenant)
        )
        if more > 0:
            pool.reserve(holding.tenant, more)
            holding.promised[group] += more

    # --- the end

    def release(self, holding: Holding) -> None:
        """Release everything. Full pages stay cached, and so does the state at a page boundary."""
        if self.rows is not None:
            if holding.boundary != NO_ROW:
                self._add_checkpoint(holding.boundary_entry, holding.boundary)
            if holding.computed % self.page_tokens == 0 and holding.state != ZERO and not holding.spoilt:
                self._add_checkpoint(holding.last, holding.state)
            for row in (holding.boundary, holding.state, holding.spare):
                self.release_row_name(row)
        for pool, table, promised in zip(self.pools, holding.tables, holding.promised, strict=True):
            release_table(pool, table, holding.tenant)
            if promised:
                pool.reserve(holding.tenant, -promised)

    # --- the cache as a whole

    def sweep(self, now_ns: int, maximum: int) -> int:
        """Evict idle entries unused for their time to live, among the next `maximum` candidates. Return their
        number."""
        swept = 0
        for group, pool in enumerate(self.pools):
            for page in list(islice(pool.pool.list_idle_ids(), maximum)):
                if pool.pool.cached[page]:
                    entry = self.prefix.of(group, page)
                    if entry.has_expired(now_ns):
                        self.prefix.drop(entry)
                        swept += 1
        return swept

    def list_checkpoints(self) -> list[tuple[int, CachedPage]]:
        """Return the rows of saved states, and the last page of the tokens that each includes."""
        return list(self._of_row.items())

    def forget(self) -> None:
        """Clear the cache after device memory was lost. The caller has released every holding."""
        self.prefix.clear()

    def name(self, row: int) -> None:
        if self.rows is not None and row not in (ZERO, NO_ROW):
            self.rows.share(row)

    def release_row_name(self, row: int) -> None:
        if self.rows is not None and row not in (ZERO, NO_ROW):
            self.rows.release(row)


def release_table(pool: Pages, table: list[int], tenant: int) -> None:
    """Release pages from last to first, so that the deepest page of a chain is evicted before its ancestors."""
    pages = table[::-1]
    if UNSET in pages:
        pages = [page for page in pages if page != UNSET]
    pool.release(pages, tenant)
