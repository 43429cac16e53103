"""Capsules: a sequence at one position that can be resumed any number of times: snapshot, restore, fork.

Full pages are referenced and never written; only the last, partial page is copied. Preemption creates a
capsule that the request resumes from; further choices of a request are a fork.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.sched.kv.kv_cache import UNSET, Holding, KvCache, PageCopy, release_table
from zinc_rt.sched.kv.prefix import DIGEST_BYTES, NO_ROW, CachedPage, Namespace


@dataclass(slots=True, eq=False)
class Capsule:
    """References to a sequence's full pages, private pages for the rest, and a read-only state row."""

    tenant: int
    within: Namespace
    tokens: np.ndarray
    digests: bytes
    tables: list[list[int]]
    last: CachedPage | None
    state: int = NO_ROW
    lost: bool = False
    decoded_from: int | None = None  # see Holding

    @property
    def computed(self) -> int:
        return len(self.tokens)


def snapshot(cache: KvCache, holding: Holding, tokens: np.ndarray) -> tuple[Capsule, list[PageCopy]] | None:
    """Return a capsule of a sequence between two steps, and the copies to make before the next step, or None
    without a free page or row. `tokens`: those computed so far."""
    spare: int | None = NO_ROW
    if cache.rows is not None and holding.spare == NO_ROW:
        spare = cache.rows.take()
    copied = None
    if spare is not None:
        copied = _copy_of_partial(cache, holding)
    if spare is None or copied is None:
        cache.release_row_name(NO_ROW if spare is None else spare)
        return None
    if spare != NO_ROW:
        holding.spare = spare
    cache.name(holding.state)
    tables, copies = copied
    digests = bytes(holding.digests[: holding.registered * DIGEST_BYTES])
    kept = np.array(tokens[: holding.computed], np.int32)
    capsule = Capsule(
        holding.tenant,
        holding.within,
        kept,
        digests,
        tables,
        holding.last,
        holding.state,
        decoded_from=holding.decoded_from,
    )
    return capsule, copies


def restore(
    cache: KvCache, capsule: Capsule, *, prompt: int = 0, maximum: int = 0
) -> tuple[Holding, list[PageCopy]] | None:
    """Return a sequence that continues from the capsule, and the copies to make. The capsule remains.
    `prompt`: tokens to reserve pages for, at least those of the capsule. None without a free page or row."""
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
        most=maximum,
        decoded_from=capsule.decoded_from,
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
    """Return `count` new sequences at the same position, or None, without changes, if pages or rows are
    insufficient. The copies are taken from the sequence itself; the intermediate capsule is freed."""
    had_spare = holding.spare != NO_ROW
    taken = snapshot(cache, holding, tokens)
    if taken is None:
        return None
    capsule, _ = taken
    restores = [restore(cache, capsule, prompt=holding.prompt, maximum=holding.most) for _ in range(count)]
    drop(cache, capsule)
    complete = [item for item in restores if item is not None]
    if len(complete) < count:
        for restored, _ in complete:
            cache.release(restored)
        if not had_spare:
            cache.give_up_spare(holding)
        return None
    full = holding.computed // cache.page_tokens
    copies = [
        PageCopy(copy.group, holding.tables[copy.group][full], copy.target, copy.tokens)
        for _, item in complete
        for copy in item
    ]
    return [item for item, _ in complete], copies


def drop(cache: KvCache, capsule: Capsule) -> None:
    """Free the capsule. Requests that still wait to resume from it recompute its tokens."""
    capsule.lost = True
    for pool, table in zip(cache.pools, capsule.tables, strict=True):
        release_table(pool, table, capsule.tenant)
    cache.release_row_name(capsule.state)


def _copy_of_partial(cache: KvCache, holding: Holding) -> tuple[list[list[int]], list[PageCopy]] | None:
    """Return references to the full pages, a fresh page for the remaining tokens, and the copy to make into it."""
    full, rest = divmod(holding.computed, cache.page_tokens)
    if rest and not all(pool.can_take(holding.tenant, 1) for pool in cache.pools):
        return None
    result: list[list[int]] = []
    copies: list[PageCopy] = []
    for group, (pool, table) in enumerate(zip(cache.pools, holding.tables, strict=True)):
        shared = table[:full]
        pool.share([page for page in shared if page != UNSET], holding.tenant)
        if rest:
            shared += pool.take(holding.tenant, 1)
            copies.append(PageCopy(group, table[full], shared[-1], rest))
        result.append(shared)
    return result, copies
