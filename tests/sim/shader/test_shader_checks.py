"""The sanitizer's memory rules: each planted fault is found, at its instruction, with its lanes and its place; and
what only looks like one is not."""

from __future__ import annotations

import numpy as np
import pytest
from memory_kernels import machine_code
from test_shader_memory import BEGIN, split_va

from zinc_rt.isa import decode_stream, target_of
from zinc_rt.sim.interfaces import AccessKind, Fault
from zinc_rt.sim.shader.checks.finding_text import WaveFinding
from zinc_rt.sim.shader.checks.watchpoints import LaneStore
from zinc_rt.sim.shader.run.engine_device import EngineDevice

ALL = 0xFFFFFFFF
WAVE_NUMBER = "s_bfe_u32 s16, ttmp8, 0x50019\n"
# Sums by compare-and-swap in memory and in LDS, begun with plain loads; v4 is what is compared.
GUESS = """
    v_mov_b32 v1, 0
    s_mov_b32 exec_lo, 1
    v_mov_b32 v4, 0
    v_mov_b32 v6, 0
    global_load_b32 v{0}, v1, s[0:1] offset:16
    s_wait_loadcnt 0x0
    .Lmemory:
    v_add_nc_u32 v3, 1, v4
    global_atomic_cmpswap_b32 v5, v1, v[3:4], s[0:1] offset:16 th:TH_ATOMIC_RETURN scope:SCOPE_DEV
    s_wait_loadcnt 0x0
    v_cmp_ne_u32 vcc_lo, v5, v4
    v_mov_b32 v4, v5
    s_cbranch_vccnz .Lmemory
    s_bfe_u32 s16, ttmp8, 0x50019
    s_cmp_lg_u32 s16, 0
    s_cbranch_scc1 .Lready
    ds_store_b32 v1, v1
    s_wait_dscnt 0x0
    .Lready:
    s_barrier_signal -1
    s_barrier_wait -1
    v_mov_b32 v4, 0
    ds_load_b32 v{0}, v1
    s_wait_dscnt 0x0
    .Llds:
    v_add_nc_u32 v3, 1, v4
    ds_cmpstore_rtn_b32 v5, v1, v3, v4
    s_wait_dscnt 0x0
    v_cmp_ne_u32 vcc_lo, v5, v4
    v_mov_b32 v4, v5
    s_cbranch_vccnz .Llds
    s_endpgm
"""
SCALAR_GUESS = """
    s_mov_b32 exec_lo, 1
    s_load_b32 s6, s[0:1], {0}
    v_mov_b32 v1, 0
    s_wait_kmcnt 0x0
    v_dual_mov_b32 v4, s6 :: v_dual_mov_b32 v7, 1
    .Lagain:
    v_add_nc_u32 v3, v7, v4
    global_atomic_cmpswap_b32 v5, v1, v[3:4], s[0:1] offset:16 th:TH_ATOMIC_RETURN scope:SCOPE_DEV
    s_wait_loadcnt 0x0
    v_cmp_ne_u32 vcc_lo, v5, v4
    v_mov_b32 v4, v5
    s_cbranch_vccnz .Lagain
    global_atomic_add_u32 v1, v7, s[0:1] offset:20 scope:SCOPE_DEV
    s_endpgm
"""
# As unoptimised code: the address with its offset and the loaded value are kept in scratch.
SPILLED_GUESS = """
    s_mov_b32 exec_lo, 1
    v_mov_b32 v2, s0
    v_mov_b32 v3, s1
    scratch_store_b64 off, v[2:3], off offset:8
    scratch_load_b64 v[2:3], off, off offset:8
    s_mov_b64 s[6:7], 16
    s_wait_loadcnt 0x0
    v_mov_b32 v8, v2
    v_add_co_u32 v8, s4, v8, s6
    v_add_co_ci_u32 v9, s5, v3, s7, s4
    scratch_store_b64 off, v[8:9], off offset:16
    global_load_b32 v0, v[2:3], off offset:16
    s_wait_loadcnt 0x0
    scratch_store_b32 off, v0, off offset:{0}
    scratch_store_b32 off, v2, off offset:{1}
    .Lagain:
    scratch_load_b32 v4, off, off offset:24
    scratch_load_b64 v[6:7], off, off offset:16
    s_wait_loadcnt 0x0
    v_add_nc_u32 v3, 1, v4
    global_atomic_cmpswap_b32 v5, v[6:7], v[3:4], off th:TH_ATOMIC_RETURN scope:SCOPE_DEV
    s_wait_loadcnt 0x0
    v_cmp_ne_u32 vcc_lo, v5, v4
    scratch_store_b32 off, v5, off offset:24
    s_cbranch_vccnz .Lagain
    s_endpgm
"""
KERNELS = {
    "load": BEGIN + "global_load_b32 v3, v2, s[2:3]\ns_endpgm",
    "load 16": BEGIN + "global_load_b128 v[4:7], v2, s[2:3]\ns_endpgm",
    "store": BEGIN + "global_store_b32 v2, v1, s[2:3]\ns_endpgm",
    "store 1": BEGIN + "global_store_b8 v2, v1, s[2:3]\ns_wait_storecnt 0x0\n"
    "global_load_b32 v3, v2, s[2:3]\ns_endpgm",
    "some lanes": BEGIN + "s_mov_b32 exec_lo, 0xff00\nglobal_load_b32 v3, v2, s[2:3]\ns_endpgm",
    "stream": BEGIN
    + """
    s_mov_b32 s4, 0
    .Lnext:
    global_load_b128 v[4:7], v2, s[2:3]
    v_add_nc_u32 v2, 0x200, v2
    s_addk_co_i32 s4, 0x1
    s_cmp_lt_u32 s4, 64
    s_cbranch_scc1 .Lnext
    s_endpgm
    """,
    "store, load": BEGIN + "global_store_b32 v2, v1, s[2:3]\ns_wait_storecnt 0x0\n"
    "global_load_b64 v[4:5], v2, s[2:3]\ns_endpgm",
    "scalar": "s_load_b64 s[4:5], s[2:3], 0x0\ns_endpgm",
    "scalar misaligned": "s_load_b32 s4, s[2:3], 0x2\ns_wait_kmcnt 0x0\nv_mov_b32 v1, s4\nv_mov_b32 v2, 0\n"
    "global_store_b32 v2, v1, s[0:1]\ns_endpgm",
    "atomic": BEGIN + "global_atomic_add_u32 v2, v1, s[2:3]\ns_endpgm",
    "lds load": BEGIN + "ds_load_b32 v3, v2\ns_wait_dscnt 0x0\ns_endpgm",
    "lds store": BEGIN + "ds_store_b64 v2, v[1:2]\ns_endpgm",
    "lds byte": BEGIN + "ds_store_b8 v2, v1\ns_wait_dscnt 0x0\nds_load_u16 v3, v2\ns_endpgm",
    "lds atomic": BEGIN + "ds_store_b64 v2, v[1:2]\ns_wait_dscnt 0x0\nds_add_u32 v2, v1\ns_endpgm",
    "lds exchange": WAVE_NUMBER
    + """
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_xor_b32 v2, 0x80, v1
    ds_store_b32 v1, v0
    s_wait_dscnt 0x0
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 .Lread
    s_barrier_signal -1
    s_barrier_wait -1
    .Lread:
    ds_load_b32 v3, v2
    s_wait_dscnt 0x0
    global_store_b32 v1, v3, s[0:1]
    s_endpgm
    """,
    "lds overwrite": """
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_xor_b32 v2, 0x80, v1
    ds_store_b32 v1, v0
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
    ds_load_b32 v3, v1
    s_wait_dscnt 0x0
    ds_store_b32 v2, v0
    s_endpgm
    """,
    "lds bytes": """
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_and_b32 v1, 0x7f, v1
    v_lshrrev_b32 v2, 5, v0
    v_or_b32 v2, v1, v2
    ds_store_b8 v2, v0
    ds_add_u32 v1, v0 offset:256
    s_endpgm
    """,
    "scratch": "v_mov_b32 v1, 1\nscratch_store_b32 off, v1, off offset:8\n"
    "scratch_load_b64 v[2:3], off, off offset:8\n"
    "s_wait_loadcnt 0x0\ns_endpgm",
    "scratch beyond": "v_and_b32 v0, 0x3ff, v0\nv_lshlrev_b32 v1, 3, v0\n"
    "scratch_store_b64 v1, v[0:1], off\ns_endpgm",
    "same place": "v_mov_b32 v1, 0\ns_mov_b32 exec_lo, 1\nv_mov_b32 v2, ttmp9\n"
    "global_store_b32 v1, v2, s[0:1]\ns_endpgm",
    "guessed": GUESS.format(4),
    "not what is compared": GUESS.format(6),
    "guessed by a scalar load": SCALAR_GUESS.format(16),
    "guessed of another place": SCALAR_GUESS.format(20),
    "guessed through scratch": SPILLED_GUESS.format(24, 28),
    "overwritten in scratch": SPILLED_GUESS.format(28, 24),
    "lanes in order": """
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v9, 2, v0
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    global_store_b32 v1, v0, s[0:1]
    s_mov_b32 exec_lo, 0xff000
    global_store_b32 v1, v0, s[0:1] offset:4
    s_mov_b32 exec_lo, -1
    global_atomic_add_u32 v3, v1, v2, s[0:1] offset:8 th:TH_ATOMIC_RETURN
    s_wait_loadcnt 0x0
    global_store_b32 v9, v3, s[0:1] offset:128
    ds_store_b32 v1, v1
    s_wait_dscnt 0x0
    ds_add_rtn_u32 v4, v1, v2
    s_wait_dscnt 0x0
    global_store_b32 v9, v4, s[0:1] offset:256
    ds_store_b32 v1, v0 offset:4
    s_wait_dscnt 0x0
    ds_load_b32 v5, v1 offset:4
    s_wait_dscnt 0x0
    s_mov_b32 exec_lo, 1
    global_store_b32 v9, v5, s[0:1] offset:384
    s_endpgm
    """,
    "neighbours": """
    v_mov_b32 v1, ttmp9
    s_mov_b32 exec_lo, 1
    global_store_b8 v1, v1, s[0:1]
    global_atomic_add_u32 v1, v1, s[0:1] offset:64 scope:SCOPE_DEV
    v_mov_b32 v2, 0
    global_atomic_add_u32 v2, v1, s[0:1] offset:128
    s_endpgm
    """,
    "last of all": """
    v_and_b32 v0, 0x3ff, v0
    s_mov_b32 exec_lo, 1
    v_mov_b32 v2, ttmp9
    v_lshlrev_b32 v1, 2, v2
    global_store_b32 v1, v2, s[0:1]
    global_wb scope:SCOPE_DEV
    s_wait_storecnt 0x0
    v_mov_b32 v3, 0
    v_mov_b32 v4, 1
    global_atomic_add_u32 v5, v3, v4, s[0:1] offset:128 th:TH_ATOMIC_RETURN scope:SCOPE_DEV
    s_wait_loadcnt 0x0
    v_readfirstlane_b32 s8, v5
    s_cmp_eq_u32 s8, 7
    s_cbranch_scc0 .Lend
    s_mov_b32 exec_lo, 0xff
    v_lshlrev_b32 v1, 2, v0
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 .Lload
    global_inv scope:SCOPE_DEV
    s_wait_loadcnt 0x0
    .Lload:
    s_cmp_eq_u32 s3, 0
    s_cbranch_scc1 .Lplain
    global_load_b32 v6, v1, s[0:1] scope:SCOPE_DEV
    s_endpgm
    .Lplain:
    global_load_b32 v7, v1, s[0:1]
    .Lend:
    s_endpgm
    """,
    # Wave 0 of each workgroup stores data and invalidates its cache; after a barrier wave 1 reads the last one's.
    "acquired for the group": """
    v_and_b32 v0, 0x3ff, v0
    v_readfirstlane_b32 s8, v0
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 .Lbarrier
    s_mov_b32 exec_lo, 1
    v_mov_b32 v2, ttmp9
    v_lshlrev_b32 v1, 2, v2
    global_store_b32 v1, v2, s[0:1]
    global_wb scope:SCOPE_DEV
    s_wait_storecnt 0x0
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 .Lbarrier
    global_inv scope:SCOPE_DEV
    s_wait_loadcnt 0x0
    .Lbarrier:
    s_barrier_signal -1
    s_barrier_wait -1
    s_cmp_eq_u32 s8, 0
    s_cbranch_scc1 .Lend
    s_mov_b32 exec_lo, 1
    s_max_u32 s9, ttmp9, 1
    s_sub_co_u32 s9, s9, 1
    v_mov_b32 v2, s9
    v_lshlrev_b32 v1, 2, v2
    global_load_b32 v7, v1, s[0:1]
    .Lend:
    s_endpgm
    """,
    # Wave 0 stores data, then a flag; wave 1 waits for the flag and reads the data. Data in memory and in the LDS.
    "flag between waves": """
    v_and_b32 v0, 0x3ff, v0
    v_readfirstlane_b32 s8, v0
    v_and_b32 v1, 31, v0
    v_lshlrev_b32 v1, 2, v1
    v_mov_b32 v3, 0
    v_mov_b32 v4, 1
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 .Lreader
    global_store_b32 v1, v0, s[0:1]
    ds_store_b32 v1, v0
    s_wait_storecnt_dscnt 0x0
    global_store_b32 v3, v4, s[0:1] offset:128 scope:SCOPE_SE
    s_endpgm
    .Lreader:
    global_load_b32 v5, v3, s[0:1] offset:128 scope:SCOPE_SE
    s_wait_loadcnt 0x0
    v_readfirstlane_b32 s9, v5
    s_cmp_eq_u32 s9, 0
    s_cbranch_scc1 .Lreader
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 .Lload
    global_inv scope:SCOPE_SE
    s_wait_loadcnt 0x0
    .Lload:
    global_load_b32 v6, v1, s[0:1]
    ds_load_b32 v7, v1
    s_endpgm
    """,
    # Wave 0 stores to the LDS and counts up, stores once more and, unless s2 is 0, counts up again before wave 1
    # reads what it waits for: s3 arrivals.
    "counter in the LDS": """
    v_and_b32 v0, 0x3ff, v0
    v_readfirstlane_b32 s8, v0
    v_and_b32 v1, 31, v0
    v_lshlrev_b32 v1, 2, v1
    v_mov_b32 v3, 0
    v_mov_b32 v4, 1
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 .Lset
    ds_store_b32 v3, v3 offset:256
    .Lset:
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 .Lwait
    ds_store_b32 v1, v0
    s_mov_b32 exec_lo, 1
    ds_add_u32 v3, v4 offset:256
    s_mov_b32 exec_lo, -1
    ds_store_b32 v1, v0 offset:128
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 .Lend
    s_mov_b32 exec_lo, 1
    ds_add_u32 v3, v4 offset:256
    .Lend:
    s_endpgm
    .Lwait:
    ds_load_b32 v5, v3 offset:256
    s_wait_dscnt 0x0
    v_cmp_gt_u32 vcc_lo, s3, v5
    s_cbranch_vccnz .Lwait
    global_inv scope:SCOPE_SE
    ds_load_b32 v6, v1
    ds_load_b32 v7, v1 offset:128
    s_endpgm
    """,
    # Each wave changes a counter atomically, then stores to and loads from it with device scope; or without.
    "one counter": """
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    global_atomic_add_u32 v1, v2, s[0:1] scope:SCOPE_DEV
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 .Lplain
    global_store_b32 v1, v2, s[0:1] scope:SCOPE_DEV
    global_load_b32 v3, v1, s[0:1] scope:SCOPE_DEV
    s_endpgm
    .Lplain:
    global_load_b32 v4, v1, s[0:1]
    s_endpgm
    """,
}


