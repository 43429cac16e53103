"""The instruction decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from zinc_rt.isa.encodings import (
    buffer,
    buffer_gfx11,
    flat,
    graphics,
    image,
    image_gfx11,
    lds,
    memory_gfx11,
    packed,
    scalar,
    scalar_memory,
    vector,
    vopd,
)
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.rows import InstructionRow
from zinc_rt.isa.target import Target

Decode = Callable[[int, bytes, int, Target], Instruction | None]

LONGEST_BYTES = 16
_ILLEGAL = InstructionRow("VOP2", 0, "v_illegal", unit="valu", reads=("exec",), flow="illegal")

# Decoders of everything except scalar and vector arithmetic, by the top six bits.
_BY_TOP_BITS: dict[int, dict[int, Decode]] = {
    12: {
        0x31: buffer.decode,
        0x33: graphics.decode_parameters,
        0x34: image.decode_image,
        0x36: lds.decode,
        0x39: image.decode_sample,
        0x3B: flat.decode,
        0x3D: scalar_memory.decode,
        0x3E: graphics.decode_export,
    },
    11: {
        0x33: graphics.decode_parameters,
        0x36: lds.decode,
        0x37: memory_gfx11.decode_flat,
        0x38: buffer_gfx11.decode,
        0x3A: buffer_gfx11.decode,
        0x3C: image_gfx11.decode,
        0x3D: memory_gfx11.decode_scalar,
        0x3E: graphics.decode_export,
    },
}


def decode(code: bytes, index: int, target: Target) -> Instruction | None:
    """Decode the instruction at byte `index`. Return None if LLVM would not decode it either. Never raises."""
    if index + 4 > len(code):
        return None
    word = int.from_bytes(code[index : index + 4], "little")
    if not word:  # erased memory
        return Instruction(_ILLEGAL, (), (), (0,))
    top = word >> 26
    if top < 32:
        prefix = word >> 25
        encoding = "VOPC" if prefix == 0x3E else "VOP1" if prefix == 0x3F else "VOP2"
        return vector.decode_short(encoding, word, code, index, target)
    if top < 48:
        prefix = word >> 23
        if prefix >= 0x17D:
            encoding = "SOP1" if prefix == 0x17D else "SOPC" if prefix == 0x17E else "SOPP"
        else:
            encoding = "SOPK" if word >> 28 == 0xB else "SOP2"
        return scalar.decode(encoding, word, code, index, target)
    if top == 0x35:
        return vector.decode_long(word, code, index, target)
    if word >> 24 == 0xCC:
        return packed.decode(word, code, index, target)
    if top == 0x32:
        return vopd.decode(word, code, index, target)
    result = _BY_TOP_BITS[target.generation].get(top)
    return None if result is None else result(word, code, index, target)


@dataclass(frozen=True, slots=True)
class CodeItem:
    """An item of a decoded stream: an instruction, or `size_bytes` bytes that do not decode."""

    at: int
    size_bytes: int
    instruction: Instruction | None


def decode_stream(code: bytes, target: Target) -> Iterator[CodeItem]:
    """Decode a stream of instructions. After bytes that do not decode, continue with the next dword."""
    index = 0
    while index < len(code):
        instruction = decode(code, index, target)
        size_bytes = instruction.size_bytes if instruction is not None else min(4, len(code) - index)
        yield CodeItem(index, size_bytes, instruction)
        index += size_bytes
