"""The chained cache finds what a plain radix tree over tokens would, page by page, in chats of several turns."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.pages import PageQuota, Pool
from zinc_rt.sched.kv.prefix import digest_chain, make_namespace

PAGE = 4
SPACE = make_namespace("model", "canonical-1", "f32", PAGE, secret=b"s" * 32)


class RadixTree:
    """A tree of tokens with every prefix of every computed sequence."""

    def __init__(self) -> None:
        self.root: dict[int, dict] = {}

    def insert(self, tokens: list[int]) -> None:
        node = self.root
        for token in tokens:
            node = node.setdefault(token, {})

    def longest_prefix(self, tokens: list[int]) -> int:
        node, length = self.root, 0
        for token in tokens:
            if token not in node:
                break
            node, length = node[token], length + 1
        return length


TURNS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), TURNS), min_size=1, max_size=5))
def test_chat_prefix_hits_match_a_radix_tree(chats: list[tuple[int, list[list[int]]]]) -> None:
    """System prompts of three kinds, then turns; nothing is evicted."""
    cache, radix = KvCache((PageGroup("full", 4096),), PAGE, 64), RadixTree()
    cache.set_quotas(0, [PageQuota()])
    for kind, turns in chats:
        history = [50 + kind] * (3 + 4 * kind)
        for turn in turns:
            history = [*history, *turn]
            tokens = np.array(history, np.int32)
            digests = digest_chain(tokens, PAGE, SPACE)
            match = cache.prefix.match(digests, tokens)
            assert match.pages == min(radix.longest_prefix(history), len(history) - 1) // PAGE
            holding = cache.admit(0, SPACE, tokens, digests, match)
            assert holding is not None and cache.cover(holding, len(tokens))
            cache.record_computed(holding, tokens, len(history))
            cache.release(holding)
            radix.insert(history[: len(history) // PAGE * PAGE])


def test_digest_collision_is_not_a_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where all pages have one digest, which nobody can construct."""
    cache = KvCache((PageGroup("full", 64),), PAGE, 64)
    cache.set_quotas(0, [PageQuota()])
    first, other = np.arange(9, dtype=np.int32), np.arange(9, dtype=np.int32) + 1
    same = bytes(64)
    holding = cache.admit(0, SPACE, first, same, cache.prefix.match(same, first))
    assert holding is not None and cache.cover(holding, 9)
    cache.record_computed(holding, first, 9)
    cache.release(holding)
    assert cache.prefix.match(same, other).pages == 0


def test_namespaces_and_salts_share_no_pages() -> None:
    tokens = np.arange(8, dtype=np.int32)
    one = make_namespace("m", "canonical-1", "f32", PAGE, secret=b"x" * 32)
    spaces = [
        one,
        make_namespace("m", "canonical-1", "f32", PAGE, secret=b"y" * 32),
        make_namespace("m", "canonical-1", "f32", PAGE, secret=b"x" * 32, salt="mine"),
        make_namespace("m2", "canonical-1", "f32", PAGE, secret=b"x" * 32),
        make_namespace("m", "canonical-1", "f16", PAGE, secret=b"x" * 32),
        make_namespace("m", "canonical-1", "f32", 2 * PAGE, secret=b"x" * 32),
        make_namespace("m", "canonical-1", "f32", PAGE),
        make_namespace("m", "canonical-1", "f32", PAGE),
    ]
    assert len({digest_chain(tokens, PAGE, space)[:32] for space in spaces}) == len(spaces)
    assert digest_chain(tokens, PAGE, one) == digest_chain(
        tokens, PAGE, make_namespace("m", "canonical-1", "f32", PAGE, secret=b"x" * 32)
    )


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40), st.integers(0, 5))
def test_hash_chain_can_continue_from_any_page(tokens: list[int], pages: int) -> None:
    whole = digest_chain(np.array(tokens, np.int32), PAGE, SPACE)
    cut = min(pages, len(tokens) // PAGE)
    rest = digest_chain(
        np.array(tokens[cut * PAGE :], np.int32), PAGE, SPACE, after=whole[32 * (cut - 1) : 32 * cut]
    )
    assert whole[32 * cut :] == rest


def test_window_page_that_another_sequence_uses_is_not_promised_again() -> None:
    """The tenant's quota is exhausted by two prompts that begin alike; the first moves on."""
    cache = KvCache((PageGroup("full", 64), PageGroup("window", 64, window=9)), PAGE, 8)
    cache.set_quotas(0, [PageQuota(), PageQuota(most=10)])
    tokens = np.arange(28, dtype=np.int32)
    digests = digest_chain(tokens, PAGE, SPACE)
    first = cache.admit(0, SPACE, tokens, digests, cache.prefix.match(digests, tokens))
    assert first is not None and cache.cover(first, 8)
    cache.record_computed(first, tokens, 8)
    second = cache.admit(0, SPACE, tokens, digests, cache.prefix.match(digests, tokens))
    assert second is not None and second.cached == 8 and cache.pools[1].count_charge(0) == 10
    assert cache.cover(first, 16)
    cache.record_computed(first, tokens, 16)
    assert cache.pools[1].count_charge(0) == 10, "its two released pages are the second's"
    for holding, ends in ((first, (24, 28)), (second, (16, 24, 28))):
        for end in ends:
            assert cache.cover(holding, end)
            cache.record_computed(holding, tokens, end)
        cache.release(holding)
    assert [pool.count_charge(0) for pool in cache.pools] == [0, 0]


def test_idle_ids_are_taken_in_least_recently_used_order() -> None:
    """Against a list of the idle ids; shared and uncached ids leave it from anywhere."""
    choice, taken = random.Random(3), list[int]()
    pool = Pool(20, taken_from_cache=taken.extend)
    idle: list[int] = []
    used: dict[int, None] = {}
    for _ in range(5000):
        what = choice.random()
        if what < 0.4 and used:
            id = choice.choice(list(used))
            if not pool.cached[id]:
                pool.cache([id])
            pool.release(id)
            del used[id]
            idle.append(id)
        elif what < 0.7 and idle:
            id = idle.pop(choice.randrange(len(idle)))
            pool.share(id)
            used[id] = None
        elif what < 0.75 and idle:
            pool.mark_uncached(idle.pop(choice.randrange(len(idle))))
        elif not pool.free + pool.idle:
            assert pool.take() is None
        else:
            count = choice.randint(1, min(4, pool.free + pool.idle))
            expected = idle[: max(0, count - pool.free)]
            used |= dict.fromkeys(pool.take_many(count))
            assert taken == expected
            del idle[: len(taken)], taken[:]
        assert list(pool.list_idle_ids()) == idle and pool.idle == len(idle) and not list(pool.find_problems())
