"""Proofs by watching every wave: what a mutant leaves out changed nothing whenever it ran.

An initialisation whose register held that value in all active lanes, written there by the wave itself; a bound that
cut off no lane. Nothing but the value could tell such a mutant from its original, and on no path is it another one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from compiled_job import Job
from kernel_run import Binary, run
from mutants import Mutant

from zinc_rt.isa import decode_stream
from zinc_rt.sim.shader.emit.trace import TracedStep

MOST_WAVES = 64


def unchanged(one: Binary, job: Job, mutant: Mutant, waves: int) -> str:
    """The proof in words; "" where there is none."""
    if mutant.kind not in ("initialisation", "bound") or waves > MOST_WAVES:
        return ""
    at = mutant.function.section.address + mutant.pc - one.kernel.entry_at
    same = _same_value(one, mutant) if mutant.kind == "initialisation" else _no_lane_less
    changed = mutant.changed if mutant.kind == "initialisation" else {}
    for wave in range(waves):
        if not same(run(one, job, changed=changed, trace=wave).steps, at):
            return ""
    if mutant.kind == "bound":
        return "it cuts off no lane of any wave"
    return "its register holds that already, whenever it runs"


def _same_value(one: Binary, mutant: Mutant) -> Callable[[list[TracedStep], int], bool]:
    instruction = next(iter(decode_stream(_original(one, mutant), mutant.function.target))).instruction
    assert instruction is not None
    name, value = instruction.operands[0].text, _constant(instruction.operands[1].text)

    def same(steps: list[TracedStep], at: int) -> bool:
        held: np.ndarray | None = None
        for step in steps:
            if step.pc == at:
                lanes = np.array([step.exec >> lane & 1 for lane in range(one.kernel.wave)], bool)
                if value is None or held is None or not (held[lanes] == value).all():
                    return False
            if step.name == name:
                held = step.values
        return True

    return same


def _no_lane_less(steps: list[TracedStep], at: int) -> bool:
    following = [later.exec for step, later in zip(steps, steps[1:], strict=False) if step.pc == at != later.pc]
    own = [step.exec for step in steps if step.pc == at]
    return bool(following) and set(following) == set(own) and len(set(own)) == 1


def _original(one: Binary, mutant: Mutant) -> bytes:
    ((at, content),) = mutant.changed.items()
    return one.image.image[at : at + len(content)]


def _constant(text: str) -> int | None:
    """Of an integer operand; None: a float or a register."""
    try:
        return int(text, 0) & 0xFFFFFFFF
    except ValueError:
        return None
