"""Things with reference counts, some of which are kept as cache when nobody refers to them: pages, and state
rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice


class Pool:
    """Ids from `first` to `count` - 1, each free (holds nothing anybody could want), idle (cached, and nobody
    refers to it) or used. Idle ones are as good as free: taking some costs their cache entries, told by
    `taken_from_cache(ids)`.

    Ids are handed out in an order that depends on nothing but the calls before.
    """

    def __init__(
        self,
        count: int,
        *,
        first: int = 0,
        taken_from_cache: Callable[[list[int]], None] = lambda ids: None,
        highest_first: bool = False,
    ) -> None:
        """`highest_first`: hand out the highest id first, so that no page has the number of its place in a table,
        which would hide a wrong look-up."""
        if count <= first:
            raise ValueError(f"at least one, not {count} from {first} on")
        self.count, self.first = count, first
        self.users = [0] * count
        self.cached = [False] * count
        self._taken_from_cache = taken_from_cache
        self._free = list(range(first, count) if highest_first else range(count - 1, first - 1, -1))  # a stack
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first

    def take(self) -> int | None:
        """One that holds nothing, with one reference. None where all are used."""
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
        """So many that hold nothing, with one reference each. The caller knows that they are there."""
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
        """One more reference to what is used or cached."""
        if not self.users[id]:
            assert self.cached[id], "what is free is taken, not shared"
            del self._idle[id]
        self.users[id] += 1

    def release(self, id: int) -> None:
        """One reference less. The last leaves it idle where it is cached, else free."""
        assert self.users[id] > 0
        self.users[id] -= 1
        if not self.users[id]:
            if self.cached[id]:
                self._idle[id] = None
            else:
                self._free.append(id)

    def release_many(self, ids: Sequence[int]) -> None:
        """`release` of each, in order."""
        users, cached, free, idle = self.users, self.cached, self._free, self._idle
        for id in ids:
            left = users[id] = users[id] - 1
            if not left:
                if cached[id]:
                    idle[id] = None
                else:
                    free.append(id)

    def cache(self, ids: Sequence[int]) -> None:
        """Cache entries name them from now on. They are used."""
        users, cached = self.users, self.cached
        for id in ids:
            assert users[id] and not cached[id]
            cached[id] = True

    def uncache(self, id: int) -> None:
        """No cache entry names it any more."""
        assert self.cached[id]
        self.cached[id] = False
        if not self.users[id]:
            del self._idle[id]
            self._free.append(id)

    def private(self, id: int) -> bool:
        """Whether its one user may write to it."""
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
        """Least recently used first."""
        return iter(self._idle)

    def problems(self) -> Iterator[str]:
        """What does not hold, counted from scratch."""
        used = [id for id in range(self.first, self.count) if self.users[id]]
        if sorted([*used, *self._idle, *self._free]) != list(range(self.first, self.count)):
            yield "free, idle and used are not all, each once"
        if not all(self.cached[id] for id in self._idle):
            yield "something is idle and in no cache"
