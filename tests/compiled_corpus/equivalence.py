"""Proofs that a mutant does what its original does, by dataflow over the whole program (calls are followed).

A removed wait: nothing that it waited for is outstanding there; or else no path uses a result before another wait
settles it, and no path comes, with the operation outstanding, to a place where others may notice (a barrier, a
cache operation, an atomic, or an access of more than the wave's scope). A barrier of a workgroup of one wave. An
invalidation behind which nothing is read that the kernel writes; a write-back of less than the system's scope:
gfx12 has no write-back cache below L2. An initialisation that no instruction reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernel_run import Binary, patch_code
from mutants import Mutant

from zinc_rt.isa.control_flow import find_control_flow, order_blocks
from zinc_rt.isa.effects import effects
from zinc_rt.isa.encodings.cache_policy import find_scope
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.alu_hazards import check_alu_hazards
from zinc_rt.isa.lint.counters import INVALIDATIONS, KM, MOST, STORE, list_issued_counts
from zinc_rt.isa.lint.finding import LintFinding, LintSubject
from zinc_rt.isa.lint.origins import AddressOrigins
from zinc_rt.isa.lint.sgpr_reads import check_sgpr_reads
from zinc_rt.isa.lint.waits import SIGNALS, check_waits, find_pending, issue_operation, list_waited_counts, settle
from zinc_rt.isa.target import target_of
from zinc_rt.isa.wave_rules import WaveRules

SYSTEM = 3  # SCOPE_SYS
CACHE_OPERATIONS = ("global_inv", "global_wb", "global_wbinv", "buffer_gl0_inv", "buffer_gl1_inv")


def is_equivalent(binary: Binary, mutant: Mutant, threads: int) -> str:
    """Return the proof as text; "" if there is none. `threads`: work-items per workgroup."""
    one_wave = threads <= binary.kernel.wave
    subject = parse_program(binary, mutant.changed)
    offset = mutant.function.section.address + mutant.pc
    original = parse_program(binary, {}).at.get(offset)
    if mutant.kind == "lds":
        return ""
    if original is None:
        return "no path of the kernel leads there"
    if mutant.kind == "wait":
        before = {finding.pc for finding in reads_too_early(parse_program(binary, {}))}
        if any(finding.pc not in before for finding in reads_too_early(subject)):
            return ""
        return is_wait_redundant(subject, original, offset, one_wave)
    if mutant.kind == "barrier" and one_wave:
        return "a workgroup is one wave"
    if mutant.kind == "cache":
        return is_cache_op_redundant(subject, original, offset, binary, one_wave)
    if mutant.kind == "initialisation" and not reads_after_wait(parse_program(binary, {}), original, offset):
        return "nothing reads it"
    return ""


def parse_program(binary: Binary, changed: dict[int, bytes]) -> LintSubject:
    """The kernel with all that it calls."""
    target = target_of(binary.image.arch, binary.kernel.wave)
    flow = find_control_flow(patch_code(binary.image.image, changed), target, binary.kernel.entry_at, running=True)
    index = dict(flow.instructions())
    return LintSubject(
        flow,
        tuple(order_blocks(flow)),
        {pc: effects(instruction, target) for pc, instruction in index.items()},
        index,
        target,
    )


def reads_too_early(subject: LintSubject) -> list[LintFinding]:
    hazards = check_sgpr_reads(subject) if subject.target.rules.has_sgpr_read_hazard else ()
    return [*check_waits(subject), *hazards, *check_alu_hazards(subject)]


def is_wait_redundant(subject: LintSubject, original: Instruction, index: int, one_wave: bool) -> str:
    left = dict(list_waited_counts(subject.at[index])) if index in subject.at else {}
    gone = {counter: count for counter, count in list_waited_counts(original) if left.get(counter, MOST) > count}
    if not gone:
        return "no result of an ALU is read early"
    state = _pending_before(subject, index)
    waiting = {
        counter: [pc for pc, behind in state[counter].items() if behind >= count or counter == KM]
        for counter, count in gone.items()
    }
    public = {
        counter: any(is_visible_to_others(subject.at[pc]) for pc in result) for counter, result in waiting.items()
    }
    if not any(waiting.values()):
        return "nothing is outstanding there"
    if any(result and is_counter_noticed(subject, index, counter, one_wave) for counter, result in public.items()):
        return ""
    return "every result waits elsewhere, and nobody notices in between"


def is_visible_to_others(instruction: Instruction) -> bool:
    """Return whether other waves can observe it: not scratch, nor an invalidation, which affects only later loads
    of the same wave.
    """
    return instruction.encoding != "SCRATCH" and instruction.mnemonic not in INVALIDATIONS


def _pending_before(subject: LintSubject, index: int) -> dict[str, dict[int, int]]:
    counts = {
        pc: result for pc, item in subject.at.items() if (result := list_issued_counts(item, subject.effects[pc]))
    }
    settles = {pc: result for pc, item in subject.at.items() if (result := list_waited_counts(item))}
    start, block = next(
        (start, block) for start, block in subject.flow.blocks.items() if index in dict(block.instructions)
    )
    state = {name: dict(result) for name, result in find_pending(subject, counts, settles, True)[start].items()}
    for pc, _ in block.instructions:
        if pc == index:
            break
        if pc in settles:
            settle(state, settles[pc])
        if pc in counts:
            issue_operation(state, pc, counts[pc])
    return state


def is_counter_noticed(subject: LintSubject, index: int, counter: str, one_wave: bool) -> bool:
    """Return whether a path from `index` reaches an observable instruction before a wait completes `counter`."""
    seen: set[tuple[int, int]] = set()
    todo = [(pc, 0) for pc in following_instructions(subject, index)]
    while todo:
        pc, behind = todo.pop()
        if (pc, behind) in seen:
            continue
        seen.add((pc, behind))
        instruction = subject.at.get(pc)
        if instruction is None or any(
            name == counter and behind >= count for name, count in list_waited_counts(instruction)
        ):
            continue
        if is_order_point(instruction, counter, one_wave, subject.target.rules):
            return True
        if any(name == counter for name, _ in list_issued_counts(instruction, subject.effects[pc])):
            behind = min(behind + 1, MOST)
        todo += [(to, behind) for to in following_instructions(subject, pc)]
    return False


def is_order_point(instruction: Instruction, counter: str, one_wave: bool, rules: WaveRules) -> bool:
    name, row = instruction.mnemonic, instruction.row
    if name in SIGNALS:
        return not one_wave
    if name in CACHE_OPERATIONS:
        return scope_of(instruction, rules) > 1 or not one_wave
    if row.pipe != "vmem" or instruction.encoding == "SCRATCH":
        return row.unit == "atomic"
    wide = scope_of(instruction, rules) > 0
    return row.unit == "atomic" or (wide and (row.unit != "load" or counter == STORE))


def scope_of(instruction: Instruction, rules: WaveRules) -> int:
    """SCOPE_CU 0, SCOPE_SE 1, SCOPE_DEV 2, SCOPE_SYS 3. On gfx11, each store may be an atomic one."""
    if rules.has_scopes:
        return find_scope(instruction, rules)
    if instruction.mnemonic in CACHE_OPERATIONS:
        return 1 if instruction.mnemonic == "buffer_gl0_inv" else 2
    return 2 if instruction.row.unit == "store" else find_scope(instruction, rules)


def following_instructions(subject: LintSubject, position: int) -> Iterator[int]:
    for block in subject.flow.blocks.values():
        pcs = [pc for pc, _ in block.instructions]
        if position in pcs:
            index = pcs.index(position)
            if index + 1 < len(pcs):
                yield pcs[index + 1]
            else:
                yield from (to for to in block.successors if subject.flow.blocks[to].instructions)


def reachable_indices(subject: LintSubject, index: int) -> set[int]:
    seen: set[int] = set()
    todo = list(following_instructions(subject, index))
    while todo:
        pc = todo.pop()
        if pc not in seen:
            seen.add(pc)
            todo += following_instructions(subject, pc)
    return seen


def is_cache_op_redundant(
    subject: LintSubject, original: Instruction, index: int, binary: Binary, one_wave: bool
) -> str:
    rules = subject.target.rules
    scope = scope_of(original, rules)
    if original.mnemonic == "global_wb":
        return "no cache below L2 holds what is written" if scope < SYSTEM else ""
    if one_wave and scope <= 1:
        return "a workgroup is one wave"
    pointers = next(function for function in binary.functions if function.kernel).limits.pointers
    if pointers is None:
        return ""
    origins = AddressOrigins(subject, pointers)
    loads = {
        pc
        for pc in reachable_indices(subject, index)
        if subject.at[pc].row.unit == "load" and subject.at[pc].encoding in ("GLOBAL", "FLAT", "VBUFFER", "MUBUF")
    }
    if not {pc for pc in loads if scope_of(subject.at[pc], rules) < scope}:
        return "nothing is read through the cache behind it"
    stores = {
        pc for pc, item in subject.at.items() if item.row.pipe == "vmem" and item.row.unit in ("store", "atomic")
    }
    stores = {pc for pc in stores if subject.at[pc].encoding != "SCRATCH"}
    read, written = (frozenset().union(*map(origins.of, pcs)) for pcs in (loads, stores))
    if None in read | written or read & written:
        return ""
    return "nothing that the kernel writes is read behind it"


def reads_after_wait(subject: LintSubject, original: Instruction, index: int) -> bool:
    written = effects(original, subject.target).writes
    return any(subject.effects[pc].reads & written for pc in reachable_indices(subject, index))
