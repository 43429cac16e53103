"""Branches, calls, barriers, fuel, refusals: one wave at a time, by hand."""

from __future__ import annotations

import pytest
from machine_words import (
    ENDPGM,
    EXEC,
    LITERAL,
    M0,
    VCC,
    code_of,
    encode_constant,
    s_move,
    sop1,
    sop2,
    sopc,
    sopk,
    sopp,
    v_mov,
)
from single_wave import PROGRAM_VA, SingleWave

from zinc_rt.isa.target import make_default_target
from zinc_rt.sim.shader.emit.trace import lines, steps
from zinc_rt.sim.shader.layout import NO_PHASE, Status
from zinc_rt.sim.shader.run.engine_device import EngineDevice

RESULT = 30
# Shows s30 (and s31): a barrier that another wave never comes to saves what is read behind it.
SHOW = [
    sop1("s_barrier_signal", 0, encode_constant(-1)),
    sopp("s_barrier_wait", 0xFFFF),
    sop2("s_add_co_u32", RESULT, RESULT, RESULT + 1),
    ENDPGM,
]


def wave_at_show(*parts: int | list[int], **more) -> SingleWave:
    """The wave stopped at SHOW's barrier."""
    wave = SingleWave(code_of(*parts, SHOW), group_waves=2, **more)
    assert wave.run() is Status.BARRIER
    return wave


def counting_loop(turns: int) -> list[int]:
    """s30 = 1 + 2 + … + turns, s31 = 0; the loop is 4 instructions."""
    return [
        *s_move(RESULT, 0),
        *s_move(RESULT + 1, turns),
        sop2("s_add_co_u32", RESULT, RESULT, RESULT + 1),
        sop2("s_sub_co_u32", RESULT + 1, RESULT + 1, encode_constant(1)),
        sopc("s_cmp_lg_u32", RESULT + 1, encode_constant(0)),
        sopp("s_cbranch_scc1", -4),
    ]


def test_loop_runs_the_expected_number_of_times() -> None:
    assert wave_at_show(counting_loop(10)).sgpr(RESULT) == 55


def test_loop_with_limited_fuel_gives_same_result_in_more_calls() -> None:
    wave = SingleWave(code_of(counting_loop(100), SHOW), group_waves=2)
    calls = 0
    while wave.run(fuel=10) is Status.FUEL:
        calls += 1
    assert (wave.sgpr(RESULT), wave.sgpr(RESULT + 1)) == (5050, 0)
    assert 30 < calls < 60
    assert wave.context["fuel"] >= 0


def test_endless_loop_exhausts_its_fuel() -> None:
    wave = SingleWave(code_of(sopp("s_branch", -1)))
    assert wave.run(fuel=1000) is Status.FUEL
    assert wave.run(fuel=1000) is Status.FUEL


def test_vector_registers_survive_a_suspension() -> None:
    """v1 = lane, doubled in each turn under EXEC of the odd lanes; the even ones keep theirs."""
    code = code_of(
        sop1("s_mov_b32", RESULT + 1, encode_constant(3)),
        [0x4A000000 | 1 << 17 | 128],  # v_add_nc_u32 v1, 0, v0
        s_move(EXEC, 0xAAAAAAAA),
        [0x4A000000 | 1 << 17 | 1 << 9 | 257],  # v_add_nc_u32 v1, v1, v1
        sop2("s_sub_co_u32", RESULT + 1, RESULT + 1, encode_constant(1)),
        sopc("s_cmp_lg_u32", RESULT + 1, encode_constant(0)),
        sopp("s_cbranch_scc1", -4),
        sop1("s_barrier_signal", 0, encode_constant(-1)),
        sopp("s_barrier_wait", 0xFFFF),
        v_mov(2, 257),
        ENDPGM,
    )
    wave = SingleWave(code, group_waves=2)
    calls = 0
    while wave.run(fuel=1) is Status.FUEL:
        calls += 1
    assert calls >= 1
    assert wave.vgprs[1].tolist() == [lane * 8 if lane & 1 else lane for lane in range(32)]
    assert wave.rules() == []


