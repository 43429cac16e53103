"""The kernel arguments from which the address of an access is derived, over all paths.

Registers are tracked through arithmetic: a result is derived from all its inputs. Values loaded from memory may
point anywhere (UNKNOWN). Two accesses with no argument in common touch different buffers, as passed by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zinc_rt.isa.effects import VGPR
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.finding import LintSubject
from zinc_rt.isa.operand import Kind

UNKNOWN = None
Origin = frozenset[int | None]
_NONE: Origin = frozenset()


@dataclass(frozen=True, slots=True)
class Pointers:
    """The pointer arguments of a kernel.

    `offsets` are the byte offsets of buffer addresses in the kernarg segment. The SGPR pair starting at `base`
    holds the address of the segment.
    """

    base: int
    offsets: frozenset[int]


class AddressOrigins:
    """The arguments, by offset, from which each register's value may be derived."""

    def __init__(self, subject: LintSubject, pointers: Pointers) -> None:
        self._subject, self._pointers = subject, pointers
        self._found: dict[int, Origin] = {}
        changed = True
        while changed:
            changed = False
            for pc, instruction in subject.at.items():
                for register, values in self._find_new_origins(pc, instruction):
                    before = self._found.get(register, _NONE)
                    if not values <= before:
                        self._found[register], changed = before | values, True

    def of(self, pc: int) -> Origin:
        """Return the origins of the address of the access at `pc`; {UNKNOWN} if none is known."""
        values = _NONE
        for operand in self._subject.at[pc].operands:
            if operand.kind in (Kind.VGPR, Kind.SGPR):
                base = operand.index + (VGPR if operand.kind is Kind.VGPR else 0)
                for register in range(base, base + operand.width):
                    values |= self._found.get(register, _NONE)
        return values or frozenset([UNKNOWN])

    def _find_new_origins(self, pc: int, instruction: Instruction) -> Iterator[tuple[int, Origin]]:
        effects, row = self._subject.effects[pc], instruction.row
        if row.pipe == "smem":
            yield from self._find_loaded_origins(instruction)
            return
        values = _NONE
        if row.pipe in ("vmem", "lds"):
            wide = row.access_bytes >= 8 or instruction.encoding == "SCRATCH" or row.pipe == "lds"
            values = frozenset([UNKNOWN]) if wide else _NONE  # a 4-byte load is not an address
        else:
            for register in _iterate_registers(effects.reads):
                values |= self._found.get(register, _NONE)
        for register in _iterate_registers(effects.writes):
            yield register, values

    def _find_loaded_origins(self, instruction: Instruction) -> Iterator[tuple[int, Origin]]:
        """Return the origins of a scalar load's result: arguments, or memory."""
        if not instruction.operands or instruction.operands[0].kind is not Kind.SGPR:
            return
        result, base, offset = instruction.operands[0], instruction.operands[1], instruction.operands[-1].value
        ours = base.kind is Kind.SGPR and base.index == self._pointers.base and isinstance(offset, int)
        for number in range(result.width):
            if ours and isinstance(offset, int):
                yield result.index + number, frozenset({offset + 4 * number & ~7} & self._pointers.offsets)
            else:
                yield result.index + number, frozenset([UNKNOWN])


def _iterate_registers(whole: int) -> Iterator[int]:
    while whole:
        low = whole & -whole
        yield low.bit_length() - 1
        whole ^= low
