"""Missing waits: results used or overwritten before they arrive; LDS and memory operations pending at a barrier.

For each counter, pending operations are tracked by pc, with the minimum number of operations issued after them on
any path: a wait for n completes those with n or more later operations. By LLVM's convention a function first waits
for all counters (AMDGPUUsage, "Non-Kernel Functions"): a call leaves nothing pending, and the caller's loads are
pending at the start of a function.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.isa.effects import SGPRS, VGPRS, format_halves, to_halves
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.counters import (
    COUNTERS,
    DS,
    INVALIDATIONS,
    KM,
    LOAD,
    MOST,
    STORE,
    list_issued_counts,
    list_waits,
)
from zinc_rt.isa.lint.dataflow import solve_forward
from zinc_rt.isa.lint.finding import LintFinding, LintSubject
from zinc_rt.isa.lint.shared_memory import READS, WRITES, SharedMemory
from zinc_rt.isa.operand import Kind

Pending = dict[
    str, dict[int, int]
]  # counter -> pc of the operation -> the minimum number of operations issued after it
CALLER = -1  # stands for the pc of operations that a function's caller left pending
_OF_CALLER: Pending = {LOAD: {CALLER: 0}, DS: {CALLER: 0}, KM: {CALLER: 0}}
_WRITTEN_BY_CALLER = {LOAD: to_halves(VGPRS), DS: to_halves(VGPRS), KM: SGPRS}
_CALLS = ("call", "jump_call")
SIGNALS = ("s_barrier_signal", "s_barrier_signal_isfirst", "s_barrier")
_WRITE_BACK = ("global_wb", "global_wbinv")


def check_waits(
    subject: LintSubject, *, kernel: bool = True, memory: SharedMemory | None = None
) -> Iterator[LintFinding]:
    """Report missing waits.

    `kernel` False: the code is a function, at whose start the caller's loads may be pending. `memory`, if buffers
    are known: also report operations that are pending at a barrier and conflict with accesses after it.
    """
    counts = {
        pc: result
        for pc, instruction in subject.at.items()
        if (result := list_issued_counts(instruction, subject.effects[pc]))
    }
    settles = {pc: result for pc, instruction in subject.at.items() if (result := list_waited_counts(instruction))}
    publishing = _find_publishing(subject, counts, settles)
    output: set[tuple[str, int]] = set()
    for pc, state in find_pending(subject, counts, settles, kernel).items():
        for finding in _check_block(subject, pc, state, counts, settles, publishing):
            key = (finding.rule, finding.producer_pc or 0)
            if key not in output:
                output.add(key)
                yield finding
        if memory is not None:
            yield from _check_shared_at_barriers(subject, pc, state, counts, settles, memory)


_VECTOR = {"load", "MIMG"}
Counts = dict[int, tuple[tuple[str, int], ...]]
_BEFORE_CALLS = tuple((counter, 0) for counter in COUNTERS if counter != STORE)


def list_waited_counts(instruction: Instruction) -> tuple[tuple[str, int], ...]:
    """Return the (counter, maximum remaining count) pairs that hold after an instruction.

    A call includes the first wait of the called function, which is for everything except stores (LLVM,
    SIInsertWaitcnts: the prologue waits, so calls need not).
    """
    return _BEFORE_CALLS if instruction.row.flow in ("call", "jump_call") else list_waits(instruction)


def _find_publishing(subject: LintSubject, counts: Counts, completes: Counts) -> set[int]:
    """Return the write-backs that follow a store without a wait. Other write-backs have nothing to publish, for
    example those of a compiler's fence around LDS.
    """
    result: set[int] = set()

    def transfer(block: int, stored: bool) -> bool:
        for index, instruction in subject.flow.blocks[block].instructions:
            if instruction.mnemonic in _WRITE_BACK:
                if stored:
                    result.add(index)
            elif (STORE, 0) in completes.get(index, ()):
                stored = False
            elif any(counter == STORE for counter, _ in counts.get(index, ())):
                stored = True
        return stored

    solve_forward(subject, False, transfer, bool.__or__)
    return result


def find_pending(subject: LintSubject, counts: Counts, completes: Counts, kernel: bool) -> dict[int, Pending]:
    """Return the operations that may be pending at the start of each block."""

    def transfer(block: int, state: Pending) -> Pending:
        after = {counter: dict(waiting) for counter, waiting in state.items()}
        for index, _ in subject.flow.blocks[block].instructions:
            if index in counts:
                issue_operation(after, index, counts[index])
            elif index in completes:
                settle(after, completes[index])
        return after

    start: Pending = {counter: {} if kernel else dict(_OF_CALLER.get(counter, {})) for counter in COUNTERS}
    return solve_forward(subject, start, transfer, _merge_states)


def issue_operation(state: Pending, pc: int, what: tuple[tuple[str, int], ...]) -> None:
    for counter, _ in what:
        waiting = state[counter]
        for other in waiting:
            if waiting[other] < MOST:
                waiting[other] += 1
        waiting[pc] = 0


def settle(state: Pending, what: tuple[tuple[str, int], ...]) -> None:
    for counter, remain in what:
        if counter == KM:
            if not remain:
                state[counter] = {}
        elif state[counter]:
            state[counter] = {pc: behind for pc, behind in state[counter].items() if behind < remain}


def _merge_states(known: Pending, arriving: Pending) -> Pending:
    """Merge the pending operations of two paths, with the smaller number of later operations for each."""
    whole = {counter: dict(waiting) for counter, waiting in known.items()}
    for counter, waiting in arriving.items():
        for pc, behind in waiting.items():
            whole[counter][pc] = min(behind, whole[counter].get(pc, behind))
    return whole


def _check_block(
    subject: LintSubject, start: int, state: Pending, counts: Counts, completes: Counts, publishing: set[int]
) -> Iterator[LintFinding]:
    state = {counter: dict(waiting) for counter, waiting in state.items()}
    results = {pc: dict(what) for pc, what in counts.items()} | {CALLER: _WRITTEN_BY_CALLER}
    busy = _find_busy(state, results)
    for pc, instruction in subject.flow.blocks[start].instructions:
        effects = subject.effects[pc]
        waits_first = pc in completes and instruction.row.flow not in _CALLS
        touched = effects.read_halves | effects.written_halves
        if not waits_first and touched & busy:
            for counter, waiting in state.items():
                for producer in [p for p in waiting if results[p][counter] & touched]:
                    if not _is_in_order(subject, pc, producer, results[producer][counter]):
                        yield _make_early_use_finding(
                            subject, pc, producer, counter, waiting[producer], results[producer][counter]
                        )
        if pc in completes:
            settle(state, completes[pc])
            busy = _find_busy(state, results)
        if instruction.mnemonic in SIGNALS:
            yield from _check_barrier(subject, pc, state)
        elif instruction.mnemonic in INVALIDATIONS:
            yield from _check_invalidation(subject, pc, state)
        elif instruction.row.pipe == "vmem":
            yield from _check_write_back(subject, pc, publishing.intersection(state[STORE]))
        if pc in counts:
            issue_operation(state, pc, counts[pc])
            for _, written in counts[pc]:
                busy |= written


def _check_shared_at_barriers(
    subject: LintSubject, start: int, state: Pending, counts: Counts, completes: Counts, memory: SharedMemory
) -> Iterator[LintFinding]:
    """Report stores before a barrier with loads of their buffer after it, and loads with stores after it."""
    state = {counter: dict(waiting) for counter, waiting in state.items()}
    for pc, instruction in subject.flow.blocks[start].instructions:
        if pc in completes:
            settle(state, completes[pc])
        if instruction.mnemonic in SIGNALS:
            for counter, units, others in ((STORE, READS, "read"), (LOAD, WRITES, "written")):
                for producer in state[counter]:
                    if producer != CALLER and memory.of(producer) & memory.find_later_arguments(pc, units):
                        yield subject.finding(
                            "barrier-wait",
                            pc,
                            f"{subject.at[producer].mnemonic} may still be pending at the barrier, and its buffer "
                            f"is {others} after it: needs {subject.format_wait(counter, 0)} before the barrier",
                            producer,
                        )
        if pc in counts:
            issue_operation(state, pc, counts[pc])


def _is_in_order(subject: LintSubject, pc: int, producer: int, written: int) -> bool:
    """Return whether the later of two loads always takes effect last: LDS returns data to a wave in order, and so
    does vector memory on gfx11, among images or among other accesses (LLVM, FeatureVmemWriteVgprInOrder).
    """
    if producer == CALLER or subject.effects[pc].read_halves & written:
        return False
    kinds = {_find_load_kind(subject.at[index]) for index in (pc, producer)}
    return kinds == {"DS"} or (len(kinds) == 1 and subject.target.rules.loads_write_in_order and kinds <= _VECTOR)


def _find_load_kind(instruction: Instruction) -> str:
    row = instruction.row
    if row.encoding == "MIMG":
        return row.encoding
    return "load" if row.pipe == "vmem" and row.unit in ("load", "atomic") else row.encoding


def _find_busy(state: Pending, results: dict[int, dict[str, int]]) -> int:
    whole = 0
    for counter, waiting in state.items():
        for pc in waiting:
            whole |= results[pc][counter]
    return whole


def _make_early_use_finding(
    subject: LintSubject, pc: int, producer: int, counter: str, behind: int, written: int
) -> LintFinding:
    effects = subject.effects[pc]
    read = effects.read_halves & written
    touched = format_halves(read or effects.written_halves & written)
    needed = 0 if counter == KM else behind
    how = "read" if read else "overwritten"
    if producer == CALLER:
        wait = subject.format_wait(counter, 0)
        message = f"{touched} {how} while a load issued by the caller may still write it: needs {wait}"
        return subject.finding("wait", pc, message)
    return subject.finding(
        "wait",
        pc,
        f"{touched} {how} while {subject.at[producer].mnemonic} may still write it: needs "
        f"{subject.format_wait(counter, needed)}",
        producer,
    )


def _check_barrier(subject: LintSubject, pc: int, state: Pending) -> Iterator[LintFinding]:
    for producer in state[DS]:
        instruction = subject.at.get(producer)
        if instruction is not None and instruction.encoding == "DS":
            yield subject.finding(
                "barrier-wait",
                pc,
                f"{instruction.mnemonic} may not have reached LDS at the barrier: needs "
                f"{subject.format_wait(DS, 0)} before the barrier",
                producer,
            )
    after = None
    for producer in state[STORE]:
        base = _find_base(subject.at[producer])
        if base is None:
            continue
        if after is None:
            after = {_find_base(instruction) for instruction in _find_later_loads(subject, pc)}
        if base in after:
            yield subject.finding(
                "barrier-wait",
                pc,
                f"{subject.at[producer].mnemonic} may not be visible at the barrier, and memory at {base} is read "
                f"after it: needs {subject.format_wait(STORE, 0)} before the barrier",
                producer,
            )


def _find_later_loads(subject: LintSubject, pc: int) -> list[Instruction]:
    """Return the loads reachable from `pc`."""
    home = next(
        block for block in subject.flow.blocks.values() if any(index == pc for index, _ in block.instructions)
    )
    rest = [instruction for index, instruction in home.instructions if index > pc]
    seen: set[int] = set()
    todo = list(home.successors)
    while todo:
        start = todo.pop()
        if start not in seen:
            seen.add(start)
            block = subject.flow.blocks[start]
            rest += [instruction for _, instruction in block.instructions]
            todo += block.successors
    return [
        instruction
        for instruction in rest
        if instruction.encoding in ("GLOBAL", "FLAT") and instruction.row.unit == "load"
    ]


def _find_base(instruction: Instruction) -> str | None:
    """Return the address registers of a global access; two accesses with the same registers use one buffer."""
    if instruction.encoding not in ("GLOBAL", "FLAT") or not instruction.operands:
        return None
    if instruction.encoding == "GLOBAL" and instruction.operands[-1].kind is Kind.SGPR:
        return instruction.operands[-1].text
    return next((operand.text for operand in instruction.operands if operand.width == 2), None)


def _check_invalidation(subject: LintSubject, pc: int, state: Pending) -> Iterator[LintFinding]:
    for producer in state[LOAD]:
        if producer != CALLER and subject.effects[producer].writes:
            yield subject.finding(
                "order",
                pc,
                f"{subject.at[producer].mnemonic} may complete after this invalidation: needs "
                f"{subject.format_wait(LOAD, 0)} before the invalidation",
                producer,
            )


def _check_write_back(subject: LintSubject, pc: int, pending: set[int]) -> Iterator[LintFinding]:
    if subject.at[pc].mnemonic in _WRITE_BACK or subject.at[pc].row.unit == "load":
        return
    for producer in sorted(pending):
        yield subject.finding(
            "order",
            pc,
            "may become visible before the preceding write-back completes: needs s_wait_storecnt 0 between them",
            producer,
        )
