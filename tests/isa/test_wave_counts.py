"""Executed instructions of a wave, counted by hand for short programs."""

from __future__ import annotations

import struct

import pytest

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.isa.target import target_of
from zinc_rt.isa.wave_counts import ARGUMENTS_AT, WaveCounter, WaveCounts
from zinc_rt.kernels.sets import BinaryKernelSet, find_kernel_set

TARGET = target_of("gfx1201")
S_LOAD_B32_S4 = (0xF4000100, 0xF8000000)  # s_load_b32 s4, s[0:1], 0x0
S_ENDPGM = (0xBFB00000,)


def pack_words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def make_memory(*arguments: int):  # type: ignore[no-untyped-def]
    def read_dword(address: int) -> int:
        index = (address - ARGUMENTS_AT) // 4
        return arguments[index] if 0 <= index < len(arguments) else 0

    return read_dword


LOOP = pack_words(
    *S_LOAD_B32_S4,
    0xBFC70000,  # s_wait_kmcnt 0x0
    0x06020501,  # v_add_f32 v1, v1, v2
    0x81848104,  # s_sub_co_i32 s4, s4, 1
    0xBF078004,  # s_cmp_lg_u32 s4, 0
    0xBFA2FFFC,  # s_cbranch_scc1 to v_add_f32
    *S_ENDPGM,
)


@pytest.mark.parametrize("count", [1, 2, 100])
def test_loop_count_follows_its_argument(count: int) -> None:
    counts = WaveCounter(LOOP, TARGET).count((0, 0, 0), 0, make_memory(count))
    assert counts.instructions == 3 + 4 * count
    assert counts.units["valu"] == count and counts.vector_flops == 32 * count
    assert counts.load_bytes == 4 and counts.unknown == 0


def test_endless_loop_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="more than"):
        WaveCounter(pack_words(0xBFA0FFFF, *S_ENDPGM), TARGET).count((0, 0, 0), 0, make_memory())


def count_kernel_waves(name: str, group: tuple[int, int, int], *dwords: int) -> WaveCounts:
    rows = find_kernel_set("gfx1201")
    assert isinstance(rows, BinaryKernelSet)
    zrt = rows.load(name)
    return WaveCounter(zrt.code, TARGET, zrt.entry_offset).count(group, 0, make_memory(*dwords))


def test_copy_loop_depends_on_lanes() -> None:
    """slice: 40 elements are 32 and 8: two loads and two stores of a wave, and a third compare that ends it."""
    arguments = (0, 1, 0, 2, 64, 0, 40, 64, 40)  # x, y, group, offset, size, columns of x and y
    counts = count_kernel_waves("slice", (0, 0, 0), *arguments)
    assert counts.units["load"] == counts.units["store"] == 2
    assert counts.store_bytes == 2 * 32 * 4


def test_workgroup_outside_the_rows_ends_at_once() -> None:
    inside, outside = (count_kernel_waves("slice", (0, 0, z), 0, 1, 0, 2, 64, 0, 40, 64, 40) for z in (0, 1))
    assert outside.units["load"] == 0 and outside.instructions < inside.instructions
