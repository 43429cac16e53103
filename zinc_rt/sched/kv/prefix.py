"""The prefix cache: full pages of computed tokens, indexed by a chain of digests.

A digest is only an index: an entry is a hit if its tokens are equal and its parent is the previously matched
entry. By induction the whole prefix is equal, token for token; a collision is a miss.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import unpack

import numpy as np

GONE = -1  # an entry's page in a group that has taken it back, or never had one
NO_ROW = -1
DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Namespace:
    """The scope of cache lookups: a tenant or a group of tenants. `root` is the first link of the chain."""

    root: bytes


def namespace(
    model_digest: str, ordering: str, kv_dtype: str, page_tokens: int, *, secret: bytes = b"", salt: str = ""
) -> Namespace:
    """Return a namespace. `secret`: 32 bytes, random by default, so that digests are meaningless to others;
    `salt`: the request's salt."""
    parts = ["zinc-rt-kv-1", model_digest, ordering, kv_dtype, str(page_tokens), salt]
    whole = hashlib.sha256(secret or secrets.token_bytes(32))
    for part in parts:
        whole.update(hashlib.sha256(part.encode()).digest())  # of one length each: no two lists run together alike
    return Namespace(whole.digest())


def chain(tokens: np.ndarray, page_tokens: int, within: Namespace, *, after: bytes = b"") -> bytes:
    """Return the digests of the full pages of `tokens` (int32 [n]), 32 bytes each; `after`: the digest of the
    page before the first, if these are not the start."""
    raw = np.ascontiguousarray(tokens, "<i4").tobytes()
    size, link, found = 4 * page_tokens, after or within.root, []
    for at in range(0, len(raw) - size + 1, size):
        link = hashlib.sha256(link + raw[at : at + size]).digest()
        found.append(link)
    return b"".join(found)


