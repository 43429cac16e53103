"""LDS: every form against plain NumPy; what goes from lane to lane; counters; the edge of the allocation."""

from __future__ import annotations

import numpy as np
import pytest
from memory_kernels import WAVE64, machine_code
from test_shader_memory import BEGIN, LEVELS, LOADS, STORES, dword_count, lane_offsets, register_range, split_va

from zinc_rt.sim.shader.run.engine_device import EngineDevice

LDS_BYTES = 4096 + 16
LDS_LOADS = {name.replace("d16_hi_u8", "u8_d16_hi").replace("d16_hi_i8", "i8_d16_hi").replace(
    "d16_hi_b16", "u16_d16_hi").replace("d16_u8", "u8_d16").replace("d16_i8", "i8_d16").replace(
    "d16_b16", "u16_d16"): row for name, row in LOADS.items()}  # fmt: skip
LDS_STORES = {name.replace("d16_hi_b8", "b8_d16_hi").replace("d16_hi_b16", "b16_d16_hi"): row
              for name, row in STORES.items()}  # fmt: skip

FILL = (
    BEGIN
    + """
v_lshlrev_b32 v3, 4, v0
s_mov_b32 s16, 0
.Lfill:
global_load_b128 v[4:7], v3, s[2:3]
s_wait_loadcnt 0x0
ds_store_b128 v3, v[4:7]
v_add_nc_u32 v3, s8, v3
s_addk_co_i32 s16, 0x1
s_cmp_lt_u32 s16, s9
s_cbranch_scc1 .Lfill
s_wait_dscnt 0x0
"""
)
"""Offsets from s[0:1] in v2; s9 times s8 bytes from s[2:3] to the LDS."""


def load_kernel(wave: int) -> str:
    base = {name: 20 + 4 * number for number, name in enumerate(LDS_LOADS)}
    used = [r for name, row in LDS_LOADS.items() for r in range(base[name], base[name] + dword_count(row[0]))]
    text = WAVE64 * (wave == 64) + FILL + "".join(f"v_mov_b32 v{r}, 0\n" for r in used)
    text += "s_mov_b64 s[16:17], exec\ns_mov_b64 exec, s[6:7]\n"
    for name, (size, _, _) in LDS_LOADS.items():
        text += f"ds_load_{name} {register_range(base[name], dword_count(size))}, v2 offset:12\n"
    text += "s_wait_dscnt 0x0\ns_mov_b64 exec, s[16:17]\n"
    for number, register in enumerate(used):
        text += f"global_store_b32 v1, v{register}, s[4:5] offset:{256 * number}\n"
    return text + "s_endpgm\n"


def store_kernel(name: str) -> str:
    """Run one form, then store all of the LDS to s[2:3]."""
    size = LDS_STORES[name][0]
    text = FILL + "".join(f"global_load_b32 v{4 + word}, v1, s[4:5] offset:{256 * word}\n" for word in range(4))
    text += "s_wait_loadcnt 0x0\ns_mov_b64 s[16:17], exec\ns_mov_b64 exec, s[6:7]\n"
    text += f"ds_store_{name} v2, {register_range(4, dword_count(size))} offset:12\ns_mov_b64 exec, s[16:17]\n"
    return (
        text
        + """
v_lshlrev_b32 v3, 4, v0
s_mov_b32 s16, 0
.Lback:
s_wait_dscnt 0x0
ds_load_b128 v[4:7], v3
s_wait_dscnt 0x0
global_store_b128 v3, v[4:7], s[2:3]
v_add_nc_u32 v3, s8, v3
s_addk_co_i32 s16, 0x1
s_cmp_lt_u32 s16, s9
s_cbranch_scc1 .Lback
s_endpgm
"""
    )


def store_registers(count: int) -> str:
    """v20 and on to s[4:5], a row each."""
    lines = [f"global_store_b32 v1, v{20 + n}, s[4:5] offset:{256 * n}\n" for n in range(count)]
    return "".join(lines) + "s_endpgm\n"


