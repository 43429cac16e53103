"""The page allocator: a `Pool` of ids with reference counts and a cache of idle ids, and `Pages`, the pool of
one page group with tenants and the inequality that protects their reservations.

Inequality R: the sum over tenants of max(referred + promised, reserved) is at most the number of pages.
Growth below a tenant's reservation does not change the sum, so a reserved page is always granted. One is
always available, because the pages in use are at most the sum of the tenants' references. An unused cached
page counts for no tenant.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.host.errors import UsageError


class Pool:
    """Ids from `first` to `count` - 1. Each id is free, idle (cached, but not referenced) or used.

    Idle ids can be taken like free ones; that evicts their cache entries, which `taken_from_cache(ids)`
    reports. The order of ids depends only on the previous calls.
    """

    def __init__(
        self,
        count: int,
        *,
        first: int = 0,
        taken_from_cache: Callable[[list[int]], None] = lambda ids: None,
        highest_first: bool = False,
    ) -> None:
        """Create a pool. `highest_first`: allocate the highest id first, so that no page id equals its table
        index, which would hide a wrong lookup."""
        if count <= first:
            raise ValueError(f"expected at least one page, not {count} from page {first}")
        self.count, self.first = count, first
        self.users = [0] * count
        self.cached = [False] * count
        self._taken_from_cache = taken_from_cache
        self._free = list(range(first, count) if highest_first else range(count - 1, first - 1, -1))  # a stack
        # Idle ids, least recently used first. An id that leaves keeps its place, which is dropped when it is
        # reached: `_stale` counts the places of an id to drop, which are its first ones.
        self._idle: deque[int] = deque()
        self._stale: dict[int, int] = {}
        self._stale_places = 0

    def take(self) -> int | None:
        """Take a free id with one reference. Return None if all are used."""
        return self.take_many(1)[0] if self.free or self.idle else None

    def take_many(self, count: int) -> list[int]:
        """Take `count` ids with one reference each. The caller must check that they are available."""
        free, users = self._free, self.users
        index = max(0, len(free) - count)
        taken = free[index:]
        taken.reverse()
        del free[index:]
        if len(taken) < count:
            oldest = self._take_idle(count - len(taken))
            self._taken_from_cache(oldest)
            taken += oldest
        for id in taken:
            users[id] = 1
        return taken

    def _take_idle(self, count: int) -> list[int]:
        assert count <= self.idle, "more is taken than there is"
        idle, stale, cached, taken = self._idle, self._stale, self.cached, list[int]()
        while len(taken) < count:
            id = idle.popleft()
            if id not in stale:
                cached[id] = False
                taken.append(id)
                continue
            self._stale_places -= 1
            stale[id] -= 1
            if not stale[id]:
                del stale[id]
        return taken

    def _remove_idle(self, id: int) -> None:
        self._stale[id] = self._stale.get(id, 0) + 1
        self._stale_places += 1
        if self._stale_places > 64 + self.idle:
            self._idle = deque(self.list_idle_ids())
            self._stale.clear()
            self._stale_places = 0

    def share(self, id: int) -> None:
        """Add a reference to a used or cached id."""
        if not self.users[id]:
            assert self.cached[id], f"page {id} is free and cannot be shared"
            self._remove_idle(id)
        self.users[id] += 1

    def release(self, id: int) -> None:
        """Drop a reference. Without references the id becomes idle if it is cached, otherwise free."""
        assert self.users[id] > 0
        self.release_many([id])

    def release_many(self, ids: Sequence[int]) -> list[int]:
        """Drop a reference of each id, in order. Return those without references."""
        users, cached, free, idle = self.users, self.cached, self._free, self._idle
        unused = []
        for id in ids:
            left = users[id] = users[id] - 1
            if not left:
                unused.append(id)
                if cached[id]:
                    idle.append(id)
                else:
                    free.append(id)
        return unused

    def cache(self, ids: Sequence[int]) -> None:
        """Mark used ids as cached."""
        users, cached = self.users, self.cached
        for id in ids:
            assert users[id] and not cached[id]
            cached[id] = True

    def mark_uncached(self, id: int) -> None:
        """Mark an id as no longer cached."""
        assert self.cached[id]
        self.cached[id] = False
        if not self.users[id]:
            self._remove_idle(id)
            self._free.append(id)

    def is_private(self, id: int) -> bool:
        """Return whether the id has one user that may write to it."""
        return self.users[id] == 1 and not self.cached[id]

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def idle(self) -> int:
        return len(self._idle) - self._stale_places

    @property
    def used(self) -> int:
        return self.count - self.first - self.free - self.idle

    def list_idle_ids(self) -> Iterator[int]:
        """Return the idle ids, least recently used first."""
        stale = self._stale.copy()
        for id in self._idle:
            if stale.get(id):
                stale[id] -= 1
            else:
                yield id

    def find_problems(self) -> Iterator[str]:
        """Return violated invariants, recomputed from scratch."""
        used = [id for id in range(self.first, self.count) if self.users[id]]
        if sorted([*used, *self.list_idle_ids(), *self._free]) != list(range(self.first, self.count)):
            yield "each id must be exactly one of free, idle and used"
        if not all(self.cached[id] for id in self.list_idle_ids()):
            yield "an idle id is not in the cache"


NOBODY = -1  # the payer of a page that is not in use
SEVERAL = -2  # tenants of one isolation group: the group pays


@dataclass(frozen=True, slots=True)
class PageQuota:
    """`reserved` pages are always available; more than `most` are never granted. Tenants of one `group` may
    share pages."""

    reserved: int = 0
    most: int | None = None
    group: int | None = None


@dataclass(slots=True)
class _Account:
    quota: PageQuota = field(default_factory=PageQuota)
    promised: int = 0
    referred: int = 0  # distinct pages

    @property
    def charge(self) -> int:
        return self.referred + self.promised

    @property
    def guard(self) -> int:
        """The tenant's term in inequality R."""
        return max(self.referred + self.promised, self.quota.reserved)