def find_pc(kernel: bytes, text: str, number: int = 0) -> int:
    """Return the byte offset of the instruction that starts with this text."""
    result = [
        item.at
        for item in decode_stream(kernel, target_of("gfx1201", wave=32))
        if item.instruction is not None and item.instruction.text.startswith(text)
    ]
    return result[number]


class CheckedMemory:
    """Offsets in s[0:1], the data under test in s[2:3]."""

    def __init__(self, data: np.ndarray, level: str = "full", **how: bool) -> None:
        self.device = EngineDevice(level=level)
        self.where = (np.arange(32) * 4).astype(np.uint32)
        self.data = data
        self.where_va = self.device.place(self.where, "where")
        self.va = self.device.place(data, "data", **how)

    def mark(self, start: int, size_bytes: int) -> None:
        """Mark these bytes of the data as written."""
        written = self.device._placed[-1].written
        assert written is not None
        written.mark(start, size_bytes)

    def run(self, name: str, **more: int) -> list[WaveFinding]:
        user = [*split_va(self.where_va), *split_va(self.va)]
        return self.device.run(machine_code(KERNELS[name]), user_data=user, **more)


def assert_only(findings: list[WaveFinding], rule: str, kernel: str, text: str, lanes: int) -> WaveFinding:
    """The one finding there is."""
    assert [finding.rule for finding in findings] == [rule], findings
    [finding] = findings
    assert finding.pc == find_pc(machine_code(KERNELS[kernel]), text)
    assert finding.lanes == lanes, hex(finding.lanes)
    assert text in finding.sentence
    return finding


