"""The prefix cache: full pages of computed tokens, indexed by a chain of digests.

A digest is only an index: an entry is a hit if its tokens are equal and its parent is the previously matched
entry. By induction the whole prefix is equal, token for token; a collision is a miss. If prompts and decodes have
different orderings, the tokens here are those of `make_token_keys`, so a page is found by its tokens and by the
ordering of each.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import unpack

import numpy as np

TOKEN = np.dtype("<i4")
GONE = -1  # an entry's page in a group that has taken it back, or never had one
NO_ROW = -1
DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Namespace:
    """The scope of cache lookups: a tenant or a group of tenants. `root` is the first link of the chain."""

    root: bytes


def make_namespace(
    model_digest: str, ordering: str, kv_dtype: str, page_tokens: int, *, secret: bytes = b"", salt: str = ""
) -> Namespace:
    """Return a namespace. `secret`: 32 bytes, random by default, so that digests are meaningless to others;
    `salt`: the request's salt."""
    parts = ["zinc-rt-kv-1", model_digest, ordering, kv_dtype, str(page_tokens), salt]
    job = hashlib.sha256(secret or secrets.token_bytes(32))
    for part in parts:
        job.update(hashlib.sha256(part.encode()).digest())  # of one length each: no two lists run together alike
    return Namespace(job.digest())


def digest_chain(tokens: np.ndarray, page_tokens: int, within: Namespace, *, after: bytes = b"") -> bytes:
    """Return the digests of the full pages of `tokens` (int32 [n]), 32 bytes each; `after`: the digest of the page
    before the first, if tokens is not the start of a sequence.
    """
    raw = np.ascontiguousarray(tokens, TOKEN).tobytes()
    return digest_chain_bytes(raw, TOKEN.itemsize * page_tokens, after or within.root)


def digest_chain_bytes(raw: bytes, size: int, link: bytes) -> bytes:
    """Return the digests of the full pages of `raw`, of `size` bytes each. `link`: the digest before the first."""
    result = []
    for index in range(0, len(raw) - size + 1, size):
        link = hashlib.sha256(link + raw[index : index + size]).digest()
        result.append(link)
    return b"".join(result)


def make_token_keys(tokens: np.ndarray, first: int, decoded_from: int | None) -> np.ndarray:
    """Return the cache keys of tokens, i32, the first at position `first`. Those from position `decoded_from`
    on are complemented: their keys and values have the ordering of decodes, and no prompt with the same tokens
    matches them. None: prompts and decodes have one ordering, and tokens are their own keys."""
    if decoded_from is None or decoded_from >= first + len(tokens):
        return tokens
    keys = np.array(tokens, np.int32)
    np.invert(keys[max(0, decoded_from - first) :], out=keys[max(0, decoded_from - first) :])
    return keys


