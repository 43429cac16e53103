"""The tables that compiled waves look addresses up in, and what is known about initialised bytes."""

from __future__ import annotations

import numpy as np
import pytest
from sim.device import GTT, PAGE, VRAM, VRAM_PUBLIC, open_client

from zinc_rt.sim.interfaces import AccessKind
from zinc_rt.sim.memory.initialised_bytes import InitialisedBytes
from zinc_rt.sim.shader.memory.ranges import PlacedArray, RangeCache, RangeFlag, RangeTable, of_arrays, of_vm


def list_intervals(table: RangeTable) -> list[tuple[int, int, str]]:
    return [(piece.va, piece.end, piece.name) for piece in table.pieces]


# --- bytes somebody wrote


def test_exactly_the_marked_bytes_are_initialised() -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        written, known = InitialisedBytes(96), np.zeros(96, bool)
        for _ in range(random.integers(1, 5)):
            start = int(random.integers(0, 96))
            size = int(random.integers(0, 97 - start))
            written.mark(start, size)
            known[start : start + size] = True
        bits = np.unpackbits(written.dwords[:, None], axis=1, bitorder="little")[:, :4].reshape(-1)
        assert np.array_equal(bits.astype(bool), known)
        start = int(random.integers(0, 96))
        size = int(random.integers(0, 97 - start))
        assert written.is_all_written(start, size) == bool(known[start : start + size].all())


def test_gpu_writes_and_host_mapped_memory_count_as_initialised() -> None:
    with open_client() as c:
        buffer = c.alloc(2 * PAGE, VRAM)
        bo = c.gpu_vm.find_span(buffer["va_addr"]).bo
        assert not bo.written.is_all_written(0, 4)
        c.gpu_vm.write(buffer["va_addr"] + 6, b"abc")
        assert bo.written.is_all_written(6, 3) and not bo.written.is_all_written(5, 3)
        c.gpu_vm.view(buffer["va_addr"] + PAGE, PAGE, AccessKind.WRITE)
        assert bo.written.is_all_written(PAGE, PAGE) and not bo.written.is_all_written(0, 2 * PAGE)
        visible = c.alloc(PAGE, GTT)
        bo = c.gpu_vm.find_span(visible["va_addr"]).bo
        assert bo.written is not None
        c.driver.munmap(c.host(visible))
        assert bo.written is None  # it may have written anything


def test_withdrawn_suballocation_becomes_uninitialised() -> None:
    """But for what another one still holds."""
    with open_client() as c:
        buffer = c.alloc(2 * PAGE, VRAM)
        va, vm = buffer["va_addr"], c.gpu_vm
        written = vm.find_span(va).bo.written
        vm.write(va, bytes(2 * PAGE))
        vm.announce(va + 64, 256, "first")
        vm.announce(va + 128, 64, "inside")
        vm.announce(va + 300, 100, "overlaps")
        assert written.is_all_written(0, 2 * PAGE)
        vm.announce(va + 64, 0, "first")
        known = [index for index in range(0, 512, 4) if written.is_all_written(index, 4)]
        assert known == [*range(0, 64, 4), *range(128, 192, 4), *range(300, 512, 4)]
        vm.announce(va + 128, 0, "inside")
        assert not written.is_all_written(128, 4) and written.is_all_written(300, 4)
        vm.announce(va + 300, 0, "nothing of that name, but it starts there")
        assert not written.is_all_written(396, 4) and written.is_all_written(400, 4)


# --- which ranges there are


def test_allocation_is_one_range_until_a_suballocation_is_announced() -> None:
    with open_client() as c:
        one, other = c.alloc(PAGE, VRAM), c.alloc(4 * PAGE, VRAM)
        va, va2 = one["va_addr"], other["va_addr"]
        spans = sorted((span.start, span.end) for span in c.gpu_vm.spans)
        assert [piece[:2] for piece in list_intervals(of_vm(c.gpu_vm, bounds=True))] == spans
        c.gpu_vm.announce(va2 + 64, 100, "small")
        c.gpu_vm.announce(va2 + PAGE, 2 * PAGE, "large")
        c.gpu_vm.announce(va2 + PAGE + 8, 16, "inside the large one")
        c.gpu_vm.announce(va2 + 2 * PAGE, 2 * PAGE, "overlaps it")
        pieces = [piece for piece in list_intervals(of_vm(c.gpu_vm, bounds=True)) if piece[0] >= va2]
        assert pieces[:3] == [
            (va2 + 64, va2 + 164, "small"),
            (va2 + PAGE, va2 + 3 * PAGE, "large"),
            (va2 + 2 * PAGE, va2 + 4 * PAGE, "overlaps it"),
        ]
        assert (va, va + PAGE) in [piece[:2] for piece in list_intervals(of_vm(c.gpu_vm, bounds=True))]
        assert [piece[:2] for piece in list_intervals(of_vm(c.gpu_vm, bounds=False))] == spans
        assert "36 bytes past the end of small" in c.gpu_vm.describe(va2 + 200)
        assert "4 bytes before large" in c.gpu_vm.describe(va2 + PAGE - 4)


