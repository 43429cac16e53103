"""Things with reference counts, some of which are kept as cache when nobody refers to them: pages, and state
rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

NONE = -1


class Pool:
    """Ids from `first` to `count` - 1, each free (holds nothing anybody could want), idle (cached, and nobody
    refers to it) or used. Idle ones are as good as free: taking one costs its cache entry, told by
    `taken_from_cache(id)`.

    Ids are handed out in an order that depends on nothing but the calls before.
    """

    def __init__(
        self, count: int, *, first: int = 0, taken_from_cache: Callable[[int], None] = lambda id: None
    ) -> None:
        if count <= first:
            raise ValueError(f"at least one, not {count} from {first} on")
        self.count, self.first = count, first
        self.users = np.zeros(count, np.int32)
        self.cached = np.zeros(count, bool)
        self._taken_from_cache = taken_from_cache
        self._free = list(range(count - 1, first - 1, -1))  # a stack: the lowest first
        # the idle ones, least recently used first: a ring through place `count`
        self._next = np.full(count + 1, NONE, np.int64)
        self._previous = np.full(count + 1, NONE, np.int64)
        self._next[count] = self._previous[count] = count
        self._idle = 0

    def take(self) -> int | None:
        """One that holds nothing, with one reference. None where all are used."""
        if self._free:
            id = self._free.pop()
        else:
            id = int(self._next[self.count])
            if id == self.count:
                return None
            self._unlink(id)
            self.cached[id] = False
            self._taken_from_cache(id)
        self.users[id] = 1
        return id

    def share(self, id: int) -> None:
        """One more reference to what is used or cached."""
        if not self.users[id]:
            assert self.cached[id], "what is free is taken, not shared"
            self._unlink(id)
        self.users[id] += 1

    def release(self, id: int) -> None:
        """One reference less. The last leaves it idle where it is cached, else free."""
        assert self.users[id] > 0
        self.users[id] -= 1
        if not self.users[id]:
            if self.cached[id]:
                self._append(id)
            else:
                self._free.append(id)

    def cache(self, id: int) -> None:
        """A cache entry names it from now on. It is used."""
        assert self.users[id] and not self.cached[id]
        self.cached[id] = True

    def uncache(self, id: int) -> None:
        """No cache entry names it any more."""
        assert self.cached[id]
        self.cached[id] = False
        if not self.users[id]:
            self._unlink(id)
            self._free.append(id)

    def private(self, id: int) -> bool:
        """Whether its one user may write to it."""
        return bool(self.users[id] == 1 and not self.cached[id])

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def idle(self) -> int:
        return self._idle

    @property
    def used(self) -> int:
        return self.count - self.first - self.free - self.idle

    def problems(self) -> Iterator[str]:
        """What does not hold, counted from scratch."""
        used = [int(id) for id in np.flatnonzero(self.users)]
        idle = list(self._idle_ids())
        if len(idle) != self._idle or sorted([*used, *idle, *self._free]) != list(range(self.first, self.count)):
            yield "free, idle and used are not all, each once"
        if not all(self.cached[id] for id in idle):
            yield "something is idle and in no cache"

    def _idle_ids(self) -> Iterator[int]:
        """Least recently used first."""
        id = int(self._next[self.count])
        while id != self.count:
            yield id
            id = int(self._next[id])

    def _append(self, id: int) -> None:
        last = self._previous[self.count]
        self._next[last] = self._previous[self.count] = id
        self._previous[id], self._next[id] = last, self.count
        self._idle += 1

    def _unlink(self, id: int) -> None:
        before, after = self._previous[id], self._next[id]
        self._next[before], self._previous[after] = after, before
        self._next[id] = self._previous[id] = NONE
        self._idle -= 1
