"""Hazards of the vector ALU of gfx11, which s_waitcnt_depctr resolves.

trans-use (gfx11.0): a VALU instruction reads the result of a transcendental one, with at most 5 VALU instructions
and 1 transcendental one between them.

partial-forwarding (wave64): a VALU instruction reads two vector registers, one written before and one after a SALU
write to EXEC, with at most 2 VALU instructions around that write and at most 4 after the later register's.

va_vdst(0), and each vector memory, LDS or export instruction, resolve both.

mask-write (wave64): the VALU reads an SGPR or VCC as a mask, then it is written, then read. If the SALU wrote it,
sa_sdst(0) resolves it; if the VALU did (mask-write-valu), va_sdst(0) or va_vcc(0). The SALU may read that at once.
Before the write, sa_sdst(0) or a VALU instruction that reads another scalar register or a literal resolve it.

Source: LLVM, GCNHazardRecognizer.cpp (fixVALUTransUseHazard, fixVALUPartialForwardingHazard,
fixVALUMaskWriteHazard); the writes of the VALU are those that LLVM 22 guards and LLVM 19 does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from zinc_rt.isa.effects import (
    EXEC,
    M0,
    NULL,
    VCC,
    VGPRS,
    count_written_operands,
    format_registers,
    iterate_registers,
    operand_registers,
    register_name,
    register_span,
)
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.dataflow import solve_forward
from zinc_rt.isa.lint.finding import LintFinding, LintSubject
from zinc_rt.isa.lint.sgpr_reads import SA_SDST, VA_SDST, VA_VCC
from zinc_rt.isa.operand import Kind

WAIT = "s_waitcnt_depctr"
VA_VDST = 15 << 12  # zero: waits. immediates.py has the fields
_ARRIVED = ("vmem", "lds", "graphics")  # pipes whose instructions wait for results of the VALU
_MOST_AFTER_TRANS, _MOST_TRANS = 5, 1
_MOST_AROUND_EXEC, _MOST_AFTER_EXEC = 2, 4
_SCALARS = register_span(0, 128) & ~(register_span(M0, 1) | register_span(NULL, 1) | register_span(EXEC, 2))
_VCC = register_span(VCC, 2)
_MASKED = (
    "v_cndmask_b32", "v_cndmask_b16", "v_add_co_ci_u32", "v_sub_co_ci_u32", "v_subrev_co_ci_u32",
    "v_div_fmas_f32", "v_div_fmas_f64",
)  # fmt: skip


def check_alu_hazards(subject: LintSubject) -> Iterator[LintFinding]:
    rules = subject.target.rules
    if rules.has_trans_use_hazard:
        producers = [pc for pc, instruction in subject.at.items() if instruction.row.unit == "trans"]
        steps = _list_neighbours(subject)[1] if producers else {}
        for producer in producers:
            yield from _check_trans(subject, producer, steps)
    if rules.has_mask_hazards and subject.target.wave == 64:
        yield from _check_forwarding(subject)
        yield from _check_masks(subject)


def _list_neighbours(subject: LintSubject) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return the pcs that precede each pc, and those that follow it."""
    before: dict[int, list[int]] = {pc: [] for pc in subject.at}
    after: dict[int, list[int]] = {pc: [] for pc in subject.at}
    for block in subject.flow.blocks.values():
        pcs = [pc for pc, _ in block.instructions]
        pairs = list(pairwise(pcs))
        pairs += [(pcs[-1], start) for start in block.successors if pcs and start in before]
        for first, second in pairs:
            after[first].append(second)
            before[second].append(first)
    return before, after


def _resolves_results(instruction: Instruction) -> bool:
    """Return whether the results of all earlier VALU instructions have arrived at the end of an instruction. That
    of a called function is not known, and counts as if they had.
    """
    if instruction.mnemonic == WAIT:
        return not instruction.words[0] & VA_VDST
    return instruction.row.pipe in _ARRIVED or instruction.row.flow in ("call", "jump_call")