class Pages:
    """The allocator of a page group. `pool`: the ids; allocate and free pages through this class. `paid`: i64
    [tenants], pages that each tenant pays for; shared pages are counted in `shared`."""

    def __init__(
        self,
        count: int,
        *,
        taken_from_cache: Callable[[list[int]], None] = lambda pages: None,
        highest_first: bool = False,
    ) -> None:
        """Create the allocator. `highest_first`: see Pool."""
        self.pool = Pool(count, taken_from_cache=taken_from_cache, highest_first=highest_first)
        self.paid = np.zeros(0, np.int64)
        self._accounts: list[_Account] = []
        self._payer = [NOBODY] * count
        # page that several tenants refer to: how often each does. To other pages only the payer refers.
        self._sharers: dict[int, dict[int, int]] = {}
        self._shared_by: dict[int, int | None] = {}  # and the isolation group that pays for it
        self.shared_by: Counter[int | None] = Counter()  # so many does each pay for
        self._guarded = 0  # the sum of inequality R

    @property
    def shared(self) -> int:
        """Return the pages in use that isolation groups pay for."""
        return len(self._sharers)

    # --- quotas

    def set_quota(self, tenant: int, quota: PageQuota) -> None:
        """Set a tenant's quota. Raises UsageError if the reservations or the pages in use leave too few
        pages."""
        if quota.most is not None and quota.most < quota.reserved:
            raise UsageError(
                f"tenant {tenant}: {quota.reserved} pages reserved, but at most {quota.most} allowed",
                next=f"reserve at most {quota.most}, or raise the maximum",
            )
        known = tenant < len(self._accounts)
        account = self._accounts[tenant] if known else _Account()
        others = self._guarded - (account.guard if known else 0)
        guard = max(account.charge, quota.reserved)
        if others + guard > self.pool.count:
            raise UsageError(
                f"tenant {tenant}: {quota.reserved} pages cannot be reserved",
                next=f"at most {max(0, self.pool.count - others)} of {self.pool.count} are available",
            )
        while tenant >= len(self._accounts):
            self._accounts.append(_Account())
        self._accounts[tenant].quota = quota
        self._guarded = others + guard
        self.paid = np.concatenate([self.paid, np.zeros(len(self._accounts) - len(self.paid), np.int64)])

    def find_quota(self, tenant: int) -> PageQuota:
        """Return a tenant's quota; an unknown tenant has the default."""
        return self._accounts[tenant].quota if tenant < len(self._accounts) else PageQuota()

    def has_reference(self, tenant: int, page: int) -> bool:
        """Return whether the page already counts for the tenant."""
        payer = self._payer[page]
        return payer == tenant or (payer == SEVERAL and tenant in self._sharers[page])

    def count_charge(self, tenant: int) -> int:
        """Return the distinct pages that the tenant refers to, plus those promised to it."""
        return self._accounts[tenant].charge

    def count_promised(self, tenant: int) -> int:
        return self._accounts[tenant].promised

    def room(self, tenant: int) -> int:
        """Return how many more pages the tenant may refer to."""
        account = self._accounts[tenant]
        quota, charge = account.quota, account.charge
        room = self.pool.count - self._guarded + max(0, quota.reserved - charge)
        return room if quota.most is None else min(room, quota.most - charge)

    def can_take(self, tenant: int, more: int, *, spare: int = 0) -> bool:
        """Return whether the tenant may refer to `more` additional pages; beyond its reservation, `spare` pages
        must remain.
        """
        account = self._accounts[tenant]
        quota, charge = account.quota, account.referred + account.promised + more
        if quota.most is not None and charge > quota.most:
            return False
        if charge <= quota.reserved:
            return True
        return self._guarded - account.guard + charge + spare <= self.pool.count

    def can_ever_take(self, tenant: int, need: int) -> bool:
        """Return whether the tenant could hold this many pages if it were alone. A request that needs more
        can never run."""
        others = sum(a.quota.reserved for t, a in enumerate(self._accounts) if t != tenant)
        maximum = self._accounts[tenant].quota.most
        return need <= min(self.pool.count if maximum is None else maximum, self.pool.count - others)

    def reserve(self, tenant: int, more: int) -> None:
        """Reserve `more` pages; a negative number returns them. The caller has checked `can_take`."""
        account = self._accounts[tenant]
        assert more <= 0 or self.can_take(tenant, more), "the promise exceeds the tenant's limit"
        assert account.promised + more >= 0, "more pages returned than promised"
        before = account.guard
        account.promised += more
        self._guarded += account.guard - before

    # --- pages

    def take(self, tenant: int, count: int, *, promised: int = 0) -> list[int]:
        """Take free pages, `promised` of them from the tenant's promise; the caller must check `can_take` for the
        others.
        """
        account = self._accounts[tenant]
        assert promised <= min(count, account.promised), "more pages taken than promised"
        assert count == promised or self.can_take(tenant, count - promised), "a page exceeds the tenant's limit"
        before = account.guard
        account.promised -= promised
        account.referred += count
        pages, payer = self.pool.take_many(count), self._payer
        for page in pages:
            payer[page] = tenant
        self.paid[tenant] += count
        self._guarded += account.guard - before
        return pages

    def take_each(self, tenants: Sequence[int], promised: Mapping[int, int]) -> list[int]:
        """Take a free page for each of the tenants; `promised`: how many of them are promised, by tenant. Return
        None if a tenant is not allowed to have its pages.
        """
        counts, guarded = Counter(tenants), self._guarded
        for tenant, count in counts.items():
            account, more = self._accounts[tenant], count - promised.get(tenant, 0)
            charge = account.charge + more
            if more and account.quota.most is not None and charge > account.quota.most:
                return []
            guarded += max(charge, account.quota.reserved) - account.guard
        if guarded > self.pool.count:
            return []
        self._guarded = guarded
        for tenant, count in counts.items():
            account = self._accounts[tenant]
            account.referred += count
            account.promised -= promised.get(tenant, 0)
            self.paid[tenant] += count
        pages, payer = self.pool.take_many(len(tenants)), self._payer
        for page, tenant in zip(pages, tenants, strict=True):
            payer[page] = tenant
        return pages

    def share(self, pages: Iterable[int], tenant: int) -> None:
        """Add a reference to each page, cached or in use."""
        account, payer = self._accounts[tenant], self._payer
        before = account.guard
        for page in pages:
            if payer[page] != tenant:
                account.referred += self._add_reference(page, tenant)
            self.pool.share(page)
        self._guarded += account.guard - before

    def release(self, pages: Sequence[int], tenant: int) -> None:
        """Drop a reference of each page. See `Pool.release`."""
        account, payer = self._accounts[tenant], self._payer
        before, unused = account.guard, self.pool.release_many(pages)
        for page in unused:
            assert payer[page] == tenant, "another tenant's page is released"
            payer[page] = NOBODY
        self.paid[tenant] -= len(unused)
        account.referred -= len(unused)
        if len(unused) < len(pages):  # the others have further references: of this tenant only, or of several
            for page in pages:
                if payer[page] not in (NOBODY, tenant):
                    account.referred -= self._drop_reference(page, tenant)
        self._guarded += account.guard - before

    def _add_reference(self, page: int, tenant: int) -> bool:
        """Count a reference to a page that is not paid for by this tenant alone. Return whether it is the tenant's
        first."""
        payer = self._payer[page]
        if payer == NOBODY:
            self._payer[page] = tenant
            self.paid[tenant] += 1
            return True
        if payer == SEVERAL:
            sharers = self._sharers[page]
            sharers[tenant] = sharers.get(tenant, 0) + 1
            return sharers[tenant] == 1
        self._payer[page], self._sharers[page] = SEVERAL, {payer: self.pool.users[page], tenant: 1}
        self.paid[payer] -= 1
        group = self._shared_by[page] = self._accounts[tenant].quota.group
        self.shared_by[group] += 1
        return True

    def _drop_reference(self, page: int, tenant: int) -> bool:
        """Drop a reference to a page that several tenants refer to. Return whether it was the tenant's last."""
        sharers = self._sharers[page]
        sharers[tenant] -= 1
        if sharers[tenant]:
            return False
        del sharers[tenant]
        if len(sharers) == 1:
            (payer,) = sharers
            del self._sharers[page]
            self._payer[page] = payer
            self.paid[payer] += 1
            self.shared_by[self._shared_by.pop(page)] -= 1
        return True

    def find_payer(self, page: int) -> tuple[str, int]:
        """Return the payer of a page: ("tenant", i), ("group", g) if several tenants of a group refer to it,
        or none."""
        payer = self._payer[page]
        if payer == SEVERAL:
            group = self._shared_by[page]
            return "group", NOBODY if group is None else group
        return ("nobody", NOBODY) if payer == NOBODY else ("tenant", payer)

    # --- what does not hold, counted from scratch

    def find_reference_problems(self) -> Iterator[str]:
        """Check that the tenants' references equal the pages' user counts."""
        referred = Counter(payer for payer in self._payer if payer >= 0)
        for page, sharers in self._sharers.items():
            referred.update(sharers.keys())
            if sum(sharers.values()) != self.pool.users[page]:
                yield f"tenants refer to page {page} {sharers} times, and it has {self.pool.users[page]} users"
        for page, (payer, users) in enumerate(zip(self._payer, self.pool.users, strict=True)):
            if (payer == NOBODY) != (users == 0):
                yield f"page {page} has {users} users, and payer {payer}"
        counted = {tenant: account.referred for tenant, account in enumerate(self._accounts) if account.referred}
        if +referred != counted:
            yield f"tenants refer to {dict(referred)} pages, {counted} noted"

    def find_guard_problems(self) -> Iterator[str]:
        """Check inequality R."""
        guarded = sum(account.guard for account in self._accounts)
        if guarded != self._guarded or guarded > self.pool.count:
            yield f"inequality R: {guarded} of {self.pool.count} pages, {self._guarded} noted"

    def find_payer_problems(self) -> Iterator[str]:
        """Check that each page in use has one payer, and other pages have none."""
        paid = np.bincount(np.array([p for p in self._payer if p >= 0], np.int64), minlength=len(self.paid))
        if (paid != self.paid).any():
            yield f"tenants pay for {paid.tolist()} pages, {self.paid.tolist()} noted"
        if int(self.paid.sum()) + self.shared != self.pool.used:
            by_tenants = int(self.paid.sum())
            yield f"tenants pay for {by_tenants} pages, groups for {self.shared}, and {self.pool.used} are used"
        if +self.shared_by != Counter(self._shared_by.values()):
            yield f"groups pay for {Counter(self._shared_by.values())} pages, {self.shared_by} noted"

    def find_namespace_problems(self) -> Iterator[str]:
        """Check that tenants that share a page are in one isolation group."""
        for page, sharers in self._sharers.items():
            groups = {self._accounts[tenant].quota.group for tenant in sharers}
            if len(groups) > 1 or None in groups:
                yield f"page {page} is used by tenants {sorted(sharers)}, which are not in one group"

    def find_problems(self) -> Iterator[str]:
        yield from self.pool.find_problems()
        yield from self.find_reference_problems()
        yield from self.find_guard_problems()
        yield from self.find_payer_problems()
        yield from self.find_namespace_problems()