def cut(whole: bytes, size: int) -> tuple[bytes, ...]:
    """Split into pieces of equal size; `unpack` takes a fifth of the time of slicing."""
    return unpack(f"{size}s" * (len(whole) // size), whole)


@dataclass(slots=True, eq=False)
class CachedPage:
    """A page of tokens in every group. `parent`: the preceding page, None for the first. `state_row`: the
    recurrent state after it."""

    digest: bytes
    tokens: bytes
    parent: CachedPage | None
    pages: tuple[int, ...]  # by group
    last_use_ns: int = 0
    ttl_ns: int | None = None  # it goes when nobody has used it for so long
    state_row: int = NO_ROW


@dataclass(frozen=True, slots=True)
class Match:
    """The longest usable prefix. `met`: the pages with matching tokens; those beyond `entries` lack a state,
    which another request will need as well."""

    entries: tuple[CachedPage, ...] = ()
    met: int = 0

    @property
    def pages(self) -> int:
        return len(self.entries)

    @property
    def state_row(self) -> int:
        return self.entries[-1].state_row if self.entries else NO_ROW


@dataclass(slots=True)
class CacheCounts:
    """Counters in tokens, except `evicted`, which is in pages."""

    asked: int = 0
    hit: int = 0
    evicted: int = 0


@dataclass(slots=True)
class PrefixCache:
    """Cache entries by digest. `windows`: for each page group how many preceding tokens its layers read, 0
    for all; group 0 reads all, or the model has no such group. `recurrent`: a hit needs a state row."""

    page_tokens: int
    windows: Sequence[int]
    recurrent: bool = False
    forget_row: Callable[[int], None] = lambda row: None  # of an entry that goes
    cache: Callable[[int, Sequence[int]], None] = lambda group, pages: None  # of entries that come
    uncache: Callable[[int, int], None] = lambda group, page: None  # of an entry that goes
    counts: CacheCounts = field(default_factory=CacheCounts)
    _entries: dict[bytes, CachedPage] = field(default_factory=dict)
    _of_page: list[dict[int, CachedPage]] = field(init=False)  # by group
    _gone: tuple[int, ...] = field(init=False)  # the pages of an entry that went

    def __post_init__(self) -> None:
        self._of_page = [{} for _ in self.windows]
        self._gone = (GONE,) * len(self.windows)

    def __len__(self) -> int:
        return len(self._entries)

    def needed(self, group: int, pages: int) -> range:
        """Return which of the first `pages` pages a group still reads from the next token on."""
        window = self.windows[group]
        if not window:
            return range(pages)
        return range(max(0, pages * self.page_tokens - window + 1) // self.page_tokens, pages)

    def match(self, digests: bytes, tokens: np.ndarray, *, now_ns: int = 0) -> Match:
        """Match at most as many pages as leave one token to compute, whose logits are needed."""
        raw = np.ascontiguousarray(tokens, "<i4").tobytes()
        size = 4 * self.page_tokens
        found: list[CachedPage] = []
        for at in range(max(0, len(tokens) - 1) // self.page_tokens):
            digest = digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES]
            entry = self._entries.get(digest)
            parent = found[-1] if found else None
            if entry is None or entry.parent is not parent or entry.tokens != raw[at * size : (at + 1) * size]:
                break
            if entry.ttl_ns is not None and entry.last_use_ns + entry.ttl_ns <= now_ns:
                self.drop(entry)
                break
            found.append(entry)
        count = next((n for n in range(len(found), 0, -1) if self._usable(found, n)), 0)
        for entry in found[:count]:
            entry.last_use_ns = now_ns
        return Match(tuple(found[:count]), len(found))

    def _usable(self, found: list[CachedPage], count: int) -> bool:
        """Return whether every group has the pages that it reads from here on, and there is a state to continue
        from."""
        if self.recurrent and found[count - 1].state_row == NO_ROW:
            return False
        groups = range(len(self.windows))
        return all(found[at].pages[group] != GONE for group in groups for at in self.needed(group, count))

    def register(
        self,
        digests: bytes,
        tokens: bytes,
        parent: CachedPage | None,
        pages: Sequence[Sequence[int]],
        *,
        now_ns: int = 0,
        ttl_ns: int | None = None,
    ) -> CachedPage | None:
        """Register consecutive full, computed pages after `parent`: their digests, tokens and page ids by
        group.

        Return the last page's entry. If the same tokens are already cached, both pages remain, and the new
        one stays private to its sequence.
        """
        links, texts = cut(digests, DIGEST_BYTES), cut(tokens, 4 * self.page_tokens)
        if self._entries.keys().isdisjoint(links) and len({*links}) == len(links):
            return self._add(links, texts, parent, pages, now_ns, ttl_ns)
        for at, (digest, raw) in enumerate(zip(links, texts, strict=True)):
            known = self._entries.get(digest)
            if known is not None:
                if known.parent is parent and known.tokens == raw:
                    parent = known
                    continue
                self.drop(known)  # its parent went, or another's tokens have its digest: nobody would find it
            parent = self._add([digest], [raw], parent, [ids[at : at + 1] for ids in pages], now_ns, ttl_ns)
        return parent

    def _add(
        self,
        links: Sequence[bytes],
        texts: Sequence[bytes],
        parent: CachedPage | None,
        pages: Sequence[Sequence[int]],
        now_ns: int,
        ttl_ns: int | None,
    ) -> CachedPage | None:
        """Add entries for consecutive pages, none of which is cached."""
        fresh = []
        for digest, raw, ids in zip(links, texts, zip(*pages, strict=True), strict=True):
            parent = CachedPage(digest, raw, parent, ids, now_ns, ttl_ns, NO_ROW)
            fresh.append(parent)
        self._entries.update(zip(links, fresh, strict=True))
        for group, (of_page, taken) in enumerate(zip(self._of_page, pages, strict=True)):
            of_page.update(zip(taken, fresh, strict=True))
            self.cache(group, taken)
        return parent

    def holds(self, entry: CachedPage) -> bool:
        """Return whether the entry can be found."""
        return self._entries.get(entry.digest) is entry

    def pages_taken(self, group: int, pages: list[int]) -> None:
        """Handle reallocated pages of a group. An entry without its page of the full-attention group is
        removed."""
        self.counts.evicted += len(pages)
        entries = map(self._of_page[group].pop, pages)
        if len(self.windows) == 1:
            for entry in entries:
                entry.pages = self._gone
                del self._entries[entry.digest]
                if entry.state_row != NO_ROW:
                    self._drop_state(entry)
            return
        windowed = self.windows[group]
        for entry in entries:
            entry.pages = (*entry.pages[:group], GONE, *entry.pages[group + 1 :])
            if not windowed or entry.pages == self._gone:
                self.drop(entry)

    def drop(self, entry: CachedPage) -> None:
        """Remove an entry, even if its pages are in use."""
        if self._entries.get(entry.digest) is entry:
            del self._entries[entry.digest]
        pages, entry.pages = entry.pages, self._gone
        for group, page in enumerate(pages):
            if page != GONE:
                del self._of_page[group][page]
                self.uncache(group, page)
        if entry.state_row != NO_ROW:
            self._drop_state(entry)

    def _drop_state(self, entry: CachedPage) -> None:
        row, entry.state_row = entry.state_row, NO_ROW
        self.forget_row(row)

    def of(self, group: int, page: int) -> CachedPage:
        """Return the entry of a cached page."""
        return self._of_page[group][page]

    def clear(self) -> None:
        """Remove all entries, because device memory was lost."""
        for entry in list(self._entries.values()):
            self.drop(entry)

    def heads(self) -> list[CachedPage]:
        """Return the first pages of all chains; may be called from any thread."""
        return [entry for entry in list(self._entries.values()) if entry.parent is None]

    def entries(self) -> Iterator[CachedPage]:
        return iter(self._entries.values())
