"""Proofs by watching every wave of the launch: what a mutant leaves out changed nothing whenever it ran.

Any mutant whose place no wave reached. An initialisation whose register held that value in all active lanes
already, or in no lane is read before it is written again, or without which every other instruction has the same
results; a bound that cut off no lane. A sanitizer has nothing to find there, and outputs cannot differ.
"""

from __future__ import annotations

import copy
import itertools

import numpy as np
from compiled_job import Job
from kernel_run import Binary, run_kernel
from mutants import Mutant

from zinc_rt.isa import decode_stream
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.effects import effects
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.operand import Kind
from zinc_rt.isa.target import target_of
from zinc_rt.sim.shader.emit.trace import TracedStep

MOST_WAVES = 64


def is_output_unchanged(binary: Binary, job: Job, mutant: Mutant, waves: int) -> str:
    """Return the proof as text; "" if there is none."""
    if waves > MOST_WAVES:
        return ""
    offset = mutant.function.section.address + mutant.pc
    traces = [run_kernel(binary, job, trace=wave).steps for wave in range(waves)]
    if not any(step.pc == offset for steps in traces for step in steps):
        return "no wave of the launch comes there"
    if mutant.kind not in ("initialisation", "bound"):
        return ""
    if mutant.kind == "bound":
        return (
            "it cuts off no lane of any wave" if all(keeps_active_lanes(steps, offset) for steps in traces) else ""
        )
    written = original_instruction(binary, mutant)
    if all(is_never_read(binary, steps, offset, written) for steps in traces):
        return "no wave of the launch reads what it writes"
    value, first = constant_result(written), first_thread_ids(job, binary.kernel.wave)
    kept = [run_kernel(binary, job, change=mutant.changed, trace=wave).steps for wave in range(waves)]
    name = written.operands[0].text
    if value is not None and all(
        register_holds(steps, offset, name, value, first[wave % len(first)] if name == "v0" else None)
        for wave, steps in enumerate(kept)
    ):
        return "its register holds that already, whenever it runs"
    if has_same_results(binary, job, mutant, waves):
        return "every other instruction of the launch has the same results, and so have the outputs"
    return ""


def has_same_results(binary: Binary, job: Job, mutant: Mutant, waves: int) -> bool:
    """Return whether all instructions but the changed one execute in the same order with the same results."""
    offset = mutant.function.section.address + mutant.pc
    for wave in range(waves):
        original, changed = copy.deepcopy(job), copy.deepcopy(job)
        before = run_kernel(binary, original, trace=wave).steps
        after = run_kernel(binary, changed, change=mutant.changed, trace=wave).steps
        if not _are_same_steps(*([step for step in steps if step.pc != offset] for steps in (before, after))):
            return False
        arrays = zip(original.args, changed.args, strict=True)
        if any(np.asarray(one).tobytes() != np.asarray(other).tobytes() for one, other in arrays):
            return False
    return True


def _are_same_steps(before: list[TracedStep], after: list[TracedStep]) -> bool:
    return len(before) == len(after) and all(
        (one.pc, one.exec, one.name) == (other.pc, other.exec, other.name)
        and np.array_equal(np.asarray(one.values), np.asarray(other.values))
        for one, other in zip(before, after, strict=True)
    )


def active_lanes(mask: int, wave: int) -> np.ndarray:
    return np.array([mask >> lane & 1 for lane in range(wave)], bool)


def register_holds(
    steps: list[TracedStep], index: int, name: str, value: int, expected: np.ndarray | None
) -> bool:
    for step in steps:
        if step.pc == index and (
            expected is None or not (expected[active_lanes(step.exec, len(expected))] == value).all()
        ):
            return False
        if step.name == name:
            expected = step.values
    return True


def is_never_read(binary: Binary, steps: list[TracedStep], index: int, written: Instruction) -> bool:
    """Judge lane by lane; an instruction that may read lanes outside EXEC counts as reading all."""
    target = target_of("gfx1201", binary.kernel.wave)
    code = dict(find_control_flow(binary.image.image, target, binary.kernel.entry_at, running=True).instructions())
    register = effects(written, target).writes
    left = 0  # lanes that have its value
    for pc, executed in itertools.groupby(steps, lambda step: step.pc):
        mask = next(executed).exec
        if pc == index:
            left |= mask
        elif pc in code:
            touched = effects(code[pc], target)
            own = (
                code[pc].row.unit in ("valu", "vopd", "trans")
                and not code[pc].dpp
                and "lane" not in code[pc].mnemonic
            )
            if touched.reads & register and left & (mask if own else -1):
                return False
            if touched.writes & register and own:
                left &= ~mask
    return True


def is_per_lane(instruction: Instruction) -> bool:
    alone = not instruction.dpp and "lane" not in instruction.mnemonic
    return instruction.row.unit in ("valu", "vopd", "trans") and alone


def keeps_active_lanes(steps: list[TracedStep], index: int) -> bool:
    return not any(
        one.pc == index != later.pc and later.exec != one.exec for one, later in itertools.pairwise(steps)
    )


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
