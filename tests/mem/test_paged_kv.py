from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.mem.paged_kv import UNSET, OutOfPages, PagedKV


def test_pages_come_as_tokens_need_them_and_keep_their_ids():
    kv = PagedKV(8, slots=2, pages_per_slot=4, page_tokens=16)
    assert kv.table.dtype == np.int32 and (kv.table == UNSET).all()
    kv.ensure(0, 16)
    kv.ensure(1, 1)
    kv.ensure(0, 17)
    kv.ensure(0, 3)  # never shrinks
    assert kv.table.tolist() == [[0, 2, -1, -1], [1, -1, -1, -1]]
    assert kv.rows(0, np.array([0, 15, 16, 31])).tolist() == [0, 15, 32, 47]
    assert (kv.tokens(0), kv.free_pages) == (32, 5)


def test_release_makes_the_lowest_pages_free_again():
    kv = PagedKV(3, slots=2, pages_per_slot=3)
    kv.ensure(0, 32)
    kv.ensure(1, 16)
    kv.release(0)
    kv.release(0)
    kv.ensure(1, 48)
    assert kv.table.tolist() == [[-1, -1, -1], [2, 0, 1]]


def test_the_highest_page_can_go_first():
    kv = PagedKV(8, slots=2, pages_per_slot=4, highest_first=True)
    kv.ensure(0, 33)
    kv.ensure(1, 1)
    assert kv.table[0, :3].tolist() == [7, 6, 5] and kv.table[1, 0] == 4
    kv.release(0)
    kv.ensure(1, 17)
    assert kv.table[1, :2].tolist() == [4, 7]


def test_a_short_pool_gives_nothing_rather_than_a_part():
    kv = PagedKV(3, slots=2, pages_per_slot=3)
    kv.ensure(0, 32)
    with pytest.raises(OutOfPages, match="slot 1: 17 tokens need 2 more pages, 1 of 3 are free"):
        kv.ensure(1, 17)
    assert kv.free_pages == 1 and (kv.table[1] == UNSET).all()
    with pytest.raises(OutOfPages, match="49 tokens need 4 pages, a slot has at most 3"):
        kv.ensure(0, 49)


def test_a_shared_prefix_lives_as_long_as_its_last_user():
    kv = PagedKV(4, slots=2, pages_per_slot=4, page_tokens=4)
    kv.ensure(0, 10)
    assert kv.share(0, 1, 10) == 8  # whole pages only
    kv.ensure(1, 9)
    assert kv.table[1].tolist() == [0, 1, 3, -1]
    assert [kv.users(page) for page in range(4)] == [2, 2, 1, 1]
    kv.release(0)
    assert kv.free_pages == 1
    assert kv.rows(1, np.array([0, 7, 8])).tolist() == [0, 7, 12]
    kv.release(1)
    assert kv.free_pages == 4


def test_sharing_into_a_slot_in_use_or_beyond_the_source_is_refused():
    kv = PagedKV(4, slots=2, pages_per_slot=4, page_tokens=4)
    kv.ensure(0, 4)
    with pytest.raises(ValueError, match="room for 4 tokens, not 8"):
        kv.share(0, 1, 8)
    kv.ensure(1, 4)
    with pytest.raises(ValueError, match="slot 1 holds 1 pages"):
        kv.share(0, 1, 4)


def test_a_position_without_a_page_or_a_slot_that_is_none_is_refused():
    kv = PagedKV(4, slots=2, pages_per_slot=4)
    kv.ensure(0, 1)
    for position in (-1, 16):
        with pytest.raises(ValueError, match=r"slot 0: positions .* outside 0..15"):
            kv.rows(0, np.array([0, position]))
    for slot in (-1, 2):
        with pytest.raises(ValueError, match="no slot"):
            kv.ensure(slot, 1)
    with pytest.raises(ValueError, match="page_tokens is at least 1"):
        PagedKV(4, slots=1, pages_per_slot=4, page_tokens=0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["ensure", "release", "share", "forget"]), st.integers(0, 2), st.integers(0, 40))
    )
)
def test_no_page_belongs_to_two_slots_unless_shared(steps):
    kv = PagedKV(9, slots=3, pages_per_slot=6, page_tokens=4)
    for verb, slot, tokens in steps:
        try:
            if verb == "ensure":
                kv.ensure(slot, tokens)
            elif verb == "release":
                kv.release(slot)
            elif verb == "forget":
                kv.forget(slot, tokens)
            else:
                kv.share(slot, tokens % 3, tokens // 3)
        except (OutOfPages, ValueError):
            pass
        held = kv.table[kv.table != UNSET]
        counts = np.bincount(held, minlength=9)
        assert counts.tolist() == [kv.users(page) for page in range(9)]
        assert kv.free_pages == int((counts == 0).sum())
        for row in kv.table:
            pages = row[row != UNSET]
            assert len(set(pages.tolist())) == len(pages)
            places = np.flatnonzero(row != UNSET)
            assert not len(places) or (np.diff(places) == 1).all()


def test_pages_that_were_forgotten_are_free_and_the_others_stay_where_they_are():
    kv = PagedKV(6, slots=2, pages_per_slot=6)
    kv.ensure(0, 70)
    kv.changes.clear()
    before = kv.table[0].copy()
    kv.forget(0, 31)
    assert kv.table[0].tolist() == [UNSET, *before[1:]] and kv.free_pages == 2
    kv.forget(0, 33)
    kv.forget(0, 20)  # no way back
    assert kv.table[0].tolist() == [UNSET, UNSET, *before[2:]] and kv.free_pages == 3
    assert not kv.changes and kv.tokens(0) == 80
    assert kv.rows(0, np.array([32])) == before[2] * 16
    with pytest.raises(ValueError, match=r"positions 31\.\.31 outside 32\.\.79"):
        kv.rows(0, np.array([31]))
    with pytest.raises(ValueError, match="slot 0 has forgotten its first 2 pages"):
        kv.share(0, 1, 48)
    kv.ensure(0, 96)
    assert kv.table[0, 5] == 0  # the lowest that is free
    kv.release(0)
    assert kv.free_pages == 6 and (kv.table == UNSET).all()
    kv.ensure(0, 1)
    assert kv.table[0, 0] == 0