@pytest.mark.parametrize("level", ["fast", "full"])
@pytest.mark.parametrize("kernel", ["load", "store", "atomic"])
def test_access_one_lane_past_the_end_is_reported(kernel: str, level: str) -> None:
    memory = CheckedMemory(np.zeros(32, np.uint32), level)
    memory.where[20] = 128
    text = {"load": "global_load_b32 v3", "store": "global_store_b32", "atomic": "global_atomic_add"}[kernel]
    finding = assert_only(memory.run(kernel), "out-of-bounds", kernel, text, 1 << 20)
    assert finding.address == memory.va + 128
    assert "data" in finding.sentence and "lane 20" in finding.sentence
    memory.where[20] = 0
    assert not memory.run(kernel)


def test_only_page_tables_are_read_without_checks() -> None:
    memory = CheckedMemory(np.zeros(32, np.uint32), "off", initialised=False)
    memory.where[20] = 129
    assert not memory.run("load")


def test_bounds_follow_the_announced_suballocation() -> None:
    memory = CheckedMemory(np.zeros(4096, np.uint8))
    memory.device.announce(memory.va, 128, "left")
    memory.device.announce(memory.va + 256, 128, "right")
    assert not memory.run("load")
    memory.where[3:5] = 128, 252
    finding = assert_only(memory.run("load"), "out-of-bounds", "load", "global_load_b32 v3", 3 << 3)
    assert finding.address == memory.va + 128
    memory.where[3:5] = 256, 380
    assert not memory.run("load")


