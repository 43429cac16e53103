"""Private arrays of an invocation, and their indices.

A GPU has no memory indexed by lane registers: if a compiler cannot make the index a constant, it emits chains of
selects over all elements, including unwritten ones. Such an array is efficient if every index is constant after
unrolling, that is, if it depends only on the counters of [[unroll]] loops. These are unrolled from the inside out:
one around a plain loop stays a loop. An array is also fine if it is first set as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zinc_rt.spirv.module import SpirvFunction, SpirvInstruction, SpirvModule
from zinc_rt.spirv.opcodes import Opcode
from zinc_rt.spirv.remark import Remark, place

_FUNCTION, _PRIVATE = 7, 6  # storage classes
_UNROLL = 1  # loop control
_ADVICE = (
    "index it by a constant or by the counter of an [[unroll]] loop without a plain loop inside, initialise the "
    "whole array first, or use shared memory"
)


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop by word positions, in glslang's block order: `begin` to `end`, its continue block from `next`."""

    begin: int
    next: int
    end: int
    unrolled: bool
    counters: frozenset[int]  # variables stored in the continue block and nowhere else inside


def find_private_arrays(module: SpirvModule) -> Iterator[Remark]:
    """Return a remark for each access to a private array or vector by an index that is not a constant."""
    plain = _find_plain_loop_functions(module)
    for function in module.functions:
        loops = _find_loops(function, plain)
        operands = {
            instruction.operands[0] for instruction in function.instructions if instruction.opcode == Opcode.Store
        }
        for instruction in function.instructions:
            if instruction.opcode != Opcode.AccessChain:
                continue
            base = module.definitions[instruction.inputs[0]]
            if base.opcode != Opcode.Variable or base.operands[2] not in (_FUNCTION, _PRIVATE):
                continue
            around = [loop for loop in loops if loop.begin < instruction.at < loop.end and loop.unrolled]
            fixed = frozenset[int]().union(*(loop.counters for loop in around))
            if all(_is_constant(module, index, fixed) for index in instruction.inputs[1:]):
                continue
            if base.operands[1] not in operands and len(base.operands) < 4:
                message = "indexing an array by a variable compiles to selects over unwritten elements"
                yield Remark("private-array", place(module, instruction), message, _ADVICE)


def _is_constant(module: SpirvModule, id: int, counters: frozenset[int]) -> bool:
    """Return whether a value depends only on constants and on loads of `counters`."""
    definition = module.definitions[id]
    if definition.opcode in (Opcode.Constant, Opcode.ConstantNull, Opcode.SpecConstant):
        return True
    if definition.opcode == Opcode.Load:
        return definition.inputs[0] in counters
    if definition.opcode in (Opcode.Phi, Opcode.FunctionCall, Opcode.FunctionParameter, Opcode.Undef):
        return False
    return bool(definition.inputs) and all(
        input in module.definitions and _is_constant(module, input, counters) for input in definition.inputs
    )


def _find_loops(function: SpirvFunction, plain: frozenset[int]) -> list[_Loop]:
    labels = {
        instruction.operands[0]: instruction.at
        for instruction in function.instructions
        if instruction.opcode == Opcode.Label
    }
    merges = [instruction for instruction in function.instructions if instruction.opcode == Opcode.LoopMerge]
    calls = [
        instruction.at
        for instruction in function.instructions
        if instruction.opcode == Opcode.FunctionCall and instruction.inputs[0] in plain
    ]
    loops = []
    for merge in merges:
        begin, end, following = merge.at, labels[merge.operands[0]], labels[merge.operands[1]]
        inner = [merge for merge in merges if begin <= merge.at < end]
        unrolled = all(item.operands[2] & _UNROLL for item in inner) and not any(begin < at < end for at in calls)
        stores = [
            instruction
            for instruction in function.instructions
            if instruction.opcode == Opcode.Store and begin < instruction.at < end
        ]
        counters = {store.operands[0] for store in stores if store.at > following}
        counters -= {store.operands[0] for store in stores if store.at < following}
        loops.append(_Loop(begin, following, end, unrolled, frozenset(counters)))
    return loops


def _find_plain_loop_functions(module: SpirvModule) -> frozenset[int]:
    """Return the functions that contain a loop which is not unrolled, or call such a function."""

    def has_own_loop(instructions: tuple[SpirvInstruction, ...]) -> bool:
        return any(
            instruction.opcode == Opcode.LoopMerge and not instruction.operands[2] & _UNROLL
            for instruction in instructions
        )

    ids = {function.id for function in module.functions if has_own_loop(function.instructions)}
    calls = {
        function.id: {
            instruction.inputs[0]
            for instruction in function.instructions
            if instruction.opcode == Opcode.FunctionCall
        }
        for function in module.functions
    }
    while more := {id for id, called in calls.items() if called & ids} - ids:
        ids |= more
    return frozenset(ids)
