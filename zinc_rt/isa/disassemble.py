"""The disassembler: annotated text, one line per instruction.

0x00000000  d7690005 0002046a           v_add_f32_e64 v5, vcc_lo, v2
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.isa.decoder import CodeItem, decode, decode_stream
from zinc_rt.isa.target import Target

INVALID = "INVALID"
_WORDS_SHOWN = 36  # columns: four dwords


def format_first(code: bytes, target: Target) -> str:
    """Return the text of the first instruction, or INVALID if it does not decode. Later bytes are ignored."""
    instruction = decode(code, 0, target)
    return INVALID if instruction is None else instruction.text


def disassemble_lines(code: bytes, target: Target, *, address: int = 0) -> Iterator[tuple[CodeItem, str]]:
    """Disassemble code into lines, one per instruction or undecodable dword. `address` is the address of
    code[0].
    """
    for item in decode_stream(code, target):
        words = " ".join(
            f"{int.from_bytes(code[index : min(index + 4, item.at + item.size_bytes)], 'little'):08x}"
            for index in range(item.at, item.at + item.size_bytes, 4)
        )
        text = INVALID if item.instruction is None else item.instruction.text
        yield item, f"0x{address + item.at:08x}  {words:<{_WORDS_SHOWN}}  {text}"
