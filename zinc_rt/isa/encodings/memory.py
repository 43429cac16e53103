"""Everything that is neither scalar nor vector arithmetic: which decoder an encoding has."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.isa.encodings import (
    buffer,
    buffer_gfx11,
    export,
    flat,
    image,
    interpolate,
    lds,
    memory_gfx11,
    scalar_memory,
)
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.target import Target

Decode = Callable[[int, bytes, int, Target], Instruction | None]

# By the top six bits.
_GFX12: dict[int, Decode] = {
    0x31: buffer.decode,
    0x33: interpolate.decode,
    0x34: image.decode_image,
    0x36: lds.decode,
    0x39: image.decode_sample,
    0x3B: flat.decode,
    0x3D: scalar_memory.decode,
    0x3E: export.decode,
}


# gfx11's image and interpolation encodings are not built yet.
_GFX11: dict[int, Decode] = {
    0x36: lds.decode,
    0x37: memory_gfx11.decode_flat,
    0x38: buffer_gfx11.decode,
    0x3A: buffer_gfx11.decode,
    0x3D: memory_gfx11.decode_scalar,
    0x3E: export.decode,
}
_BY_GENERATION = {11: _GFX11, 12: _GFX12}


def decode(word: int, code: bytes, at: int, target: Target) -> Instruction | None:
    found = _BY_GENERATION[target.generation].get(word >> 26)
    return found(word, code, at, target) if found is not None else None
