"""Bytes to instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zinc_rt.isa.encodings import memory, packed, scalar, vector, vopd
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.target import Target

LONGEST_BYTES = 16


def decode(code: bytes, at: int, target: Target) -> Instruction | None:
    """The instruction at byte offset `at`, None where there is none that LLVM would decode. Never raises."""
    if at + 4 > len(code):
        return None
    word = int.from_bytes(code[at : at + 4], "little")
    if not word:  # erased memory
        return Instruction("VOP2", 0, "v_illegal", (), (), 4, (0,))
    top = word >> 26
    if top < 32:
        prefix = word >> 25
        encoding = "VOPC" if prefix == 0x3E else "VOP1" if prefix == 0x3F else "VOP2"
        return vector.decode_short(encoding, word, code, at, target)
    if top < 48:
        prefix = word >> 23
        if prefix >= 0x17D:
            encoding = "SOP1" if prefix == 0x17D else "SOPC" if prefix == 0x17E else "SOPP"
        else:
            encoding = "SOPK" if word >> 28 == 0xB else "SOP2"
        return scalar.decode(encoding, word, code, at, target)
    if top == 0x35:
        return vector.decode_long(word, code, at, target)
    if word >> 24 == 0xCC:
        return packed.decode(word, code, at, target)
    if top == 0x32:
        return vopd.decode(word, code, at, target)
    return memory.decode(word, code, at, target)


@dataclass(frozen=True, slots=True)
class CodeItem:
    """One place in a stream: an instruction, or `size_bytes` that are none."""

    at: int
    size_bytes: int
    instruction: Instruction | None


def decode_stream(code: bytes, target: Target) -> Iterator[CodeItem]:
    """Every instruction in turn; where there is none, the next dword is tried."""
    at = 0
    while at < len(code):
        instruction = decode(code, at, target)
        size_bytes = instruction.size_bytes if instruction is not None else min(4, len(code) - at)
        yield CodeItem(at, size_bytes, instruction)
        at += size_bytes
