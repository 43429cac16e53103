"""Atomics of global memory, flat addresses, buffers and LDS: against whole numbers, and with several threads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import isnan

import numpy as np
import pytest
from memory_kernels import machine_code
from test_shader_memory import BEGIN, register_range, split_va

from zinc_rt.sim.shader.run.engine_device import EngineDevice

MASK = {4: 0xFFFFFFFF, 8: 0xFFFFFFFFFFFFFFFF}
PLACE_BYTES = 64  # of one operation


def to_signed(value: int, size: int) -> int:
    return value - (1 << 8 * size) if value >> 8 * size - 1 else value


def to_f32(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))


def add_f32(old: int, data: int) -> int:
    with np.errstate(all="ignore"):
        return int((np.uint32(old).view(np.float32) + np.uint32(data).view(np.float32)).view(np.uint32))


def apply_to_halves(add: Callable[[int, int], int]) -> Callable[[int, int, int], int]:
    return lambda old, data, size: add(old & 0xFFFF, data & 0xFFFF) | add(old >> 16, data >> 16) << 16


def add_f16(a: int, b: int) -> int:
    with np.errstate(all="ignore"):
        return int((np.uint16(a).view(np.float16) + np.uint16(b).view(np.float16)).view(np.uint16))


def add_bf16(a: int, b: int) -> int:
    bits = add_f32(a << 16, b << 16)
    if isnan(to_f32(bits)):
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def select_number(minimum: bool) -> Callable[[int, int, int], int]:
    """Compute IEEE minimumNumber or maximumNumber for 32 or 64 bits."""

    def select_value(old: int, data: int, size: int) -> int:
        kind = "<f" if size == 4 else "<d"
        a, b = (struct.unpack(kind, item.to_bytes(size, "little"))[0] for item in (old, data))
        if isnan(a) and isnan(b):
            return data | 1 << (22 if size == 4 else 51)
        if isnan(a) or isnan(b):
            return data if isnan(a) else old
        key = [(value, not bits >> 8 * size - 1) for value, bits in ((a, old), (b, data))]
        return (old, data)[key[1] < key[0]] if minimum else (old, data)[key[1] > key[0]]

    return select_value


OPERATIONS: dict[str, Callable[[int, int, int], int]] = {
    "swap": lambda old, data, size: data,
    "add": lambda old, data, size: old + data,
    "sub": lambda old, data, size: old - data,
    "rsub": lambda old, data, size: data - old,
    "min_i": lambda old, data, size: min(old, data, key=lambda value: to_signed(value, size)),
    "max_i": lambda old, data, size: max(old, data, key=lambda value: to_signed(value, size)),
    "min_u": lambda old, data, size: min(old, data),
    "max_u": lambda old, data, size: max(old, data),
    "and_b": lambda old, data, size: old & data,
    "or_b": lambda old, data, size: old | data,
    "xor_b": lambda old, data, size: old ^ data,
    "inc": lambda old, data, size: 0 if old >= data else old + 1,
    "dec": lambda old, data, size: data if old == 0 or old > data else old - 1,
    "cond_sub": lambda old, data, size: old - data if old >= data else old,
    "sub_clamp": lambda old, data, size: max(old - data, 0),
    "add_f32": lambda old, data, size: add_f32(old, data),
    "min_num_f": select_number(True),
    "max_num_f": select_number(False),
    "pk_add_f16": apply_to_halves(add_f16),
    "pk_add_bf16": apply_to_halves(add_bf16),
}
SIZED = {
    **{f"{name}_u{8 * size}": (name, size) for name in ("add", "sub", "inc", "dec") for size in (4, 8)},
    **{f"{name}{8 * size}": (name, size)
       for name in ("min_i", "max_i", "min_u", "max_u", "and_b", "or_b", "xor_b") for size in (4, 8)},
    "cond_sub_u32": ("cond_sub", 4),
    "sub_clamp_u32": ("sub_clamp", 4),
    "add_f32": ("add_f32", 4),
    "min_num_f32": ("min_num_f", 4),
    "max_num_f32": ("max_num_f", 4),
    "pk_add_f16": ("pk_add_f16", 4),
    "pk_add_bf16": ("pk_add_bf16", 4),
}  # fmt: skip
MEMORY = {**SIZED, "swap_b32": ("swap", 4), "swap_b64": ("swap", 8)}
FORMS = {  # flat addresses reach the same code
    "global": MEMORY,
    "flat": {
        name: MEMORY[name] for name in ("add_u32", "add_u64", "max_i32", "pk_add_f16", "swap_b32", "swap_b64")
    },
}
LDS = {
    **SIZED,
    "rsub_u32": ("rsub", 4),
    "rsub_u64": ("rsub", 8),
    "min_num_f64": ("min_num_f", 8),
    "max_num_f64": ("max_num_f", 8),
    "storexchg_b32": ("swap", 4),
    "storexchg_b64": ("swap", 8),
}
TWO = {"cmpswap_b32": 4, "cmpswap_b64": 8}
LDS_TWO = {"cmpstore_b32": 4, "cmpstore_b64": 8, "mskor_b32": 4, "mskor_b64": 8}

LOAD_DATA = BEGIN + "".join(f"global_load_b32 v{4 + n}, v1, s[4:5] offset:{256 * n}\n" for n in range(4))
LOAD_DATA += "s_wait_loadcnt 0x0\n"


def store_registers(count: int) -> str:
    lines = [f"global_store_b32 v1, v{20 + n}, s[2:3] offset:{256 * n}\n" for n in range(count)]
    return "s_wait_loadcnt_dscnt 0x0\n" + "".join(lines) + "s_endpgm\n"


def zero_registers(count: int) -> str:
    return "".join(f"v_mov_b32 v{20 + n}, 0\n" for n in range(count))


def memory_kernel(form: str) -> str:
    """All lanes access the same location, one location per operation; old values go to rows of s[2:3]."""
    names = {**{name: size for name, (_, size) in FORMS[form].items()}, **TWO}
    text = LOAD_DATA + zero_registers(2 * len(names)) + "v_mov_b32 v2, s6\nv_mov_b32 v3, s7\nv_mov_b32 v8, 0\n"
    address, rest = {"global": ("v8", ", s[6:7]"), "flat": ("v[2:3]", "")}[form]
    for index, (name, size) in enumerate(names.items()):
        data = register_range(4, size // 4 * (2 if name in TWO else 1))
        result = register_range(20 + 2 * index, size // 4)
        where = f"offset:{index * PLACE_BYTES} th:TH_ATOMIC_RETURN"
        text += f"{form}_atomic_{name} {result}, {address}, {data}{rest} {where}\n"
    return text + store_registers(2 * len(names))


def returning_name(name: str) -> str:
    stem, _, kind = name.rpartition("_")
    return f"ds_{stem}_rtn_{kind}"


def lds_kernel() -> str:
    """The same in LDS: two dwords of each location are loaded from s[6:7] and stored there."""
    names = {**{name: size for name, (_, size) in LDS.items()}, **LDS_TWO}
    text = LOAD_DATA + zero_registers(2 * len(names)) + "v_mov_b32 v9, 0\n"
    for index in range(len(names)):
        text += f"global_load_b64 v[10:11], v9, s[6:7] offset:{index * PLACE_BYTES}\ns_wait_loadcnt 0x0\n"
        text += f"ds_store_b64 v9, v[10:11] offset:{index * PLACE_BYTES}\n"
    for index, (name, size) in enumerate(names.items()):
        data = register_range(4, size // 4)
        if name in LDS_TWO:
            data += ", " + register_range(4 + size // 4, size // 4)
        returned = register_range(20 + 2 * index, size // 4)
        text += f"{returning_name(name)} {returned}, v9, {data} offset:{index * PLACE_BYTES}\n"
    text += "s_wait_dscnt 0x0\n"
    for index in range(len(names)):
        text += f"ds_load_b64 v[10:11], v9 offset:{index * PLACE_BYTES}\ns_wait_dscnt 0x0\n"
        text += f"global_store_b64 v9, v[10:11], s[6:7] offset:{index * PLACE_BYTES}\n"
    return text + store_registers(2 * len(names))


KERNELS = {
    "global": memory_kernel("global"),
    "flat": memory_kernel("flat"),
    "lds": lds_kernel(),
    "count": """
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    v_mov_b32 v3, 0x3f800000
    s_mov_b32 s4, 0
    .Lagain:
    global_atomic_add_u32 v1, v2, s[0:1]
    global_atomic_add_f32 v1, v3, s[0:1] offset:64
    global_atomic_add_u64 v[4:5], v1, v[2:3], s[0:1] offset:128 th:TH_ATOMIC_RETURN
    s_addk_co_i32 s4, 0x1
    s_cmp_lt_u32 s4, 64
    s_cbranch_scc1 .Lagain
    s_endpgm
    """,
    "no return": """
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_add_nc_u32 v2, 5, v0
    v_mov_b32 v3, v0
    global_atomic_add_u32 v1, v2, s[0:1]
    global_atomic_max_u32 v1, v2, s[0:1] offset:128
    global_atomic_cmpswap_b32 v1, v[2:3], s[0:1] offset:256
    buffer_atomic_or_b32 v2, v1, s[4:7], null offen offset:384
    v_lshlrev_b32 v4, 2, v0
    buffer_atomic_sub_u32 v2, v4, s[4:7], null offen offset:512 th:TH_ATOMIC_RETURN
    s_wait_loadcnt 0x0
    global_store_b32 v1, v2, s[0:1] offset:640
    s_endpgm
    """,
}


def make_inputs(wave: int) -> tuple[np.ndarray, np.ndarray]:
    """(data [4, 64] u32, places [n, 16] u32): small and large numbers, floats with NaN and -0, equal ones."""
    random = np.random.default_rng(11)
    data = random.integers(0, 1 << 32, (4, 64), np.uint32)
    kinds = random.integers(0, 5, (4, 64))
    data[kinds == 0] = random.integers(0, 50, (kinds == 0).sum())
    floats = np.array([0.0, -0.0, 1.5, -2.25, np.nan, np.inf, 3e38, 1e-40], np.float32).view(np.uint32)
    data[kinds == 1] = random.choice(floats, (kinds == 1).sum())
    places = random.integers(0, 1 << 32, (48, 16), np.uint32)
    places[::3, :2] = random.integers(0, 40, (16, 2))
    places[1::3, 0] = random.choice(floats, 16)
    del wave
    return data, places


def expected_results(
    names: dict[str, tuple[str, int]],
    is_two_address: dict[str, int],
    data: np.ndarray,
    places: np.ndarray,
    wave: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(old values [2 n, wave], places afterwards): lane after lane."""
    old = np.zeros((2 * (len(names) + len(is_two_address)), 64), np.uint32)
    after = places.copy()
    sizes = {**{name: size for name, (_, size) in names.items()}, **is_two_address}
    for index, (name, size) in enumerate(sizes.items()):
        memory = int.from_bytes(places[index].tobytes()[:size], "little")
        for lane in range(wave):
            raw = data[:, lane].tobytes()
            first, second = (int.from_bytes(raw[part : part + size], "little") for part in (0, size))
            for word in range(size // 4):
                old[2 * index + word, lane] = memory >> 32 * word & 0xFFFFFFFF
            if name in is_two_address:
                masked = memory & ~first & MASK[size] | second
                new = masked if "mskor" in name else first if memory == second else memory
            else:
                new = OPERATIONS[names[name][0]](memory, first, size)
            memory = new & MASK[size]
        after[index, : size // 4] = np.frombuffer(memory.to_bytes(size, "little"), np.uint32)
    return old, after


def assert_same(got: np.ndarray, want: np.ndarray, names: list[str]) -> None:
    for index, name in enumerate(names):
        rows = slice(2 * index, 2 * index + 2)
        assert np.array_equal(canonical_halves(got[rows], name), canonical_halves(want[rows], name)), name


def canonical_halves(words: np.ndarray, name: str) -> np.ndarray:
    """Treat all NaN half floats as equal, because the resulting NaN is not defined."""
    if name != "pk_add_f16":
        return words
    parts = np.ascontiguousarray(words).view(np.uint16).copy()
    parts[(parts & 0x7FFF) > 0x7C00] = 0x7E00
    return parts


@pytest.mark.parametrize(
    ("form", "level", "wave"), [("global", "off", 64), ("global", "full", 32), ("flat", "fast", 32)]
)
@pytest.mark.rest(keep=1)
def test_memory_atomics_match(form: str, level: str, wave: int) -> None:
    data, places = make_inputs(wave)
    for index, name in enumerate([*FORMS[form], *TWO]):  # half of the comparisons succeed
        if name in TWO:
            size = TWO[name] // 4
            data[size : 2 * size, ::2] = places[index, :size, None]
    want_old, want = expected_results(FORMS[form], TWO, data, places, wave)
    device = EngineDevice(level=level)
    old = np.zeros_like(want_old)
    arrays = (np.zeros(64, np.uint32), old, data, places)
    user = [half for array in arrays for half in split_va(device.place(array))]
    assert not device.run(machine_code(KERNELS[form]), threads=(wave, 1, 1), wave=wave, user_data=user)
    names = [*FORMS[form], *TWO]
    assert_same(old[:, :wave], want_old[:, :wave], names)
    for index, name in enumerate(names):
        assert np.array_equal(canonical_halves(places[index], name), canonical_halves(want[index], name)), name


@pytest.mark.rest
def test_lds_atomics_match() -> None:
    data, places = make_inputs(32)
    want_old, want = expected_results(LDS, LDS_TWO, data, places, 32)
    device = EngineDevice(level="full")
    old = np.zeros_like(want_old)
    arrays = (np.zeros(64, np.uint32), old, data, places)
    user = [half for array in arrays for half in split_va(device.place(array))]
    findings = device.run(machine_code(KERNELS["lds"]), user_data=user, lds_bytes=4096)
    assert not findings
    assert_same(old[:, :32], want_old[:, :32], [*LDS, *LDS_TWO])
    for index, name in enumerate([*LDS, *LDS_TWO]):
        assert np.array_equal(canonical_halves(places[index], name), canonical_halves(want[index], name)), name


def test_flat_atomics_reach_the_lds() -> None:
    """The upper half of the address says that it is the LDS's aperture."""
    data, places = make_inputs(32)
    want_old, _ = expected_results(FORMS["flat"], TWO, data, np.zeros_like(places), 32)
    device = EngineDevice(level="off")  # the LDS is not initialised
    old = np.zeros_like(want_old)
    arrays = (np.zeros(64, np.uint32), old, data)
    user = [half for array in arrays for half in split_va(device.place(array))] + [0, 1 << 16]
    device.run(machine_code(KERNELS["flat"]), user_data=user, lds_bytes=4096)
    fill = int(old[0, 0])  # of fresh LDS
    want_old, _ = expected_results(FORMS["flat"], TWO, data, np.full_like(places, fill), 32)
    assert_same(old[:, :32], want_old[:, :32], [*FORMS["flat"], *TWO])


def test_no_atomic_add_is_lost_between_threads() -> None:
    device = EngineDevice(level="fast", threads=2)
    memory = np.zeros(64, np.uint32)
    groups = 64
    findings = device.run(
        machine_code(KERNELS["count"]),
        groups=(groups, 1, 1),
        threads=(64, 1, 1),
        user_data=split_va(device.place(memory)),
    )
    assert not findings
    total = groups * 64 * 64
    assert memory[0] == total
    assert memory[16:17].view(np.float32)[0] == total
    assert int(memory[32:34].view(np.uint64)[0]) == total * (1 | 0x3F800000 << 32) % (1 << 64)


def test_atomics_without_return_keep_registers_unchanged() -> None:
    device = EngineDevice(level="full")
    memory = np.zeros((6, 32), np.uint32)
    memory[2] = np.arange(32)
    memory[2, 3] = 77
    memory[4] = 1000
    va = device.place(memory)
    user = [*split_va(va), 0, 0, *split_va(va), memory.nbytes - 16, 3 << 28]
    assert not device.run(machine_code(KERNELS["no return"]), user_data=user)
    lane = np.arange(32, dtype=np.uint32)
    assert np.array_equal(memory[0], lane + 5)
    assert np.array_equal(memory[1], lane + 5)
    assert np.array_equal(memory[2], np.where(lane == 3, 77, lane + 5))
    assert np.array_equal(memory[3], lane + 5)
    assert np.array_equal(memory[4], 1000 - (lane + 5))
    assert np.array_equal(memory[5], np.full(32, 1000))
