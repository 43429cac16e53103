"""Reads of registers that nothing wrote: found where they happen, and not where every path has a write."""

from __future__ import annotations

import pytest
from machine_words import (
    ENDPGM,
    EXEC,
    VCC,
    V,
    code_of,
    encode_constant,
    s_move,
    sop1,
    sop2,
    sopc,
    sopp,
    use_scalar,
    v_mov,
)
from single_wave import SingleWave

from zinc_rt.sim.shader.layout import Status


def v_add(destination: int, first: int, second: int) -> int:
    """v_add_nc_u32 v[destination], first, v[second]."""
    return 0x4A000000 | destination << 17 | second << 9 | first


def findings_of(*parts: int | list[int], level: str = "fast", **more) -> list[tuple[str, int, str]]:
    wave = SingleWave(code_of(*parts, ENDPGM), level=level, **more)
    assert wave.run() is Status.DONE
    return wave.rules()


@pytest.mark.parametrize("level", ["fast", "full"])
def test_unwritten_vector_register_is_reported_with_its_lanes(level: str) -> None:
    wave = SingleWave(code_of(s_move(EXEC, 0xF0), use_scalar(1, V + 5), ENDPGM), level=level)
    assert wave.run() is Status.DONE
    assert wave.rules() == [("uninitialised-vgpr", 8, "v5")]
    assert int(wave.findings[0]["lanes"]) == 0xF0


def test_mode_off_checks_nothing() -> None:
    assert findings_of(use_scalar(1, V + 5), sop1("s_ctz_i32_b32", 3, 4), level="off") == []


def test_unwritten_scalar_register_is_reported() -> None:
    assert findings_of(sop1("s_ctz_i32_b32", 3, 40)) == [("uninitialised-sgpr", 0, "s40")]
    assert findings_of(sop2("s_cselect_b32", 3, encode_constant(1), encode_constant(0))) == [
        ("uninitialised-sgpr", 0, "scc")
    ]
    assert findings_of(sop1("s_ctz_i32_b32", 3, VCC)) == [("uninitialised-sgpr", 0, "vcc_lo")]


def test_user_data_thread_ids_workgroup_ids_and_exec_are_initialised() -> None:
    reads = [sop1("s_ctz_i32_b32", 20, register) for register in (0, 1, 108 + 7, 108 + 8, 108 + 9, EXEC)]
    assert findings_of(reads, use_scalar(1, V), user_data=(5, 6)) == []
    assert findings_of(reads, user_data=(5,)) == [("uninitialised-sgpr", 4, "s1")]


def test_thread_ids_are_initialised_in_existing_lanes() -> None:
    widened = [sop1("s_mov_b32", EXEC, encode_constant(-1)), use_scalar(1, V)]
    wave = SingleWave(code_of(widened, ENDPGM), execution=0xFF)
    wave.run()
    assert wave.rules() == [("uninitialised-vgpr", 4, "v0")]
    assert int(wave.findings[0]["lanes"]) == 0xFFFFFF00


def test_both_registers_of_a_pair_are_checked() -> None:
    assert findings_of(s_move(40, 1), sop1("s_ctz_i32_b64", 2, 40)) == [("uninitialised-sgpr", 8, "s41")]


def test_only_lanes_written_under_exec_may_be_read() -> None:
    wave = SingleWave(
        code_of(
            s_move(EXEC, 0x0F),
            v_mov(1, V),
            use_scalar(2, V + 1),  # the same lanes: fine
            s_move(EXEC, 0xFF),
            use_scalar(3, V + 1),
            ENDPGM,
        )
    )
    wave.run()
    assert wave.rules() == [("uninitialised-vgpr", 24, "v1")]
    assert int(wave.findings[0]["lanes"]) == 0xF0


def test_both_sides_of_a_branch_may_write() -> None:
    """if (lane < 16) v1 = 1 else v1 = 2: whole again behind it, which only run time can see."""
    code = [
        s_move(40, 0xFFFF),
        sop1("s_and_saveexec_b32", 42, 40),
        v_mov(1, encode_constant(1)),
        sop2("s_xor_b32", EXEC, EXEC, 42),
        v_mov(1, encode_constant(2)),
        sop1("s_mov_b32", EXEC, 42),
        use_scalar(2, V + 1),
    ]
    assert findings_of(*code) == []
    assert [rule for rule, _, _ in findings_of(*code[:4], *code[5:])] == ["uninitialised-vgpr"]