def split_pages(whole: bytes, size: int) -> tuple[bytes, ...]:
    """Split into pieces of equal size; `unpack` takes a fifth of the time of slicing."""
    return unpack(f"{size}s" * (len(whole) // size), whole)


@dataclass(slots=True, eq=False)
class CachedRun:
    """Consecutive pages of tokens that were registered together, in every group. `parent`: the page before the
    first, None at the start of a sequence. All sequences are indexed by page; `pages` by group and page. A run
    contains the pages that a sequence computed since the previous run: those of a prompt chunk or of an answer.
    """

    digests: Sequence[bytes]
    tokens: bytes
    parent: CachedPage | None
    pages: list[list[int]]
    last_use_ns: list[int]
    ttl_ns: int | None  # a page goes when nobody has used it for so long
    state_rows: list[int]  # the recurrent state after each page


class CachedPage(tuple[CachedRun, int]):
    """An entry of the cache: a run, and the number of the page in it."""

    __slots__ = ()

    @property
    def digest(self) -> bytes:
        run, index = self
        return run.digests[index]

    @property
    def tokens(self) -> bytes:
        run, index = self
        size = len(run.tokens) // len(run.digests)
        return run.tokens[index * size : (index + 1) * size]

    @property
    def last_use_ns(self) -> int:
        run, index = self
        return run.last_use_ns[index]

    @property
    def state_row(self) -> int:
        run, index = self
        return run.state_rows[index]

    @state_row.setter
    def state_row(self, row: int) -> None:
        run, index = self
        run.state_rows[index] = row

    @property
    def previous(self) -> CachedPage | None:
        """Return the entry of the page before it, None for the first page of a sequence."""
        run, index = self
        return CachedPage((run, index - 1)) if index else run.parent

    def find_page(self, group: int) -> int:
        """Return its page in a group, or GONE."""
        run, index = self
        return run.pages[group][index]

    def is_successor(self, parent: CachedPage | None) -> bool:
        """Return whether this is the next page after `parent` (None: the first page of a sequence)."""
        return parent == self.previous

    def has_expired(self, now_ns: int) -> bool:
        run, index = self
        return run.ttl_ns is not None and run.last_use_ns[index] + run.ttl_ns <= now_ns


@dataclass(frozen=True, slots=True)
class Match:
    """The longest usable prefix. `met`: the number of pages with matching tokens; those beyond `entries` have no
    saved state, which other requests will need as well.
    """

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

    lookups: int = 0
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
    _entries: dict[bytes, CachedRun] = field(default_factory=dict)  # by digest of each of its pages
    _of_page: list[dict[int, bytes]] = field(init=False)  # digests, by group

    def __post_init__(self) -> None:
        self._of_page = [{} for _ in self.windows]

    def __len__(self) -> int:
        return len(self._entries)

    def find_needed(self, group: int, pages: int) -> range:
        """Return which of the first `pages` pages a group still reads from the next token on."""
        window = self.windows[group]
        if not window:
            return range(pages)
        return range(max(0, pages * self.page_tokens - window + 1) // self.page_tokens, pages)

    def match(self, digests: bytes, tokens: np.ndarray, *, now_ns: int = 0) -> Match:
        """Match at most as many pages as leave one token to compute, whose logits are needed."""
        if digests[:DIGEST_BYTES] not in self._entries:
            return Match()
        raw = np.ascontiguousarray(tokens, TOKEN).tobytes()
        size = TOKEN.itemsize * self.page_tokens
        pages: list[CachedPage] = []
        for index in range(max(0, len(tokens) - 1) // self.page_tokens):
            parent = pages[-1] if pages else None
            entry = self._find(digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES], parent)
            if (
                entry is None
                or not entry.is_successor(parent)
                or entry.tokens != raw[index * size : (index + 1) * size]
            ):
                break
            if entry.has_expired(now_ns):
                self.drop(entry)
                break
            pages.append(entry)
        count = next((n for n in range(len(pages), 0, -1) if self._is_usable(pages, n)), 0)
        for run, index in pages[:count]:
            run.last_use_ns[index] = now_ns
        return Match(tuple(pages[:count]), len(pages))

    def _find(self, digest: bytes, parent: CachedPage | None) -> CachedPage | None:
        """Return the entry of a digest. It usually follows `parent`, so that no search in its run is needed."""
        run = self._entries.get(digest)
        if run is None:
            return None
        index = parent[1] + 1 if parent is not None and parent[0] is run else 0
        result = index < len(run.digests) and run.digests[index] == digest
        return CachedPage((run, index if result else run.digests.index(digest)))

    def _is_usable(self, pages: list[CachedPage], count: int) -> bool:
        """Return whether every group has the pages that it will read from here on, and there is a state to
        continue from.
        """
        if self.recurrent and pages[count - 1].state_row == NO_ROW:
            return False
        groups = range(len(self.windows))
        return all(pages[at].find_page(group) != GONE for group in groups for at in self.find_needed(group, count))

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
        links = split_pages(digests, DIGEST_BYTES)
        if self._entries.keys().isdisjoint(links) and len({*links}) == len(links):
            return self._add(links, tokens, parent, pages, now_ns, ttl_ns)
        texts = split_pages(tokens, TOKEN.itemsize * self.page_tokens)
        for index, (digest, raw) in enumerate(zip(links, texts, strict=True)):
            known = self._find(digest, parent)
            if known is not None:
                if known.is_successor(parent) and known.tokens == raw:
                    parent = known
                    continue
                self.drop(known)  # its parent went, or another's tokens have its digest: nobody would find it
            parent = self._add((digest,), raw, parent, [ids[index : index + 1] for ids in pages], now_ns, ttl_ns)
        return parent

    def _add(
        self,
        links: Sequence[bytes],
        tokens: bytes,
        parent: CachedPage | None,
        pages: Sequence[Sequence[int]],
        now_ns: int,
        ttl_ns: int | None,
    ) -> CachedPage | None:
        """Add entries for consecutive pages, none of which is cached."""
        count = len(links)
        run = CachedRun(links, tokens, parent, list(map(list, pages)), [now_ns] * count, ttl_ns, [NO_ROW] * count)
        self._entries.update(dict.fromkeys(links, run))
        for group, (of_page, taken) in enumerate(zip(self._of_page, pages, strict=True)):
            of_page.update(zip(taken, links, strict=True))
            self.cache(group, taken)
        return CachedPage((run, count - 1)) if count else parent

    def holds(self, entry: CachedPage) -> bool:
        """Return whether the entry can be found."""
        return self._entries.get(entry.digest) is entry[0]

    def handle_taken_pages(self, group: int, pages: list[int]) -> None:
        """Handle reallocated pages of a group. An entry without its page of the full-attention group is
        removed."""
        self.counts.evicted += len(pages)
        digests, entries = map(self._of_page[group].pop, pages), self._entries
        if len(self.windows) == 1 and not self.recurrent:
            for digest in digests:
                del entries[digest]
            return
        windowed = self.windows[group]
        for digest in digests:
            run, index = entry = self._make_entry(digest)
            run.pages[group][index] = GONE
            if not windowed or all(ids[index] == GONE for ids in run.pages):
                self.drop(entry)

    def drop(self, entry: CachedPage) -> None:
        """Remove an entry, even if its pages are in use."""
        if self.holds(entry):
            del self._entries[entry.digest]
        run, index = entry
        for group, ids in enumerate(run.pages):
            page, ids[index] = ids[index], GONE
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
        return self._make_entry(self._of_page[group][page])

    def _make_entry(self, digest: bytes) -> CachedPage:
        run = self._entries[digest]
        return CachedPage((run, run.digests.index(digest)))

    def clear(self) -> None:
        """Remove all entries, because device memory was lost."""
        for entry in list(self.entries()):
            self.drop(entry)

    def list_heads(self) -> list[CachedPage]:
        """Return the first pages of all chains; may be called from any thread."""
        entries = [CachedPage((run, 0)) for run in list(self._entries.values()) if run.parent is None]
        return [entry for entry in dict.fromkeys(entries) if self.holds(entry)]

    def entries(self) -> Iterator[CachedPage]:
        return map(self._make_entry, self._entries)
