"""The page allocator: a `Pool` of ids with reference counts and a cache of idle ids, and `Pages`, the pool of
one page group with tenants and the inequality that protects their reservations.

Inequality R: the sum over tenants of max(referred + promised, reserved) is at most the number of pages.
Growth below a tenant's reservation does not change the sum, so a reserved page is always granted. One is
always available, because the pages in use are at most the sum of the tenants' references. An unused cached
page counts for no tenant.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from zinc_rt.host.errors import UsageError


class Pool:
    """Ids from `first` to `count` - 1. Each is free, idle (cached, but not referenced) or used.

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
            raise ValueError(f"at least one, not {count} from {first} on")
        self.count, self.first = count, first
        self.users = [0] * count
        self.cached = [False] * count
        self._taken_from_cache = taken_from_cache
        self._free = list(range(first, count) if highest_first else range(count - 1, first - 1, -1))  # a stack
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first

    def take(self) -> int | None:
        """Take a free id with one reference. Return None if all are used."""
        if self._free:
            id = self._free.pop()
        elif self._idle:
            id, _ = self._idle.popitem(last=False)
            self.cached[id] = False
            self._taken_from_cache([id])
        else:
            return None
        self.users[id] = 1
        return id

    def take_many(self, count: int) -> list[int]:
        """Take `count` ids with one reference each. The caller has checked that they are available."""
        free, users = self._free, self.users
        at = max(0, len(free) - count)
        taken = free[at:]
        taken.reverse()
        del free[at:]
        if len(taken) < count:
            oldest = list(islice(self._idle, count - len(taken)))
            for id in oldest:
                del self._idle[id]
                self.cached[id] = False
            self._taken_from_cache(oldest)
            taken += oldest
        for id in taken:
            users[id] = 1
        return taken

    def share(self, id: int) -> None:
        """Add a reference to a used or cached id."""
        if not self.users[id]:
            assert self.cached[id], "a free page cannot be shared"
            del self._idle[id]
        self.users[id] += 1

    def release(self, id: int) -> None:
        """Drop a reference. Without references the id becomes idle if it is cached, otherwise free."""
        assert self.users[id] > 0
        self.users[id] -= 1
        if not self.users[id]:
            if self.cached[id]:
                self._idle[id] = None
            else:
                self._free.append(id)

    def release_many(self, ids: Sequence[int]) -> None:
        """Release each id, in order."""
        users, cached, free, idle = self.users, self.cached, self._free, self._idle
        for id in ids:
            left = users[id] = users[id] - 1
            if not left:
                if cached[id]:
                    idle[id] = None
                else:
                    free.append(id)

    def cache(self, ids: Sequence[int]) -> None:
        """Mark used ids as cached."""
        users, cached = self.users, self.cached
        for id in ids:
            assert users[id] and not cached[id]
            cached[id] = True

    def uncache(self, id: int) -> None:
        """Mark an id as no longer cached."""
        assert self.cached[id]
        self.cached[id] = False
        if not self.users[id]:
            del self._idle[id]
            self._free.append(id)

    def private(self, id: int) -> bool:
        """Return whether the id has one user that may write to it."""
        return self.users[id] == 1 and not self.cached[id]

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def used(self) -> int:
        return self.count - self.first - self.free - self.idle

    def idle_ids(self) -> Iterator[int]:
        """Return the idle ids, least recently used first."""
        return iter(self._idle)

    def problems(self) -> Iterator[str]:
        """Return violated invariants, recomputed from scratch."""
        used = [id for id in range(self.first, self.count) if self.users[id]]
        if sorted([*used, *self._idle, *self._free]) != list(range(self.first, self.count)):
            yield "each id must be exactly one of free, idle and used"
        if not all(self.cached[id] for id in self._idle):
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
    uses: dict[int, int] = field(default_factory=dict)  # page: how often this tenant refers to it

    @property
    def charge(self) -> int:
        return len(self.uses) + self.promised

    @property
    def guard(self) -> int:
        """The tenant's term in inequality R."""
        return max(len(self.uses) + self.promised, self.quota.reserved)


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
        self._sharers: dict[int, set[int]] = {}  # page that several tenants refer to: which
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

    def quota(self, tenant: int) -> PageQuota:
        """Return a tenant's quota; an unknown tenant has the default."""
        return self._accounts[tenant].quota if tenant < len(self._accounts) else PageQuota()

    def refers(self, tenant: int, page: int) -> bool:
        """Return whether the page already counts for the tenant."""
        return page in self._accounts[tenant].uses

    def charge(self, tenant: int) -> int:
        """Return the distinct pages that the tenant refers to, plus those promised to it."""
        return self._accounts[tenant].charge

    def promised(self, tenant: int) -> int:
        return self._accounts[tenant].promised

    def room(self, tenant: int) -> int:
        """Return how many more pages the tenant may refer to."""
        account = self._accounts[tenant]
        quota, charge = account.quota, account.charge
        room = self.pool.count - self._guarded + max(0, quota.reserved - charge)
        return room if quota.most is None else min(room, quota.most - charge)

    def can(self, tenant: int, more: int, *, spare: int = 0) -> bool:
        """Return whether the tenant may refer to `more` further pages; beyond its reservation, `spare` pages
        must remain."""
        account = self._accounts[tenant]
        quota, charge = account.quota, len(account.uses) + account.promised + more
        if quota.most is not None and charge > quota.most:
            return False
        if charge <= quota.reserved:
            return True
        return self._guarded - account.guard + charge + spare <= self.pool.count

    def ever(self, tenant: int, need: int) -> bool:
        """Return whether the tenant could hold this many pages if it were alone. A request that needs more
        can never run."""
        others = sum(a.quota.reserved for t, a in enumerate(self._accounts) if t != tenant)
        most = self._accounts[tenant].quota.most
        return need <= min(self.pool.count if most is None else most, self.pool.count - others)

    def promise(self, tenant: int, more: int) -> None:
        """Reserve `more` pages; a negative number returns them. The caller has checked `can`."""
        account = self._accounts[tenant]
        assert more <= 0 or self.can(tenant, more), "the promise exceeds the tenant's limit"
        assert account.promised + more >= 0, "more pages returned than promised"
        before = account.guard
        account.promised += more
        self._guarded += account.guard - before

    # --- pages

    def take(self, tenant: int, count: int, *, promised: int = 0) -> list[int]:
        """Take free pages, `promised` of them from the tenant's promise; the caller has checked `can` for the
        others."""
        account = self._accounts[tenant]
        assert promised <= min(count, account.promised), "more pages taken than promised"
        assert self.can(tenant, count - promised), "a page exceeds the tenant's limit"
        assert count <= self.pool.free + self.pool.idle, "inequality R is violated: no page is available"
        before = account.guard
        account.promised -= promised
        pages = self.pool.take_many(count)
        account.uses.update(dict.fromkeys(pages, 1))
        payer = self._payer
        for page in pages:
            payer[page] = tenant
        self.paid[tenant] += count
        self._guarded += account.guard - before
        return pages

    def grow(self, tenant: int) -> int:
        """Take one more free page. Return NOBODY if the tenant may not have it."""
        account = self._accounts[tenant]
        quota, charge = account.quota, len(account.uses) + account.promised
        if quota.most is not None and charge >= quota.most:
            return NOBODY
        if charge >= quota.reserved:
            if self._guarded >= self.pool.count:
                return NOBODY
            self._guarded += 1
        page = self.pool.take()
        assert page is not None, "inequality R is violated: no page is available"
        account.uses[page] = 1
        self._payer[page] = tenant
        self.paid[tenant] += 1
        return page

    def share(self, pages: Iterable[int], tenant: int) -> None:
        """Add a reference to each page, cached or in use."""
        account = self._accounts[tenant]
        before, uses = account.guard, account.uses
        for page in pages:
            self.pool.share(page)
            count = uses.get(page, 0)
            uses[page] = count + 1
            if not count:
                self._pays(page, tenant)
        self._guarded += account.guard - before

    def release(self, pages: Sequence[int], tenant: int) -> None:
        """Drop a reference of each page. See `Pool.release`."""
        account = self._accounts[tenant]
        before, uses, payer = account.guard, account.uses, self._payer
        gone = 0
        for page in pages:
            count = uses[page]
            if count > 1:
                uses[page] = count - 1
            else:
                del uses[page]
                if payer[page] == tenant:
                    payer[page] = NOBODY
                    gone += 1
                else:
                    self._pays_no_more(page, tenant)
        self.pool.release_many(pages)
        self.paid[tenant] -= gone
        self._guarded += account.guard - before

    def _pays(self, page: int, tenant: int) -> None:
        payer = self._payer[page]
        if payer == NOBODY:
            self._payer[page] = tenant
            self.paid[tenant] += 1
        elif payer == SEVERAL:
            self._sharers[page].add(tenant)
        else:
            self._payer[page], self._sharers[page] = SEVERAL, {payer, tenant}
            self.paid[payer] -= 1
            group = self._shared_by[page] = self._accounts[tenant].quota.group
            self.shared_by[group] += 1

    def _pays_no_more(self, page: int, tenant: int) -> None:
        """Update the payment for a page when one of several tenants drops its reference."""
        sharers = self._sharers[page]
        sharers.discard(tenant)
        if len(sharers) == 1:
            (payer,) = sharers
            del self._sharers[page]
            self._payer[page] = payer
            self.paid[payer] += 1
            self.shared_by[self._shared_by.pop(page)] -= 1

    def payer(self, page: int) -> tuple[str, int]:
        """Return the payer of a page: ("tenant", i), ("group", g) if several tenants of a group refer to it,
        or none."""
        payer = self._payer[page]
        if payer == SEVERAL:
            group = self._shared_by[page]
            return "group", NOBODY if group is None else group
        return ("nobody", NOBODY) if payer == NOBODY else ("tenant", payer)

    # --- what does not hold, counted from scratch

    def reference_problems(self) -> Iterator[str]:
        """Check that the tenants' references equal the pages' user counts."""
        references = sum(sum(account.uses.values()) for account in self._accounts)
        if references != sum(self.pool.users):
            yield f"tenants refer {references} times to pages that have {sum(self.pool.users)} users"

    def guard_problems(self) -> Iterator[str]:
        """Check inequality R."""
        guarded = sum(account.guard for account in self._accounts)
        if guarded != self._guarded or guarded > self.pool.count:
            yield f"inequality R: {guarded} of {self.pool.count} pages, {self._guarded} noted"

    def payer_problems(self) -> Iterator[str]:
        """Check that each page in use has one payer, and other pages have none."""
        paid = np.bincount([p for p in self._payer if p >= 0] or [0], minlength=len(self.paid))
        if not any(p >= 0 for p in self._payer):
            paid[:] = 0
        if (paid != self.paid).any():
            yield f"tenants pay for {paid.tolist()} pages, {self.paid.tolist()} noted"
        if int(self.paid.sum()) + self.shared != self.pool.used:
            by_tenants = int(self.paid.sum())
            yield f"tenants pay for {by_tenants} pages, groups for {self.shared}, and {self.pool.used} are used"
        if +self.shared_by != Counter(self._shared_by.values()):
            yield f"groups pay for {Counter(self._shared_by.values())} pages, {self.shared_by} noted"

    def namespace_problems(self) -> Iterator[str]:
        """Check that tenants that share a page are in one isolation group."""
        for page, tenants in self._sharers.items():
            groups = {self._accounts[tenant].quota.group for tenant in tenants}
            if len(groups) > 1 or None in groups:
                yield f"page {page} is used by tenants {sorted(tenants)}, which are not in one group"

    def problems(self) -> Iterator[str]:
        yield from self.pool.problems()
        yield from self.reference_problems()
        yield from self.guard_problems()
        yield from self.payer_problems()
        yield from self.namespace_problems()
