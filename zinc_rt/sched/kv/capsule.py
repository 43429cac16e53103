"""A sequence at one position, to go on from any number of times: snapshot, restore, fork.

Full pages are referred to and never written; the last, partial page is copied, and nothing else. Parking is a
capsule whose request comes back; further choices of a request are a fork.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.sched.kv.kv_cache import UNSET, Holding, KvCache, PageCopy, release_table
from zinc_rt.sched.kv.prefix import DIGEST_BYTES, NO_ROW, CachedPage, Namespace


@dataclass(slots=True, eq=False)
class Capsule:
    """References to a sequence's full pages, pages of its own for the rest, and a state row that nobody writes."""

    tenant: int
    within: Namespace
    tokens: np.ndarray
    digests: bytes
    tables: list[list[int]]
    last: CachedPage | None
    state: int = NO_ROW
    lost: bool = False

    @property
    def computed(self) -> int:
        return len(self.tokens)


def snapshot(cache: KvCache, holding: Holding, tokens: np.ndarray) -> tuple[Capsule, list[PageCopy]] | None:
    """A capsule of a sequence between two steps, and what is to be copied for it before the next; None where a
    page or a row is lacking. `tokens`: those computed so far."""
    spare: int | None = NO_ROW
    if cache.rows is not None and holding.spare == NO_ROW:
        spare = cache.rows.take()
    copied = None
    if spare is not None:
        copied = _copy_of_partial(cache, holding)
    if spare is None or copied is None:
        cache.unname(NO_ROW if spare is None else spare)
        return None
    if spare != NO_ROW:
        holding.spare = spare
    cache.name(holding.state)
    tables, copies = copied
    digests = bytes(holding.digests[: holding.registered * DIGEST_BYTES])
    kept = np.array(tokens[: holding.computed], np.int32)
    return Capsule(holding.tenant, holding.within, kept, digests, tables, holding.last, holding.state), copies


def restore(
    cache: KvCache, capsule: Capsule, *, prompt: int = 0, most: int = 0
) -> tuple[Holding, list[PageCopy]] | None:
    """A sequence that goes on from the capsule, which stays, and what is to be copied for it. `prompt`: how many
    tokens it is promised pages for, at least its own. None where a page or a row is lacking."""
    full, rest = divmod(capsule.computed, cache.page_tokens)
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
        cached=capsule.computed,
        most=most,
    )
    if not cache.hold(holding, capsule.state):
        return None
    copies = []
    if rest:
        cache.cover(holding, capsule.computed)  # of its promise
        copies = [
            PageCopy(group, capsule.tables[group][full], table[full], rest)
            for group, table in enumerate(holding.tables)
        ]
    return holding, copies


def fork(
    cache: KvCache, holding: Holding, tokens: np.ndarray, count: int
) -> tuple[list[Holding], list[PageCopy]] | None:
    """`count` further sequences at the same position; None, and nothing done, where one lacks a page or a row.
    What is copied is copied from the sequence itself: the capsule between them is gone."""
    had_spare = holding.spare != NO_ROW
    taken = snapshot(cache, holding, tokens)
    if taken is None:
        return None
    capsule, _ = taken
    made = [restore(cache, capsule, prompt=holding.prompt, most=holding.most) for _ in range(count)]
    drop(cache, capsule)
    whole = [each for each in made if each is not None]
    if len(whole) < count:
        for restored, _ in whole:
            cache.release(restored)
        if not had_spare:
            cache.give_up_spare(holding)
        return None
    full = holding.computed // cache.page_tokens
    copies = [
        PageCopy(copy.group, holding.tables[copy.group][full], copy.target, copy.tokens)
        for _, each in whole
        for copy in each
    ]
    return [each for each, _ in whole], copies


def drop(cache: KvCache, capsule: Capsule) -> None:
    """It holds nothing any more. Who still waits to go on from it computes its tokens again."""
    capsule.lost = True
    for pool, table in zip(cache.pools, capsule.tables, strict=True):
        release_table(pool, table, capsule.tenant)
    cache.unname(capsule.state)


def _copy_of_partial(cache: KvCache, holding: Holding) -> tuple[list[list[int]], list[PageCopy]] | None:
    """References to the full pages, a fresh page for the tokens behind them, and what goes there."""
    full, rest = divmod(holding.computed, cache.page_tokens)
    if rest and not all(pool.can(holding.tenant, 1) for pool in cache.pools):
        return None
    made: list[list[int]] = []
    copies: list[PageCopy] = []
    for group, (pool, table) in enumerate(zip(cache.pools, holding.tables, strict=True)):
        shared = table[:full]
        pool.share([page for page in shared if page != UNSET], holding.tenant)
        if rest:
            shared += pool.take(holding.tenant, 1)
            copies.append(PageCopy(group, table[full], shared[-1], rest))
        made.append(shared)
    return made, copies
