"""The registers that an instruction reads and writes, as sets.

A set is an int with one bit per register: scalar registers by their encoding (s0 to s105, VCC 106 and 107, TTMPs
from 108, M0 125, EXEC 126 and 127), SCC 128, vector registers from 256. Partial writes (under EXEC, v_writelane,
16-bit halves, DPP) count as writes and not as reads. Registers indexed at run time (v_movrel, s_movrel) are not in
the sets.

In a set of halves, the bits from 256 are the lower halves of vector registers, those from 512 (UPPER) the upper
ones; other registers have the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from zinc_rt.isa.encodings.cache_policy import returns_previous
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.operand import Kind, Operand
from zinc_rt.isa.target import Target

VCC, TTMP, NULL, M0, EXEC, SCC, VGPR, UPPER = 106, 108, 124, 125, 126, 128, 256, 512
SGPRS = (1 << 106) - 1
VGPRS = (1 << 256) - 1 << VGPR
_SOURCE_SCC, _SOURCE_VCCZ, _SOURCE_EXECZ = 253, 251, 252


@dataclass(frozen=True, slots=True)
class Effects:
    """The registers that an instruction reads and writes, and the same as sets of halves."""

    reads: int
    writes: int
    read_halves: int = field(default=0, compare=False)
    written_halves: int = field(default=0, compare=False)


def register_bit(register: int) -> int:
    return 1 << register


def register_span(register: int, width: int) -> int:
    return (1 << width) - 1 << register


def operand_registers(operand: Operand) -> int:
    """Return the set of registers of an operand."""
    kind = operand.kind
    if kind is Kind.VGPR:
        return register_span(VGPR + operand.index, operand.width)
    if kind is Kind.SGPR:
        return register_span(operand.index, operand.width)
    if kind is Kind.TTMP:
        return register_span(TTMP + operand.index, operand.width)
    if kind is Kind.SPECIAL:
        return _special_register(operand)
    if kind is Kind.VGPRS:
        return unite(operand_registers(part) for part in operand.parts)
    return 0


def _special_register(operand: Operand) -> int:
    code = operand.index
    if code in (VCC, EXEC):
        return register_span(code, operand.width)
    if code in (VCC + 1, M0, EXEC + 1):
        return register_bit(code)
    return {
        _SOURCE_SCC: register_bit(SCC),
        _SOURCE_VCCZ: register_span(VCC, 2),
        _SOURCE_EXECZ: register_span(EXEC, 2),
    }.get(code, 0)


def to_halves(registers: int) -> int:
    """Return a set of registers as a set of halves."""
    return registers | (registers & VGPRS) << UPPER - VGPR


def _operand_halves(operand: Operand) -> int:
    return _to_half_bits(operand_registers(operand), operand.half)


def _to_half_bits(registers: int, half: int | None) -> int:
    """Return vector registers as a set of halves: the lower ones, the upper ones, or both."""
    return to_halves(registers) if half is None else registers << (UPPER - VGPR) * half


def unite(sets: Iterable[int]) -> int:
    whole = 0
    for one in sets:
        whole |= one
    return whole


def iterate_registers(registers: int) -> Iterator[int]:
    """Iterate over the numbers of the registers of a set."""
    while registers:
        low = registers & -registers
        yield low.bit_length() - 1
        registers ^= low


def register_name(register: int) -> str:
    """Return a register's name: `s5`, `vcc_lo`, `v17`, `scc`."""
    if register >= VGPR:
        return f"v{register - VGPR}"
    if register < VCC:
        return f"s{register}"
    special = {
        VCC: "vcc_lo", VCC + 1: "vcc_hi", NULL: "null", M0: "m0", EXEC: "exec_lo", EXEC + 1: "exec_hi", SCC: "scc",
    }  # fmt: skip
    return special.get(register, f"ttmp{register - TTMP}")


def format_registers(registers: int) -> str:
    """Format a set of registers, `s[2:3], v7`: in ascending order, with consecutive SGPRs or VGPRs as ranges."""
    result: list[str] = []
    index = 0
    while registers >> index:
        if not registers >> index & 1:
            index += 1
            continue
        end = index
        while registers >> end + 1 & 1 and (index >= VGPR or end + 1 < VCC):
            end += 1
        if end > index:
            result.append(f"{register_name(index)[0]}[{register_name(index)[1:]}:{register_name(end)[1:]}]")
        else:
            result.append(register_name(index))
        index = end + 1
    return ", ".join(result)


