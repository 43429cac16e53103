"""Post-processing of a compiler's output before it is committed.

glslang's `precise` misses operations whose value is a function's argument (7 of 91 in the first kernel), and
drivers may contract or reorder the missed operations. So every float operation is decorated NoContraction here,
and kernels need no `precise`. The generator word becomes 0, so that a file does not depend on the compiler.

glslang aligns the load of an address like the data it points to: 4 for a buffer of floats, although the eight
bytes of the address must be aligned to 8 (VUID-StandaloneSpirv-PhysicalStorageBuffer64-06314). In a kernarg block
they are.
"""

from __future__ import annotations

from zinc_rt.host.errors import InputError
from zinc_rt.spirv.module import (
    GENERATOR,
    HEADER_WORDS,
    SpirvInstruction,
    SpirvModule,
    encode_text,
    encode_words,
    read_module,
)
from zinc_rt.spirv.opcodes import ROUNDED, Opcode

NO_CONTRACTION = 42  # a decoration: the operation is rounded individually (specification, 3.20)
ALIGNED = 2  # a memory operand: the alignment in bytes follows (3.26)
ADDRESS_BYTES = 8
_BEFORE_ANNOTATIONS = frozenset(
    {
        Opcode.Capability, Opcode.Extension, Opcode.ExtInstImport, Opcode.MemoryModel, Opcode.EntryPoint,
        Opcode.ExecutionMode, Opcode.String, Opcode.Source, Opcode.SourceContinued, Opcode.SourceExtension,
        Opcode.Name, Opcode.MemberName,
    }
)  # fmt: skip


def finish_module(data: bytes, made_of: str = "") -> bytes:
    """Return the module with NoContraction on every float operation, and no generator.

    `made_of`: a line about its source, kept as OpModuleProcessed. A second call only adds that line again. Raise
    InputError for bytes that are not a module.
    """
    module = read_module(data)
    words = list(module.words[:HEADER_WORDS])
    words[GENERATOR] = 0
    added = False
    for instruction in module.instructions:
        if not added and instruction.opcode not in _BEFORE_ANNOTATIONS:
            if made_of:
                words += _encode_instruction(Opcode.ModuleProcessed, *encode_text(made_of))
            words += _make_decorations(module)
            added = True
        words += _add_alignment(instruction, module)
    if not added:
        raise InputError("not a kernel: the SPIR-V has no types or functions")
    return encode_words(words)


def _add_alignment(instruction: SpirvInstruction, module: SpirvModule) -> tuple[int, ...]:
    words = module.words[instruction.at : instruction.at + 1 + len(instruction.operands)]
    if instruction.opcode != Opcode.Load or words[4:5] != (ALIGNED,):
        return words
    loaded = module.definitions[words[1]]
    if loaded.opcode != Opcode.TypePointer:
        return words
    return (*words[:5], max(words[5], ADDRESS_BYTES), *words[6:])


def _make_decorations(module: SpirvModule) -> list[int]:
    have = module.find_decorated(NO_CONTRACTION)
    missing = [item.operands[1] for item in module.of(*ROUNDED) if item.operands[1] not in have]
    return [word for id in missing for word in _encode_instruction(Opcode.Decorate, id, NO_CONTRACTION)]


def _encode_instruction(opcode: int, *operands: int) -> list[int]:
    return [(1 + len(operands)) << 16 | opcode, *operands]
