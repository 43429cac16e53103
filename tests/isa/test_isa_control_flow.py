"""Where a block ends, for who reads code and for who runs it; code is words worked out by hand."""

from __future__ import annotations

import pytest

from zinc_rt.isa import target_of
from zinc_rt.isa.control_flow import Flow, find_control_flow

ENDPGM, NOP = 0xBFB00000, 0xBF800000
TRAP, SENDMSGHALT, SETHALT, CODE_END = 0xBF900002, 0xBFB70001, 0xBF820001, 0xBF9F0000
RFE, SETPC, SWAPPC = 0xBE804A04, 0xBE804804, 0xBE844906  # s[4:5]; s[4:5]; s[4:5], s[6:7]
CALL, BRANCH, CONDITIONAL, BARRIER_WAIT = 0xBA040001, 0xBFA00001, 0xBFA10001, 0xBF94FFFF  # all to 1 behind
ORDERED_PS_DONE = 0xBFB20000


def flow_of_words(*words: int, running: bool = False, generation: int = 12) -> Flow:
    code = b"".join(word.to_bytes(4, "little") for word in words)
    return find_control_flow(code, target_of(f"gfx{generation}-generic", 32), running=running)


def block_starts(flow: Flow) -> list[int]:
    return list(flow.blocks)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("word", [TRAP, SENDMSGHALT, SETHALT], ids=["s_trap", "s_sendmsghalt", "s_sethalt"])
def test_returnable_trap_does_not_end_a_block(word: int, running: bool) -> None:
    result = flow_of_words(word, ENDPGM, running=running)
    assert block_starts(result) == [0] and [pc for pc, _ in result.blocks[0].instructions] == [0, 4]


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("word", [ENDPGM, RFE, CODE_END], ids=["s_endpgm", "s_rfe_b64", "s_code_end"])
def test_block_ends_when_no_instruction_follows(word: int, running: bool) -> None:
    result = flow_of_words(word, NOP, ENDPGM, running=running)
    assert block_starts(result) == [0] and result.blocks[0].end == 4 and result.blocks[0].successors == ()


def test_ordered_ps_done_ends_a_block_on_rdna3_only() -> None:
    assert block_starts(flow_of_words(ORDERED_PS_DONE, NOP, generation=11)) == [0]
    assert flow_of_words(ORDERED_PS_DONE, NOP, generation=11).blocks[0].end == 4
    assert flow_of_words(ORDERED_PS_DONE, NOP).faults == (("illegal", 0, 0),)


def test_erased_memory_is_illegal_in_control_flow() -> None:
    for running in (False, True):
        result = flow_of_words(NOP, 0, NOP, running=running)
        assert result.blocks[0].illegal_at == 4 and result.faults == (("illegal", 4, 4),)


def test_call_falls_through_in_analysis_and_jumps_when_running() -> None:
    code = (CALL, ENDPGM, SETPC)
    read, run = flow_of_words(*code), flow_of_words(*code, running=True)
    assert block_starts(read) == block_starts(run) == [0, 4, 8]
    assert read.blocks[0].successors == (8, 4) and read.blocks[8].successors == ()
    assert run.blocks[0].successors == (8,) and run.blocks[8].successors == (4,) == run.indirect
    assert flow_of_words(SWAPPC, ENDPGM).blocks[0].successors == (4,)


def test_barrier_wait_is_a_resume_point_when_running() -> None:
    code = (NOP, BARRIER_WAIT, ENDPGM)
    assert block_starts(flow_of_words(*code)) == [0] and block_starts(flow_of_words(*code, running=True)) == [
        0,
        4,
        8,
    ]


def test_branches_have_targets_and_faults_are_reported() -> None:
    assert flow_of_words(BRANCH, NOP, ENDPGM).blocks[0].successors == (8,)
    assert flow_of_words(CONDITIONAL, NOP, ENDPGM).blocks[0].successors == (8, 4)
    outside = flow_of_words(BRANCH)
    assert outside.faults == (("outside", 0, 8),) and outside.blocks[8].illegal_at == 8
    assert flow_of_words(NOP).faults == (("past-end", 0, 4),)
    assert flow_of_words(NOP, CODE_END).faults == (("padding", 0, 4),)
