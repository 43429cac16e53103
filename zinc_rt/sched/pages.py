"""One group's pages: which tenants refer to them, and the inequality that guards reservations.

Inequality R: the sum over tenants of max(referred + promised, reserved) is at most the number of pages. Below its
reservation a tenant's growth does not move the sum, so a reserved page is always granted; and there is one, since
pages in use are at most the sum of what tenants refer to. A cached page that nobody uses counts for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from zinc_rt.errors import UsageError
from zinc_rt.sched.pool import Pool

NOBODY = -1  # the payer of a page that is not in use


@dataclass(frozen=True, slots=True)
class PageQuota:
    """`reserved` pages can always be had; more than `most` never. Tenants of one `group` may share pages."""

    reserved: int = 0
    most: int | None = None
    group: int | None = None


@dataclass(slots=True)
class _Account:
    quota: PageQuota
    promised: int
    uses: dict[int, int]  # page: how often this tenant refers to it

    @property
    def charge(self) -> int:
        return len(self.uses) + self.promised

    @property
    def guard(self) -> int:
        """Its term of inequality R."""
        return max(self.charge, self.quota.reserved)


class Pages:
    """The allocator of a group. `pool` says what is free; a page is taken and given back here."""

    def __init__(self, count: int, *, taken_from_cache: Callable[[int], None] = lambda page: None) -> None:
        self.pool = Pool(count, taken_from_cache=taken_from_cache)
        self._accounts: dict[int, _Account] = {}
        self._tenants: dict[int, set[int]] = {}  # page in use: who refers to it
        self._guarded = 0  # the sum of inequality R

    # --- quotas

    def set_quota(self, tenant: int, quota: PageQuota) -> None:
        """Raises UsageError where all reservations together, or the pages referred to now, leave no room for
        it."""
        account = self._accounts.get(tenant) or _Account(PageQuota(), 0, {})
        changed = _Account(quota, account.promised, account.uses)
        if quota.most is not None and quota.most < quota.reserved:
            raise UsageError(f"tenant {tenant}: {quota.reserved} pages reserved, and at most {quota.most} allowed")
        others = self._guarded - (account.guard if tenant in self._accounts else 0)
        if others + changed.guard > self.pool.count:
            raise UsageError(
                f"tenant {tenant}: {quota.reserved} pages cannot be reserved",
                next=f"at most {max(0, self.pool.count - others)} of {self.pool.count} can now",
            )
        self._accounts[tenant] = changed
        self._guarded = others + changed.guard

    def quota(self, tenant: int) -> PageQuota:
        """What it has; a tenant that was never told of has the default."""
        account = self._accounts.get(tenant)
        return PageQuota() if account is None else account.quota

    def refers(self, tenant: int, page: int) -> bool:
        """Whether the page counts for the tenant already."""
        return page in self._accounts[tenant].uses

    def charge(self, tenant: int) -> int:
        """Distinct pages that the tenant refers to, and those promised to it."""
        return self._accounts[tenant].charge

    def can(self, tenant: int, more: int) -> bool:
        """Whether the tenant may refer to `more` pages than now."""
        account = self._accounts[tenant]
        charge, quota = account.charge + more, account.quota
        if quota.most is not None and charge > quota.most:
            return False
        return self._guarded - account.guard + max(charge, quota.reserved) <= self.pool.count

    def ever(self, tenant: int, need: int) -> bool:
        """Whether the tenant could hold so many if it were alone: a request that needs more can never run."""
        others = sum(a.quota.reserved for t, a in self._accounts.items() if t != tenant)
        most = self._accounts[tenant].quota.most
        return need <= min(self.pool.count if most is None else most, self.pool.count - others)

    def promise(self, tenant: int, more: int) -> None:
        """Set `more` pages aside; negative gives back. The caller has asked `can`."""
        account = self._accounts[tenant]
        assert more <= 0 or self.can(tenant, more), "a promise beyond what the tenant can have"
        assert account.promised + more >= 0, "more given back than was promised"
        with self._changing(account):
            account.promised += more

    @contextmanager
    def _changing(self, account: _Account) -> Iterator[None]:
        """The sum of inequality R follows what happens to the account."""
        self._guarded -= account.guard
        yield
        self._guarded += account.guard

    # --- pages

    def take(self, tenant: int, *, promised: bool = False) -> int:
        """A page that holds nothing, out of the tenant's promise or beyond it, for which the caller has asked
        `can`."""
        if promised:
            self.promise(tenant, -1)
        assert self.can(tenant, 1), "a page beyond what the tenant can have"
        page = self.pool.take()
        assert page is not None, "inequality R is broken: no page is left"
        self._refer(page, tenant)
        return page

    def share(self, page: int, tenant: int) -> None:
        """One more reference to a page that is cached or in use."""
        self.pool.share(page)
        self._refer(page, tenant)

    def _refer(self, page: int, tenant: int) -> None:
        account = self._accounts[tenant]
        with self._changing(account):
            account.uses[page] = account.uses.get(page, 0) + 1
        self._tenants.setdefault(page, set()).add(tenant)

    def release(self, page: int, tenant: int) -> None:
        """One reference less; `Pool.release`."""
        account = self._accounts[tenant]
        with self._changing(account):
            account.uses[page] -= 1
            if not account.uses[page]:
                del account.uses[page]
        if page not in account.uses:
            self._tenants[page].discard(tenant)
        self.pool.release(page)
        if not self.pool.users[page]:
            del self._tenants[page]

    def payer(self, page: int) -> tuple[str, int]:
        """Who pays for a page: ("tenant", i), ("group", g) where several of one group refer to it, or nobody."""
        tenants = self._tenants.get(page)
        if not tenants:
            return "nobody", NOBODY
        one = next(iter(tenants))
        group = self._accounts[one].quota.group
        if len(tenants) == 1 or group is None:
            return "tenant", one
        return "group", group

    def problems(self) -> Iterator[str]:
        """What does not hold, counted from scratch."""
        yield from self.pool.problems()
        references = sum(sum(account.uses.values()) for account in self._accounts.values())
        if references != int(self.pool.users.sum()):
            yield f"tenants refer {references} times to pages that have {int(self.pool.users.sum())} users"
        guarded = sum(account.guard for account in self._accounts.values())
        if guarded != self._guarded or guarded > self.pool.count:
            yield f"inequality R: {guarded} of {self.pool.count} pages, {self._guarded} noted"
        for page, tenants in self._tenants.items():
            groups = {self._accounts[tenant].quota.group for tenant in tenants}
            if len(tenants) > 1 and (len(groups) > 1 or None in groups):
                yield f"page {page} is used by tenants {sorted(tenants)}, who share nothing"