def _check_trans(subject: LintSubject, producer: int, steps: dict[int, list[int]]) -> Iterator[LintFinding]:
    written = subject.effects[producer].writes & VGPRS
    todo, seen = [(pc, 0, 0) for pc in steps[producer]], set()
    while todo:
        pc, between, trans = place = todo.pop()
        instruction = subject.at[pc]
        if place in seen or _resolves_results(instruction):
            continue
        seen.add(place)
        if instruction.row.pipe == "valu":
            if early := subject.effects[pc].reads & written:
                yield subject.finding(
                    "trans-use",
                    pc,
                    f"may read {format_registers(early)} before the transcendental instruction has written it: "
                    f"needs {WAIT} depctr_va_vdst(0) between them",
                    producer,
                )
                continue
            between, trans = between + 1, trans + (instruction.row.unit == "trans")
        if between <= _MOST_AFTER_TRANS and trans <= _MOST_TRANS:
            todo += [(step, between, trans) for step in steps[pc]]


def _check_forwarding(subject: LintSubject) -> Iterator[LintFinding]:
    writers = [
        pc for pc, item in subject.at.items() if item.row.pipe == "salu" and subject.effects[pc].writes >> EXEC & 3
    ]
    if not writers:
        return
    before, after = _list_neighbours(subject)
    for pc in sorted(_list_near(subject, writers, after)):
        sources = _list_vector_sources(subject.at[pc])
        producer = _find_forwarded(subject, pc, sources, before) if len(sources) > 1 else None
        if producer is not None:
            yield subject.finding(
                "partial-forwarding",
                pc,
                f"reads {format_registers(subject.effects[pc].reads & VGPRS)} too early, which were written "
                f"before and after a write to EXEC: needs {WAIT} depctr_va_vdst(0) before it",
                producer,
            )


def _list_near(subject: LintSubject, writers: list[int], after: dict[int, list[int]]) -> set[int]:
    """Return the VALU instructions that are near enough after a write to EXEC."""
    result: set[int] = set()
    todo, seen = [(step, 0) for pc in writers for step in after[pc]], set()
    while todo:
        pc, between = place = todo.pop()
        instruction = subject.at[pc]
        if place in seen or _resolves_results(instruction):
            continue
        seen.add(place)
        if instruction.row.pipe == "valu":
            result.add(pc)
            between += 1
        if between <= _MOST_AROUND_EXEC + _MOST_AFTER_EXEC + 1:
            todo += [(step, between) for step in after[pc]]
    return result


def _list_vector_sources(instruction: Instruction) -> tuple[int, ...]:
    """Return the distinct sets of vector registers of the source operands."""
    result: set[int] = set()
    for half in (instruction,) if instruction.second is None else (instruction, instruction.second):
        first = 0 if "dst" in half.row.reads else count_written_operands(half)
        result |= {registers for item in half.operands[first:] if (registers := operand_registers(item) & VGPRS)}
    return tuple(sorted(result))


@dataclass(frozen=True, slots=True)
class _Search:
    """A position of the search backwards from a VALU instruction. Numbers count the VALU instructions between:
    `between` to this position, `written` to the last write of each source found so far, `exec_at` to the write of
    EXEC before the first of them.
    """

    pc: int
    between: int = 0
    written: tuple[int | None, ...] = ()
    exec_at: int | None = None


def _find_forwarded(
    subject: LintSubject, reader: int, sources: tuple[int, ...], before: dict[int, list[int]]
) -> int | None:
    """Return the instruction before the write to EXEC whose result the reader needs, or None."""
    nothing = (None,) * len(sources)
    todo, seen = [_Search(pc, 0, nothing) for pc in before[reader]], set()
    while todo:
        search = todo.pop()
        instruction, between = subject.at[search.pc], search.between
        if search in seen or _resolves_results(instruction):
            continue
        seen.add(search)
        written, exec_at, writes = search.written, search.exec_at, subject.effects[search.pc].writes
        if instruction.row.pipe == "valu":
            written = tuple(
                between if at is None and writes & source else at
                for at, source in zip(written, sources, strict=True)
            )
        elif instruction.row.pipe == "salu" and exec_at is None and written != nothing and writes >> EXEC & 3:
            exec_at = between
        found = [at for at in written if at is not None]
        if exec_at is not None:
            later = min(at for at in found if at < exec_at)
            earlier = min((at for at in found if at >= exec_at), default=None)
            around = exec_at - later - 1 + (0 if earlier is None else earlier - exec_at)
            if later > _MOST_AFTER_EXEC or around > _MOST_AROUND_EXEC:
                continue
            if earlier is not None:
                return search.pc
        if not found and between > _MOST_AFTER_EXEC:
            continue
        between += instruction.row.pipe == "valu"
        if between <= _MOST_AROUND_EXEC + _MOST_AFTER_EXEC + 2:
            todo += [_Search(pc, between, written, exec_at) for pc in before[search.pc]]
    return None