def test_access_across_two_suballocations_is_out_of_bounds() -> None:
    memory = CheckedMemory(np.zeros(4096, np.uint8))
    memory.device.announce(memory.va, 256, "left")
    memory.device.announce(memory.va + 256, 3840, "right")
    memory.where[31] = 248
    assert_only(memory.run("load 16"), "out-of-bounds", "load 16", "global_load_b128", 1 << 31)


def test_outermost_announcement_sets_the_bounds() -> None:
    memory = CheckedMemory(np.zeros(4096, np.uint8))
    memory.device.announce(memory.va, 1024, "outer")
    memory.device.announce(memory.va + 64, 64, "inner")
    assert not memory.run("load 16")
    memory.where[0] = 1020
    assert_only(memory.run("load 16"), "out-of-bounds", "load 16", "global_load_b128", 1)


@pytest.mark.parametrize("level", ["fast", "full"])
def test_read_of_unwritten_memory_is_reported(level: str) -> None:
    memory = CheckedMemory(np.zeros(64, np.uint32), level, initialised=False)
    finding = assert_only(memory.run("load"), "uninitialised-memory", "load", "global_load_b32 v3", ALL)
    assert finding.address == memory.va
    assert_only(memory.run("some lanes"), "uninitialised-memory", "some lanes", "global_load_b32 v3", 0xFF00)
    # each lane stores a dword and loads two: only the last lane's second one is missing
    result = memory.run("store, load")
    assert_only(result, "uninitialised-memory", "store, load", "global_load_b64", 1 << 31)
    assert not memory.run("load")  # now somebody has


