"""DS: the local data share, two dwords.

Operands of a row: `d` the result, `a` the address, `x` and `y` the data, each with its size in dwords, in the
order of the text. Flags: `lo` or `hi` for the accessed half of the data register, `two` for two 8-bit offsets,
`format_swizzle` for the pattern of ds_swizzle_b32, `zero` if the offset must be 0, `gds` if the instruction
requires gfx11's global data share, `nogds` if it does not support it.
"""

from __future__ import annotations

from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import make_data, make_vgpr
from zinc_rt.isa.rows import make_rows
from zinc_rt.isa.target import Target

_SHIFTS = {"a": 0, "x": 8, "y": 16, "d": 24}
_GDS = Modifier("gds", "gds", 1)


def decode(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    row = make_rows("memory", "DS", target.generation).get(word >> 18 & 0xFF)
    if row is None or index + 8 > len(code):
        return None
    gds = word >> 17 & 1
    if (gds and (target.generation == 12 or "nogds" in row.flags)) or ("gds" in row.flags and not gds):
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    operands = []
    used = 0
    for operand in row.operands:
        shift = _SHIFTS[operand[0]]
        used |= 0xFF << shift
        register, width = high >> shift & 0xFF, int(operand[1:])
        operands.append(
            make_vgpr(register, width) if operand[0] == "a" else make_data(register, width, row.data_half)
        )
    if high & ~used:
        return None
    if "zero" in row.flags and word & 0xFFFF:
        return None
    modifiers = _decode_offsets(word & 0xFFFF, row.flags, target)
    if gds:
        modifiers += (_GDS,)
    return Instruction(row, tuple(operands), modifiers, (word, high))


def _decode_offsets(field: int, flags: tuple[str, ...], target: Target) -> tuple[Modifier, ...]:
    if "two" in flags:
        parts = (("offset0", field & 0xFF), ("offset1", field >> 8))
        return tuple(Modifier(name, f"{name}:{value}", value) for name, value in parts if value)
    if not field:
        return ()
    text = f"offset:{format_swizzle(field)}" if "swizzle" in flags else f"offset:{field}"
    return (Modifier("offset", text, field),)


def format_swizzle(field: int) -> str:
    """Return the lane pattern of ds_swizzle_b32."""
    if field >= 0xE000:
        return f"swizzle(FFT,{field & 31})"
    if field >= 0xC000:
        return f"swizzle(ROTATE,{field >> 10 & 1},{field >> 5 & 31})"
    if field & 0xFF00 == 0x8000:
        return f"swizzle(QUAD_PERM,{','.join(str(field >> 2 * i & 3) for i in range(4))})"
    if field & 0x8000:
        return str(field)
    keep, set_bits, flip = field & 31, field >> 5 & 31, field >> 10 & 31
    if set_bits == 0 and keep == 31 and flip.bit_count() == 1:
        return f"swizzle(SWAP,{flip})"
    if set_bits == 0 and keep == 31 and (flip + 1) & flip == 0 and flip:
        return f"swizzle(REVERSE,{flip + 1})"
    group = 32 - keep
    if flip == 0 and group & (group - 1) == 0 and group > 1 and set_bits < group:
        return f"swizzle(BROADCAST,{group},{set_bits})"
    return (
        'swizzle(BITMASK_PERM,"'
        + "".join(_format_bit(keep >> bit & 1, set_bits >> bit & 1, flip >> bit & 1) for bit in range(4, -1, -1))
        + '")'
    )


def _format_bit(keep: int, set_bit: int, flip: int) -> str:
    if set_bit:
        return "0" if flip else "1"
    if keep:
        return "i" if flip else "p"
    return "1" if flip else "0"