@dataclass(slots=True)
class _MaskState:
    """`masks`: registers that the VALU has read as masks. `salu`, `valu`: pc of a write to one, by register."""

    masks: int = 0
    salu: dict[int, int] = field(default_factory=dict)
    valu: dict[int, int] = field(default_factory=dict)

    def copy(self) -> _MaskState:
        return _MaskState(self.masks, dict(self.salu), dict(self.valu))

    def join(self, other: _MaskState) -> _MaskState:
        return _MaskState(self.masks | other.masks, other.salu | self.salu, other.valu | self.valu)


def _check_masks(subject: LintSubject) -> Iterator[LintFinding]:
    if not any(instruction.row.name in _MASKED for instruction in subject.at.values()):
        return
    blocks = subject.flow.blocks

    def transfer(block: int, state: _MaskState) -> _MaskState:
        after = state.copy()
        for pc, _ in blocks[block].instructions:
            _step_masks(subject, pc, after)
        return after

    result: dict[tuple[int, int], LintFinding] = {}
    for start, state in solve_forward(subject, _MaskState(), transfer, _MaskState.join).items():
        after = state.copy()
        for pc, _ in blocks[start].instructions:
            for producer, register, by_valu in _step_masks(subject, pc, after):
                wait = "sa_sdst" if not by_valu else "va_vcc" if register_span(register, 1) & _VCC else "va_sdst"
                result[pc, producer] = subject.finding(
                    "mask-write-valu" if by_valu else "mask-write",
                    pc,
                    f"{register_name(register)} may still hold its value from before {producer:#06x}, because the "
                    f"VALU has read it as a mask: needs {WAIT} depctr_{wait}(0) between them",
                    producer,
                )
    yield from result.values()


def _step_masks(subject: LintSubject, pc: int, state: _MaskState) -> list[tuple[int, int, bool]]:
    """Advance `state` over one instruction. Return (pc of the write, register, whether the VALU wrote) for each
    premature read.
    """
    instruction, effects = subject.at[pc], subject.effects[pc]
    if instruction.mnemonic == WAIT:
        _resolve_masks(instruction.words[0], state)
        return []
    reads, writes = effects.reads & _SCALARS, effects.writes & _SCALARS
    is_valu, is_salu = instruction.row.pipe == "valu", instruction.row.pipe == "salu"
    result: list[tuple[int, int, bool]] = []
    if reads and (is_valu or is_salu):
        result += [(at, register, False) for register, at in state.salu.items() if reads >> register & 1]
        if is_valu:
            result += [(at, register, True) for register, at in state.valu.items() if reads >> register & 1]
    for register in iterate_registers(writes):
        state.salu.pop(register, None)
        state.valu.pop(register, None)
        if state.masks >> register & 1 and (is_valu or is_salu):
            (state.valu if is_valu else state.salu)[register] = pc
    state.masks &= ~writes
    if is_valu and (reads or _has_literal(instruction)):
        state.masks = _find_mask(instruction, reads)
    return result


def _resolve_masks(word: int, state: _MaskState) -> None:
    if not word & SA_SDST:
        state.masks, state.salu = 0, {}
    if not word & VA_VCC:
        state.valu = {register: pc for register, pc in state.valu.items() if register < VCC}
    if not word & VA_SDST:
        state.valu = {register: pc for register, pc in state.valu.items() if register >= VCC}


def _find_mask(instruction: Instruction, reads: int) -> int:
    """Return the scalar registers that a VALU instruction reads as a mask of lanes."""
    if instruction.row.name not in _MASKED:
        return 0
    return operand_registers(instruction.operands[-1]) & _SCALARS or reads & _VCC


def _has_literal(instruction: Instruction) -> bool:
    return any(operand.kind is Kind.LITERAL for operand in instruction.operands)
