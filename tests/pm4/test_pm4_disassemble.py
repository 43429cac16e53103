"""The text of a stream, to the character."""

from __future__ import annotations

from zinc_rt.pm4 import Generation, Sh
from zinc_rt.pm4.disassemble import disassemble
from zinc_rt.pm4.packets import IndirectBuffer, Nop, ReleaseMem, SetShReg, SetShRegPairsPacked, WriteData

G11, G12 = Generation.GFX11, Generation.GFX12


def test_registers_fields_and_code_are_symbolised() -> None:
    words = SetShReg(Sh.PGM_LO, (0x12345678, 0x7F)).words(G12) + SetShReg(Sh.PGM_RSRC2, (0x90,)).words(G12)
    names = {0x7F1234567800: "rms_norm"}
    assert disassemble(words, G12, symbol=names.get).splitlines() == [
        "0x0000  c0027600  SET_SH_REG",
        "0x0001  0000020c    register=0x20c (COMPUTE_PGM_LO)  index=default(0)  vmid_shift=0",
        "0x0002  12345678    COMPUTE_PGM_LO = 0x12345678",
        "0x0003  0000007f    COMPUTE_PGM_HI = 0x7f  DATA=0x7f  code at 0x7f1234567800 (rms_norm)",
        "0x0004  c0017600  SET_SH_REG",
        "0x0005  00000213    register=0x213 (COMPUTE_PGM_RSRC2)  index=default(0)  vmid_shift=0",
        "0x0006  00000090    COMPUTE_PGM_RSRC2 = 0x90  USER_SGPR=8 TGID_X_EN=1",
    ]


def test_addresses_are_symbolised_and_fields_named_per_generation() -> None:
    words = IndirectBuffer(0x7F0000002000, 16, cache_policy=3).words(G12)
    text = disassemble(words, G12, symbol=lambda va: f"ib+{va & 0xFFF:#x}" if va >> 12 == 0x7F0000002 else None)
    assert "address=0x7f0000002000  (ib+0x0)" in text and "temporal=lu(3)" in text
    assert "cache_policy=bypass(3)" in disassemble(words, G11)


def test_bad_packet_is_reported_and_later_packets_marked_as_guesses() -> None:
    text = disassemble([0xC000F200, 0, 0xFFFF1000], G12).splitlines()
    assert text[0].endswith("BAD: opcode 0xf2 is not defined")
    assert "guess" in text[2] and "NOP" in text[2]


def test_long_padding_is_abbreviated_and_counted() -> None:
    text = disassemble([*Nop((1,) * 1000).words(G12), 0xFFFF1000], G12).splitlines()
    assert len(text) == 1 + 8 + 1
    assert "NOP  1001 dwords, 992 not shown" in text[0] and text[-1].startswith("0x03e9")


def test_offsets_start_at_given_base() -> None:
    assert disassemble([0xFFFF1000], G12, offset=0x1234) == "0x1234  ffff1000  NOP  1 dword"


def test_reserved_bits_payloads_and_packed_registers_are_shown() -> None:
    assert "reserved=0x2" in disassemble([0xC0004602, 0x407], G12)
    assert "[1] = 0x9" in disassemble(WriteData(0x10000, (8, 9)).words(G12), G12)
    packed = disassemble(SetShRegPairsPacked.of(((0x240, 5), (0x241, 6))).words(G12), G12)
    assert "COMPUTE_USER_DATA_0 = 0x5" in packed and "COMPUTE_USER_DATA_1 = 0x6" in packed


def test_cache_operations_are_distinguished() -> None:
    text = disassemble(ReleaseMem(0x10000, 1, gcr_cntl=1 << 9 | 1 << 10).words(G12), G12)
    assert "GL2_WB=1 SEQ=forward(1)" in text
    assert "reserved=0x1" in disassemble(ReleaseMem(0x10000, 1, gcr_cntl=1).words(G12), G12)
    assert "GLM_WB=1" in disassemble(ReleaseMem(0x10000, 1, gcr_cntl=1).words(G11), G11)
