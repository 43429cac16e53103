from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.mem.suballocator import OutOfMemory, Suballocator


def test_the_first_free_range_that_fits_is_taken():
    heap = Suballocator(1024, alignment=64)
    a, b, c = heap.alloc(100), heap.alloc(64), heap.alloc(1)
    assert (a, b, c) == (0, 128, 192)
    assert (heap.payload_bytes, heap.used_bytes, heap.free_bytes) == (165, 256, 768)
    heap.free(a)
    assert heap.alloc(65) == 0
    assert heap.alloc(64) == 256


def test_free_neighbours_become_one():
    heap = Suballocator(192, alignment=64)
    a, b, c = (heap.alloc(64) for _ in range(3))
    heap.free(a)
    heap.free(c)
    assert heap.largest_free_bytes == 64
    heap.free(b)
    assert heap.alloc(192) == 0


def test_a_full_range_says_what_is_left():
    heap = Suballocator(256, alignment=64, name="vram")
    a = heap.alloc(64)
    heap.alloc(64)
    heap.free(a)
    with pytest.raises(
        OutOfMemory, match="vram: wanted 256 bytes, 192 of 256 are free and the largest piece is 128"
    ):
        heap.alloc(200)


def test_freeing_twice_is_an_error():
    heap = Suballocator(256)
    offset = heap.alloc(1)
    heap.free(offset)
    with pytest.raises(ValueError, match="freed twice"):
        heap.free(offset)
    with pytest.raises(ValueError, match="freed twice, or never"):
        heap.free(7)


@pytest.mark.parametrize("alignment", [0, 3, -4])
def test_an_alignment_is_a_power_of_two(alignment):
    with pytest.raises(ValueError, match="power of two"):
        Suballocator(256, alignment=alignment)


def test_a_range_smaller_than_its_alignment_holds_nothing():
    with pytest.raises(OutOfMemory):
        Suballocator(100, alignment=256).alloc(1)
    with pytest.raises(ValueError, match="cannot allocate 0"):
        Suballocator(256).alloc(0)


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=60),
    size_bytes=st.integers(0, 2000),
    alignment=st.sampled_from([1, 16, 64]),
)
def test_any_order_of_allocating_and_freeing_accounts_for_every_byte(steps, size_bytes, alignment):
    heap = Suballocator(size_bytes, alignment=alignment)
    usable = size_bytes // alignment * alignment
    owner = bytearray(size_bytes)
    live: dict[int, int] = {}
    for allocate, number in steps:
        if allocate:
            try:
                offset = heap.alloc(number)
            except OutOfMemory:
                rounded = -(-number // alignment) * alignment
                assert heap.largest_free_bytes < rounded
                continue
            assert offset % alignment == 0 and offset + number <= size_bytes
            assert not any(owner[offset : offset + number])
            owner[offset : offset + number] = b"\1" * number
            live[offset] = number
        elif live:
            offset = sorted(live)[number % len(live)]
            freed = live.pop(offset)
            owner[offset : offset + freed] = bytes(freed)
            heap.free(offset)
        assert heap.payload_bytes == sum(owner) == sum(live.values())
        assert heap.used_bytes + heap.free_bytes == usable
    for offset in live:
        heap.free(offset)
    assert heap.largest_free_bytes == heap.free_bytes == usable