def format_halves(halves: int) -> str:
    """Format a set of halves: v7 is both halves of a register, v7.h its upper one."""
    lower, upper = halves & VGPRS, halves >> UPPER - VGPR & VGPRS
    result = [format_registers(halves & ~VGPRS & (1 << UPPER) - 1 | lower & upper)]
    for register in range(VGPR, (lower ^ upper).bit_length()):
        if (lower ^ upper) >> register & 1:
            result.append(f"{register_name(register)}.{'l' if lower >> register & 1 else 'h'}")
    return ", ".join(filter(None, result))


# An atomic's data operand is sent and then replaced by the previous value.
_DATA_FIRST = ("VBUFFER", "MUBUF", "VIMAGE", "MIMG")
_MESSAGES_WITH_M0 = (1, 9)  # INTERRUPT, GS_ALLOC_REQ


def effects(instruction: Instruction, target: Target) -> Effects:
    """Return the registers of an instruction: explicit operands, and implicit registers from its row."""
    reads = writes = 0
    for half in (instruction,) if instruction.second is None else (instruction, instruction.second):
        read, written = _find_operand_effects(half, [*map(_operand_halves, half.operands)])
        reads |= read | _find_implicit(half.row.reads, target.mask_width)
        writes |= written | _find_implicit(half.row.writes, target.mask_width)
    if "msg" in instruction.row.operands and instruction.words[0] & 0xFF not in _MESSAGES_WITH_M0:
        reads &= ~register_bit(M0)
    return Effects(_to_registers(reads), _to_registers(writes), reads, writes)


def _to_registers(halves: int) -> int:
    """Return a set of halves as a set of registers."""
    return (halves | halves >> UPPER - VGPR & VGPRS) & (1 << UPPER) - 1


def _find_operand_effects(instruction: Instruction, operands: list[int]) -> tuple[int, int]:
    """Return the halves that all operands read and write, from those of each operand. All operands of graphics
    instructions count as reads.
    """
    row = instruction.row
    if row.encoding == "VOP3P" and ("packed" in row.flags or "mix" in row.flags):
        operands = _find_selected_halves(instruction, operands)
    results = count_written_operands(instruction)
    reads, writes = unite(operands[results:]), unite(operands[:results])
    if "dst" in row.reads or (row.unit == "atomic" and row.encoding in _DATA_FIRST):
        reads |= writes
    if "src" in row.writes:
        writes |= operands[1]
    return reads, writes


_MIXED = {"v_fma_mixlo_f16": 0, "v_fma_mixhi_f16": 1}  # the half that they write


def _find_selected_halves(instruction: Instruction, operands: list[int]) -> list[int]:
    """Return the halves that op_sel and op_sel_hi of a packed instruction select, for each operand.

    Packed: the lower result uses the half in op_sel, the upper one that in op_sel_hi. Mixed: a source is a half if
    op_sel_hi is set, and op_sel selects it.
    """
    row, (low, high) = instruction.row, instruction.words[:2]
    result = [operands[0] if row.name not in _MIXED else _to_half_bits(operands[0] & VGPRS, _MIXED[row.name])]
    for index, used in enumerate(operands[1:]):
        first = low >> 11 + index & 1
        second = low >> 14 & 1 if index == 2 else high >> 27 + index & 1
        if "mix" in row.flags:
            half = first if second else None
        else:
            half = first if first == second and not (index == 2 and "dot2" in row.name) else None
        result.append(used if half is None or not used & VGPRS else _to_half_bits(used & VGPRS, half))
    return result


def count_written_operands(instruction: Instruction) -> int:
    """Return the number of leading operands that an instruction writes."""
    row = instruction.row
    if row.pipe != "vmem":
        return row.destinations
    return int(row.unit == "load" or (row.unit == "atomic" and returns_previous(instruction)))


@cache
def _find_implicit(names: tuple[str, ...], mask_width: int) -> int:
    """Return the registers of a row's `reads` or `writes`, in which `dst` and `src` refer to operands."""
    known = {
        "exec": register_span(EXEC, mask_width),
        "vcc": register_span(VCC, mask_width),
        "scc": register_bit(SCC),
        "m0": register_bit(M0),
    }
    return unite(known.get(name, 0) for name in names)
