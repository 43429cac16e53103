"""Modules with one thing changed, for tests that want it found."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.spirv.module import SpirvInstruction, bytes_of, read
from zinc_rt.spirv.opcodes import Opcode

Words = tuple[int, ...]


def instruction(opcode: int, *operands: int) -> Words:
    return ((1 + len(operands)) << 16 | opcode, *operands)


def edited(data: bytes, change: Callable[[SpirvInstruction], Words | None]) -> bytes:
    """`change` gives the words that stand for an instruction; None: its own."""
    module = read(data)
    words = list(module.words[:5])
    for instruction in module.instructions:
        own = module.words[instruction.at : instruction.at + 1 + len(instruction.operands)]
        new = change(instruction)
        words += own if new is None else new
    return bytes_of(words)


def first(opcode: int, new: Callable[[SpirvInstruction], Words]) -> Callable[[SpirvInstruction], Words | None]:
    """Return an edit of the first instruction with an opcode."""
    result = []

    def change(instruction: SpirvInstruction) -> Words | None:
        if instruction.opcode != opcode or result:
            return None
        result.append(instruction)
        return new(instruction)

    return change


def before(opcode: int, *words: int) -> Callable[[SpirvInstruction], Words | None]:
    """Insert words before the first instruction with an opcode."""
    return first(opcode, lambda item: (*words, *instruction(item.opcode, *item.operands)))


def without(opcode: int, *operands: int) -> Callable[[SpirvInstruction], Words | None]:
    """Remove the instructions with an opcode whose last operands are these."""

    def change(instruction: SpirvInstruction) -> Words | None:
        return () if instruction.opcode == opcode and instruction.operands[-len(operands) :] == operands else None

    return change


def float_constant(data: bytes, bits: int) -> tuple[int, bytes]:
    """Return the id of a float constant, and the module that contains it."""
    module = read(data)
    real = next(item.operands[0] for item in module.of(Opcode.TypeFloat))
    bound = module.words[3]
    added = edited(data, before(Opcode.Function, *instruction(Opcode.Constant, real, bound, bits)))
    words = list(read(added).words)
    words[3] = bound + 1
    return bound, bytes_of(words)
