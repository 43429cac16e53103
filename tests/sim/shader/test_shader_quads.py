"""Accumulators that stay in memory order: the same bits as without, also where waves are suspended and resumed."""

from __future__ import annotations

import numpy as np
import pytest
from shader_launch import parse_dwords, split_va

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa.target import make_default_target
from zinc_rt.sim.shader.launch_setup import FLOAT_MODE, LaunchSetup
from zinc_rt.sim.shader.layout import Checks, KernelVariant
from zinc_rt.sim.shader.memory.ranges import PlacedArray, of_arrays
from zinc_rt.sim.shader.run.engine_device import EngineDevice
from zinc_rt.sim.shader.run.group_runner import Stop
from zinc_rt.sim.shader.run.kernels import CompiledKernels, choose_variant
from zinc_rt.sim.shader.run.launch_run import LaunchRun, WaveThreads
from zinc_rt.sim.shader.translate.translation import translate

BEFORE = """
    f4004100 f8000000           ; s_load_b128 s[4:7], s[0:1], 0x0
    f4002200 f8000010           ; s_load_b64 s[8:9], s[0:1], 0x10
    30020084                    ; v_lshlrev_b32_e32 v1, 4, v0
    7e080280                    ; v_mov_b32_e32 v4, 0
    7e0a0280                    ; v_mov_b32_e32 v5, 0
    7e0c0280                    ; v_mov_b32_e32 v6, 0
    7e0e0280                    ; v_mov_b32_e32 v7, 0
    bfc70000                    ; s_wait_kmcnt 0x0
    bf068002                    ; s_cmp_eq_u32 s2, 0
"""
LOADS = """
    ee05c004 00000008 00000001  ; global_load_b128 v[8:11], v1, s[4:5]
    ee05c006 0000000c 00000001  ; global_load_b128 v[12:15], v1, s[6:7]
    bfc00000                    ; s_wait_loadcnt 0x0
    10101908                    ; v_mul_f32_e32 v8, v8, v12
    10121b09                    ; v_mul_f32_e32 v9, v9, v13
    10141d0a                    ; v_mul_f32_e32 v10, v10, v14
    10161f0b                    ; v_mul_f32_e32 v11, v11, v15
    06081104                    ; v_add_f32_e32 v4, v4, v8
    060a1305                    ; v_add_f32_e32 v5, v5, v9
    060c1506                    ; v_add_f32_e32 v6, v6, v10
    060e1707                    ; v_add_f32_e32 v7, v7, v11
"""
STEP = """
    4a0202ff 00000200           ; v_add_nc_u32_e32 v1, 0x200, v1
    80828102                    ; s_sub_co_u32 s2, s2, 1
    bf078002                    ; s_cmp_lg_u32 s2, 0
"""
AFTER = """
    30020084                    ; v_lshlrev_b32_e32 v1, 4, v0
    ee074008 02000000 00000001  ; global_store_b128 v1, v[4:7], s[8:9]
    bfb00000                    ; s_endpgm
"""
PLAIN = parse_dwords(f"{BEFORE} bfa20014 {LOADS} {STEP} bfa2ffec {AFTER}")
"""sum[4 lane + word] += x * w, 128 elements a turn; s2 turns."""

CROSSED = parse_dwords(
    f"""{BEFORE} bfa20018 {LOADS}
    7e200304                    ; v_mov_b32_e32 v16, v4
    7e080305                    ; v_mov_b32_e32 v4, v5
    7e0a0310                    ; v_mov_b32_e32 v5, v16
    bf800000                    ; s_nop 0
    {STEP} bfa2ffe8 {AFTER}"""
)
"""Like PLAIN, but the first two accumulators change places at each turn's end."""


ZEROS = "7e200280 7e220280 7e240280 7e260280  ; v[16:19] = 0"
WAIT = "bfc00000                    ; s_wait_loadcnt 0x0"
STORE = f"{WAIT}\n    ee074004 08000000 00000001  ; global_store_b128 v1, v[16:19], s[4:5]"
STORED = parse_dwords(f"{ZEROS} {BEFORE} bfa20017 {LOADS.replace(WAIT, STORE)} {STEP} bfa2ffe9 {AFTER}")
"""Like PLAIN, but x is zero in memory by the time that what was loaded of it is multiplied."""


