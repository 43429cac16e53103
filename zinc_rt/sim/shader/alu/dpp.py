"""Reads of source 0 from other lanes: DPP16 and DPP8 (RDNA4 ISA 7.9).

A pattern gives the source lane of each lane, or None if it is outside the row of 16. If FI is clear, a source lane
disabled by EXEC is as invalid as one outside the row. With BOUND_CTRL set, lanes with an invalid source read 0;
with it clear, they are not written. For FI = 1, the manual's table of BC and FI contradicts its description of the
fields. This module follows the description, as compilers do: outside the row BOUND_CTRL alone decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.emit.emitter import Emitter, NotSimulated
from zinc_rt.sim.shader.emit.undefined import ALL
from zinc_rt.sim.shader.emit.values import I1, vector_of

_ROW = 16
Pattern = tuple[int | None, ...]


def _in_row(lane: int, offset: int) -> int | None:
    to = lane % _ROW + offset
    return lane - lane % _ROW + to if 0 <= to < _ROW else None


# modifier -> lane, its value -> the lane that is read
_PATTERNS: dict[str, Callable[[int, int], int | None]] = {
    "row_shl": lambda lane, value: _in_row(lane, value),
    "row_shr": lambda lane, value: _in_row(lane, -value),
    "row_ror": lambda lane, value: lane - lane % _ROW + (lane - value) % _ROW,
    "row_mirror": lambda lane, value: lane ^ 15,
    "row_half_mirror": lambda lane, value: lane ^ 7,
    "row_share": lambda lane, value: lane - lane % _ROW + value,
    "row_xmask": lambda lane, value: lane ^ value,
}


@cache
def pattern(name: str, value: int | tuple[int, ...] | None, wave: int) -> Pattern:
    """Return the source lane of each lane of the wave for a DPP modifier."""
    if isinstance(value, tuple):  # quad_perm and dpp8
        group = len(value)
        return tuple(lane - lane % group + value[lane % group] for lane in range(wave))
    return tuple(_PATTERNS[name](lane, value or 0) for lane in range(wave))


def lanes_constant(e: Emitter, lanes: list[bool]) -> ir.Constant:
    """Return a constant <W x i1> with the given lanes set."""
    return vector_of((lane for lane in lanes), I1)


def shuffle(e: Emitter, value: ir.Value, reads: Pattern, zero_outside: bool = False) -> ir.Value:
    """Permute <W x T> so that lane i reads lane reads[i]. For None it reads 0 with `zero_outside`, otherwise its
    own value, which is not used.
    """
    other = ir.Constant(value.type, None if zero_outside else ir.Undefined)
    outside = [e.wave + lane if zero_outside else lane for lane in range(e.wave)]
    index = [outside[lane] if to is None else to for lane, to in enumerate(reads)]
    return e.b.shuffled(value, index, other)


@contextmanager
def operands_of(e: Emitter, instruction: Instruction, first: int = 1) -> Iterator[tuple[Operand, ...]]:
    """Provide the operands of an instruction. With DPP, `first` (source 0) is read from other lanes, and inside
    the context only the lanes enabled by DPP are written.
    """
    operands = instruction.operands
    if not instruction.encoding.endswith(("_DPP16", "_DPP8")):
        yield operands
        return
    operand, limit = _permute_source(e, instruction, operands[first])
    operands = (*operands[:first], operand, *operands[first + 1 :])
    if limit is None:
        yield operands
    else:
        with e.exec.limited(limit):
            yield operands


def _permute_source(e: Emitter, instruction: Instruction, source: Operand) -> tuple[Operand, ir.Value | None]:
    """Return source 0 as a virtual register, and the lanes that may be written (None for all lanes)."""
    if source.kind is not Kind.VGPR:
        raise NotSimulated(f"does not support {source.text} as a DPP source")
    is_16 = instruction.encoding.endswith("16")
    control = next(
        (m for m in instruction.modifiers if m.name in _PATTERNS or m.name in ("quad_perm", "dpp8")), None
    )
    if control is None:
        raise NotSimulated("has an undefined DPP control")
    reads = pattern(control.name, control.value, e.wave)
    fetch_inactive = instruction.modifier("fi") is not None
    zero = not is_16 or instruction.modifier("bound_ctrl") is not None
    outside = [to is None for to in reads]
    lets_through = [
        _mask_bit(instruction, "row_mask", lane // 16) and _mask_bit(instruction, "bank_mask", lane // 4 % 4)
        for lane in range(e.wave)
    ]
    read = {to for to, through in zip(reads, lets_through, strict=True) if through and to is not None}
    lanes: ir.Value | None = None
    if len(read) < e.wave:
        lanes = lanes_constant(e, [lane in read for lane in range(e.wave)])
        lanes = lanes if e.exec.full else e.b.and_(lanes, e.exec.mask())
    used = ALL if source.half is None else 0xFFFF << 16 * source.half
    values = [e.regs.read_vgpr(source.index + index, lanes=lanes, used=used) for index in range(source.width)]
    moved = [shuffle(e, value, reads, zero_outside=any(outside) and zero) for value in values]
    limit: ir.Value | None = None
    if any(outside) and not zero:
        lets_through = [through and not out for through, out in zip(lets_through, outside, strict=True)]
    if not e.exec.full and not fetch_inactive:
        active = shuffle(e, e.exec.mask(), reads, zero_outside=any(outside))
        if zero:
            nothing = ir.Constant(values[0].type, None)
            moved = [e.b.select(active, value, nothing) for value in moved]
        else:
            limit = active
        if e.checks.full and (not zero or not is_16):
            lost = e.b.and_(e.exec.mask(), e.b.not_(active))
            passing = [through and not out for through, out in zip(lets_through, outside, strict=True)]
            if not all(passing):
                lost = e.b.and_(lost, lanes_constant(e, passing))
            e.reports.report(
                "inactive-lane", lost, text="DPP reads a lane disabled by EXEC, without fi or bound_ctrl"
            )
    if not all(lets_through):
        constant = lanes_constant(e, lets_through)
        limit = constant if limit is None else e.b.and_(limit, constant)
    return e.regs.virtual(source, moved), limit


def _mask_bit(instruction: Instruction, name: str, bit: int) -> bool:
    modifier = instruction.modifier(name)  # DPP8 has none
    return modifier is None or not isinstance(modifier.value, int) or bool(modifier.value >> bit & 1)