def test_path_without_the_write_is_reported_when_taken() -> None:
    def branch_code(choice: int) -> list[int | list[int]]:
        return [
            sopc("s_cmp_eq_u32", 0, encode_constant(choice)),
            sopp("s_cbranch_scc1", 2),
            v_mov(1, encode_constant(1)),
            sop1("s_mov_b32", 40, encode_constant(1)),
            use_scalar(2, V + 1),
            sop1("s_ctz_i32_b32", 41, 40),
        ]

    assert findings_of(*branch_code(0), user_data=(5,)) == []
    assert [text for _, _, text in findings_of(*branch_code(5), user_data=(5,))] == ["v1", "s40"]


def test_read_in_a_loop_is_reported_once_or_proven_initialised() -> None:
    loop: list[int | list[int]] = [
        sop1("s_mov_b32", 40, encode_constant(3)),
        v_mov(1, encode_constant(0)),
        v_add(1, V + 1, 1),
        use_scalar(2, V + 3),  # v3 never written
        sop2("s_sub_co_u32", 40, 40, encode_constant(1)),
        sopc("s_cmp_lg_u32", 40, encode_constant(0)),
        sopp("s_cbranch_scc1", -5),
    ]
    assert findings_of(*loop) == [("uninitialised-vgpr", 12, "v3")]


def test_written_registers_are_tracked_through_suspensions() -> None:
    code = code_of(
        s_move(40, 9),
        s_move(EXEC, 0x0F),
        v_mov(1, V),
        sop2("s_sub_co_u32", 40, 40, encode_constant(1)),
        sopc("s_cmp_lg_u32", 40, encode_constant(0)),
        sopp("s_cbranch_scc1", -3),
        use_scalar(2, V + 1),
        s_move(EXEC, -1),
        use_scalar(2, V + 1),
        ENDPGM,
    )
    wave = SingleWave(code)
    assert wave.run_to_the_end(fuel=1) > 3
    assert [(pc, text) for _, pc, text in wave.rules()] == [(44, "v1")]
    assert int(wave.findings[0]["lanes"]) == 0xFFFFFFF0


def test_wave64_has_lanes_beyond_32() -> None:
    code = code_of(
        sop1("s_mov_b64", EXEC, encode_constant(3)), v_mov(1, V), s_move(EXEC + 1, 1), use_scalar(2, V + 1), ENDPGM
    )
    wave = SingleWave(code, wave=64)
    wave.run()
    assert [(rule, text) for rule, _, text in wave.rules()] == [("uninitialised-vgpr", "v1")]
    assert int(wave.findings[0]["lanes"]) == 1 << 32


def test_registers_beyond_the_kernel_allocation_are_reported() -> None:
    rules = findings_of(use_scalar(1, V + 20), v_mov(20, V), vgprs=8)
    assert [(rule, pc) for rule, pc, _ in rules] == [("vgpr-out-of-range", 0), ("vgpr-out-of-range", 4)]


def test_proven_code_has_no_runtime_checks() -> None:
    """Straight-line code whose every read is proven: no run-time masks, no sites."""
    code = code_of(v_mov(1, V), v_add(2, V + 1, 0), v_add(2, V + 2, 2), ENDPGM)
    translation = SingleWave(code, level="full").translation
    assert translation.sites == ()
    assert ".written" not in translation.text


def test_lanes_skipped_by_dpp_stay_unwritten() -> None:
    """v_mov_b32_dpp v1, v0 quad_perm:[0,1,2,3] row_mask:0x1 bank_mask:0xf writes the first row only."""
    wave = SingleWave(code_of([v_mov(1, 0xFA), 0x1F00E400], use_scalar(2, V + 1), ENDPGM))
    wave.run()
    assert wave.rules() == [("uninitialised-vgpr", 8, "v1")]
    assert int(wave.findings[0]["lanes"]) == 0xFFFF0000