@pytest.mark.parametrize("level", ["fast", "full"])
@pytest.mark.parametrize("initialised", [0, 4, 512, 16 * 700 + 4, 512 * 40, 512 * 64 - 4, 512 * 64])
def test_stream_is_initialised_up_to_its_first_unwritten_dword(initialised: int, level: str) -> None:
    """Wide loads look ahead; not too far."""
    memory = CheckedMemory(np.zeros(512 * 64, np.uint8), level, initialised=False)
    memory.where[:] = np.arange(32) * 16
    memory.mark(0, initialised)
    findings = memory.run("stream")
    if initialised == 512 * 64:
        assert not findings
        return
    lane = initialised % 512 // 16
    rest = assert_only(findings, "uninitialised-memory", "stream", "global_load_b128", ALL & (ALL << lane))
    assert rest.address == memory.va + initialised // 16 * 16


def test_initialisation_is_tracked_per_byte() -> None:
    memory = CheckedMemory(np.zeros(64, np.uint32), initialised=False)
    assert_only(memory.run("store 1"), "uninitialised-memory", "store 1", "global_load_b32 v3", ALL)


def test_scalar_loads_are_checked() -> None:
    memory = CheckedMemory(np.zeros(64, np.uint32), initialised=False)
    finding = assert_only(memory.run("scalar"), "uninitialised-memory", "scalar", "s_load_b64", 0)
    assert finding.address == memory.va
    memory = CheckedMemory(np.arange(1, dtype=np.uint32))
    finding = assert_only(memory.run("scalar"), "out-of-bounds", "scalar", "s_load_b64", 0)
    assert finding.address == memory.va + 4
    memory = CheckedMemory(np.arange(64, dtype=np.uint32))
    assert_only(memory.run("scalar misaligned"), "misaligned", "scalar misaligned", "s_load_b32", ALL)
    assert memory.where[0] == 0  # as loaded from the dword's start


@pytest.mark.parametrize("level", ["fast", "full"])
def test_dword_loads_may_be_unaligned(level: str) -> None:
    memory = CheckedMemory(np.zeros(64, np.uint32), level)
    memory.where[7] = 30
    assert not memory.run("load")