SWIZZLES = {
    0xE000: "FFT 0", 0xE010: "FFT 16", 0xE01F: "FFT 31", 0xC020: "rotate", 0xC420: "rotate back",
    0xC0E3: "rotate, masked",
    0x801B: "quad reversed", 0x8055: "quad broadcast", 0x401F: "swap 16", 0x041F: "swap 1", 0x7C1F: "reverse",
    0x0018: "and", 0x00E3: "or",
}  # fmt: skip
EXCHANGE = (
    "v_and_b32 v0, 0x3ff, v0\nv_lshlrev_b32 v1, 2, v0\nglobal_load_b32 v2, v1, s[0:1]\n"
    "v_add_nc_u32 v3, 0x3e8, v0\ns_wait_loadcnt 0x0\ns_mov_b64 s[16:17], exec\n"
    + "".join(f"v_mov_b32 v{20 + n}, 0x77\n" for n in range(len(SWIZZLES) + 3))
    + "s_mov_b64 exec, s[6:7]\n"
    + "".join(f"ds_swizzle_b32 v{20 + n}, v3 offset:{field}\n" for n, field in enumerate(SWIZZLES))
    + f"ds_bpermute_b32 v{20 + len(SWIZZLES)}, v2, v3 offset:4\n"
    + f"ds_bpermute_fi_b32 v{21 + len(SWIZZLES)}, v2, v3\n"
    + f"ds_permute_b32 v{22 + len(SWIZZLES)}, v2, v3\n"
    + "s_wait_dscnt 0x0\ns_mov_b64 exec, s[16:17]\n"
    + "".join(f"global_store_b32 v1, v{20 + n}, s[2:3] offset:{256 * n}\n" for n in range(len(SWIZZLES) + 3))
    + "s_endpgm\n"
)
TWO = FILL + """
    v_lshlrev_b32 v2, 2, v0
    v_lshlrev_b32 v3, 3, v0
    ds_load_2addr_b32 v[20:21], v2 offset0:3 offset1:9
    ds_load_2addr_b64 v[22:25], v3 offset0:1 offset1:40
    ds_load_2addr_stride64_b32 v[26:27], v2 offset0:1 offset1:5
    ds_load_2addr_stride64_b64 v[28:31], v3 offset1:3
    s_wait_dscnt 0x0
    ds_store_2addr_b32 v2, v20, v21 offset0:64 offset1:128
    ds_store_2addr_stride64_b64 v3, v[22:23], v[24:25] offset0:2 offset1:4
    ds_storexchg_2addr_rtn_b32 v[32:33], v2, v26, v27 offset1:32
    s_mov_b32 m0, 8
    ds_load_addtid_b32 v34 offset:16
    s_wait_dscnt 0x0
    ds_store_addtid_b32 v34 offset:2048
    ds_load_b32 v35, v2 offset:512
    ds_load_b64 v[36:37], v3 offset:2048
    ds_load_b32 v38, v2 offset:2056
    ds_load_b32 v39, v2 offset:128
    s_wait_dscnt 0x0
""" + store_registers(20)  # fmt: skip
COUNT = FILL + """
    s_mov_b64 s[16:17], exec
    s_mov_b64 exec, s[6:7]
    ds_append v20 offset:4
    ds_consume v21 offset:8
    s_wait_dscnt 0x0
    s_mov_b64 exec, s[16:17]
    v_mov_b32 v4, 0
    ds_load_b64 v[22:23], v4 offset:4
    s_wait_dscnt 0x0
    s_mov_b64 exec, s[6:7]
""" + store_registers(4)  # fmt: skip
KERNELS = {
    "load 32": load_kernel(32),
    "load 64": load_kernel(64),
    **{f"store {name}": store_kernel(name) for name in LDS_STORES},
    "exchange": EXCHANGE,
    "two": TWO,
    "count": COUNT,
}


