"""Data-parallel primitives (DPP): the dword that replaces source 0 and selects the lane to read it from."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from zinc_rt.isa.encodings.source import LITERAL
from zinc_rt.isa.instruction import Modifier
from zinc_rt.isa.rows import InstructionRow

DPP16 = 250
DPP8, DPP8_FETCH_INACTIVE = 233, 234
CODES = frozenset((DPP16, DPP8, DPP8_FETCH_INACTIVE))

_REMOVED = {0x130: "wave_shl", 0x134: "wave_rol", 0x138: "wave_shr", 0x13C: "wave_ror"}
_REMOVED |= {0x142: "row_bcast", 0x143: "row_bcast"}
_SHIFTS = {0x10: "row_shl", 0x11: "row_shr", 0x12: "row_ror"}


@cache
def format_control(value: int) -> Modifier:
    """Return the text of the lane pattern in `dpp_ctrl`."""
    if value < 0x100:
        lanes = tuple(value >> 2 * i & 3 for i in range(4))
        return Modifier("quad_perm", f"quad_perm:[{','.join(map(str, lanes))}]", lanes)
    group, low = value >> 4, value & 15
    if group in _SHIFTS and low:
        return Modifier(_SHIFTS[group], f"{_SHIFTS[group]}:{low}", low)
    if value in (0x140, 0x141):
        return Modifier("row_half_mirror" if low else "row_mirror", "row_half_mirror" if low else "row_mirror")
    if group in (0x15, 0x16):
        pattern = "row_share" if group == 0x15 else "row_xmask"
        return Modifier(pattern, f"{pattern}:{low}", low)
    if value in _REMOVED:
        text = f"/* {_REMOVED[value]} is not supported starting from GFX10 */"
    else:
        text = "/* Invalid dpp_ctrl value */"
    return Modifier("dpp_ctrl", text, value)


def decode_dpp(code: int, word: int) -> tuple[str, tuple[Modifier, ...]]:
    """Decode the DPP dword of source code `code` (one of CODES) into Instruction.dpp and modifiers."""
    if code == DPP16:
        return "DPP16", decode_dpp16(word)
    return "DPP8", decode_dpp8(word, code == DPP8_FETCH_INACTIVE)


class Tail(NamedTuple):
    """The decoded dwords after the first two of a long encoding: DPP (`kind` is empty if there is none) and a
    literal.
    """

    words: tuple[int, ...]
    fields: tuple[int, ...]  # source 0 is a vector register under DPP
    kind: str
    modifiers: tuple[Modifier, ...]
    literal: int


def read_tail(
    row: InstructionRow,
    words: tuple[int, ...],
    fields: tuple[int, ...],
    literal_fields: frozenset[int],
    code: bytes,
    index: int,
) -> Tail | None:
    """Decode the tail of the instruction at byte `index`. Return None if it is truncated or has DPP unsupported by
    its row."""
    modifiers: tuple[Modifier, ...] = ()
    kind, literal = "", 0
    if fields[1] in CODES:
        if "dpp" not in row.flags or index + 12 > len(code):
            return None
        extra = int.from_bytes(code[index + 8 : index + 12], "little")
        kind, modifiers = decode_dpp(fields[1], extra)
        words, fields = (*words, extra), (fields[0], extra & 0xFF, *fields[2:])
        literal_fields -= {1}
    if LITERAL in fields and any(fields[field] == LITERAL for field in literal_fields):
        end = index + 4 * len(words) + 4
        if end > len(code):
            return None
        literal = int.from_bytes(code[end - 4 : end], "little")
        words = (*words, literal)
    return Tail(words, fields, kind, modifiers, literal)


@lru_cache(maxsize=4096)
def decode_dpp16(word: int) -> tuple[Modifier, ...]:
    """Return the modifiers of the DPP16 dword."""
    rows, banks = word >> 28, word >> 24 & 15
    result = [
        format_control(word >> 8 & 0x1FF),
        Modifier("row_mask", f"row_mask:{rows:#x}", rows),
        Modifier("bank_mask", f"bank_mask:{banks:#x}", banks),
    ]
    if word >> 19 & 1:
        result.append(Modifier("bound_ctrl", "bound_ctrl:1", 1))
    if word >> 18 & 1:
        result.append(Modifier("fi", "fi:1", 1))
    return tuple(result)


@lru_cache(maxsize=4096)
def decode_dpp8(word: int, fetch_inactive: bool) -> tuple[Modifier, ...]:
    """Return the modifiers of the DPP8 dword."""
    lanes = tuple(word >> 8 + 3 * i & 7 for i in range(8))
    result = [Modifier("dpp8", f"dpp8:[{','.join(map(str, lanes))}]", lanes)]
    if fetch_inactive:
        result.append(Modifier("fi", "fi:1", 1))
    return tuple(result)