@pytest.mark.parametrize("level", ["fast", "full"])
def test_misaligned_atomics_are_an_error(level: str) -> None:
    memory = CheckedMemory(np.zeros(64, np.uint32), level)
    memory.where[7] = 30
    assert_only(memory.run("atomic"), "misaligned", "atomic", "global_atomic_add", 1 << 7)
    assert memory.data[7] == 0  # and it did nothing


@pytest.mark.parametrize("level", ["off", "fast", "full"])
def test_null_pointers_and_read_only_memory_fault(level: str) -> None:
    device = EngineDevice(level=level)
    where, data = (np.arange(32) * 4).astype(np.uint32), np.zeros(32, np.uint32)
    where_va, va = device.place(where), device.place(data, write=False)
    for target, kernel, access in (
        (0, "load", AccessKind.READ),
        (va, "store", AccessKind.WRITE),
        (va, "atomic", AccessKind.WRITE),
    ):
        with pytest.raises(Fault) as caught:
            device.run(machine_code(KERNELS[kernel]), user_data=[*split_va(where_va), *split_va(target)])
        assert caught.value.va == target and caught.value.access is access
    assert not data.any()
    assert not device.run(machine_code(KERNELS["load"]), user_data=[*split_va(where_va), *split_va(va)])


# --- LDS


@pytest.mark.parametrize("level", ["fast", "full"])
def test_lds_access_rules(level: str) -> None:
    memory = CheckedMemory(np.zeros(1), level)
    assert_only(memory.run("lds load", lds_bytes=256), "uninitialised-lds", "lds load", "ds_load_b32", ALL)
    memory.where[:] = np.arange(32) * 8
    assert not memory.run("lds store", lds_bytes=256)
    memory.where[31] = 252
    finding = assert_only(
        memory.run("lds store", lds_bytes=256), "lds-out-of-bounds", "lds store", "ds_store_b64", 1 << 31
    )
    assert finding.address == 252
    memory.where[31] = 245
    assert not memory.run("lds store", lds_bytes=256), "any address will do"
    memory.where[:] = np.arange(32) * 4
    assert_only(memory.run("lds byte", lds_bytes=256), "uninitialised-lds", "lds byte", "ds_load_u16", ALL)
    memory.where[:] = np.arange(32) * 8
    assert not memory.run("lds atomic", lds_bytes=256)


def test_lds_atomics_require_natural_alignment() -> None:
    memory = CheckedMemory(np.zeros(1), "fast")
    memory.where[:] = np.arange(32) * 8
    memory.where[2] = 18
    findings = memory.run("lds atomic", lds_bytes=256)
    finding = assert_only(findings, "misaligned", "lds atomic", "ds_add_u32", 1 << 2)
    assert finding.pc == find_pc(machine_code(KERNELS["lds atomic"]), "ds_add_u32")


def test_lds_access_beyond_group_allocation_is_reported() -> None:
    memory = CheckedMemory(np.zeros(1))
    assert_only(memory.run("lds store"), "lds-out-of-bounds", "lds store", "ds_store_b64", ALL)


# --- scratch


@pytest.mark.parametrize("level", ["fast", "full"])
def test_scratch_access_rules(level: str) -> None:
    device = EngineDevice(level=level)
    result = device.run(machine_code(KERNELS["scratch"]), scratch_bytes=64)
    assert_only(result, "uninitialised-scratch", "scratch", "scratch_load_b64", ALL)
    result = device.run(machine_code(KERNELS["scratch beyond"]), scratch_bytes=64)
    assert_only(result, "scratch-out-of-bounds", "scratch beyond", "scratch_store_b64", ALL ^ 0xFF)
    assert not device.run(machine_code(KERNELS["scratch beyond"]), scratch_bytes=256)


# --- races


def test_waves_sharing_lds_need_a_barrier() -> None:
    device = EngineDevice(level="full")
    out = np.zeros(64, np.uint32)
    va = device.place(out)
    for barrier in (1, 0):
        findings = device.run(
            machine_code(KERNELS["lds exchange"]),
            threads=(64, 1, 1),
            user_data=[*split_va(va), barrier],
            lds_bytes=256,
        )
        if barrier:
            assert not findings
            assert np.array_equal(out, np.arange(64) ^ 32)
        else:
            races = [finding for finding in findings if finding.rule == "lds-race"]
            assert races and all(race.lanes == ALL for race in races)
            places = {
                find_pc(machine_code(KERNELS["lds exchange"]), text) for text in ("ds_load_b32", "ds_store_b32")
            }
            assert {race.pc for race in races} <= places


