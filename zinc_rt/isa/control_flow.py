"""The control flow graph of a kernel: basic blocks, discovered by following branches from the entry point.

flow = control_flow(code, target)
flow.blocks[0].instructions         # (pc, instruction) in order; pc is a byte offset in the code

rows.FLOWS defines where control continues after an instruction. Readers of code and the simulator use the same
graph but treat register-indirect jumps differently. A reader assumes that a call returns to the next instruction
and that s_setpc_b64 leaves the kernel. For the simulator (`running`), such jumps have an edge to every address
that the code can form: return addresses of calls, and the results of s_getpc_b64 plus a constant. A block also
begins where a wave may be suspended: at each s_barrier_wait, and before and after each LDS atomic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from zinc_rt.isa.decoder import decode
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.operand import Kind, Operand
from zinc_rt.isa.target import Target
from zinc_rt.isa.true16 import is_true16_supported, needs_halves

_BY_OFFSET = ("branch", "conditional", "call")
_BY_REGISTER = ("jump", "jump_call")
_FALLS_THROUGH = ("", "halt")
_COMES_BACK = ("conditional", "call", "jump_call")  # for static analysis: the next instruction is reached
_NO_SGPR = -1
_NO_LDS_ATOMICS = (
    "ds_load", "ds_store_", "ds_swizzle", "ds_permute", "ds_bpermute", "ds_nop", "ds_bvh", "ds_gws",
)  # fmt: skip
LONGEST_BYTES = 16
"""Maximum size of an instruction."""


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: the instructions from byte `start` to a jump, the next block or bytes that do not decode.

    `successors` are the starts of the following blocks. `illegal_at` is the offset at which undecodable bytes or
    the end of the code terminate the block; a block that begins there has no instructions.
    """

    start: int
    end: int
    instructions: tuple[tuple[int, Instruction], ...]
    successors: tuple[int, ...]
    illegal_at: int | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """A kernel's control flow: `blocks` by start, ascending; `faults` as (kind, pc, target).

    `target` has the reading of 16-bit operands in which the instructions are decoded.
    """

    entry: int
    target: Target
    blocks: dict[int, Block]
    faults: tuple[tuple[str, int, int], ...]
    indirect: tuple[int, ...]  # possible targets of register-indirect jumps of a running wave
    formed: tuple[int, ...] = ()  # further possible targets of calls to unknown addresses, also outside the code

    def instructions(self) -> list[tuple[int, Instruction]]:
        """Return every reachable instruction with its pc."""
        return [pair for block in self.blocks.values() for pair in block.instructions]


def find_branch_target(pc: int, instruction: Instruction) -> int:
    """Return the target of a branch or s_call_b64 at `pc`, which may be outside the code."""
    offset = instruction.words[0] & 0xFFFF
    return pc + instruction.size_bytes + 4 * (offset - (offset >> 15 << 16))


def is_block_end(instruction: Instruction, *, running: bool) -> bool:
    """Return whether a block ends after an instruction.

    According to the RDNA4 ISA guide, 16.2 to 16.5: s_endpgm and s_endpgm_saved (and RDNA3's
    s_endpgm_ordered_ps_done) end the wave, s_rfe_b64 continues at an address, and s_code_end raises an illegal
    instruction. s_trap enters a handler that may return to the next instruction, and a wave stopped by
    s_sendmsghalt or s_sethalt may be resumed by a debugger: none of these ends a block.
    """
    flow = instruction.row.flow
    return flow not in _FALLS_THROUGH and (running or flow != "barrier")


def is_lds_atomic(instruction: Instruction) -> bool:
    """Return whether an instruction changes LDS by a read-modify-write."""
    return instruction.encoding == "DS" and not instruction.row.name.startswith(_NO_LDS_ATOMICS)


@lru_cache(maxsize=8)
def find_control_flow(code: bytes, target: Target, entry: int = 0, *, running: bool = False) -> Flow:
    """Return the control flow reachable from `entry`. Never raises: errors are reported in `faults`.

    Fault kinds: `outside` for a branch out of the code, `inside` for a branch into the middle of an instruction,
    `illegal` for bytes that do not decode, `past-end` for code that continues past its end, `padding` for code
    that runs into s_code_end.
    """
    try:
        return _Search(code, target, entry, running).find_flow()
    except _ReadsHalves:
        return _Search(code, target.with_true16("real"), entry, running).find_flow()


