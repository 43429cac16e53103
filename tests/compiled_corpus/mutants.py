"""Kernel binaries without one thing: a wait, a barrier, a cache operation, a bound, an initialisation, LDS."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_run import Binary

from zinc_rt.cli.kernel_input import KernelInput
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.alu_hazards import VA_VDST
from zinc_rt.isa.lint.sgpr_reads import SA_SDST, VA_SDST, VA_VCC
from zinc_rt.isa.operand import Kind

S_NOP = 0xBF800000
CACHE = ("global_inv", "global_wb", "global_wbinv", "buffer_gl0_inv", "buffer_gl1_inv")
LEGACY_FIELDS = (63 << 10, 63 << 4, 7)  # of s_waitcnt on gfx11: VMCNT, LGKMCNT, EXPCNT
KINDS = ("wait", "barrier", "cache", "bound", "initialisation", "lds")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`changed`: bytes by their place in the image. `pc` is the place in the code of `function`."""

    kind: str
    what: str
    function: KernelInput
    pc: int
    changed: dict[int, bytes]
    lds_bytes: int | None = None


def list_mutants(binary: Binary) -> Iterator[Mutant]:
    """Return the instructions of the kernel and of the functions that it calls, without unused copies."""
    kernel = next(function for function in binary.functions if function.kernel)
    program = find_control_flow(binary.image.image, kernel.target, binary.kernel.entry_at, running=True)
    for function in binary.functions:
        if function.section.address + function.entry not in program.blocks:
            continue
        flow = find_control_flow(function.section.code, function.target, function.entry)
        for pc, instruction in flow.instructions():
            for kind, words in without_instruction(instruction):
                content = struct.pack(f"<{len(words)}I", *words)
                where = function.section.address + pc
                yield Mutant(kind, f"{pc:#x} {instruction.text}", function, pc, {where: content})
    if binary.kernel.group_bytes:
        for size in {binary.kernel.group_bytes // 2, binary.kernel.group_bytes - 4}:
            yield Mutant("lds", f"{size} bytes of LDS", kernel, kernel.entry, {}, lds_bytes=size)


def without_instruction(instruction: Instruction) -> Iterator[tuple[str, list[int]]]:
    """(kind, the words instead) for each thing that an instruction does and a mutant does not."""
    word, name = instruction.words[0], instruction.mnemonic
    nothing = [S_NOP] * (instruction.size_bytes // 4)
    if name in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
        yield from (("wait", [word | field]) for field in (63 << 8, 63) if word & field != field)
    elif name in ("s_wait_alu", "s_waitcnt_depctr"):
        fields = (SA_SDST, VA_VCC, VA_SDST, VA_VDST)
        yield from (("wait", [word | field]) for field in fields if word & field != field)
    elif name == "s_waitcnt":
        yield from (("wait", [word | field]) for field in LEGACY_FIELDS if word & field != field)
    elif name.startswith("s_wait_") or name == "s_waitcnt_vscnt":
        yield "wait", nothing
    elif name in ("s_barrier_signal", "s_barrier_wait", "s_barrier"):
        yield "barrier", nothing
    elif name in CACHE:
        yield "cache", nothing
    elif name.startswith("v_cmpx"):
        yield "bound", nothing
    elif name.startswith("s_and_saveexec"):
        full = 0xBE800000 | (instruction.operands[0].index << 16) | 126
        opcode = 0 if name.endswith("b32") else 1
        yield "bound", [full | opcode << 8]
    elif name == "v_mov_b32_e32" and instruction.operands[1].kind is not Kind.VGPR:
        yield "initialisation", nothing
