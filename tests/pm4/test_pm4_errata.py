"""The packet errata (reference errata.md, entries 1 to 21), each that a packet layer can show."""

from __future__ import annotations

import pytest

from zinc_rt.pm4 import BAD_OPCODE, BadPacket, Generation, Sh, decode, decode_stream
from zinc_rt.pm4.gcr import ACQUIRE, RELEASE
from zinc_rt.pm4.lint import lint
from zinc_rt.pm4.packets import (
    AcquireMem,
    DispatchDirect,
    EventWrite,
    Nop,
    ReleaseMem,
    SetShReg,
    WaitRegMem,
    WriteData,
)
from zinc_rt.pm4.registers import PGM_RSRC2, UCONFIG, USER_DATA_COUNT, register_name

G11, G12 = Generation.GFX11, Generation.GFX12


def broken_rules(words: list[int], generation: Generation = G12, **where: object) -> list[str]:
    return [finding.rule for finding in lint(words, generation, **where)]  # type: ignore[arg-type]


def test_errata_1_and_3_dispatch_direct_has_four_body_dwords() -> None:
    assert DispatchDirect(1, 2, 3, 0x8005).words(G12) == [0xC0031500, 1, 2, 3, 0x8005]
    # as the original wrote it: three dims, and the next packet's header taken for the initiator
    packet, length = decode([0xC0031500, 1, 2, 3, 0xC0004600, 0x407], 0, G12)
    assert packet == DispatchDirect(1, 2, 3, 0xC0004600) and length == 5
    assert "type" in broken_rules([0xC0031500, 1, 2, 3, 0xC0004600, 0x407])


def test_errata_3_dispatch_needs_bit_0_of_the_initiator() -> None:
    assert "dispatch-disabled" in broken_rules(DispatchDirect(1, 1, 1, 0x8004).words(G12))


def test_errata_2_one_register_has_count_1() -> None:
    assert SetShReg(Sh.USER_DATA_0, (7,)).words(G12)[0] == 0xC0017600
    # count 2 eats the following header: the stream then starts its next packet inside a body
    eaten = [0xC0027600, 0x240, 7, *DispatchDirect(1, 1, 1, 0x8005).words(G12)]
    assert decode(eaten, 0, G12)[0] == SetShReg(0x240, (7, 0xC0031500))
    assert "type" in broken_rules(eaten)


def test_errata_4_register_field_is_an_offset_from_the_base() -> None:
    assert SetShReg(Sh.USER_DATA_0, (7,)).words(G12)[1] == 0x240
    assert broken_rules([0xC0017600, 0x2E40, 7]) == ["register-range"]


def test_errata_5_and_6_release_mem_has_seven_body_dwords() -> None:
    assert len(ReleaseMem(0x7F0000000000, 1).words(G12)) == 8
    assert broken_rules([0xC0064900, 0x0, 0x7F00, 1, 0]) == ["truncated"]
    assert broken_rules([0xC0054900, 0x514, 0x20000000, 0x1000, 0x7F00, 1, 0]) == ["count"]


def test_errata_7_acquire_mem_starts_with_zero_and_ends_in_gcr_cntl() -> None:
    words = AcquireMem(0x7FFFF).words(G12)
    assert len(words) == 8 and words[1] == 0 and words[7] == 0x7FFFF
    gfx9 = [0xC0055800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 4]
    assert broken_rules(gfx9) == ["count"]
    assert AcquireMem(0, base_256b=0x1000 >> 8, size_256b=0x2000 >> 8).words(G12)[2:6] == [0x20, 0, 0x10, 0]


def test_errata_8_set_context_reg_is_graphics_only() -> None:
    bad, _ = decode([0xC0016900, 0, 0], 0, G12)
    assert isinstance(bad, BadPacket) and bad.why == "other-engine" and "SET_CONTEXT_REG" in bad.text