@lru_cache(maxsize=64)
def find_reading(code: bytes, target: Target, entry: int = 0) -> Target:
    """Return the target with the reading of 16-bit operands that the code of a running kernel needs."""
    return target if is_true16_supported(target) else find_control_flow(code, target, entry, running=True).target


@lru_cache(maxsize=1 << 14)
def _decode_instruction(window: bytes, target: Target) -> Instruction | None:
    """Decode the instruction at the start of `window`. The same code is read several times before it runs."""
    return decode(window, 0, target)


class _ReadsHalves(Exception):
    """Raised if no reading was requested and an instruction uses a register half that exists in only one of the
    two readings.
    """


class _Search:
    """The state of the traversal of a kernel's branches."""

    def __init__(self, code: bytes, target: Target, entry: int, running: bool) -> None:
        self.code, self.target, self.entry, self.running = code, target, entry, running
        self.is_read = is_true16_supported(target)
        self.found: dict[int, Instruction | None] = {}
        self.starts, self.todo = {entry}, [entry]
        self.faults: list[tuple[str, int, int]] = []
        self.indirect: set[int] = set()
        self.formed: set[int] = set()  # every result of s_getpc_b64 plus a constant
        self.calls_anywhere = False  # a call whose address comes from another block or from vector registers

    def find_flow(self) -> Flow:
        while self.todo or (self.calls_anywhere and self._has_indirect_call()):
            self._decode_from(self.todo.pop())
        indirect = tuple(sorted(self.indirect))
        blocks = {start: self._make_block(start, indirect) for start in sorted(self.starts)}
        faults = sorted([*self.faults, *_find_overlapping_blocks(self.found)], key=lambda fault: fault[1])
        formed = tuple(sorted(self.formed)) if self.calls_anywhere else ()
        return Flow(self.entry, self.target, blocks, tuple(dict.fromkeys(faults)), indirect, formed)

    def _decode_at(self, pc: int) -> Instruction | None:
        """Return the instruction at `pc`. Erased memory gives None, because it decodes but cannot run."""
        if pc not in self.found:
            window = self.code[pc : pc + LONGEST_BYTES] if pc >= 0 else b""
            instruction = _decode_instruction(window, self.target) if window else None
            if not self.is_read and needs_halves(self.code, pc, instruction, self.target):
                raise _ReadsHalves
            self.found[pc] = None if instruction is not None and instruction.row.flow == "illegal" else instruction
        return self.found[pc]

    def _decode_from(self, pc: int) -> None:
        """Follow the code from `pc` until control leaves. For a running wave, every path is followed
        separately.
        """
        before = pc
        addresses: dict[int, int] = {}  # SGPR: the offset whose low half it holds
        while self.running or pc not in self.found:
            instruction = self._decode_at(pc)
            if instruction is None:
                is_outside = not 0 <= pc < len(self.code)
                self.faults.append(("past-end", before, pc) if is_outside else ("illegal", pc, pc))
                return
            flow = instruction.row.flow
            if flow == "padding":
                self.faults.append(("padding", before, pc))
            if flow in _BY_OFFSET:
                self._add_branch(pc, find_branch_target(pc, instruction))
            following = pc + instruction.size_bytes
            if self.running:
                self._follow_addresses(pc, instruction, addresses)
                if flow == "barrier" or is_lds_atomic(instruction):
                    self._add_start(pc, following)
                elif flow == "conditional":
                    self._add_start(following)
                self._add_start(*self.indirect)
            elif flow in _COMES_BACK:
                self.starts.add(following)
            if is_block_end(instruction, running=self.running) and (self.running or flow not in _COMES_BACK):
                return
            before, pc = pc, following

    def _add_start(self, *places: int) -> None:
        """Mark these offsets as starts of blocks."""
        self.todo += [location for location in places if location not in self.starts]
        self.starts.update(places)

    def _add_branch(self, pc: int, to: int) -> None:
        if 0 <= to < len(self.code):
            self._add_start(to)
        else:
            self.starts.add(to)
            self.faults.append(("outside", pc, to))

    def _follow_addresses(self, pc: int, instruction: Instruction, addresses: dict[int, int]) -> None:
        """Track, within a block, the registers that hold the low half of an address in this code."""
        operands, following = instruction.operands, pc + instruction.size_bytes
        if instruction.row.flow in ("call", "jump_call"):
            self.indirect.add(following)
        if instruction.row.flow in _BY_REGISTER:
            if (address := addresses.get(_sgpr_index(operands[-1]))) is not None:
                self.indirect.add(address)
            elif instruction.row.flow == "jump_call":
                self.calls_anywhere = True
        if not operands or (destination := _sgpr_index(operands[0])) == _NO_SGPR:
            return
        value = self._find_computed_address(instruction, following, addresses)
        for index in range(operands[0].width):
            addresses.pop(destination + index, None)
        if value is not None:
            addresses[destination] = value

    def _find_computed_address(
        self, instruction: Instruction, following: int, addresses: dict[int, int]
    ) -> int | None:
        """Return the address whose low half the instruction writes to its destination."""
        name, operands = instruction.row.name, instruction.operands
        if name == "s_getpc_b64":
            return following
        if name in ("s_mov_b32", "s_mov_b64"):
            return addresses.get(_sgpr_index(operands[1]))
        if name not in ("s_add_co_u32", "s_add_nc_u64", "s_sub_co_u32", "s_sub_nc_u64"):
            return None
        first, second = operands[1:]
        constant, register = (second, first) if second.value is not None else (first, second)
        base = addresses.get(_sgpr_index(register))
        if base is None or constant.kind not in (Kind.LITERAL, Kind.INTEGER) or constant.value is None:
            return None
        offset = int(constant.value)
        low = (base + offset if "add" in name else base - offset) & 0xFFFFFFFF
        value = low - (low >> 31 << 32)
        self.formed.add(value)
        return value

    def _has_indirect_call(self) -> bool:
        """Make every address that the code forms a possible call target. Return False if none is new."""
        places = sorted(
            start for start in self.formed - self.starts if start % 4 == 0 and self._decode_at(start) is not None
        )
        self.indirect.update(places)
        self._add_start(*places)
        return bool(places)

    def _make_block(self, start: int, indirect: tuple[int, ...]) -> Block:
        instructions: list[tuple[int, Instruction]] = []
        pc = start
        while pc == start or pc not in self.starts:
            instruction = self._decode_at(pc)
            if instruction is None:
                return Block(start, pc, tuple(instructions), (), illegal_at=pc)
            instructions.append((pc, instruction))
            following = pc + instruction.size_bytes
            if is_block_end(instruction, running=self.running):
                return Block(
                    start, following, tuple(instructions), self._find_successors(pc, instruction, indirect)
                )
            pc = following
        return Block(start, pc, tuple(instructions), (pc,))

    def _find_successors(self, pc: int, instruction: Instruction, indirect: tuple[int, ...]) -> tuple[int, ...]:
        flow = instruction.row.flow
        if self.running and flow in _BY_REGISTER:
            return indirect
        result = [find_branch_target(pc, instruction)] if flow in _BY_OFFSET else []
        if flow in ("conditional", "barrier") or (flow in _COMES_BACK and not self.running):
            result.append(pc + instruction.size_bytes)
        return tuple(dict.fromkeys(result))


