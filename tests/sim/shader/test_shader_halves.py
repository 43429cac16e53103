"""16-bit halves of registers on the engine, FP16_OVFL set by a kernel, stores of one value to LDS, and the
instructions that Triton's or LLVM's code has rarely: v_trig_preop_f64, the state of a barrier.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from machine_words import ENDPGM, V, code_of, encode_constant, sop1, sopp, use_scalar
from shader_launch import parse_dwords
from single_wave import SingleWave

from zinc_rt.sim.shader.layout import Status
from zinc_rt.sim.shader.run.engine_device import EngineDevice

LOW, HIGH = 0, 128  # the bit of a short encoding that selects the half
DPP = [0xFF00E400, 250]  # quad_perm:[0,1,2,3], all rows and banks; the source code


def mov_b16(destination: int, source: int, *more: int) -> list[int]:
    """v_mov_b16 with halves as register + LOW or HIGH; `more` is a literal."""
    return [0x7E003800 | destination << 17 | source, *more]


def swap_b16(first: int, second: int) -> int:
    return 0x7E00CC00 | first << 17 | second


def findings_of(*parts: int | list[int], level: str = "fast") -> list[tuple[str, str]]:
    wave = SingleWave(code_of(*parts, ENDPGM), level=level)
    assert wave.run() is Status.DONE
    return [(rule, text) for rule, _, text in wave.rules()]


def read_result(*parts: int | list[int]) -> int:
    """Return v1 of lane 0 after the code, which then stops at a barrier without other waves."""
    first = 0x7E0C0501  # v_readfirstlane_b32 s6, v1
    barrier = [sop1("s_barrier_signal", 0, encode_constant(-1)), sopp("s_barrier_wait", 0xFFFF)]
    wave = SingleWave(code_of(*parts, first, barrier, sop1("s_mov_b32", 7, 6), ENDPGM), group_waves=2)
    assert wave.run() is Status.BARRIER, wave.stopped_at()
    assert not wave.rules()
    return wave.sgpr(6)


BOTH = [*mov_b16(1 + LOW, 255, 0x1234), *mov_b16(1 + HIGH, 255, 0xABCD)]


def test_half_move_preserves_the_other_half() -> None:
    assert read_result(BOTH) == 0xABCD1234
    assert read_result(BOTH, mov_b16(1 + LOW, V + 1 + HIGH)) == 0xABCDABCD
    assert read_result(BOTH, mov_b16(1 + HIGH, V + 1 + LOW)) == 0x12341234


def test_swap_exchanges_halves_of_one_register() -> None:
    assert read_result(BOTH, swap_b16(1 + LOW, V + 1 + HIGH)) == 0x1234ABCD
    other = mov_b16(2 + LOW, 255, 0x5678)
    assert read_result(BOTH, other, swap_b16(1 + HIGH, V + 2 + LOW)) == 0x56781234


def test_dpp_moves_a_half() -> None:
    assert read_result(BOTH, [0x7E003800 | 1 << 17 | DPP[1], DPP[0] | 1 + HIGH]) == 0xABCDABCD


@pytest.mark.parametrize("level", ["fast", "full"])
def test_undefined_bits_are_tracked_by_half(level: str) -> None:
    low = mov_b16(1 + LOW, 255, 0x1234)
    assert findings_of(low, [0x64040301], level=level) == []  # v_add_f16 v2.l, v1.l, v1.l
    assert findings_of(low, mov_b16(2 + LOW, V + 1 + LOW), use_scalar(3, V + 2), level=level) == [
        ("uninitialised-vgpr", "v2, computed from undefined bits")
    ]
    assert findings_of(low, mov_b16(1 + HIGH, V + 1 + LOW), use_scalar(3, V + 1), level=level) == []
    moved = [*low, *mov_b16(2 + LOW, V + 1 + LOW), *mov_b16(2 + HIGH, V + 1 + HIGH)]
    assert [rule for rule, _ in findings_of(moved, use_scalar(3, V + 2), level=level)] == ["uninitialised-vgpr"]


def test_dpp_and_mix_read_only_the_half_that_they_name() -> None:
    low = mov_b16(1 + LOW, 255, 0x3C00)
    assert findings_of(low, [0x7E003800 | 2 << 17 | DPP[1], DPP[0] | 1 + LOW]) == []
    assert findings_of(low, [0xCC204002, 0x1C060301]) == []  # v_fma_mix_f32 v2, v1, v1, v1 op_sel_hi:[1,1,1]
    upper = findings_of(low, [0xCC207802, 0x1C060301])  # and op_sel:[1,1,1]
    assert [rule for rule, _ in upper] == ["uninitialised-vgpr"] and "upper half" in upper[0][1]


SAME = "7e020287 7e040280 d8340000 00000102 bfb00000"  # v1 = 7, v2 = 0, ds_store_b32 v2, v1
OTHER = "32020085 7e040280 d8340000 00000102 bfb00000"  # v1 = thread / 32


def test_waves_may_store_one_value_to_one_word() -> None:
    device = EngineDevice(level="full")
    same = device.run(parse_dwords(SAME), threads=(64, 1, 1), lds_bytes=256)
    assert {item.rule for item in same} == {"lds-same-store"}
    other = device.run(parse_dwords(OTHER), threads=(64, 1, 1), lds_bytes=256)
    assert {item.rule for item in other} == {"lds-race"}


def test_no_site_is_lost_when_many_sites_have_many_records() -> None:
    first, end = SAME.split()[:2], SAME.split()[-1]
    stores = [word for offset in range(0, 160, 4) for word in (f"d834{offset:04x}", "00000102")]
    code = parse_dwords(" ".join([*first, *stores, end]))
    found = EngineDevice(level="full").run(code, threads=(1024, 1, 1), lds_bytes=256)
    assert {item.rule for item in found} == {"lds-same-store"}
    assert len({item.place.pc for item in found}) == len(stores) // 2


def test_kernel_can_set_saturating_mode() -> None:
    huge = [0x7E0202FF, 0x47C35000]  # v1 = 100000.0
    convert = 0x7E021501  # v_cvt_f16_f32 v1.l, v1
    on = [0xB98005C1, 1]  # s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 23, 1), 1
    assert read_result(huge, convert) & 0xFFFF == 0x7C00
    assert read_result(huge, on, convert) & 0xFFFF == int(np.float16(65504).view(np.uint16))


def test_trig_preop_returns_bits_of_two_over_pi() -> None:
    """Lane n has the exponent 64 n and segment n."""
    inputs = [0x300A009A, 0x7E080280, 0x7E0C0300]  # v5 = lane << 26, v4 = 0, v6 = lane
    preop = [0xD72F0002, 0x00020D04]  # v_trig_preop_f64 v[2:3], v[4:5], v6
    barrier = [sop1("s_barrier_signal", 0, encode_constant(-1)), sopp("s_barrier_wait", 0xFFFF)]
    wave = SingleWave(
        code_of(inputs, preop, barrier, use_scalar(2, V + 2), use_scalar(3, V + 3), ENDPGM), group_waves=2
    )
    assert wave.run() is Status.BARRIER, wave.stopped_at()
    result = wave.vgprs[2:4].copy().astype(np.uint64)
    values = (result[1] << np.uint64(32) | result[0]).view(np.float64)
    with mpmath.workprec(1300):
        bits = int(mpmath.floor(2 / mpmath.pi * mpmath.mpf(2) ** 1201))
    for lane, value in enumerate(values.tolist()):
        exponent = lane * 64
        shift = lane * 53 + max(exponent - 1077, 0)
        window = bits << shift >> 1201 - 53 & (1 << 53) - 1 if shift < 4000 else 0
        assert value == np.ldexp(float(window), -53 - shift + 128 * (exponent >= 1968)), lane
    assert abs(values[0] - 2 / np.pi) < 1e-15 and np.count_nonzero(values) > 15


def test_barrier_state_is_read_from_its_register() -> None:
    """s_get_barrier_state s6, -1: four members, one signal. Leaving no barrier clears SCC."""
    signal = sop1("s_barrier_signal", 0, encode_constant(-1))
    leave = [0xBF068080, 0xBF950000, 0x98078180]  # s_cmp_eq_u32 0, 0; s_barrier_leave; s_cselect_b32 s7, 0, 1
    ends = [sopp("s_barrier_wait", 0xFFFF), 0x80060706, ENDPGM]  # s_add_co_u32 s6, s6, s7
    wave = SingleWave(code_of(signal, 0xBE8650C1, leave, ends), group_waves=4)
    assert wave.run() is Status.BARRIER, wave.stopped_at()
    assert wave.sgpr(6) == 1 << 16 | 4 << 4 | 1 and wave.sgpr(7) == 1
    named = SingleWave(code_of(0xBE805181, ENDPGM))  # s_barrier_init 1
    assert named.run() is Status.ILLEGAL and "named barrier" in named.stopped_at()[2]
    assert SingleWave(code_of(0xBE805180, 0xBE805280, ENDPGM)).run() is Status.DONE
