"""Global, flat, scratch, buffer and scalar memory: every form against plain NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from memory_kernels import WAVE64, assemble_source, list_sources, load_known, machine_code, source_key

from zinc_rt.sim.interfaces import Fault
from zinc_rt.sim.shader.run.engine_device import FIRST_VA, EngineDevice

HIGH_VA = 0xFFFF_8001_0000_0000  # where RADV's buffers are: a resource has only bits 47:0
LEVELS = ("off", "fast", "full")
KEPT = 0xA5A5A5A5
DATA_BYTES = 4096

# form: bytes, signed, half of the register (None: all of it)
LOADS = {
    "u8": (1, False, None), "i8": (1, True, None), "u16": (2, False, None), "i16": (2, True, None),
    "b32": (4, False, None), "b64": (8, False, None), "b96": (12, False, None), "b128": (16, False, None),
    "d16_u8": (1, False, 0), "d16_i8": (1, True, 0), "d16_b16": (2, False, 0),
    "d16_hi_u8": (1, False, 1), "d16_hi_i8": (1, True, 1), "d16_hi_b16": (2, False, 1),
}  # fmt: skip
STORES = {
    "b8": (1, 0), "b16": (2, 0), "b32": (4, 0), "b64": (8, 0), "b96": (12, 0), "b128": (16, 0),
    "d16_hi_b8": (1, 16), "d16_hi_b16": (2, 16),
}  # fmt: skip
FIRST = 20  # register of the first result


def dword_count(size_bytes: int) -> int:
    return max(1, size_bytes // 4)


def register_range(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def result_registers() -> dict[str, int]:
    """Return the result register of each load form, four registers apart so that tuples do not overlap."""
    return {name: FIRST + 4 * number for number, name in enumerate(LOADS)}


BEGIN = """
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
global_load_b32 v2, v1, s[0:1]
s_wait_loadcnt 0x0
"""


def load_kernel(line: Callable[[str, str], str], setup: str = "") -> str:
    """Load offsets from s[0:1], run `line`(form, registers) for each form, and store the results to s[4:5]."""
    ends = [result_registers()[name] + dword_count(LOADS[name][0]) for name in LOADS]
    used = [r for name, end in zip(LOADS, ends, strict=True) for r in range(result_registers()[name], end)]
    text = BEGIN + "".join(f"v_mov_b32 v{r}, {KEPT:#x}\n" for r in used) + setup
    text += "s_mov_b64 s[16:17], exec\ns_mov_b64 exec, s[6:7]\n"
    for name, (size, _, _) in LOADS.items():
        text += line(name, register_range(result_registers()[name], dword_count(size))) + "\n"
    text += "s_wait_loadcnt_dscnt 0x0\ns_mov_b64 exec, s[16:17]\n"
    for number, register in enumerate(used):
        text += f"global_store_b32 v1, v{register}, s[4:5] offset:{256 * number}\n"
    return text + "s_endpgm\n"


def store_kernel(line: Callable[[str, str, int], str], setup: str = "") -> str:
    """Stores v[4:7] by each form to areas of 4 KiB from s[2:3] on; data from s[4:5]."""
    text = BEGIN + "".join(f"global_load_b32 v{4 + word}, v1, s[4:5] offset:{256 * word}\n" for word in range(4))
    text += "s_wait_loadcnt 0x0\n" + setup + "s_mov_b64 exec, s[6:7]\n"
    for number, (name, (size, _)) in enumerate(STORES.items()):
        text += line(name, register_range(4, dword_count(size)), number * DATA_BYTES) + "\n"
    return text + "s_endpgm\n"


VECTOR_ADDRESS = "v_mov_b32 v3, s3\nv_add_co_u32 v2, vcc_lo, s2, v2\nv_add_co_ci_u32 v3, vcc_lo, 0, v3, vcc_lo\n"
VECTOR_ADDRESS_64 = VECTOR_ADDRESS.replace("vcc_lo", "vcc")
KERNELS = {
    "load saddr": load_kernel(lambda name, data: f"global_load_{name} {data}, v2, s[2:3] offset:12"),
    "load vaddr": load_kernel(
        lambda name, data: f"global_load_{name} {data}, v[2:3], off offset:12", VECTOR_ADDRESS
    ),
    "load flat": load_kernel(lambda name, data: f"flat_load_{name} {data}, v[2:3] offset:12", VECTOR_ADDRESS),
    "load buffer": load_kernel(lambda name, data: f"buffer_load_{name} {data}, v2, s[8:11], null offen offset:12"),
    "store saddr": store_kernel(lambda name, data, at: f"global_store_{name} v2, {data}, s[2:3] offset:{at}"),
    "store vaddr": store_kernel(
        lambda name, data, at: f"global_store_{name} v[2:3], {data}, off offset:{at}", VECTOR_ADDRESS
    ),
    "store flat": store_kernel(
        lambda name, data, at: f"flat_store_{name} v[2:3], {data} offset:{at}", VECTOR_ADDRESS
    ),
    "store buffer": store_kernel(
        lambda name, data, at: f"buffer_store_{name} {data}, v2, s[8:11], null offen offset:{at}"
    ),
    "scratch": BEGIN
    + """
    global_load_b32 v4, v1, s[4:5]
    global_load_b32 v5, v1, s[4:5] offset:256
    global_load_b32 v6, v1, s[4:5] offset:512
    global_load_b32 v7, v1, s[4:5] offset:768
    s_mov_b32 s8, 64
    s_wait_loadcnt 0x0
    scratch_store_b128 off, v[4:7], off offset:16
    scratch_store_b64 off, v[6:7], s8
    scratch_store_b32 v2, v5, off offset:128
    scratch_store_b8 v2, v6, off offset:129
    scratch_store_d16_hi_b16 v2, v6, off offset:130
    scratch_load_b96 v[8:10], off, off offset:20
    scratch_load_b32 v11, off, s8 offset:4
    scratch_load_b32 v12, v2, off offset:128
    scratch_load_u16 v13, off, off offset:18
    scratch_load_i8 v14, v2, s8 offset:65
    s_wait_loadcnt 0x0
    """
    + "".join(f"global_store_b32 v1, v{8 + n}, s[2:3] offset:{256 * n}\n" for n in range(7))
    + "s_endpgm\n",
    "scalar": """
    s_mov_b32 s6, 0x24
    s_load_b512 s[16:31], s[0:1], 0x10
    s_load_b96 s[32:34], s[0:1], s6 offset:-4
    s_load_b32 s35, s[0:1], -0x4
    s_load_u8 s36, s[0:1], 0x3
    s_load_i8 s37, s[0:1], 0x3
    s_load_u16 s38, s[0:1], 0x2
    s_load_i16 s39, s[0:1], 0x2
    s_buffer_load_b128 s[40:43], s[8:11], 0x38
    s_buffer_load_b64 s[44:45], s[8:11], s6 offset:0x8
    s_prefetch_data s[0:1], 0, null, 3
    s_wait_kmcnt 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    """
    + "".join(f"v_mov_b32 v2, s{16 + n}\nglobal_store_b32 v1, v2, s[2:3] offset:{256 * n}\n" for n in range(30))
    + "s_endpgm\n",
    "structured": BEGIN
    + """
    v_mov_b32 v4, 4
    v_mov_b32 v3, v2
    buffer_load_b64 v[6:7], v3, s[8:11], null idxen offset:8
    buffer_load_b32 v8, v[3:4], s[8:11], null idxen offen
    s_wait_loadcnt 0x0
    global_store_b32 v1, v6, s[2:3]
    global_store_b32 v1, v7, s[2:3] offset:256
    global_store_b32 v1, v8, s[2:3] offset:512
    s_endpgm
    """,
}
for _name in ("load vaddr", "load flat", "store vaddr", "store flat"):
    KERNELS[f"{_name} 64"] = WAVE64 + KERNELS[_name].replace(VECTOR_ADDRESS, VECTOR_ADDRESS_64)


def test_machine_code_matches_assembled_sources(slow_counts: Callable[[int, int], int]) -> None:
    pytest.importorskip("ziglang", reason="no assembler: the extra `asm` is not installed")
    everything = sorted(list_sources(), key=source_key)
    assert {source_key(source) for source in everything} == set(load_known())
    for source in everything[: slow_counts(2, len(everything))]:
        assert assemble_source(source) == machine_code(source)


def lane_offsets(wave: int) -> dict[str, np.ndarray]:
    """Return the byte offsets of the lanes, in bounds for 16 bytes at offset + 12."""
    lane = np.arange(wave)
    random = np.random.default_rng(7)
    return {
        "side by side": lane * 16,
        "reversed": (wave - 1 - lane) * 16,
        "the same": lane * 0 + 64,
        "shared by eight": lane // 8 * 2,
        "anywhere": random.integers(0, DATA_BYTES - 32, wave),
        "strided": lane * 32,
    }


def split_va(va: int) -> tuple[int, int]:
    return va & 0xFFFFFFFF, va >> 32


def exec_masks(wave: int) -> tuple[int, ...]:
    full = (1 << wave) - 1
    return full, full ^ 1, 0x10, 0x5A5A5A5A5A5A5A5A & full, 0


def sanitizer_modes(form: str, wave: int, number: int) -> tuple[str, ...]:
    """Test all of them for the form that kernels use most."""
    if form == "saddr":
        return ("full", LEVELS[number % 2])
    return ("full",) if wave == 32 else ("fast",)


def expected_registers(data: np.ndarray, index: int, form: str) -> list[int]:
    """What one lane's registers hold."""
    size, signed, half = LOADS[form]
    raw = data[index : index + size].tobytes()
    if size >= 4:
        return [int.from_bytes(raw[word : word + 4], "little") for word in range(0, size, 4)]
    value = int.from_bytes(raw, "little", signed=signed)
    if half is None:
        return [value & 0xFFFFFFFF]
    kept = KEPT & (0xFFFF0000 >> 16 * half)
    return [kept | (value & 0xFFFF) << 16 * half]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("form", ["saddr", "vaddr", "flat", "buffer"])
