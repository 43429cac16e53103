"""The control flow of a kernel: basic blocks, found from its entry by following branches.

flow = control_flow(code, target)
flow.blocks[0].instructions         # (pc, instruction) in order; pc is a byte offset in the code
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from zinc_rt.isa.decode import decode
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.target import Target

_ENDS = frozenset(("s_endpgm", "s_endpgm_saved", "s_endpgm_ordered_ps_done"))
_LEAVES = frozenset(("s_setpc_b64", "s_rfe_b64"))  # to where no static analysis sees
_BRANCHES = frozenset((
    "s_branch", "s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz", "s_cbranch_vccnz", "s_cbranch_execz",
    "s_cbranch_execnz",
))  # fmt: skip


@dataclass(slots=True)
class Block:
    """`successors` are pcs of blocks. `exit` is why there is none: end, leave, or a fault of `Flow.faults`."""

    pc: int
    instructions: list[tuple[int, Instruction]] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    exit: str = ""


@dataclass(slots=True)
class Flow:
    """`blocks` by pc, in the order of their pcs. `faults`: (kind, pc of what went wrong, where that leads)."""

    blocks: dict[int, Block]
    entry: int
    faults: list[tuple[str, int, int]]

    def instructions(self) -> list[tuple[int, Instruction]]:
        return [pair for block in self.blocks.values() for pair in block.instructions]


def branch_target(pc: int, instruction: Instruction) -> int | None:
    """The pc a relative branch or s_call leads to, None for what is neither."""
    if instruction.mnemonic not in _BRANCHES and instruction.mnemonic != "s_call_b64":
        return None
    offset = instruction.words[0] & 0xFFFF
    return pc + instruction.size_bytes + 4 * (offset - (offset >> 15 << 16))


def control_flow(code: bytes, target: Target, entry: int = 0, end: int | None = None) -> Flow:
    """Everything reachable from `entry` before byte `end`. Never raises: what is wrong is in `faults`.

    Faults: `outside` a branch out of the code, `inside` one into an instruction, `illegal` bytes that
    are no instruction, `past-end` the code goes on where it ends, `padding` it runs into s_code_end.
    """
    limit = len(code) if end is None else end
    found: dict[int, Instruction | None] = {}
    starts = {entry}
    faults: list[tuple[str, int, int]] = []
    todo = [entry]
    if not 0 <= entry < limit:
        return Flow({}, entry, [("past-end", entry, entry)])
    while todo:
        pc = todo.pop()
        before = pc
        while pc not in found:
            if pc >= limit:
                faults.append(("past-end", before, pc))
                break
            instruction = decode(code[:limit], pc, target) if limit != len(code) else decode(code, pc, target)
            found[pc] = instruction
            if instruction is None or instruction.mnemonic == "v_illegal":
                faults.append(("illegal", pc, pc))
                break
            if instruction.mnemonic == "s_code_end":
                faults.append(("padding", before, pc))
                break
            to = branch_target(pc, instruction)
            if to is not None:
                if not 0 <= to < limit:
                    faults.append(("outside", pc, to))
                elif to not in starts:
                    starts.add(to)
                    todo.append(to)
                if instruction.mnemonic != "s_branch":
                    starts.add(pc + instruction.size_bytes)
            if (
                instruction.mnemonic in _ENDS
                or instruction.mnemonic in _LEAVES
                or instruction.mnemonic == "s_branch"
            ):
                break
            if instruction.mnemonic == "s_swappc_b64":
                starts.add(pc + instruction.size_bytes)
            before, pc = pc, pc + instruction.size_bytes
    whole = {pc: instruction for pc, instruction in sorted(found.items()) if instruction is not None}
    faults += _overlaps(whole)
    bad = {at for kind, at, _ in faults if kind == "illegal"} | {to for kind, _, to in faults if kind == "padding"}
    return Flow(_blocks(whole, starts, bad), entry, sorted(faults, key=lambda fault: fault[1]))


def _overlaps(found: dict[int, Instruction]) -> list[tuple[str, int, int]]:
    """An instruction that begins within another: both were reached."""
    faults = []
    covered = -1
    for pc, instruction in found.items():
        if pc < covered:
            faults.append(("inside", pc, pc))
        covered = max(covered, pc + instruction.size_bytes)
    return faults


def _blocks(found: dict[int, Instruction], starts: set[int], bad: set[int]) -> dict[int, Block]:
    blocks: dict[int, Block] = {}
    for start in sorted(start for start in starts if start in found and start not in bad):
        block = blocks[start] = Block(start)
        pc = start
        while True:
            if pc not in found or pc in bad:
                block.exit = "fault"
                break
            instruction = found[pc]
            block.instructions.append((pc, instruction))
            after = pc + instruction.size_bytes
            if instruction.mnemonic in _ENDS:
                block.exit = "end"
                break
            if instruction.mnemonic in _LEAVES:
                block.exit = "leave"
                break
            to = branch_target(pc, instruction)
            if to is not None:
                ways = [to] if instruction.mnemonic == "s_branch" else [to, after]
                block.successors = [way for way in dict.fromkeys(ways) if way in found and way not in bad]
                if len(block.successors) < len(dict.fromkeys(ways)) and not block.successors:
                    block.exit = "fault"
                break
            if after in starts:
                if after in found and after not in bad:
                    block.successors = [after]
                else:
                    block.exit = "fault"
                break
            pc = after
    return blocks


def predecessors(blocks: dict[int, Block]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {pc: [] for pc in blocks}
    for pc, block in blocks.items():
        for successor in block.successors:
            found[successor].append(pc)
    return found


def order(flow: Flow) -> list[int]:
    """The reachable blocks in reverse postorder: each after those before it, but for loops."""
    seen: set[int] = set()
    found: list[int] = []
    if flow.entry not in flow.blocks:
        return []
    stack: list[tuple[int, Sequence[int]]] = [(flow.entry, tuple(flow.blocks[flow.entry].successors))]
    seen.add(flow.entry)
    while stack:
        pc, rest = stack.pop()
        if rest:
            stack.append((pc, rest[1:]))
            if rest[0] not in seen:
                seen.add(rest[0])
                stack.append((rest[0], tuple(flow.blocks[rest[0]].successors)))
        else:
            found.append(pc)
    return found[::-1]
