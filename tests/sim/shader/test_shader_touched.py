"""The memory touched by a launch, as the hazard tracker gets it: exact for a few buffers, never too little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shader_launch import INITIATOR, RSRC1, STORE_IDS, open_machine, open_stage, parse_dwords, split_va

from zinc_rt.isa.target import make_default_target
from zinc_rt.pm4.packets import DispatchDirect, SetShReg
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.shader.launch_setup import FLOAT_MODE, LaunchSetup
from zinc_rt.sim.shader.layout import KEPT, Checks
from zinc_rt.sim.shader.memory.ranges import PlacedArray, of_arrays
from zinc_rt.sim.shader.run.engine_device import kernels
from zinc_rt.sim.shader.run.group_runner import Stop
from zinc_rt.sim.shader.run.kernels import choose_variant
from zinc_rt.sim.shader.run.launch_run import LaunchRun, WaveThreads

GATHER = parse_dwords("""
    84048775                    ; s_lshl_b32 s4, ttmp9, 7
    30020082                    ; v_lshlrev_b32_e32 v1, 2, v0
    4a020204                    ; v_add_nc_u32_e32 v1, s4, v1
    ee050000 00000002 00000001  ; global_load_b32 v2, v1, s[0:1]
    bfc00000                    ; s_wait_loadcnt 0x0
    ee050002 00000003 00000002  ; global_load_b32 v3, v2, s[2:3]
    bfc00000                    ; s_wait_loadcnt 0x0
    bfb00000                    ; s_endpgm
""")
"""Lane i of group g loads the dword of s[2:3] at the byte offset in s[0:1], element 32 g + i."""
OFFSETS_VA, DATA_VA = 1 << 32, 2 << 32
DATA_BYTES = 1 << 16
LANES = np.arange(32, dtype=np.uint32)


def find_reads(offsets: np.ndarray, level: str) -> list[tuple[int, int]]:
    """Run GATHER with offsets [groups, 32]. Return the touched (first byte, byte after the last) of the data."""
    data = np.zeros(DATA_BYTES, np.uint8)
    offsets = np.ascontiguousarray(offsets, np.uint32)
    arrays = [PlacedArray(OFFSETS_VA, offsets, "offsets"), PlacedArray(DATA_VA, data, "data")]
    table = of_arrays(arrays, bounds=level != "off", races=level == "full")
    user_data = (*split_va(OFFSETS_VA), *split_va(DATA_VA))
    launch = LaunchSetup((len(offsets), 1, 1), (32, 1, 1), (32, 1, 1), 32, user_data, vgprs=8)
    kernel = kernels().of(choose_variant(launch, make_default_target(), GATHER, Checks(level)))
    run = LaunchRun(kernel, launch, WaveThreads(1), mode=FLOAT_MODE)
    run.begin(table, 0x5_0000_0000, 1)
    while (stop := run.advance(1.0)) is Stop.FUEL:
        pass
    assert stop is Stop.DONE and not run.findings()[1]
    reads = run.accesses().reads
    assert (OFFSETS_VA, offsets.nbytes) in reads
    return [(va - DATA_VA, va - DATA_VA + size) for va, size in reads if va >= DATA_VA]


def streams(*starts: int, turns: int = 6) -> np.ndarray:
    """Offsets of groups that read several contiguous buffers in turns, 128 bytes each time."""
    return np.concatenate([[start + 128 * turn + 4 * LANES for start in starts] for turn in range(turns)])


EXACT = {
    "ascending": (streams(0), [(0, 768)]),
    "descending": (streams(0)[::-1], [(0, 768)]),
    "two in turns": (streams(0, 1024), [(0, 768), (1024, 1792)]),
    "two halves of a wave": (np.where(LANES < 16, 4 * LANES, 640 + 4 * LANES)[None], [(0, 64), (704, 768)]),
    "two that meet": (np.concatenate([streams(0, 1024), streams(768, turns=2)]), [(0, 1792)]),
    "as many as are kept": (
        streams(*range(0, 2048 * (KEPT + 1), 2048)),
        [(start, start + 768) for start in range(0, 2048 * (KEPT + 1), 2048)],
    ),
}


@pytest.mark.parametrize("level", ["off", "fast", "full"])
@pytest.mark.parametrize("case", EXACT)
def test_few_buffers_are_recorded_exactly(case: str, level: str) -> None:
    offsets, expected = EXACT[case]
    assert find_reads(offsets, level) == expected


@pytest.mark.parametrize("seed", range(12))
def test_scattered_reads_are_all_recorded_in_few_intervals(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups, step = int(random.integers(1, 60)), int(random.choice([4, 8, 64, 132, 512, 2048]))
    kinds = {
        0: lambda: random.integers(0, DATA_BYTES // 4, (groups, 32)) * 4,
        1: lambda: (random.integers(0, 32, (groups, 1)) * 2048 + 4 * LANES) % DATA_BYTES,
        2: lambda: (random.integers(0, 64, (groups, 1)) * 4 + step * LANES) % DATA_BYTES,
    }
    offsets = kinds[seed % 3]()
    intervals = find_reads(offsets, ("off", "fast", "full")[seed // 3 % 3])
    covered = np.zeros(DATA_BYTES, bool)
    for start, end in intervals:
        covered[start:end] = True
    read = (offsets.reshape(-1, 1) + np.arange(4)).reshape(-1)
    assert covered[read].all()
    assert (intervals[0][0], intervals[-1][1]) == (read.min(), read.max() + 1)
    assert len(intervals) <= KEPT + 2


@pytest.mark.parametrize(("third", "expected"), [(256, []), (128, ["missing-barrier"])])
def test_store_between_two_read_buffers_is_a_hazard_only_if_it_is_read(third: int, expected: list[str]) -> None:
    """The first dispatch stores to bytes 128 to 255. The second, without a barrier, reads 128 bytes each at 0, at
    256 and at `third`.
    """
    with open_machine() as machine, open_stage(machine) as s:
        out, _ = s.buffer()
        table, offsets = s.buffer(name="offsets")
        offsets[:96] = np.concatenate([start + 4 * LANES for start in (0, 256, third)])
        first, second = s.load(STORE_IDS), s.load(GATHER)

        def dispatch(program_va: int, user_data: tuple[int, ...], groups: int) -> list[Any]:
            return [
                SetShReg(Sh.PGM_LO, (program_va >> 8 & 0xFFFFFFFF, program_va >> 40)),
                SetShReg(Sh.PGM_RSRC1, (RSRC1, len(user_data) << 1)),
                SetShReg(Sh.USER_DATA_0, user_data),
                SetShReg(Sh.START_X, (0, 0, 0, 32, 1, 1)),
                DispatchDirect(groups, 1, 1, INITIATOR),
            ]

        s.submit(
            *dispatch(first, split_va(out + 128), 1),
            *dispatch(second, (*split_va(table), *split_va(out)), 3),
        )
        s.run(s.load(STORE_IDS), split_va(out + 2048))
        assert s.rules() == expected