@pytest.mark.parametrize(
    ("branch", "value", "is_taken"),
    [
        ("s_cbranch_scc0", sopc("s_cmp_eq_u32", encode_constant(1), encode_constant(1)), False),
        ("s_cbranch_scc1", sopc("s_cmp_eq_u32", encode_constant(1), encode_constant(1)), True),
        ("s_cbranch_vccz", sop1("s_mov_b32", VCC, encode_constant(0)), True),
        ("s_cbranch_vccnz", sop1("s_mov_b32", VCC, encode_constant(0)), False),
        ("s_cbranch_execz", sop1("s_mov_b32", EXEC, encode_constant(0)), True),
        ("s_cbranch_execnz", sop1("s_mov_b32", EXEC, encode_constant(2)), True),
    ],
)
def test_branches_follow_their_condition(branch: str, value: int, is_taken: bool) -> None:
    wave = wave_at_show(
        s_move(RESULT, 1),
        s_move(RESULT + 1, 0),
        value,
        sopp(branch, 1),
        sop1("s_mov_b32", RESULT, encode_constant(2)),
    )
    assert wave.sgpr(RESULT) == (1 if is_taken else 2)


def test_vccz_tests_one_half_in_wave32_and_both_in_wave64() -> None:
    parts = [
        s_move(RESULT, 1),
        s_move(RESULT + 1, 0),
        s_move(VCC, 0),
        s_move(VCC + 1, 5),
        sopp("s_cbranch_vccz", 1),
    ]
    parts.append([sop1("s_mov_b32", RESULT, encode_constant(2))])
    assert wave_at_show(*parts, wave=32).sgpr(RESULT) == 1
    assert wave_at_show(*parts, wave=64).sgpr(RESULT) == 2


def test_call_returns_to_the_next_instruction() -> None:
    """s_call_b64 twice to one subroutine that adds 5."""
    wave = wave_at_show(
        s_move(RESULT, 0),
        s_move(RESULT + 1, 0),
        sopk("s_call_b64", 40, 2),
        sopk("s_call_b64", 40, 1),
        sopp("s_branch", 2),
        sop2("s_add_co_u32", RESULT, RESULT, encode_constant(5)),
        sop1("s_setpc_b64", 0, 40),
    )
    assert wave.sgpr(RESULT) == 10


def test_far_call_uses_the_program_counter() -> None:
    """s_getpc_b64, plus a constant, s_swappc_b64: how compilers call."""
    wave = wave_at_show(
        s_move(RESULT, 0),
        s_move(RESULT + 1, 0),
        sop1("s_getpc_b64", 40),  # gives the next instruction's address
        [sop2("s_add_co_u32", 40, 40, LITERAL), 4 * 6],
        sop2("s_add_co_ci_u32", 41, 41, encode_constant(0)),
        sop1("s_swappc_b64", 42, 40),
        sopp("s_branch", 3),
        sop1("s_nop" if False else "s_mov_b32", 50, encode_constant(0)),
        sop2("s_add_co_u32", RESULT, RESULT, encode_constant(7)),
        sop1("s_setpc_b64", 0, 42),
    )
    assert wave.sgpr(RESULT) == 7


def test_program_counter_is_the_kernel_address() -> None:
    wave = wave_at_show(sop1("s_getpc_b64", RESULT), sop1("s_mov_b32", 40, encode_constant(0)))
    assert wave.sgpr(RESULT) | wave.sgpr(RESULT + 1) << 32 == PROGRAM_VA + 4


def test_jump_to_unknown_address_ends_the_wave() -> None:
    wave = SingleWave(code_of(s_move(40, 0x1234), s_move(41, 0), sop1("s_setpc_b64", 0, 40)))
    assert wave.run() is Status.ILLEGAL
    rule, pc, text = wave.stopped_at()
    assert (rule, pc) == ("illegal", 16)
    assert "jumps to an address" in text


def test_branch_into_an_instruction_executes_its_literal() -> None:
    """The literal of a move is itself s_endpgm."""
    wave = SingleWave(code_of(sopp("s_branch", 1), [sop1("s_mov_b32", 1, LITERAL), ENDPGM], sopp("s_trap", 1)))
    assert wave.run() is Status.DONE


