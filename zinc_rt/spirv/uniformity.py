"""Barriers that some invocations of a workgroup may not reach.

In Vulkan a barrier that not all invocations of a workgroup reach is undefined. If one wave is the whole workgroup,
it passes the barrier, so a kernel of 32 invocations runs on RDNA and hangs where subgroups have 8 or 16 lanes.
Here a value *diverges* if it may differ between the invocations of a workgroup: it is derived from an invocation's
number, from memory at an address that diverges, or from a variable that was stored to in divergent control flow.
Memory at an address that does not diverge has the same value for all invocations.

Control flow is analysed in glslang's layout: a construct extends from its merge instruction to its merge block.
Functions are analysed once for all calls: an argument that diverges in one call diverges in all.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.spirv.module import SpirvFunction, SpirvInstruction, SpirvModule
from zinc_rt.spirv.opcodes import Opcode
from zinc_rt.spirv.remark import Remark, place

_BUILT_IN = 11  # a decoration
_NUMBERS = frozenset({27, 28, 29})  # LocalInvocationId, GlobalInvocationId, LocalInvocationIndex
_OWN = frozenset({6, 7})  # storage classes private to an invocation: Private, Function
_MERGES = (Opcode.SelectionMerge, Opcode.LoopMerge)
_BRANCHES = (Opcode.Branch, Opcode.BranchConditional, Opcode.Switch)
_ADVICE = "every invocation must reach it: move the barrier out of the branch, and do not return before it"


def find_barriers(module: SpirvModule) -> Iterator[Remark]:
    """Return a remark for each barrier, or call of a function with a barrier, in possibly divergent control
    flow.
    """
    if not any(module.of(Opcode.ControlBarrier)):
        return
    divergence = _Divergence(module)
    for function in module.functions:
        for instruction in function.instructions:
            called = (
                instruction.opcode == Opcode.FunctionCall and instruction.inputs[0] in divergence.with_barriers
            )
            if (called or instruction.opcode == Opcode.ControlBarrier) and divergence.is_divergent(
                function, instruction.at
            ):
                message = "some invocations of the workgroup may not reach this barrier"
                yield Remark("barrier", place(module, instruction), message, _ADVICE)


class _Divergence:
    """The divergent values of a module.

    `values` by id, `contents` of variables and of parameters that point to them, `regions` of each function as
    ranges of words.
    """

    def __init__(self, module: SpirvModule) -> None:
        self._module = module
        numbers = module.find_decorated(_BUILT_IN)
        self._numbers = {id for id, (number, *_) in numbers.items() if number in _NUMBERS}
        self._parameters = {
            function.id: tuple(
                e.operands[1] for e in function.instructions if e.opcode == Opcode.FunctionParameter
            )
            for function in module.functions
        }
        self._labels = {item.operands[0]: item.at for item in module.of(Opcode.Label)}
        self._blocks = dict(_find_phi_blocks(module))
        self.values: set[int] = set()
        self.contents: set[int] = set()
        self.regions: dict[int, set[range]] = {function.id: set() for function in module.functions}
        self.with_barriers = self._find_barrier_callers()
        before = -1
        while before != (now := self._count_divergent()):
            before = now
            for function in module.functions:
                for instruction in function.instructions:
                    self._follow(function, instruction)
                self._follow_control(function)

    def is_divergent(self, function: SpirvFunction, offset: int) -> bool:
        return any(offset in region for region in self.regions[function.id])

    def _count_divergent(self) -> int:
        return len(self.values) + len(self.contents) + sum(map(len, self.regions.values()))

    def _find_barrier_callers(self) -> frozenset[int]:
        functions = self._module.functions
        ids = {f.id for f in functions if any(e.opcode == Opcode.ControlBarrier for e in f.instructions)}
        while more := {
            f.id
            for f in functions
            if f.id not in ids
            and any(e.opcode == Opcode.FunctionCall and e.inputs[0] in ids for e in f.instructions)
        }:
            ids |= more
        return frozenset(ids)

    def _follow(self, function: SpirvFunction, instruction: SpirvInstruction) -> None:
        """Propagate divergence of values and contents through one instruction."""
        if instruction.opcode == Opcode.Store:
            self._follow_store(function, instruction)
        elif instruction.opcode == Opcode.FunctionCall:
            self._follow_call(instruction)
        elif instruction.opcode == Opcode.ReturnValue:
            if instruction.operands[0] in self.values or self.is_divergent(function, instruction.at):
                self.values.add(function.id)
        elif (result := instruction.result) is not None and self._is_divergent_instruction(function, instruction):
            self.values.add(result)

    def _is_divergent_instruction(self, function: SpirvFunction, instruction: SpirvInstruction) -> bool:
        if instruction.opcode == Opcode.Load:
            return self._is_divergent_load(instruction.inputs[0])
        if instruction.opcode == Opcode.Phi:
            merged = any(region.stop == self._blocks[instruction.at] for region in self.regions[function.id])
            return merged or any(id in self.values for id in instruction.inputs[::2])
        if instruction.opcode in (Opcode.Variable, Opcode.Label, Opcode.Function):
            return False
        if instruction.opcode == Opcode.AtomicIAdd:
            return True
        return any(id in self.values for id in instruction.inputs)

    def _is_divergent_load(self, pointer: int) -> bool:
        root, first = self._find_root(pointer)
        if root in self._numbers:  # in a one-dimensional workgroup, y and z are uniform
            return first is None or self._module.constant(first) not in (1, 2)
        return pointer in self.values or root in self.contents

    def _find_root(self, pointer: int) -> tuple[int, int | None]:
        """Return the variable or parameter that a pointer refers to, and its first index."""
        first = None
        while (definition := self._module.definitions[pointer]).opcode == Opcode.AccessChain:
            pointer, first = definition.inputs[0], definition.inputs[1]
        return pointer, first

    def _follow_store(self, function: SpirvFunction, instruction: SpirvInstruction) -> None:
        pointer, value = instruction.operands[:2]
        root, _ = self._find_root(pointer)
        if not self._is_private_root(root):
            return
        if value in self.values or pointer in self.values or self.is_divergent(function, instruction.at):
            self.contents.add(root)

    def _is_private_root(self, root: int) -> bool:
        definition = self._module.definitions[root]
        if definition.opcode == Opcode.Variable:
            return definition.operands[2] in _OWN
        if definition.opcode != Opcode.FunctionParameter:
            return False
        type = self._module.definitions[definition.operands[0]]
        return type.opcode == Opcode.TypePointer and type.operands[1] in _OWN

    def _follow_call(self, instruction: SpirvInstruction) -> None:
        called, *value = instruction.inputs
        for parameter, argument in zip(self._parameters[called], value, strict=True):
            if argument in self.values:
                self.values.add(parameter)
            if self._is_private_root(root := self._find_root(argument)[0]):  # in and out
                if root in self.contents:
                    self.contents.add(parameter)
                if parameter in self.contents:
                    self.contents.add(root)
        if called in self.values:
            self.values.add(instruction.operands[1])

    def _follow_control(self, function: SpirvFunction) -> None:
        """Add the regions around branches on divergent values, and those left by a break, continue or return in
        them."""
        regions = self.regions[function.id]
        body = function.instructions
        constructs = [range(item.at, self._labels[item.operands[0]]) for item in body if item.opcode in _MERGES]
        loops = [
            (range(item.at, self._labels[item.operands[0]]), self._labels[item.operands[1]])
            for item in body
            if item.opcode == Opcode.LoopMerge
        ]
        for item in body:
            splits = item.opcode in (Opcode.BranchConditional, Opcode.Switch)
            if splits and item.operands[0] in self.values:
                around = [extent for extent in constructs if item.at in extent]
                if around:
                    regions.add(min(around, key=len))
        end = body[-1].at
        for item in body:
            if not self.is_divergent(function, item.at):
                continue
            if item.opcode in (Opcode.Return, Opcode.ReturnValue) and item.at < end - 1:
                regions.add(range(item.at, end))
            if item.opcode in _BRANCHES:
                targets = {self._labels[id] for id in item.operands if id in self._labels}
                regions.update(loop for loop, _ in loops if item.at in loop and loop.stop in targets)
                regions.update(range(item.at, on) for loop, on in loops if item.at in loop and on in targets)


def _find_phi_blocks(module: SpirvModule) -> Iterator[tuple[int, int]]:
    """Return the position of each OpPhi and its block's label."""
    label = 0
    for instruction in module.instructions:
        if instruction.opcode == Opcode.Label:
            label = instruction.at
        elif instruction.opcode == Opcode.Phi:
            yield instruction.at, label