def run_kernel(
    kernel: str, level: str, wave: int, offsets: np.ndarray, data: np.ndarray, out: np.ndarray, **more: int
) -> list:
    device = EngineDevice(level=level)
    user = [half for array in (offsets, data, out) for half in split_va(device.place(array))]
    mask = more.get("mask", (1 << wave) - 1)
    user += [*split_va(mask), 16 * wave, data.nbytes // 16 // wave]
    lds_bytes = more.get("lds_bytes", LDS_BYTES)
    return device.run(
        machine_code(KERNELS[kernel]),
        threads=(wave, 1, 1),
        wave=wave,
        user_data=user,
        lds_bytes=lds_bytes,
        vgprs=96,
    )


def offsets_inside(wave: int) -> dict[str, np.ndarray]:
    """Return offsets with the dword alignment that the LDS requires."""
    return {name: (item & ~3).astype(np.uint32) for name, item in lane_offsets(wave).items()}


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("level", LEVELS)
def test_lds_loads_match(level: str, wave: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, 4096, np.uint8)
    for pattern, where in offsets_inside(wave).items():
        out = np.zeros((64, 64), np.uint32)
        assert not run_kernel(f"load {wave}", level, wave, where, data, out), pattern
        row = 0
        for name, (size, signed, half) in LDS_LOADS.items():
            for lane in range(wave):
                raw = data[where[lane] + 12 :][:size].tobytes()
                if size >= 4:
                    want = [int.from_bytes(raw[index : index + 4], "little") for index in range(0, size, 4)]
                else:
                    value = int.from_bytes(raw, "little", signed=signed)
                    want = [value & 0xFFFFFFFF if half is None else (value & 0xFFFF) << 16 * half]
                assert out[row : row + dword_count(size), lane].tolist() == want, (pattern, name, lane)
            row += dword_count(size)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("name", LDS_STORES)
def test_lds_stores_match(name: str) -> None:
    size, shift = LDS_STORES[name]
    values = np.zeros((64, 64), np.uint32)
    values[:4] = np.random.default_rng(2).integers(0, 1 << 32, (4, 64), np.uint32)
    for number, (pattern, where) in enumerate(offsets_inside(32).items()):
        mask = (0xFFFFFFFF, 0x0F0F0F01)[number % 2]
        data = np.random.default_rng(3).integers(0, 256, 4096, np.uint8)
        want = data.copy()
        for lane in range(32):
            if mask >> lane & 1:
                raw = values[: dword_count(size), lane].tobytes()[shift // 8 :][:size]
                want[where[lane] + 12 :][:size] = np.frombuffer(raw, np.uint8)
        level = LEVELS[list(LDS_STORES).index(name) % 3]
        assert not run_kernel(f"store {name}", level, 32, where, data, values, mask=mask), pattern
        assert np.array_equal(data, want), pattern


def pattern_lanes(field: int, lane: int) -> int:
    """Implements the manual's pseudocode line by line, for wave32."""
    if field >= 0xE000:
        turned = sum((lane >> bit & 1) << 4 - bit for bit in range(5))
        return turned >> (field & 31).bit_count() | lane & field & 31
    if field >= 0xC000:
        by = -(field >> 5 & 31) if field >> 10 & 1 else field >> 5 & 31
        mask = field & 31
        return (lane & mask) | ((lane + by) & ~mask & 31)
    if field >> 15:
        return lane // 4 * 4 + (field >> 2 * (lane % 4) & 3)
    return ((lane & field & 31) | field >> 5 & 31) ^ (field >> 10 & 31)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("mask", [(1 << 64) - 1, 0x13579BDF_2468ACE1])
def test_lanes_exchange_data_without_lds(wave: int, mask: int) -> None:
    mask &= (1 << wave) - 1
    where = np.random.default_rng(4).integers(0, 1 << 32, wave, np.uint32)
    out = np.zeros((len(SWIZZLES) + 3, 64), np.uint32)
    findings = run_kernel("exchange", "full", wave, where, out, out, mask=mask, lds_bytes=0)
    assert {finding.rule for finding in findings} == ({"inactive-lane"} if mask != (1 << wave) - 1 else set())
    value = [1000 + lane for lane in range(wave)]

    def read_lane(lane: int) -> int:
        return value[lane] if mask >> lane & 1 else 0

    numbers = [int(item) // 4 % wave for item in where]
    later = [((int(item) + 4) & 0xFFFFFFFF) // 4 % wave for item in where]
    forward = dict.fromkeys(range(wave), 0)
    for lane in range(wave):
        if mask >> lane & 1:
            forward[numbers[lane]] = value[lane]
    for lane in range(wave):
        rows = [read_lane(lane & 32 | pattern_lanes(field, lane & 31)) for field in SWIZZLES]
        rows += [read_lane(later[lane]), value[numbers[lane]], forward[lane]]
        want = rows if mask >> lane & 1 else [0x77] * len(rows)
        assert out[:, lane].tolist() == want, lane


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("level", LEVELS)
def test_two_address_loads_and_stores_match(level: str) -> None:
    data = np.arange(1024, dtype=np.uint32) * 7
    out = np.zeros((20, 64), np.uint32)
    assert not run_kernel("two", level, 32, np.zeros(32, np.uint32), data, out)
    lane = np.arange(32)
    memory = data.copy()
    want = [memory[lane + 3], memory[lane + 9]]
    want += [memory[2 * lane + 2], memory[2 * lane + 3], memory[2 * lane + 80], memory[2 * lane + 81]]
    want += [memory[lane + 64], memory[lane + 320]]
    want += [memory[2 * lane], memory[2 * lane + 1], memory[2 * lane + 384], memory[2 * lane + 385]]
    memory[lane + 64], memory[lane + 128] = want[0], want[1]
    for word in range(2):
        memory[2 * lane + 256 + word], memory[2 * lane + 512 + word] = want[2 + word], want[4 + word]
    want += [memory[lane].copy(), memory[lane + 32].copy()]
    memory[lane], memory[lane + 32] = want[6], want[7]
    want.append(memory[lane + 6].copy())
    memory[lane + 514] = want[-1]
    want += [
        memory[lane + 128],
        memory[2 * lane + 512],
        memory[2 * lane + 513],
        memory[lane + 514],
        memory[lane + 32],
    ]
    for number, item in enumerate(want):
        assert np.array_equal(out[number, :32], item), number


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x00FF0101])
def test_append_and_consume_count_active_lanes(mask: int) -> None:
    data = np.zeros(1024, np.uint32)
    data[1:3] = 100, 200
    out = np.zeros((4, 64), np.uint32)
    assert not run_kernel("count", "full", 32, np.zeros(32, np.uint32), data, out, mask=mask)
    active = [bool(mask >> lane & 1) for lane in range(32)]
    for row, value in zip(out, (100, 200, 100 + sum(active), 200 - sum(active)), strict=True):
        assert row[:32].tolist() == [value * item for item in active]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("level", LEVELS)
def test_loads_beyond_the_allocation_give_zero_and_stores_are_dropped(level: str) -> None:
    """Dword by dword, as the manual has it."""
    data = np.arange(1, 1025, dtype=np.uint32)
    where = (np.arange(32) * 128 + 112).astype(np.uint32)
    out = np.zeros((64, 64), np.uint32)
    findings = run_kernel("load 32", level, 32, where, data, out, lds_bytes=4096)
    if level != "off":
        assert {finding.rule for finding in findings} == {"lds-out-of-bounds"}
        assert {finding.lanes for finding in findings} == {1 << 31}
    names = list(LDS_LOADS)
    first = sum(dword_count(LDS_LOADS[name][0]) for name in names[: names.index("b128")])
    assert out[first : first + 4, 31].tolist() == [1024, 0, 0, 0]
    assert out[first : first + 4, 30].tolist() == data[(30 * 128 + 124) // 4 :][:4].tolist()
