"""Proofs by watching every wave of the launch: what a mutant leaves out changed nothing whenever it ran.

Any mutant whose place no wave reached. An initialisation whose register held that value in all active lanes
already, or in no lane is read before it is written again, or without which every other instruction has the same
effects on memory; a bound that cut off no lane. A sanitizer has nothing to find there, and outputs cannot differ.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from compiled_job import Job
from kernel_run import Binary, run_kernel
from mutants import Mutant

from zinc_rt.isa import decode_stream
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.effects import EXEC, VGPR, effects, register_span
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.operand import Kind
from zinc_rt.isa.target import Target, target_of

VGPRS = 256  # slots of TRACE records below it are VGPRs


@dataclass(frozen=True)
class WatchedRun:
    """A run of a job: the TRACE records of its waves, its arrays afterwards, and the arrays, by address, that each
    memory instruction accessed.
    """

    trace: np.ndarray
    arrays: tuple[bytes, ...]
    accessed: dict[int, set[tuple[int, int]]]

    @cached_property
    def by_wave(self) -> list[np.ndarray]:
        return [self.trace[self.trace["wave"] == wave] for wave in np.unique(self.trace["wave"])]

    def reaches(self, pc: int) -> bool:
        return bool((self.trace["pc"] == pc).any())


def watch(binary: Binary, job: Job, changed: dict[int, bytes] | None = None) -> WatchedRun | None:
    """Run a copy of the job. Return None if it stops, or if its trace is too long."""
    job = copy.deepcopy(job)
    ran = run_kernel(binary, job, change=changed, trace=True)
    if ran.stopped or ran.trace is None:
        return None
    return WatchedRun(ran.trace, tuple(np.asarray(argument).tobytes() for argument in job.args), ran.accessed)


def is_output_unchanged(binary: Binary, job: Job, mutant: Mutant, original: WatchedRun | None = None) -> str:
    """Return the proof as text; "" if there is none. `original`: watch(binary, job)."""
    original = original or watch(binary, job)
    if original is None:
        return ""
    offset = mutant.function.section.address + mutant.pc
    if not original.reaches(offset):
        return "no wave of the launch comes there"
    written = original_instruction(binary, mutant)
    orders_stores = mutant.kind == "cache" or written.mnemonic == "s_wait_storecnt"
    if orders_stores and not loads_from_changed_arrays(binary, original):
        return "no wave of the launch loads from an array that the launch changes"
    if mutant.kind == "bound" and all(keeps_active_lanes(steps, offset) for steps in original.by_wave):
        return "it cuts off no lane of any wave"
    if mutant.kind not in ("bound", "initialisation"):
        return ""
    is_move = mutant.kind == "initialisation"
    if is_move and all(is_never_read(binary, steps, offset, written) for steps in original.by_wave):
        return "no wave of the launch reads what it writes"
    changed = watch(binary, job, mutant.changed)
    if changed is None:
        return ""
    value, first = constant_result(written) if is_move else None, first_thread_ids(job, binary.kernel.wave)
    register, lanes = written.operands[0].index, binary.kernel.wave
    if value is not None and all(
        register_holds(steps, offset, register, value, None if register else first[index % len(first)], lanes)
        for index, steps in enumerate(changed.by_wave)
    ):
        return "its register holds that already, whenever it runs"
    if has_same_effects(binary, original, changed, mutant):
        return "the waves execute the same instructions, and store the same values to the same addresses of memory"
    return ""


def loads_from_changed_arrays(binary: Binary, original: WatchedRun) -> bool:
    """Return whether a load or an atomic that returns a value is of an array that a store or an atomic changes."""
    target = target_of(binary.image.arch, binary.kernel.wave)
    code = dict(find_control_flow(binary.image.image, target, binary.kernel.entry_at, running=True).instructions())
    loaded, changed = set(), set()
    for pc, arrays in original.accessed.items():
        if changes_memory(code[pc]):
            changed |= arrays
        if not changes_memory(code[pc]) or effects(code[pc], target).writes:
            loaded |= arrays
    return bool(loaded & changed)


def has_same_effects(binary: Binary, original: WatchedRun, changed: WatchedRun, mutant: Mutant) -> bool:
    """Return whether each wave executes the same instructions, and each of them that changes memory stores the
    same values to the same addresses, an atomic from the same lanes. Values in LDS may differ: it is gone
    afterwards.
    """
    target = target_of(binary.image.arch, binary.kernel.wave)
    code = dict(find_control_flow(binary.image.image, target, binary.kernel.entry_at, running=True).instructions())
    place = mutant.function.section.address + mutant.pc
    replaced = range(place + 1, place + code[place].size_bytes)  # further words of it, now instructions
    changes = {pc: changes_memory(instruction) for pc, instruction in code.items()}
    if original.arrays != changed.arrays or len(original.by_wave) != len(changed.by_wave):
        return False
    for one, other in zip(original.by_wave, changed.by_wave, strict=True):
        registers: tuple[dict[int, np.ndarray], dict[int, np.ndarray]] = {}, {}
        executed = [item for item in list_executed(other) if item.pc not in replaced]
        before = list(list_executed(one))
        if [item.pc for item in before] != [item.pc for item in executed]:
            return False
        for pair in zip(before, executed, strict=True):
            pc = pair[0].pc
            if changes[pc] and not _has_same_operands(code[pc], pair, registers, target):
                return False
            for item, values in zip(pair, registers, strict=True):
                values.update(zip(item.records["slot"].tolist(), item.records["values"], strict=True))
    return True


def _has_same_operands(
    instruction: Instruction,
    pair: tuple[ExecutedInstruction, ExecutedInstruction],
    registers: tuple[dict[int, np.ndarray], dict[int, np.ndarray]],
    target: Target,
) -> bool:
    """Return whether the lanes of both runs store the same values to the same addresses. Registers that no traced
    instruction has written have the same values in both.
    """
    sets = []
    reads = effects(instruction, target).reads & ~register_span(EXEC, 2)
    slots = [VGPRS + key if key < VGPR else key - VGPR for key in range(reads.bit_length()) if reads >> key & 1]
    if any((slot in registers[0]) != (slot in registers[1]) for slot in slots):
        return False
    for item, values in zip(pair, registers, strict=True):
        lanes = active_lanes(item.exec, target.wave)
        rows = [
            values[slot][: target.wave][lanes] if slot < VGPRS else np.full(lanes.sum(), values[slot][0])
            for slot in slots
            if slot in values
        ]
        sets.append(set(zip(*(row.tolist() for row in rows), strict=True)))
    unwritten = any(slot not in registers[0] for slot in slots)  # differs from lane to lane
    same_lanes = pair[0].exec == pair[1].exec
    return sets[0] == sets[1] and (same_lanes or not (unwritten or instruction.row.unit == "atomic"))


def changes_memory(instruction: Instruction) -> bool:
    """Return whether the instruction changes memory other than LDS."""
    return instruction.row.unit in ("store", "atomic")


def active_lanes(mask: int, wave: int) -> np.ndarray:
    return np.array([mask >> lane & 1 for lane in range(wave)], bool)


@dataclass(frozen=True, slots=True)
class ExecutedInstruction:
    """An instruction that a wave executed. `exec`: before it. `records`: what it wrote."""

    pc: int
    exec: int
    records: np.ndarray


def list_executed(steps: np.ndarray) -> Iterator[ExecutedInstruction]:
    pcs, masks = steps["pc"], steps["exec"].tolist()
    starts = np.flatnonzero(np.diff(pcs, prepend=-1)).tolist()
    for start, stop in itertools.pairwise([*starts, len(steps)]):
        yield ExecutedInstruction(int(pcs[start]), masks[start], steps[start:stop])


def register_holds(
    steps: np.ndarray, pc: int, register: int, value: int, expected: np.ndarray | None, wave: int
) -> bool:
    """Return whether a VGPR has the value in all active lanes whenever the instruction at `pc` runs."""
    for step in steps[(steps["pc"] == pc) | (steps["slot"] == register)]:
        if step["pc"] == pc and (
            expected is None or not (expected[active_lanes(int(step["exec"]), len(expected))] == value).all()
        ):
            return False
        if step["slot"] == register:
            expected = step["values"][:wave]
    return True


def is_never_read(binary: Binary, steps: np.ndarray, index: int, written: Instruction) -> bool:
    """Judge lane by lane; an instruction that may read lanes outside EXEC counts as reading all."""
    target = target_of(binary.image.arch, binary.kernel.wave)
    code = dict(find_control_flow(binary.image.image, target, binary.kernel.entry_at, running=True).instructions())
    register = effects(written, target).writes
    left = 0  # lanes that have its value
    for item in list_executed(steps):
        pc, mask = item.pc, item.exec
        if pc == index:
            left |= mask
        elif left and pc in code:
            touched, own = effects(code[pc], target), is_per_lane(code[pc])
            if touched.reads & register and left & (mask if own else -1):
                return False
            if touched.writes & register and own:
                left &= ~mask
    return True


def is_per_lane(instruction: Instruction) -> bool:
    alone = not instruction.dpp and "lane" not in instruction.mnemonic
    return instruction.row.unit in ("valu", "vopd", "trans") and alone


def keeps_active_lanes(steps: np.ndarray, pc: int) -> bool:
    executed = list(list_executed(steps))
    return not any(one.pc == pc and one.exec != other.exec for one, other in itertools.pairwise(executed))


def first_thread_ids(job: Job, wave: int) -> list[np.ndarray]:
    """v0 of each wave of a workgroup as it begins: work-item ids, 10 bits an axis."""
    x, y, z = job.threads if isinstance(job.threads, tuple) else (job.threads, 1, 1)
    flat = np.arange(-(-x * y * z // wave) * wave)
    return list((flat % x | flat // x % y << 10 | flat // (x * y) << 20).reshape(-1, wave))


def original_instruction(binary: Binary, mutant: Mutant) -> Instruction:
    ((index, content),) = mutant.changed.items()
    code = binary.image.image[index : index + len(content)]
    instruction = next(iter(decode_stream(code, mutant.function.target))).instruction
    assert instruction is not None
    return instruction


def constant_result(written: Instruction) -> int | None:
    """Return the value of an integer operand; None for a float or a register."""
    source = written.operands[1]
    if source.kind in (Kind.INTEGER, Kind.LITERAL) and source.value is not None:
        return int(source.value) & 0xFFFFFFFF
    return None