def test_overwriting_data_read_by_another_wave_is_a_race() -> None:
    device = EngineDevice(level="full")
    findings = device.run(machine_code(KERNELS["lds overwrite"]), threads=(64, 1, 1), lds_bytes=256)
    assert {finding.rule for finding in findings} == {"lds-race"}
    assert {finding.pc for finding in findings} <= {
        find_pc(machine_code(KERNELS["lds overwrite"]), "ds_load_b32"),
        find_pc(machine_code(KERNELS["lds overwrite"]), "ds_store_b32", 1),
    }
    assert not device.run(machine_code(KERNELS["lds overwrite"]), threads=(32, 1, 1), lds_bytes=256)


def test_separate_bytes_of_a_dword_and_atomics_do_not_race_in_lds() -> None:
    device = EngineDevice(level="full")
    findings = device.run(machine_code(KERNELS["lds bytes"]), threads=(128, 1, 1), lds_bytes=1024)
    assert {finding.rule for finding in findings} <= {"uninitialised-lds"}


def test_workgroups_storing_to_one_address_race() -> None:
    device = EngineDevice(level="full")
    out = np.zeros(64, np.uint32)
    va = device.place(out, "out")
    kernel = machine_code(KERNELS["same place"])
    findings = device.run(kernel, groups=(8, 1, 1), user_data=split_va(va))
    assert {finding.rule for finding in findings} == {"race"}
    assert findings[0].pc == find_pc(kernel, "global_store_b32") and findings[0].lanes == 1
    assert findings[0].address == va and "out" in findings[0].sentence
    others = [finding.place.other for finding in findings if finding.place.other is not None]
    assert others and {(item.kind, item.pc, item.wave) for item in others} == {("store", findings[0].pc, 0)}
    assert all(finding.place.group != finding.place.other.group for finding in findings if finding.place.other)
    for level, groups in (("full", 1), ("fast", 8)):
        device = EngineDevice(level=level)
        second = split_va(device.place(out))
        assert not device.run(kernel, groups=(groups, 1, 1), user_data=second)
        assert not device.run(
            kernel, groups=(groups, 1, 1), user_data=second
        )  # another dispatch is another matter


def test_adjacent_bytes_and_atomics_do_not_race() -> None:
    device = EngineDevice(level="full", threads=2)
    out = np.zeros(64, np.uint32)
    user = split_va(device.place(out))
    findings = device.run(machine_code(KERNELS["neighbours"]), groups=(1, 1, 1), user_data=user)
    findings += device.run(machine_code(KERNELS["neighbours"]), groups=(40, 1, 1), user_data=user)
    assert {finding.rule for finding in findings} <= {"misaligned"}  # the atomics
    assert out.view(np.uint8)[:40].tolist() == list(range(40))


def test_last_workgroup_must_invalidate_before_reading_others_stores() -> None:
    kernel = machine_code(KERNELS["last of all"])
    for invalidates, scoped in ((0, 0), (1, 0), (0, 1)):
        device = EngineDevice(level="full")
        user = [*split_va(device.place(np.zeros(64, np.uint32), "out")), invalidates, scoped]
        findings = device.run(kernel, groups=(8, 1, 1), user_data=user)
        if invalidates or scoped:
            assert not findings
        else:
            assert [finding.rule for finding in findings] == ["race"]
            assert findings[0].pc == find_pc(kernel, "global_load_b32 v7")
            assert findings[0].lanes == 0x7F


def test_barrier_propagates_an_acquire_to_other_waves() -> None:
    """As where one wave takes a lock for its workgroup."""
    kernel = machine_code(KERNELS["acquired for the group"])
    for acquires in (1, 0):
        device = EngineDevice(level="full", threads=1)
        user = [*split_va(device.place(np.zeros(64, np.uint32), "out")), acquires]
        findings = device.run(kernel, groups=(8, 1, 1), threads=(64, 1, 1), user_data=user)
        assert {(finding.rule, finding.pc) for finding in findings} == (
            set() if acquires else {("race", find_pc(kernel, "global_load_b32 v7"))}
        )


def test_acquired_flag_orders_waves_of_a_workgroup() -> None:
    kernel = machine_code(KERNELS["flag between waves"])
    for acquires in (1, 0):
        device = EngineDevice(level="full")
        user = [*split_va(device.place(np.zeros(64, np.uint32), "out")), acquires]
        findings = device.run(kernel, threads=(64, 1, 1), user_data=user, lds_bytes=128)
        races = [("race", find_pc(kernel, "global_load_b32 v6")), ("lds-race", find_pc(kernel, "ds_load_b32 v7"))]
        assert [(finding.rule, finding.pc) for finding in findings] == ([] if acquires else races)