def make_data(turns: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(turns)
    x = random.standard_normal((turns, 128), np.float32)
    w = random.standard_normal((turns, 128), np.float32)
    if turns:
        x[0, :4] = (np.inf, -0.0, 1e-42, np.float32(3e38))
        w[0, :4] = (1.0, 2.0, 1.5, 1e-3)
    return x, w


def expected_sums(x: np.ndarray, w: np.ndarray, *, is_crossed: bool) -> np.ndarray:
    total = np.zeros(128, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for row, column in zip(x, w, strict=True):
            total = total + row * column
            if is_crossed:
                quads = total.reshape(32, 4)
                total = quads[:, [1, 0, 2, 3]].reshape(-1)
    return total


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("level", ["off", "full"])
@pytest.mark.parametrize("turns", [0, 1, 2, 7])
@pytest.mark.parametrize("kernel", ["plain", "crossed"])
def test_sums_match_the_elements(kernel: str, turns: int, level: str) -> None:
    device = EngineDevice(level=level)
    x, w = make_data(turns)
    out = np.full(128, 5, np.float32)
    vas = [device.place(array) for array in (x, w, out)]
    arguments = device.place(np.array(vas, np.uint64))
    program = PLAIN if kernel == "plain" else CROSSED
    assert not device.run(program, user_data=(*split_va(arguments), turns), vgprs=24)
    assert np.array_equal(out.view(np.uint32), expected_sums(x, w, is_crossed=kernel == "crossed").view(np.uint32))


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("level", ["off", "fast", "full"])
def test_loaded_values_are_not_affected_by_later_stores(level: str) -> None:
    device = EngineDevice(level=level)
    x, w = make_data(5)
    wanted = expected_sums(x, w, is_crossed=False)
    out = np.zeros(128, np.float32)
    arguments = device.place(np.array([device.place(array) for array in (x, w, out)], np.uint64))
    assert not device.run(STORED, user_data=(*split_va(arguments), 5), vgprs=24)
    assert not x.any() and np.array_equal(out.view(np.uint32), wanted.view(np.uint32))


def test_loop_keeps_loads_vectorised() -> None:
    whole = "<128 x float>"
    text = translate(KernelVariant(PLAIN, make_default_target(), True, Checks("off"), vgprs=24, user_sgprs=3)).text
    assert f"fmul {whole}" in text and f"fadd {whole}" in text
    text = translate(
        KernelVariant(STORED, make_default_target(), True, Checks("off"), vgprs=24, user_sgprs=3)
    ).text
    assert f"fmul {whole}" in text and f"fadd {whole}" in text
    text = translate(
        KernelVariant(CROSSED, make_default_target(), True, Checks("off"), vgprs=24, user_sgprs=3)
    ).text
    assert f"fadd {whole}" not in text


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("program", [PLAIN, CROSSED], ids=["plain", "crossed"])
def test_wave_resumes_its_sums_after_every_iteration(program: bytes, tmp_path: object) -> None:
    x, w = make_data(9)
    out = np.zeros(128, np.float32)
    arguments = np.array([1 << 32, 2 << 32, 3 << 32], np.uint64)
    placed = [PlacedArray((number + 1) << 32, array, "") for number, array in enumerate((x, w, out, arguments))]
    launch = LaunchSetup((1, 1, 1), (32, 1, 1), (32, 1, 1), 32, (0, 4, 9), vgprs=24)
    variant = choose_variant(launch, make_default_target(), program, Checks("fast"))
    kernel = CompiledKernels(ObjectCache(tmp_path)).of(variant)
    run = LaunchRun(kernel, launch, WaveThreads(1), mode=FLOAT_MODE)
    run.begin(of_arrays(placed, bounds=True), 0x5_0000_0000, 1)
    stops = 1
    while run.advance(0.0, 1) is Stop.FUEL:
        stops += 1
    assert stops >= 9, "the fuel of one instruction ends at each backward branch"
    assert np.array_equal(out.view(np.uint32), expected_sums(x, w, is_crossed=program is CROSSED).view(np.uint32))
    assert not run.findings()[1]
