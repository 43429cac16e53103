"""Machine code by hand: encodings of the scalar formats and of the few vector instructions that show results."""

from __future__ import annotations

from zinc_rt.isa.rows import make_rows
from zinc_rt.isa.target import make_default_target

ENDPGM = 0xBFB00000
VCC, M0, NULL, EXEC = 106, 125, 124, 126
LITERAL = 255
V = 256  # vector registers as sources


def encode_constant(value: int) -> int:
    """The source code of an inline integer."""
    assert -16 <= value <= 64
    return 128 + value if value >= 0 else 192 - value


def opcode_of(encoding: str, mnemonic: str) -> int:
    result = make_rows("scalar", encoding, make_default_target().generation)
    return next(opcode for opcode, row in result.items() if row.mnemonic == mnemonic)


def sop1(mnemonic: str, destination: int, source: int = 0) -> int:
    return 0x17D << 23 | destination << 16 | opcode_of("SOP1", mnemonic) << 8 | source


def sop2(mnemonic: str, destination: int, first: int, second: int) -> int:
    return 0b10 << 30 | opcode_of("SOP2", mnemonic) << 23 | destination << 16 | second << 8 | first


def sopc(mnemonic: str, first: int, second: int) -> int:
    return 0x17E << 23 | opcode_of("SOPC", mnemonic) << 16 | second << 8 | first


def sopk(mnemonic: str, destination: int, value: int) -> int:
    return 0xB << 28 | opcode_of("SOPK", mnemonic) << 23 | destination << 16 | value & 0xFFFF


def sopp(mnemonic: str, value: int = 0) -> int:
    return 0x17F << 23 | opcode_of("SOPP", mnemonic) << 16 | value & 0xFFFF


def s_move(destination: int, value: int) -> list[int]:
    """s_mov_b32 of any 32-bit value."""
    return [sop1("s_mov_b32", destination, LITERAL), value & 0xFFFFFFFF]


def v_mov(destination: int, source: int) -> int:
    """v_mov_b32 v[destination], source; vector registers are 256 and more."""
    return 0x3F << 25 | destination << 17 | 1 << 9 | source


def use_scalar(destination: int, source: int) -> int:
    """v_cvt_f32_u32 v[destination], source: wants all its bits."""
    return 0x7E000C00 | destination << 17 | source


def store_dword(data: int, offset_vgpr: int, base: int, byte_offset: int = 0) -> list[int]:
    """global_store_b32 v[offset_vgpr], v[data], s[base:base+1] offset:byte_offset."""
    return [0xEE << 24 | 0x1A << 14 | base, data << 23, byte_offset << 8 | offset_vgpr]


def code_of(*parts: int | list[int]) -> bytes:
    words: list[int] = []
    for part in parts:
        words += part if isinstance(part, list) else [part]
    return b"".join((word & 0xFFFFFFFF).to_bytes(4, "little") for word in words)