def test_lds_counter_orders_only_accesses_before_its_increment() -> None:
    """The second store comes after the only increment, so it is not ordered, or before a second one. The other
    wave runs as soon as the counter has changed, so it reads before that store.
    """
    kernel = machine_code(KERNELS["counter in the LDS"])
    for again in (1, 0):
        device = EngineDevice(level="full")
        user = [*split_va(device.place(np.zeros(64, np.uint32), "out")), again, 1 + again]
        findings = device.run(kernel, threads=(64, 1, 1), user_data=user, lds_bytes=260)
        race = ("lds-race", find_pc(kernel, "ds_store_b32 v1, v0 offset:128"))
        unset = ("uninitialised-lds", find_pc(kernel, "ds_load_b32 v7"))
        assert [(finding.rule, finding.pc) for finding in findings] == ([] if again else [race, unset])


def test_device_scope_accesses_are_atomic_and_plain_ones_are_not() -> None:
    kernel = machine_code(KERNELS["one counter"])
    for scoped in (1, 0):
        device = EngineDevice(level="full")
        user = [*split_va(device.place(np.zeros(64, np.uint32), "out")), scoped]
        findings = device.run(kernel, threads=(96, 1, 1), user_data=user)
        assert bool(findings) != bool(scoped), findings
        assert {finding.rule for finding in findings} <= {"race"}


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("guessed", set()),
        ("not what is compared", {"race", "lds-race"}),
        ("guessed by a scalar load", set()),
        ("guessed of another place", {"race"}),
        ("guessed through scratch", set()),
        ("overwritten in scratch", {"race"}),
    ],
)
def test_load_feeding_a_compare_and_swap_is_atomic(name: str, rules: set[str]) -> None:
    """A load of which the swap knows nothing is a race, of memory and of LDS."""
    device, kernel, counter = EngineDevice(level="full"), machine_code(KERNELS[name]), np.zeros(32, np.uint32)
    user = split_va(device.place(counter, "counter"))
    findings = device.run(
        kernel, groups=(3, 1, 1), threads=(128, 1, 1), user_data=user, lds_bytes=128, scratch_bytes=64
    )
    assert counter[4] == 12
    assert {finding.rule for finding in findings} == rules


# --- order of lanes


@pytest.mark.parametrize("level", ["off", "fast", "full"])
def test_highest_lane_first_changes_conflicting_stores_and_returned_values(level: str) -> None:
    """With all lanes active, with some, in memory and in LDS."""
    for reverse in (False, True):
        device = EngineDevice(level=level, reverse_lanes=reverse)
        out = np.zeros(128, np.uint32)
        va = device.place(out, "out")
        device.run(machine_code(KERNELS["lanes in order"]), user_data=split_va(va), lds_bytes=64)
        last, order = (0, np.arange(32)[::-1]) if reverse else (31, np.arange(32))
        assert (out[0], out[1]) == (last, 12 if reverse else 19), "global stores"
        assert np.array_equal(out[32:64], order), "global atomic"
        assert np.array_equal(out[64:96], order), "LDS atomic"
        assert out[96] == last, "LDS store"


# --- watchpoints


def test_watchpoint_reports_the_storing_instruction() -> None:
    """Which instruction, wave and lane, and what; other stores go by, also once nobody asks."""
    for level in ("off", "fast", "full"):
        data = np.zeros(32, np.uint32)
        memory = CheckedMemory(data, level)
        memory.device.set_watchpoint(memory.va + 40, 7)
        assert not memory.run("store")
        assert np.array_equal(data, np.arange(32) * 4)
        pc = find_pc(machine_code(KERNELS["store"]), "global_store_b32")
        assert memory.device.watchpoint_hits == [
            LaneStore(pc, 0, 0, lane, memory.va + 4 * lane, 4 * lane) for lane in (10, 11)
        ]
        memory.device.set_watchpoint(0, 0)
        assert not memory.run("store") and not memory.device.watchpoint_hits


def test_watchpoint_sees_every_workgroup_and_atomics() -> None:
    device = EngineDevice(level="off", threads=2)
    out = np.zeros(64, np.uint32)
    va = device.place(out)
    device.set_watchpoint(va + 128, 4)
    device.run(machine_code(KERNELS["neighbours"]), groups=(40, 1, 1), user_data=split_va(va))
    pc = find_pc(machine_code(KERNELS["neighbours"]), "global_atomic_add_u32 v2")
    assert sorted(
        (watchpoint_hit.pc, watchpoint_hit.group, watchpoint_hit.value)
        for watchpoint_hit in device.watchpoint_hits
    ) == [(pc, n, n) for n in range(40)]
