"""The paged KV cache's bookkeeping: which page of the pool holds which tokens of which slot."""

from __future__ import annotations

import heapq

import numpy as np

from zinc_rt.errors import ZincError

UNSET = -1


class OutOfPages(ZincError):
    """The pool, or the slot's row of the table, has no page left."""


class PagedKV:
    """A pool of `pages` pages of `page_tokens` tokens, shared by `slots` sequences of at most `pages_per_slot`.

    `table` is the int32 [slots, pages_per_slot] array that kernels read a copy of, UNSET where there is no page.
    `changes` are its entries that the copy lacks, row-major number -> page: whoever brings them over clears them.
    A freed entry is none, since nothing reads it before it is set again. A page keeps its id until its last user
    releases it; the lowest free id goes first, or with `highest_first` the highest, so that no table looks like
    none at all: page n at place n hides what reads past the table.
    """

    def __init__(
        self, pages: int, *, slots: int, pages_per_slot: int, page_tokens: int = 16, highest_first: bool = False
    ) -> None:
        for name, value in (
            ("pages", pages),
            ("slots", slots),
            ("pages_per_slot", pages_per_slot),
            ("page_tokens", page_tokens),
        ):
            if value < 1:
                raise ValueError(f"{name} is at least 1, not {value}")
        self.pages = pages
        self.page_tokens = page_tokens
        self.table = np.full((slots, pages_per_slot), UNSET, dtype=np.int32)
        self.changes: dict[int, int] = {}
        self._users = np.zeros(pages, dtype=np.int32)
        self._sign = -1 if highest_first else 1
        self._free = sorted(self._sign * page for page in range(pages))  # a heap
        self._counts = [0] * slots  # places of each slot that were given pages
        self._forgotten = [0] * slots  # of those, the first ones, whose pages it has given up

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def users(self, page: int) -> int:
        """How many slots hold this page."""
        return int(self._users[page])

    def tokens(self, slot: int) -> int:
        """How many tokens the slot's pages have room for, those it has forgotten among them."""
        return self._counts[slot] * self.page_tokens

    def ensure(self, slot: int, tokens: int) -> None:
        """Give the slot pages for `tokens` tokens in all; it never shrinks. All or nothing: raises OutOfPages."""
        self._check(slot)
        wanted = -(-tokens // self.page_tokens)
        have = self._counts[slot]
        if wanted <= have:
            return
        if wanted > self.table.shape[1]:
            raise OutOfPages(
                f"slot {slot}: {tokens} tokens need {wanted} pages, a slot has at most {self.table.shape[1]}",
                next="raise the context length or end the sequence",
            )
        if wanted - have > len(self._free):
            raise OutOfPages(
                f"slot {slot}: {tokens} tokens need {wanted - have} more pages, {len(self._free)} of {self.pages} "
                "are free",
                next="release a slot, or make the pool larger",
            )
        for place in range(have, wanted):
            page = self._sign * heapq.heappop(self._free)
            self._users[page] = 1
            self._set(slot, place, page)
        self._counts[slot] = wanted

    def share(self, source: int, target: int, tokens: int) -> int:
        """Let the empty slot `target` start with the pages holding the first `tokens` tokens of `source`.

        Only whole pages are shared, so neither slot ever writes into the other's. Returns the tokens shared.
        Raises ValueError if `target` holds pages, or `source` has not that many or has forgotten some.
        """
        self._check(source)
        self._check(target)
        count = tokens // self.page_tokens
        if self._counts[target]:
            raise ValueError(
                f"slot {target} holds {self._counts[target]} pages; release it before sharing into it"
            )
        if tokens < 0 or count > self._counts[source]:
            raise ValueError(f"slot {source} has room for {self.tokens(source)} tokens, not {tokens}")
        if count and self._forgotten[source]:
            raise ValueError(f"slot {source} has forgotten its first {self._forgotten[source]} pages")
        for place in range(count):
            self._set(target, place, int(self.table[source, place]))
        np.add.at(self._users, self.table[source, :count], 1)
        self._counts[target] = count
        return count * self.page_tokens

    def release(self, slot: int) -> None:
        """Give up all the slot's pages; those nobody else holds are free again. Harmless on an empty slot."""
        self._check(slot)
        self._give_up(slot, self._counts[slot])
        self._counts[slot] = self._forgotten[slot] = 0

    def forget(self, slot: int, tokens: int) -> None:
        """Give up the whole pages of the slot's first `tokens` tokens, which nothing looks at any more: those
        behind a sliding window. Harmless where they are given up already."""
        self._check(slot)
        places = min(tokens // self.page_tokens, self._counts[slot])
        if places > self._forgotten[slot]:
            self._give_up(slot, places)
            self._forgotten[slot] = places

    def _give_up(self, slot: int, places: int) -> None:
        """The slot's pages before place `places` that it still holds."""
        for place in range(self._forgotten[slot], places):
            page = int(self.table[slot, place])
            self.changes.pop(slot * self.table.shape[1] + place, None)
            self._users[page] -= 1
            if self._users[page] == 0:
                heapq.heappush(self._free, self._sign * page)
        self.table[slot, :places] = UNSET

    def rows(self, slot: int, positions: np.ndarray) -> np.ndarray:
        """The row in the pool (int64) of each token position. Raises ValueError for one without a page."""
        self._check(slot)
        positions = np.asarray(positions, dtype=np.int64)
        first, end = self._forgotten[slot] * self.page_tokens, self.tokens(slot)
        if positions.size and (positions.min() < first or positions.max() >= end):
            saw = f"{positions.min()}..{positions.max()}"
            raise ValueError(f"slot {slot}: positions {saw} outside {first}..{end - 1}")
        pages = self.table[slot, positions // self.page_tokens].astype(np.int64)
        return pages * self.page_tokens + positions % self.page_tokens

    def _set(self, slot: int, place: int, page: int) -> None:
        self.table[slot, place] = page
        self.changes[slot * self.table.shape[1] + place] = page

    def _check(self, slot: int) -> None:
        if not 0 <= slot < len(self._counts):
            raise ValueError(f"no slot {slot} of {len(self._counts)}")
