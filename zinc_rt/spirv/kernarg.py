"""A kernel's parameters, read from its module: the struct of its arguments (ABI vk-1), and its patchable
constants."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.host.errors import InputError
from zinc_rt.spirv.module import SpirvInstruction, SpirvModule, decode_text
from zinc_rt.spirv.opcodes import Opcode

STRUCT = "Args"  # its name in KERNARG of kernel.glsl
RESULT = "y"  # the stored-to argument among those that are plain addresses
SPEC_ID, NON_WRITABLE, OFFSET = 1, 24, 35  # decorations (specification, 3.20)
ADDRESS_BYTES, CONSTANT_BYTES = 8, 4


@dataclass(frozen=True, slots=True)
class KernargBuffer:
    """A buffer argument. `stored`: the kernel may store to it, always true for addresses in arithmetic
    (uint64_t).
    """

    name: str
    stored: bool


@dataclass(frozen=True, slots=True)
class Kernarg:
    """The block that the push constant points to, and the ids of specialization constants by name."""

    buffers: tuple[KernargBuffer, ...]
    constants: tuple[str, ...]
    spec_ids: dict[str, int]


def read_kernarg(module: SpirvModule, source: str = "SPIR-V") -> Kernarg:
    """Read the arguments. Raise InputError unless they are addresses, then constants, without a gap."""
    structs = [id for id, name in module.names.items() if name == STRUCT]
    block = next((module.definitions[id] for id in structs if _is_struct(module, id)), None)
    if block is None:
        raise InputError(
            f"{source}: has no struct named {STRUCT}", next="declare the kernel's arguments with KERNARG"
        )
    names = _list_member_names(module, block.operands[0])
    offsets = _list_member_decorations(module, block.operands[0], OFFSET)
    buffers: list[KernargBuffer] = []
    constants: list[str] = []
    end = 0
    for index, type_id in enumerate(block.operands[1:]):
        name, member = names.get(index, f"member {index}"), module.definitions[type_id]
        address = member.opcode == Opcode.TypePointer or _is_address(member)
        if offsets.get(index, (0,))[0] != end or (address and constants):
            raise InputError(f"{source}: {STRUCT}.{name}: expected addresses first, then constants of 4 bytes")
        if address:
            stored = name == RESULT if _is_address(member) else not _is_read_only(module, member)
            buffers.append(KernargBuffer(name, stored))
        else:
            constants.append(name)
        end += ADDRESS_BYTES if address else CONSTANT_BYTES
    return Kernarg(tuple(buffers), tuple(constants), _list_spec_ids(module))


def _is_struct(module: SpirvModule, id: int) -> bool:
    definition = module.definitions.get(id)
    return definition is not None and definition.opcode == Opcode.TypeStruct


def _is_address(definition: SpirvInstruction) -> bool:
    """Return whether an argument is a uint64_t address, for kernels that compute addresses themselves.

    Only the argument's name shows whether such a kernel stores to it.
    """
    return definition.opcode == Opcode.TypeInt and definition.operands[1] == 8 * ADDRESS_BYTES


def _is_read_only(module: SpirvModule, pointer: SpirvInstruction) -> bool:
    """Return whether every member of the pointed-to struct is NonWritable."""
    pointee = module.definitions[pointer.operands[2]]
    protected = _list_member_decorations(module, pointee.operands[0], NON_WRITABLE)
    return pointee.opcode == Opcode.TypeStruct and len(protected) == len(pointee.operands) - 1


def _list_member_names(module: SpirvModule, struct_id: int) -> dict[int, str]:
    named = (item.operands for item in module.of(Opcode.MemberName))
    return {
        member: decode_text(rest) for id, member, *rest_ in named if id == struct_id for rest in [tuple(rest_)]
    }


def _list_member_decorations(module: SpirvModule, struct_id: int, decoration: int) -> dict[int, tuple[int, ...]]:
    operands = (item.operands for item in module.of(Opcode.MemberDecorate))
    return {words[1]: words[3:] for words in operands if words[0] == struct_id and words[2] == decoration}


def _list_spec_ids(module: SpirvModule) -> dict[str, int]:
    return {module.names.get(id, ""): literals[0] for id, literals in module.find_decorated(SPEC_ID).items()}
