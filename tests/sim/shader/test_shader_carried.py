"""Undefined bits are carried on by what compilers do with bits they never use, and found where they are used."""

from __future__ import annotations

import pytest
from carried_programs import PROGRAMS, read
from machine_words import ENDPGM, V, code_of, s_move, sop1, sop2, sopc, sopp, use_scalar, v_mov
from single_wave import SingleWave

from zinc_rt.sim.shader.checks.carried import CARRIED, USED
from zinc_rt.sim.shader.layout import Status
from zinc_rt.sim.shader.translate.semantics import EMIT

CODE = read()


def findings_of(name: str, **more) -> list[tuple[str, int, str]]:
    wave = SingleWave(CODE[name], user_data=(0x1000, 0), scratch_bytes=128, **more)
    wave.run()
    return wave.rules()


@pytest.mark.parametrize("name", PROGRAMS)
def test_undefined_data_is_propagated_silently_and_reported_on_use(name: str) -> None:
    assert findings_of(f"{name} healthy") == []
    message = [item for item in findings_of(f"{name} faulty") if item[0].startswith("uninitialised-")]
    assert len(message) == 1, message
    assert message[0][2].startswith(PROGRAMS[name][3]), message


def test_mode_off_propagates_nothing() -> None:
    assert findings_of("compared faulty", level="off") == []


def test_undefined_bits_survive_suspensions() -> None:
    """v1 gets its lower half only; the loop hands back at every turn."""
    code = code_of(
        s_move(40, 5),
        [0x7E021400 | 256],  # v_cvt_f16_f32 v1, v0
        sop2("s_sub_co_u32", 40, 40, 129),
        sopc("s_cmp_lg_u32", 40, 128),
        sopp("s_cbranch_scc1", -3),
        v_mov(2, V + 1),
        use_scalar(3, V + 2),
        ENDPGM,
    )
    wave = SingleWave(code)
    assert wave.run_to_the_end(fuel=1) > 3
    assert wave.rules() == [("uninitialised-vgpr", 28, "v2, computed from undefined bits")]


def test_upper_lanes_of_wave64_are_tracked() -> None:
    wave = SingleWave(
        code_of(
            s_move(126, 1),
            s_move(127, 0),
            v_mov(1, V),
            s_move(127, 1),
            v_mov(2, V + 1),
            use_scalar(3, V + 2),
            ENDPGM,
        ),
        wave=64,
    )
    assert wave.run() is Status.DONE
    assert [(rule, text.split(",")[0]) for rule, _, text in wave.rules()] == [("uninitialised-vgpr", "v2")]
    assert int(wave.findings[0]["lanes"]) == 1 << 32


def test_scalar_copy_is_silent_and_its_use_is_reported() -> None:
    copies = [sop1("s_mov_b64", 4, 40), sop1("s_mov_b32", 6, 5)]
    assert SingleWave(code_of(*copies, ENDPGM)).run() is Status.DONE
    wave = SingleWave(code_of(*copies, sop1("s_ctz_i32_b32", 7, 6), ENDPGM))
    wave.run()
    assert wave.rules() == [("uninitialised-sgpr", 8, "s6, computed from undefined bits")]


def test_every_propagation_row_names_an_emitted_instruction() -> None:
    assert not (CARRIED.keys() | USED.keys()) - EMIT.keys()
