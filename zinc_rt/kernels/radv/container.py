"""Convert SPIR-V and RADV's machine code for it to a .zrt: a kernel with T1's ABI."""

from __future__ import annotations

import hashlib
import struct

from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.isa.target import DEFAULT_ARCH, TARGETS
from zinc_rt.isa.wave_rules import WaveRules
from zinc_rt.kernels.radv.pipeline_cache import read_shader
from zinc_rt.kernels.rsrc import count_user_sgprs
from zinc_rt.kernels.zrt import SGPRS_MAXIMUM, Zrt
from zinc_rt.spirv.module import SpirvModule, read_module
from zinc_rt.spirv.opcodes import Opcode

MOVE_ARGUMENTS = struct.pack("<I", 0xBE820100)  # s_mov_b64 s[2:3], s[0:1]
_MOVE = 0xBE800000  # s_mov_b32 s[bits 22:16], s[bits 7:0]
FLOAT_MODE = 0xF0  # nearest even, denormals kept
USER_SGPRS = 4  # two that are used only for scratch, and the push constant
COMPILER = "RADV/Mesa-"
_LOCAL_SIZE = 17  # SPIR-V's execution mode
_PUSH_CONSTANT = 9  # and storage class


def build_container(name: str, spirv: bytes, cache: bytes, mesa: str, chip: str = DEFAULT_ARCH) -> Zrt:
    """Build the kernel `name` from the committed module `spirv` and RADV's pipeline cache with only that kernel.
    `mesa` is the version that produced the cache for `chip`.

    Raise InputError for a module that is not a kernel of ABI vk-1 or a cache with an unknown layout,
    UnsupportedError for a kernel that needs state that T1 does not set up.
    """
    module = read_module(spirv, name)
    buffers, constants = list_arguments(module, name)
    if any(module.of(Opcode.SpecConstant, Opcode.SpecConstantTrue, Opcode.SpecConstantFalse)):
        raise UnsupportedError(
            f"kernel {name}: has specialization constants, which RADV would compile to fixed values",
            next="pass them as arguments",
        )
    shader = read_shader(cache, name)
    if shader.scratch_bytes:  # scalar registers may be spilled into lanes, which needs no scratch
        raise UnsupportedError(
            f"kernel {name}: RADV needs {shader.scratch_bytes} bytes of scratch per wave, and graphs provide none",
            next="use fewer values at a time, or unroll loops over private arrays completely",
        )
    if shader.float_mode != FLOAT_MODE:
        raise InputError(f"kernel {name}: float mode is {shader.float_mode:#04x}, expected {FLOAT_MODE:#04x}")
    user_sgprs = shader.rsrc[1] >> 1 & 0x1F
    if user_sgprs != USER_SGPRS:
        raise UnsupportedError(
            f"kernel {name}: RADV needs {user_sgprs} user SGPRs, but T1 provides {USER_SGPRS}",
            next="do not read gl_NumWorkGroups, and use only one 64-bit push constant",
        )
    return Zrt(
        name=name,
        code=_make_entry(shader.rsrc[1], TARGETS[chip].rules) + shader.code,
        buffers=buffers,
        constant_bytes=4 * constants,
        workgroup=read_workgroup(module, name),
        vgprs=shader.vgprs,
        sgprs=min(shader.sgprs, SGPRS_MAXIMUM),
        target=chip,
        lds_bytes=shader.lds_bytes,
        files=(f"{name}.spv",),
        source_hash=hash_module(spirv),
        compiler=f"{COMPILER}{mesa}",
    )


def _make_entry(rsrc2: int, rules: WaveRules) -> bytes:
    """Return the instructions that move T1's initial scalar registers to those of RADV: the arguments and, if they
    are not in TTMPs, the enabled ids, which follow the user data without gaps."""
    if rules.ids_in_ttmp:
        return MOVE_ARGUMENTS
    enabled = [axis for axis in range(4) if rsrc2 >> 7 + axis & 1]
    first = count_user_sgprs(rules)
    moves = [_MOVE | USER_SGPRS + index << 16 | first + axis for index, axis in enumerate(enabled)]
    return MOVE_ARGUMENTS + struct.pack(f"<{len(moves)}I", *moves)


def hash_module(spirv: bytes) -> bytes:
    """Return the SHA-256 of the module's file, which containers of this set store as the source hash."""
    return hashlib.sha256(spirv).digest()


def read_workgroup(module: SpirvModule, name: str) -> tuple[int, int, int]:
    """Return the LocalSize. Raise InputError unless it consists of three numbers."""
    for item in module.of(Opcode.ExecutionMode):
        if item.operands[1] == _LOCAL_SIZE:
            x, y, z = item.operands[2:5]
            return x, y, z
    raise InputError(f"kernel {name}: LocalSize is missing", next="add layout(local_size_x = 32) in;")


def list_arguments(module: SpirvModule, name: str) -> tuple[int, int]:
    """Return (buffers, constants) of the kernarg block that the push constant points to: its 64-bit members, then
    its 32-bit members. Raise InputError for any other block."""
    members = list(_read_kernarg(module, name))
    sizes = [_type_size(module, member) for member in members]
    buffers = sizes.index(4) if 4 in sizes else len(sizes)
    if sizes != [8] * buffers + [4] * (len(sizes) - buffers):
        raise InputError(
            f"kernel {name}: has arguments of {', '.join(map(str, sizes))} bytes, expected addresses, then dwords"
        )
    return buffers, len(sizes) - buffers


def _read_kernarg(module: SpirvModule, name: str) -> tuple[int, ...]:
    """Return the types of the block's members."""
    known = module.definitions
    for variable in module.of(Opcode.Variable):
        if variable.inputs[0] == _PUSH_CONSTANT:
            block = known[known[variable.operands[0]].inputs[1]]  # the struct of push constants
            if len(block.inputs) == 1 and known[block.inputs[0]].opcode == Opcode.TypePointer:
                return known[known[block.inputs[0]].inputs[1]].inputs
    raise InputError(
        f"kernel {name}: its push constant is not a single address",
        next="declare it with KERNARG of kernel.glsl (ABI vk-1)",
    )


def _type_size(module: SpirvModule, type_id: int) -> int:
    definition = module.definitions[type_id]
    if definition.opcode == Opcode.TypePointer:
        return 8
    return definition.inputs[0] // 8 if definition.opcode in (Opcode.TypeInt, Opcode.TypeFloat) else 0
