"""Run all sanitizer rules on one kernel."""

from __future__ import annotations

from zinc_rt.host.sanitizer_rules import RULES as SANITIZER_RULES
from zinc_rt.isa.control_flow import find_control_flow, order_blocks
from zinc_rt.isa.effects import effects
from zinc_rt.isa.lint.alu_hazards import check_alu_hazards
from zinc_rt.isa.lint.constant_bus import check_constant_bus
from zinc_rt.isa.lint.finding import LintFinding, LintSubject
from zinc_rt.isa.lint.operands import Limits, check_operands
from zinc_rt.isa.lint.sgpr_reads import check_sgpr_reads
from zinc_rt.isa.lint.shared_memory import SharedMemory, check_shared_memory
from zinc_rt.isa.lint.structure import check_structure
from zinc_rt.isa.lint.unwritten import check_kernarg, check_unwritten
from zinc_rt.isa.lint.vector_hazards import check_vector_hazards
from zinc_rt.isa.lint.vopd import check_vopd
from zinc_rt.isa.lint.waits import check_waits
from zinc_rt.isa.target import Target

RULES = {rule.id: rule.static for rule in SANITIZER_RULES.values() if rule.static}
"""Rule and sentence of each check here."""


def lint(
    code: bytes, target: Target, limits: Limits | None = None, *, entry: int = 0, kernel: bool = True
) -> list[LintFinding]:
    """Return the findings for the kernel that begins at byte `entry`, ordered by pc. Unreachable bytes are not
    checked.

    `kernel` False: the code is a function, whose caller has written registers.
    """
    limits = limits or Limits()
    flow = find_control_flow(code, target, entry)
    target = flow.target
    index = dict(flow.instructions())
    subject = LintSubject(
        flow,
        tuple(order_blocks(flow)),
        {pc: effects(instruction, target) for pc, instruction in index.items()},
        index,
        target,
    )
    if not flow.blocks[entry].instructions:
        return list(check_structure(subject))
    memory = SharedMemory(subject, limits.pointers) if kernel and limits.pointers is not None else None
    result = [
        *check_structure(subject),
        *check_operands(subject, limits),
        *check_waits(subject, kernel=kernel, memory=memory),
        *(check_shared_memory(subject, memory) if memory is not None else ()),
        *(check_sgpr_reads(subject) if target.rules.has_sgpr_read_hazard else ()),
        *check_alu_hazards(subject),
        *check_vector_hazards(subject),
        *check_vopd(subject),
        *check_constant_bus(subject),
    ]
    if kernel:
        result += check_unwritten(subject, limits.entry_sgprs)
        if limits.kernarg_bytes is not None:
            result += check_kernarg(subject, limits.kernarg_bytes)
    return sorted(result, key=lambda finding: (finding.pc, finding.rule))
