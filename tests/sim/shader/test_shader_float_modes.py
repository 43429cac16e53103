"""Float modes: roundings and ways of denormals on the engine and on the NumPy model, and MODE at run time."""

from __future__ import annotations

import re

import pytest
from instruction_inputs import random_inputs
from machine_words import ENDPGM, code_of, encode_constant, s_move, sop1, sop2, sopc, sopk, sopp
from sim.shader_model.model_device import ModelDevice
from single_wave import SingleWave
from support import Counts
from test_shader_instructions import KERNELS, list_differences, run_kernel

from zinc_rt.sim.shader.layout import Status
from zinc_rt.sim.shader.run.engine_device import EngineDevice

RESULT = 30
SHOW = [sop1("s_barrier_signal", 0, encode_constant(-1)), sopp("s_barrier_wait", 0xFFFF),
        sop2("s_add_co_u32", RESULT, RESULT, RESULT + 1), ENDPGM]  # fmt: skip
NEAREST, UP, DOWN, ZERO = 0, 5, 10, 15  # of all formats
KEPT, FLUSHED = 0xF0, 0x00
MODE = 1 | 7 << 11  # hwreg: bits 7:0
ONE, TINY, DENORMAL = 0x3F800000, 0x30000000, 0x00000001
SETREG = {"s_setreg_b32", "s_setreg_imm32_b32", "s_round_mode", "s_denorm_mode"}
QUICK = {
    ("vector32.core.2", 0xF5),
    ("vector32.core.5", 0x6A),
    ("scalar32.core.2", 0xAF),
    ("vector32.core.4", 0x03),
}
ROWS = [
    pytest.param(name, mode, id=f"{name}-{mode:#04x}", marks=[] if (name, mode) in QUICK else [pytest.mark.slow])
    for name, (kernel, _) in KERNELS.items()
    if name.startswith(("vector32.core", "vector64.core", "scalar32", "vopd32"))
    and not any(case.mnemonic in SETREG for case in kernel.cases)
    and any(
        re.match("[vs]_(add|sub|mul|fma|pk_fma|pk_add)\\w*_f(16|32|64)", case.mnemonic) for case in kernel.cases
    )
    for mode in (0xF5, 0x6A, 0xAF, 0x03)
]


@pytest.mark.rest
@pytest.mark.parametrize(("name", "mode"), ROWS)
def test_engine_and_model_agree_in_every_mode(name: str, mode: int, slow_counts: Counts) -> None:
    kernel, code = KERNELS[name]
    data = random_inputs(kernel.wave, slow_counts(3, 12), seed=mode)
    wanted, _ = run_kernel(ModelDevice(), kernel, code, data.copy(), mode)
    got, _ = run_kernel(EngineDevice(level="off"), kernel, code, data.copy(), mode)
    result = list_differences(kernel, got, wanted)
    assert not result, "\n".join(str(item) for item in result[:20])
    nearest, _ = run_kernel(ModelDevice(), kernel, code, data.copy(), 0xF0)
    assert list_differences(kernel, got, nearest), "the mode changes nothing here"


def wave_at_show(*parts: int | list[int], mode: int = 0xF0) -> SingleWave:
    wave = SingleWave(code_of(*parts, SHOW), group_waves=2, mode=mode)
    assert wave.run() is Status.BARRIER, wave.stopped_at()
    return wave


def add_code(a: int, b: int) -> list[int]:
    return [*s_move(2, a), *s_move(3, b), sop2("s_add_f32", RESULT, 2, 3), *s_move(RESULT + 1, 0)]


@pytest.mark.parametrize(
    ("mode", "want"), [(NEAREST, ONE), (UP, ONE + 1), (DOWN, ONE), (ZERO, ONE)], ids=["even", "up", "down", "zero"]
)
def test_launch_selects_the_rounding_of_sums(mode: int, want: int) -> None:
    assert wave_at_show(add_code(ONE, TINY), mode=KEPT | mode).sgpr(RESULT) == want
    minus = 0x80000000
    turned = {UP: ONE, DOWN: ONE + 1}.get(mode, want)
    assert wave_at_show(add_code(ONE | minus, TINY | minus), mode=KEPT | mode).sgpr(RESULT) == turned | minus


def test_zero_sum_is_negative_when_rounding_down() -> None:
    minus_one = ONE | 0x80000000
    assert wave_at_show(add_code(ONE, minus_one)).sgpr(RESULT) == 0
    assert wave_at_show(add_code(ONE, minus_one), mode=KEPT | DOWN).sgpr(RESULT) == 0x80000000


@pytest.mark.parametrize(("bits", "want"), [(3, DENORMAL), (2, 0), (1, 0), (0, 0)])
def test_denormals_are_kept_or_flushed_by_their_bits(bits: int, want: int) -> None:
    assert wave_at_show(add_code(DENORMAL, 0), mode=0xC0 | bits << 4).sgpr(RESULT) == want


def test_mode_change_applies_to_later_instructions() -> None:
    changed = wave_at_show(sopp("s_round_mode", UP), add_code(ONE, TINY), sopk("s_getreg_b32", RESULT + 1, MODE))
    assert (changed.sgpr(RESULT), changed.sgpr(RESULT + 1)) == (ONE + 1, 0xF5)
    flushed = wave_at_show(sopp("s_denorm_mode", 12), add_code(DENORMAL, 0))
    assert flushed.sgpr(RESULT) == 0
    by_setreg = [sopk("s_setreg_imm32_b32", 0, 0 | 1 << 11 | 1), UP & 3]  # MODE[1:0]
    assert wave_at_show(by_setreg, add_code(ONE, TINY)).sgpr(RESULT) == ONE + 1
    back = [sopk("s_getreg_b32", 4, MODE), sopp("s_round_mode", UP), sopk("s_setreg_b32", 4, MODE)]
    assert wave_at_show(back, add_code(ONE, TINY)).sgpr(RESULT) == ONE


def test_path_dependent_mode_ends_the_wave_where_it_matters() -> None:
    """Not before: what neither rounds nor flushes goes on."""
    either = [sopc("s_cmp_eq_u32", 1, encode_constant(0)), sopp("s_cbranch_scc1", 1), sopp("s_round_mode", UP)]
    assert wave_at_show(s_move(1, 0), either, s_move(RESULT, 7), s_move(RESULT + 1, 0)).sgpr(RESULT) == 7
    wave = SingleWave(code_of(s_move(1, 0), either, add_code(ONE, TINY), ENDPGM))
    assert wave.run() is Status.ILLEGAL
    assert "paths with different float modes" in wave.stopped_at()[2]
    mended = [*either, sopp("s_round_mode", NEAREST)]
    assert wave_at_show(s_move(1, 0), mended, add_code(ONE, TINY)).sgpr(RESULT) == ONE


def test_register_may_only_restore_the_launch_mode() -> None:
    wave = SingleWave(code_of(s_move(3, 0xF5), sopk("s_setreg_b32", 3, MODE), ENDPGM))
    assert wave.run() is Status.ILLEGAL
    assert "from a register" in wave.stopped_at()[2]


def test_other_mode_bits_must_not_change() -> None:
    wave = SingleWave(code_of([sopk("s_setreg_imm32_b32", 0, 9 << 6 | 1), 1], ENDPGM))
    assert wave.run() is Status.ILLEGAL
    assert "beyond rounding, denormals and FP16_OVFL" in wave.stopped_at()[2]