def test_loads_match(form: str, wave: int) -> None:
    kernel = machine_code(KERNELS[f"load {form}" + (" 64" if wave == 64 and form in ("vaddr", "flat") else "")])
    data = np.random.default_rng(3).integers(0, 256, DATA_BYTES, np.uint8)
    for number, (pattern, item) in enumerate(lane_offsets(wave).items()):
        mask = exec_masks(wave)[number % len(exec_masks(wave))]
        for level in sanitizer_modes(form, wave, number):
            device = EngineDevice(level=level)
            out = np.zeros((64, 64), np.uint32)
            where = item.astype(np.uint32)
            vas = [device.place(array) for array in (where, data, out)]
            resource = (*split_va(vas[1]), DATA_BYTES, 3 << 28)
            user = (*split_va(vas[0]), *split_va(vas[1]), *split_va(vas[2]), *split_va(mask), *resource)
            findings = device.run(kernel, threads=(wave, 1, 1), wave=wave, user_data=user, vgprs=96)
            assert not findings
            row = 0
            for name, (size, _, _) in LOADS.items():
                for lane in range(wave):
                    active = mask >> lane & 1
                    want = (
                        expected_registers(data, int(item[lane]) + 12, name)
                        if active
                        else [KEPT] * dword_count(size)
                    )
                    got = out[row : row + dword_count(size), lane].tolist()
                    assert got == want, (pattern, name, lane, level)
                row += dword_count(size)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("form", ["saddr", "vaddr", "flat", "buffer"])