def test_errata_9_scratch_is_in_sh_registers() -> None:
    assert register_name(0x2C00 + Sh.TMPRING_SIZE, G12) == "COMPUTE_TMPRING_SIZE"
    assert register_name(0x2C00 + Sh.DISPATCH_SCRATCH_BASE_LO, G12) == "COMPUTE_DISPATCH_SCRATCH_BASE_LO"
    assert UCONFIG.end == 0x10000


@pytest.mark.parametrize("packet", [WaitRegMem(0x7F0000000000, 1), WriteData(0x7F0000000000, (1,))])
def test_errata_10_compute_has_no_engine_select(packet: WaitRegMem | WriteData) -> None:
    words = packet.words(G12)
    words[1] |= 1 << (8 if isinstance(packet, WaitRegMem) else 30)
    assert broken_rules(words) == ["reserved-bits"]
    assert not any("engine" in field.name for field in packet.FIELDS)


def test_errata_11_nop_with_count_0_is_two_dwords_and_count_3fff_is_one() -> None:
    assert Nop().words(G12) == [0xFFFF1000]
    assert decode([0xFFFF1000, 0xFFFF1000], 0, G12) == (Nop(), 1)
    assert decode([0xC0001000, 0xFFFF1000], 0, G12) == (Nop((0xFFFF1000,)), 2)
    assert broken_rules([0xC0001000]) == ["truncated"]


def test_errata_12_body_has_count_plus_1_dwords() -> None:
    for packet in (Nop((1, 2, 3)), DispatchDirect(1, 1, 1, 1), SetShReg(0, (1, 2)), EventWrite(7, 4)):
        words = packet.words(G12)
        assert (words[0] >> 16 & 0x3FFF) + 1 == len(words) - 1


def test_errata_15_fields_move_between_generations() -> None:
    glk_wb = ReleaseMem(0x7F0000000000, 1, gcr_cntl=1 << 12)
    assert glk_wb.words(G12)[1] >> 24 & 1  # 13 bits, not gfx10's 12
    assert {field.name for field in ACQUIRE[G11]} - {field.name for field in ACQUIRE[G12]} == {
        "GLM_WB",
        "GLM_INV",
        "GL1_INV",
        "GL1_RANGE",
    }
    assert "GLM_WB" not in {field.name for field in RELEASE[G12]}
    for data_sel in (5, 7):  # GDS and atomic add are gone
        words = ReleaseMem(0x7F0000000000, 1, data_sel=data_sel).words(G12)
        assert "value" in broken_rules(words, G12) and "value" not in broken_rules(words, G11)
    assert {field.low: field.name for field in PGM_RSRC2[G11]}[6] == "TRAP_PRESENT"
    assert {field.low: field.name for field in PGM_RSRC2[G12]}[6] == "DYNAMIC_VGPR"
    assert broken_rules(SetShReg(Sh.PGM_RSRC2, (1 << 6,)).words(G12)) == ["dynamic-vgpr"]
    assert broken_rules(SetShReg(Sh.PGM_RSRC2, (1 << 6,)).words(G11), G11) == []


def test_errata_16_unknown_opcode_stops_the_stream() -> None:
    items = decode_stream([0xC0000000 | BAD_OPCODE << 8, 0, 0xFFFF1000], G12)
    assert len(items) == 1 and isinstance(items[0].packet, BadPacket) and items[0].packet.why == "opcode"


def test_errata_21_dependent_dispatches_need_event_0x407() -> None:
    assert EventWrite.cs_partial_flush().words(G12) == [0xC0004600, 0x407]


def test_errata_49_compute_has_sixteen_user_data_registers() -> None:
    assert USER_DATA_COUNT == 16
    assert broken_rules(SetShReg(Sh.USER_DATA_0, (0,) * 16).words(G12)) == []
    assert broken_rules(SetShReg(Sh.USER_DATA_0, (0,) * 17).words(G12)) == ["user-data"]