@pytest.mark.parametrize(
    ("words", "status", "rule", "text"),
    [
        ([0x00000000], Status.ILLEGAL, "illegal", ""),
        ([0xFFFFFFFF], Status.ILLEGAL, "illegal", "does not decode"),
        ([sopp("s_code_end")], Status.ILLEGAL, "illegal", "ran past its s_endpgm"),
        ([sopp("s_trap", 3)], Status.HALT, "trap", "trap 3"),
        ([sopp("s_sethalt", 1)], Status.HALT, "halt", "halts"),
        ([sopp("s_sendmsg", 9)], Status.ILLEGAL, "illegal", "graphics"),
        ([sopk("s_getreg_b32", 4, 31 << 11 | 2)], Status.ILLEGAL, "illegal", "WAVE_STATUS"),
        ([sop1("s_barrier_signal", 0, encode_constant(3))], Status.ILLEGAL, "illegal", "named barrier"),
    ],
)
def test_unsimulated_instruction_stops_only_when_reached(words, status, rule, text) -> None:
    jumped_over = SingleWave(code_of(sopp("s_branch", len(words)), words, ENDPGM))
    assert jumped_over.run() is Status.DONE
    wave = SingleWave(code_of(sopp("s_nop"), words, ENDPGM))
    assert wave.run() is status
    got = wave.stopped_at()
    assert (got[0], got[1]) == (rule, 4)
    assert text in got[2]


def test_code_without_an_end_is_illegal() -> None:
    wave = SingleWave(code_of(sopp("s_nop")))
    assert wave.run() is Status.ILLEGAL
    assert wave.stopped_at()[1] == 4


def test_mode_may_be_rewritten_with_its_current_value() -> None:
    same = [sopp("s_round_mode", 0), sopp("s_denorm_mode", 15), sopk("s_setreg_b32", 3, 7 << 11 | 1)]
    assert SingleWave(code_of(s_move(3, 0xF0), same, ENDPGM)).run() is Status.DONE
    assert SingleWave(code_of(s_move(3, 0xC0), same, ENDPGM)).run() is Status.ILLEGAL


def test_getreg_shifts_and_masks() -> None:
    wave = wave_at_show(s_move(RESULT + 1, 0), sopk("s_getreg_b32", RESULT, 1 | 4 << 6 | 1 << 11))
    assert wave.sgpr(RESULT) == 3


def test_clocks_advance_at_each_read() -> None:
    wave = wave_at_show(
        [sop1("s_sendmsg_rtn_b64", 40, 131), sop1("s_sendmsg_rtn_b64", 42, 131)],
        sop2("s_sub_nc_u64", RESULT, 42, 40),
        sopk("s_getreg_b32", 44, 31 << 11 | 29),
    )
    assert wave.sgpr(RESULT) > 0
    assert wave.context["cycles"] > 0


# --- barriers


def test_wave_waits_until_the_barrier_phase_ends() -> None:
    wave = SingleWave(code_of(s_move(RESULT, 4), s_move(RESULT + 1, 5), SHOW), group_waves=2, level="full")
    assert wave.run() is Status.BARRIER
    assert wave.run() is Status.BARRIER  # nobody else has come
    wave.context["barrier_signals"] = 0
    wave.context["barrier_phase"] += 1
    assert wave.run() is Status.DONE
    assert int(wave.header["barrier_phase"]) == NO_PHASE
    assert wave.rules() == []


def test_single_wave_group_passes_the_barrier() -> None:
    wave = SingleWave(code_of(s_move(RESULT, 4), s_move(RESULT + 1, 5), SHOW), level="full")
    assert wave.run() is Status.DONE
    assert wave.rules() == []


