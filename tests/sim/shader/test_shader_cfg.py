"""Basic blocks, and what is known at each instruction."""

from __future__ import annotations

from machine_words import ENDPGM, EXEC, code_of, encode_constant, s_move, sop1, sop2, sopc, sopk, sopp, v_mov

from zinc_rt.isa import target_of
from zinc_rt.isa.control_flow import Flow, find_control_flow
from zinc_rt.isa.target import make_default_target
from zinc_rt.sim.shader.layout import CONTEXT, STATE, Checks, KernelVariant, RecordLayout
from zinc_rt.sim.shader.translate.translation import translate

WAVE32 = target_of("gfx1201")


def flow_graph(*parts: int | list[int], entry: int = 0) -> Flow:
    return find_control_flow(code_of(*parts), WAVE32, entry, running=True)


def test_straight_line_code_is_one_block() -> None:
    result = flow_graph(v_mov(1, 256), v_mov(2, 256), ENDPGM)
    assert list(result.blocks) == [0]
    assert result.blocks[0].end == 12
    assert result.blocks[0].successors == ()


def test_loop_is_a_block_that_succeeds_itself() -> None:
    result = flow_graph(
        s_move(1, 500), sop2("s_sub_co_u32", 1, 1, encode_constant(1)), sopp("s_cbranch_scc1", -2), ENDPGM
    )
    assert list(result.blocks) == [0, 8, 16]
    assert result.blocks[0].successors == (8,)
    assert set(result.blocks[8].successors) == {8, 16}


def test_code_after_the_end_is_in_no_block() -> None:
    assert list(flow_graph(ENDPGM, v_mov(1, 256), ENDPGM).blocks) == [0]


def test_branch_out_of_the_code_targets_an_empty_block() -> None:
    result = flow_graph(sopp("s_branch", 100))
    assert result.blocks[404].instructions == ()
    assert result.blocks[404].illegal_at == 404


def test_barrier_wait_starts_a_resumable_block() -> None:
    result = flow_graph(sopp("s_nop"), sopp("s_barrier_wait", 0xFFFF), ENDPGM)
    assert list(result.blocks) == [0, 4, 8]


def test_calls_make_return_addresses_known() -> None:
    result = flow_graph(sopk("s_call_b64", 40, 1), ENDPGM, sop1("s_setpc_b64", 0, 40))
    assert result.indirect == (4,)
    assert result.blocks[8].successors == (4,)


def test_pc_relative_jump_is_followed() -> None:
    result = flow_graph(
        sop1("s_getpc_b64", 40),
        sop1("s_mov_b64", 44, 40),
        sop2("s_add_nc_u64", 44, 44, encode_constant(16)),
        sop1("s_setpc_b64", 0, 44),
        sopp("s_trap", 1),
        ENDPGM,
    )
    assert result.indirect == (20,)
    assert 20 in result.blocks


def has_masked_writes(*parts: int | list[int], full: bool = True) -> bool:
    """Return whether the code's vector moves mask their writes."""
    result = translate(
        KernelVariant(code_of(*parts), make_default_target(), full, Checks("off"), vgprs=8, user_sgprs=0)
    )
    return "select" in result.text


def test_full_exec_needs_no_masking() -> None:
    body = [v_mov(1, 256), ENDPGM]
    assert not has_masked_writes(*body)
    assert has_masked_writes(*body, full=False)
    assert has_masked_writes(s_move(EXEC, 5), *body)
    assert not has_masked_writes(s_move(EXEC, -1), *body, full=False)
    assert not has_masked_writes(sop1("s_mov_b64", EXEC, encode_constant(-1)), *body, full=False)


def test_exec_is_full_again_after_restoring_saved_mask() -> None:
    save = sop1("s_and_saveexec_b32", 40, 0)
    restore = sop2("s_or_b32", EXEC, EXEC, 40)
    assert not has_masked_writes(save, sopp("s_nop"), restore, v_mov(1, 256), ENDPGM)
    assert has_masked_writes(save, s_move(40, 7), restore, v_mov(1, 256), ENDPGM)
    # Around a skipped body: both ways come together with EXEC full.
    skip = [save, sopp("s_cbranch_execz", 1), sopp("s_nop"), restore, v_mov(1, 256), ENDPGM]
    assert not has_masked_writes(*skip)


def test_only_live_registers_are_saved_at_a_suspension() -> None:
    """v1 is dead in the loop and behind it, v2 is read there, v3 is written before it is read."""
    code = code_of(
        v_mov(1, 256),
        v_mov(2, 257),
        sopc("s_cmp_eq_u32", 0, encode_constant(1)),
        sopp("s_cbranch_scc1", -2),
        v_mov(3, 258),
        v_mov(4, 259),
        ENDPGM,
    )
    text = translate(KernelVariant(code, make_default_target(), True, Checks("off"), vgprs=8, user_sgprs=1)).text
    suspended = text.split("suspend.8:")[1].split("ret")[0]
    registers = [line for line in suspended.splitlines() if "store <32 x i32>" in line]
    assert len(registers) == 1
    assert '%"v2"' in suspended


def test_layouts_are_aligned_and_fields_do_not_overlap() -> None:
    for layout in (STATE, CONTEXT):
        assert layout.dtype.itemsize == layout.size_bytes
        end = 0
        for field in layout.fields.values():
            assert field.offset >= end
            assert layout.dtype.itemsize % 64 == 0
            end = field.offset + 1
    assert RecordLayout("u32 a\nu64 b\nu8 c 3").fields["b"].offset == 8