def _sgpr_index(operand: Operand) -> int:
    return operand.index if operand.kind in (Kind.SGPR, Kind.SPECIAL) else _NO_SGPR


def _find_overlapping_blocks(found: dict[int, Instruction | None]) -> list[tuple[str, int, int]]:
    """Return faults for instructions that begin inside other instructions, where both are reachable."""
    faults = []
    covered = -1
    for pc, instruction in sorted(found.items(), key=lambda pair: pair[0]):
        if instruction is not None:
            if pc < covered:
                faults.append(("inside", pc, pc))
            covered = max(covered, pc + instruction.size_bytes)
    return faults


def find_predecessors(blocks: dict[int, Block]) -> dict[int, list[int]]:
    """Return the starts of the predecessors of each block."""
    result: dict[int, list[int]] = {pc: [] for pc in blocks}
    for pc, block in blocks.items():
        for successor in block.successors:
            result[successor].append(pc)
    return result


def order_blocks(flow: Flow) -> list[int]:
    """Return the reachable blocks in reverse postorder: predecessors first, except along loop back edges."""
    result: list[int] = []
    stack: list[tuple[int, Sequence[int]]] = [(flow.entry, flow.blocks[flow.entry].successors)]
    seen = {flow.entry}
    while stack:
        pc, rest = stack.pop()
        if rest:
            stack.append((pc, rest[1:]))
            if rest[0] not in seen:
                seen.add(rest[0])
                stack.append((rest[0], flow.blocks[rest[0]].successors))
        else:
            result.append(pc)
    return result[::-1]