@pytest.mark.parametrize("others", [0, 1])
def test_isfirst_is_set_for_the_first_signalling_wave(others: int) -> None:
    code = code_of(
        sop1("s_barrier_signal_isfirst", 0, encode_constant(-1)),
        sop2("s_cselect_b32", RESULT, encode_constant(1), encode_constant(0)),
        sop1("s_mov_b32", RESULT + 1, encode_constant(0)),
        sopp("s_barrier_wait", 0xFFFF),
        sop2("s_add_co_u32", 40, RESULT, RESULT + 1),
        ENDPGM,
    )
    wave = SingleWave(code, group_waves=3)
    wave.context["barrier_signals"] = others
    assert wave.run() is Status.BARRIER
    assert wave.sgpr(RESULT) == 1 - others


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([sopp("s_barrier_wait", 0xFFFF)], "without a preceding signal"),
        ([sop1("s_barrier_signal", 0, encode_constant(-1))] * 2, "twice"),
    ],
)
def test_barrier_misuse_is_reported_in_full_mode_only(words: list[int], text: str) -> None:
    for level, expected in (("fast", 0), ("full", 1)):
        wave = SingleWave(code_of(words, ENDPGM), level=level, group_waves=4)
        wave.run()
        assert len(wave.rules()) == expected
        assert all(rule == "barrier-misuse" and text in output for rule, _, output in wave.rules())


def test_barrier_number_from_m0_is_never_negative() -> None:
    """Number 0 does nothing; the others are named barriers, which this chip does not have."""
    signal = sop1("s_barrier_signal", 0, M0)
    assert SingleWave(code_of(s_move(M0, 32), signal, ENDPGM)).run() is Status.DONE
    assert SingleWave(code_of(s_move(M0, 2), signal, ENDPGM)).run() is Status.ILLEGAL


def test_entry_may_be_at_any_offset() -> None:
    code = code_of(sopp("s_trap", 1), v_mov(1, 128), ENDPGM)
    assert SingleWave(code, entry=4).run() is Status.DONE


# --- trace and profile


def test_trace_shows_values_written_by_each_instruction() -> None:
    code = code_of(
        s_move(EXEC, 5), v_mov(1, 256), sop2("s_add_co_u32", 3, 0, encode_constant(-1)), sopp("s_nop"), ENDPGM
    )
    wave = SingleWave(code, user_data=(7,), trace=True)
    assert wave.run() is Status.DONE
    got = list(steps(wave.trace, wave.context["trace_count"], 32))
    assert [(step.pc, step.name) for step in got] == [
        (0, "exec_lo"),
        (8, "v1"),
        (12, "s3"),
        (12, "scc"),
        (16, ""),
        (20, ""),
    ]
    assert [step.exec for step in got[:2]] == [0xFFFFFFFF, 5]
    assert got[1].values[[0, 2]].tolist() == [0, 2]
    assert (got[2].values.tolist(), got[3].values.tolist()) == ([6], [1])
    text = list(lines(wave.trace, wave.context["trace_count"], make_default_target(), code))
    assert text[2].endswith("v_mov_b32_e32 v1, v0")
    assert "00000006" in text[5]


def test_other_waves_are_not_traced_and_overflow_is_counted() -> None:
    code = code_of(counting_loop(100), ENDPGM)
    wave = SingleWave(code, trace=True)
    wave.context["trace_wave"] = 3
    wave.run()
    assert wave.context["trace_count"] == 0
    wave.context["trace_wave"] = 0
    wave.run()
    assert wave.context["trace_count"] > len(wave.trace)
    assert "did not fit" in list(lines(wave.trace, wave.context["trace_count"], make_default_target(), code))[-1]


def test_profile_counts_executions_of_each_block() -> None:
    wave = SingleWave(code_of(counting_loop(10), ENDPGM), profile=True)
    wave.run()
    assert wave.translation.blocks == (0, 16, 32)
    assert wave.profile.tolist() == [1, 10, 1]


def test_device_shows_the_trace_of_a_launched_wave() -> None:
    code = code_of(v_mov(1, 256), sop1("s_mov_b32", 3, 108 + 9), ENDPGM)
    device = EngineDevice(trace=5)
    assert device.run(code, groups=(3, 1, 1), threads=(64, 1, 1), vgprs=8) == []
    written = [line.split()[:2] for line in device.traced if "exec" not in line]
    assert written == [["v1", "00000020"], ["s3", "00000002"]]
    assert EngineDevice().traced == []