def test_announcement_across_allocations_is_split_at_their_boundary() -> None:
    first, second = np.zeros(1024, np.uint32), np.zeros(1024, np.uint32)
    placed = [PlacedArray(0x10000, first, "first"), PlacedArray(0x11000, second, "second")]
    table = of_arrays(placed, bounds=True, announced=[(0x10800, 0x11800, "both")])
    assert list_intervals(table) == [(0x10800, 0x11000, "both"), (0x11000, 0x11800, "both")]
    assert [int(delta) for delta in table.ranges["delta"]] == [
        array.ctypes.data - va for array, va in ((first, 0x10000), (second, 0x11000))
    ]


def test_rest_of_last_array_page_is_mapped_but_out_of_bounds() -> None:
    table = of_arrays([PlacedArray(0x10000, np.zeros(10, np.uint8), "ten")], bounds=True)
    assert [(int(span["va_lo"]), int(span["va_hi"])) for span in table.spans] == [
        (0x10000, 0x1000A),
        (0x1000A, 0x11000),
    ]
    assert table.spans["flags"][1] & RangeFlag.BEYOND
    assert list_intervals(table) == [(0x10000, 0x1000A, "ten")]


def test_table_is_rebuilt_only_when_needed() -> None:
    with open_client() as c:
        cache = RangeCache(c.gpu_vm, bounds=True)
        buffer = c.alloc(PAGE, VRAM_PUBLIC)
        table = cache.table()
        assert cache.table() is table
        c.gpu_vm.write(buffer["va_addr"], bytes(PAGE))
        assert cache.table() is table
        changes = {
            "announced": lambda: c.gpu_vm.announce(buffer["va_addr"], 64, "part"),
            "mapped by the host": lambda: c.host(buffer),
            "another buffer": lambda: c.alloc(PAGE, GTT),
            "taken back": lambda: c.gpu_vm.announce(buffer["va_addr"], 0, "part"),
            "unmapped": lambda: c.unmap(buffer["handle"]),
        }
        kept = []
        for what, change in changes.items():
            kept.append(change())
            assert cache.table() is not table, what
            table = cache.table()
        assert buffer["va_addr"] not in [piece.va for piece in table.pieces]
        c.driver.munmap(kept[1])


def test_two_copies_of_vram_are_saved_page_by_page() -> None:
    with open_client() as c:
        buffer = c.alloc(4 * PAGE, VRAM_PUBLIC)
        host = c.host(buffer)
        va = buffer["va_addr"]
        bo = c.gpu_vm.find_span(va).bo
        table = of_vm(c.gpu_vm, bounds=True)
        [number] = [index for index, piece in enumerate(table.pieces) if piece.va == va]
        assert table.ranges["flags"][number] & RangeFlag.SAVED
        page = int(table.ranges["saved"][number]) + va // PAGE
        assert page % (1 << 64) == bo.saved.ctypes.data
        bo.save(PAGE + 100, PAGE)
        assert bo.saved.tolist() == [0, 1, 1, 0]
        c.gpu_vm.write_back()
        assert not bo.saved.any()
        c.driver.munmap(host)


# --- clean ranges


@pytest.mark.parametrize("size", [64, 3 << 20])
def test_range_is_clean_once_fully_written(size: int) -> None:
    written = InitialisedBytes(size)
    table = of_arrays([PlacedArray(0x10000, np.zeros(size, np.uint8), "a", written=written)], bounds=True)

    def is_clean() -> bool:
        return bool(table.ranges["flags"][0] & RangeFlag.CLEAN)

    written.dwords[: size // 8] = 15  # as waves do
    table.refresh([(0x10000, size // 2)])
    assert not is_clean()
    written.dwords[:] = 15
    table.refresh([(0x90000000, 4)])
    assert not is_clean()  # nobody looked
    table.refresh([(0x10000 + size // 2, size // 2)])
    assert is_clean()


def test_upload_makes_ranges_clean() -> None:
    written = InitialisedBytes(8 << 20)
    array = np.zeros(8 << 20, np.uint8)
    table = of_arrays([PlacedArray(0x10000, array, "weights", written=written)], bounds=True)
    table.refresh(())
    assert not table.ranges["flags"][0] & RangeFlag.CLEAN
    written.mark(0, 8 << 20)
    table.refresh(())
    assert table.ranges["flags"][0] & RangeFlag.CLEAN
