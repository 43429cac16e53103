"""The float mode at each instruction: the launch's, changed by s_round_mode, s_denorm_mode, s_setreg.

An instruction is compiled for one mode. Values written by an immediate are known. A write from a register is
assumed to restore the launch's mode; if it does not, the wave ends with a message. Where paths with different
modes meet, the differing bits are unknown, and the wave ends with a message at the first instruction that rounds
or flushes by them.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.isa import Instruction, Kind
from zinc_rt.isa.control_flow import Block, Flow
from zinc_rt.sim.shader.emit.float_mode import FloatMode, find_float_mode_bits
from zinc_rt.sim.shader.translate.forward import Found, forward

MODE = 1  # hwreg: LLVM, SIDefines.h
_ZEROS = 32  # of a fact: the first bit of those known to be 0


@dataclass(frozen=True, slots=True)
class ModeWrite:
    """A write of `size` bits of MODE from `offset`; `value` is None if it comes from a register."""

    offset: int
    size: int
    value: int | None

    @property
    def mask(self) -> int:
        return (1 << self.size) - 1 << self.offset


def find_mode_write(instruction: Instruction) -> ModeWrite | None:
    """Return the instruction's write to MODE, or None."""
    match instruction.row.name:
        case "s_round_mode":
            return ModeWrite(0, 4, int(instruction.operands[0].value or 0) & 15)
        case "s_denorm_mode":
            return ModeWrite(4, 4, int(instruction.operands[0].value or 0) & 15)
        case "s_setreg_b32" | "s_setreg_imm32_b32":
            register, offset, size = decode_hardware_field(int(instruction.operands[0].value or 0))
            if register != MODE:
                return None
            source = instruction.operands[1]
            known = source.kind in (Kind.LITERAL, Kind.INTEGER, Kind.IMMEDIATE)
            return ModeWrite(offset, size, int(source.value or 0) & (1 << size) - 1 if known else None)
    return None


def decode_hardware_field(value: int) -> tuple[int, int, int]:
    """Return (register, offset, size) of a hwreg immediate."""
    return value & 63, value >> 6 & 31, (value >> 11 & 31) + 1


def find_float_modes(graph: Flow, launch: int) -> dict[tuple[int, int], FloatMode | None]:
    """Return the mode by (block start, pc), None if it depends on the path; a missing entry means the launch's
    mode.

    Facts are bit sets: bit i if MODE's bit i is known to be 1, bit _ZEROS + i if it is known to be 0.
    """
    every = find_float_mode_bits(graph.target.rules)
    launch &= every
    blocks = graph.blocks.values()
    if not any(find_mode_write(instruction) for block in blocks for _, instruction in block.instructions):
        return {}

    def step(block: Block, known: int, found: Found | None) -> int:
        for pc, instruction in block.instructions:
            if found is not None:
                found[block.start, pc] = known
            known = _transfer(instruction, known, launch, every)
        return known

    begin = launch | (launch ^ every) << _ZEROS
    return {index: _to_mode(known, every) for index, known in forward(graph, begin, step).items()}


def _to_mode(known: int, every: int) -> FloatMode | None:
    ones, zeros = known & every, known >> _ZEROS
    return FloatMode(ones) if ones ^ zeros == every else None


def _transfer(instruction: Instruction, known: int, launch: int, every: int) -> int:
    write = find_mode_write(instruction)
    if write is None:
        return known
    mask = write.mask & every
    ones = (launch if write.value is None else write.value << write.offset) & mask
    return known & ~(mask | mask << _ZEROS) | ones | (ones ^ mask) << _ZEROS