def test_stores_match(form: str, wave: int) -> None:
    kernel = machine_code(KERNELS[f"store {form}" + (" 64" if wave == 64 and form in ("vaddr", "flat") else "")])
    values = np.random.default_rng(4).integers(0, 1 << 32, (4, 64), np.uint32)
    for number, (pattern, item) in enumerate(lane_offsets(wave).items()):
        mask = exec_masks(wave)[number % len(exec_masks(wave))]
        for level in sanitizer_modes(form, wave, number):
            device = EngineDevice(level=level)
            target = np.zeros((len(STORES), DATA_BYTES), np.uint8)
            want = target.copy()
            for row, (size, shift) in enumerate(STORES.values()):
                for lane in range(wave):
                    if mask >> lane & 1:
                        raw = values[: dword_count(size), lane].tobytes()[shift // 8 :][:size]
                        want[row, item[lane] : item[lane] + size] = np.frombuffer(raw, np.uint8)
            where = item.astype(np.uint32)
            vas = [device.place(where), device.place(target, initialised=False), device.place(values)]
            resource = (*split_va(vas[1]), target.nbytes, 3 << 28)
            user = (*split_va(vas[0]), *split_va(vas[1]), *split_va(vas[2]), *split_va(mask), *resource)
            findings = device.run(kernel, threads=(wave, 1, 1), wave=wave, user_data=user)
            assert not findings
            assert np.array_equal(target, want), (pattern, level)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("wave", [32, 64])
def test_scratch_is_private_to_each_lane(wave: int, level: str) -> None:
    device = EngineDevice(level=level)
    lane = np.arange(wave)
    values = np.random.default_rng(5).integers(0, 1 << 32, (4, 64), np.uint32)
    out = np.zeros((7, 64), np.uint32)
    where = (lane % 4 * 4).astype(np.uint32)
    user = [half for array in (where, out, values) for half in split_va(device.place(array))]
    kernel = machine_code(KERNELS["scratch"])
    findings = device.run(kernel, threads=(wave, 1, 1), wave=wave, user_data=user, scratch_bytes=256)
    assert not findings
    v4, v5, v6, v7 = values[:, :wave]
    mixed = v5 & 0xFF | (v6 & 0xFF) << 8 | v6 >> 16 << 16
    want = [v5, v6, v7, v7, mixed, v4 >> 16, ((v6 & 0xFF) ^ 0x80) - np.uint32(0x80)]
    for number, item in enumerate(want):
        assert np.array_equal(out[number, :wave], item), number


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("high", [False, True])
def test_scalar_loads_match(level: str, high: bool) -> None:
    device = EngineDevice(level=level)
    if high:
        device._next_va = HIGH_VA
    data = np.random.default_rng(6).integers(0, 1 << 32, 64, np.uint32)
    data[1] = 0x8765_4321
    out = np.zeros((30, 64), np.uint32)
    va = device.place(data) + 4
    user = [*split_va(va), *split_va(device.place(out)), 0, 0, 0, 0, *split_va(va & (1 << 48) - 1), 64, 0]
    assert not device.run(machine_code(KERNELS["scalar"]), user_data=user)
    want = [*data[5:21], *data[9:12], data[0], 0x87, 0xFFFFFF87, 0x8765, 0xFFFF8765]
    want += [*data[15:17], 0, 0, *data[12:14]]
    assert [int(item) for item in out[:, 0]] == [int(item) for item in want]
    assert (out[:, :32] == out[:, :1]).all()


@pytest.mark.rest
def test_loads_beyond_a_buffer_give_zero_and_stores_are_dropped() -> None:
    """Dword by dword; and it is no finding."""
    device = EngineDevice(level="full")
    data = np.arange(1, 1 + DATA_BYTES // 4, dtype=np.uint32)
    where, out = (np.arange(32) * 16).astype(np.uint32), np.zeros((64, 64), np.uint32)
    vas = [device.place(array) for array in (where, data, out)]
    end = 16 * 20 + 12 + 8
    user = [part for va in vas for part in split_va(va)] + [*split_va(0xFFFFFFFF), *split_va(vas[1]), end, 3 << 28]
    assert not device.run(machine_code(KERNELS["load buffer"]), user_data=user, vgprs=96)
    names = list(LOADS)
    first = sum(dword_count(LOADS[name][0]) for name in names[: names.index("b128")])
    for lane in range(32):
        for word in range(4):
            index = 16 * lane + 12 + 4 * word
            assert out[first + word, lane] == (data[index // 4] if index + 4 <= end else 0)


@pytest.mark.parametrize("va", [FIRST_VA, HIGH_VA], ids=hex)
def test_structured_buffers_count_records(va: int) -> None:
    device = EngineDevice(level="full")
    device._next_va = va
    data = np.arange(1, 513, dtype=np.uint32)
    where, out = np.arange(32, dtype=np.uint32), np.zeros((3, 64), np.uint32)
    vas = [device.place(array) for array in (where, out, data)]
    low, high = split_va(vas[2])
    user = [*split_va(vas[0]), *split_va(vas[1]), 0, 0, 0, 0, low, high & 0xFFFF | 16 << 16, 30, 0]
    assert not device.run(machine_code(KERNELS["structured"]), user_data=user)
    lane = np.arange(32)
    for row, word in enumerate((2, 3, 1)):
        assert np.array_equal(out[row, :32], np.where(lane < 30, data[4 * lane + word], 0))


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("level", LEVELS)
def test_unmapped_memory_faults_with_its_address(level: str) -> None:
    device = EngineDevice(level=level)
    where, data, out = np.arange(32, dtype=np.uint32) * 16, np.zeros(4), np.zeros(8192)
    where[9] = 0x80000
    vas = [device.place(array) for array in (where, data, out)]
    user = [part for va in vas for part in split_va(va)] + [*split_va(0xFFFFFFFF)]
    with pytest.raises(Fault) as caught:
        device.run(machine_code(KERNELS["load saddr"]), user_data=user, vgprs=96)
    assert caught.value.va == vas[1] + 0x80000 + 12


def test_lanes_of_one_load_may_access_different_allocations() -> None:
    """Each lane counts, not the wave: lanes in different allocations are fine."""
    device = EngineDevice(level="full")
    data = np.arange(2 * DATA_BYTES, dtype=np.uint8)
    where, out = (np.arange(32) * 128).astype(np.uint32), np.zeros((64, 64), np.uint32)
    vas = [device.place(array) for array in (where, data, out)]
    device.announce(vas[1], DATA_BYTES // 2, "lower half")
    device.announce(vas[1] + DATA_BYTES // 2, DATA_BYTES, "upper half")
    user = [part for va in vas for part in split_va(va)] + [*split_va(0xFFFFFFFF)]
    assert not device.run(machine_code(KERNELS["load saddr"]), user_data=user, vgprs=96)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("form", ["vaddr", "flat", "buffer"])
def test_unmapped_memory_is_never_accessed(form: str, slow_counts: Callable[[int, int], int]) -> None:
    """Wild addresses and masks: a fault, or the bytes inside; what lies around them on the host stays as it is."""
    random = np.random.default_rng(9)
    around = np.full(3 * DATA_BYTES, 0x5A, np.uint8)
    data = around[DATA_BYTES : 2 * DATA_BYTES]
    where, values, out = np.zeros(32, np.uint32), np.zeros((4, 64), np.uint32), np.zeros((64, 64), np.uint32)
    device = EngineDevice(level="full")
    vas = [device.place(array) for array in (where, data, values, out)]
    device.announce(vas[1] + 100, 300, "some of it")
    faults = 0
    for _ in range(slow_counts(40, 2000)):
        step = int(random.choice([0, 1, 4, 16, -16, 4096]))
        start = int(random.choice([0, 90, DATA_BYTES - 64, 0xFFFFFFF0, int(random.integers(0, 1 << 32))]))
        where[:] = (start + step * np.arange(32)) % (1 << 32)
        base = int(random.choice(np.array([vas[1], vas[1], 0, 1 << 48, 2 << 48, (1 << 64) - 64], np.uint64)))
        mask = int(random.integers(0, 1 << 32)) if random.random() < 0.5 else 0xFFFFFFFF
        records = int(random.choice([0, 1000, DATA_BYTES, 0xFFFFFFFF]))
        resource = (base & 0xFFFFFFFF, base >> 32 & 0xFFFF, records, 3 << 28)
        for kernel, third in (("load", vas[3]), ("store", vas[2])):
            user = (*split_va(vas[0]), *split_va(base), *split_va(third), *split_va(mask), *resource)
            try:
                device.run(
                    machine_code(KERNELS[f"{kernel} {form}"]),
                    user_data=user,
                    vgprs=96,
                    lds_bytes=512,
                    scratch_bytes=64,
                )
            except Fault:
                faults += 1
    assert faults
    assert (around[:DATA_BYTES] == 0x5A).all() and (around[2 * DATA_BYTES :] == 0x5A).all()
