"""Instruction forms: instructions without register numbers, and the code of their functions (emit/form.py).

Kernels share forms. So most instructions of a new kernel need no compilation, only a look-up of their form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.isa.control_flow import find_branch_target
from zinc_rt.isa.instruction import Modifier
from zinc_rt.isa.rows import InstructionRow
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.float_mode import FloatMode
from zinc_rt.sim.shader.emit.form import (
    EDGES,
    FIXED_SGPRS,
    PC,
    FormFlow,
    FormFrame,
    FormSlots,
    NotShared,
    Parameter,
    RegisterGroup,
)
from zinc_rt.sim.shader.emit.helpers import KernelModule
from zinc_rt.sim.shader.emit.quads import QuadForms
from zinc_rt.sim.shader.emit.slots import Touched, UnprovenReads
from zinc_rt.sim.shader.emit.trace import Tracer, count_block
from zinc_rt.sim.shader.emit.values import constant
from zinc_rt.sim.shader.layout import VGPR_LIMIT, KernelVariant, Status
from zinc_rt.sim.shader.translate.semantics import emit_instruction

_BY_OFFSET = ("branch", "conditional", "call")
_FORWARD, _BACKWARD = 0x0100, 0xFF00  # SIMM16 of a branch while its form is emitted

_WITH_LITERAL = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P", "VOPD", "SOP1", "SOP2", "SOPC"))
_WITH_OFFSET = frozenset(("DS", "FLAT", "GLOBAL", "SCRATCH", "VBUFFER", "MUBUF", "SMEM"))
_SCALAR_LOADS = ("s_load_", "s_buffer_load_")

Groups = tuple[RegisterGroup, ...]


@dataclass(frozen=True, slots=True)
class FormShape:
    """An instruction as its form and the registers in it. `key` identifies the form. `groups`: registers of the
    form; `starts`: the key of the first register of each group in the instruction. `groups` is None if the form
    holds for these registers only.
    """

    key: tuple[Any, ...]
    instruction: Instruction | None  # None: one of STEPS
    groups: Groups | None
    starts: tuple[int, ...]
    end: int = 0  # after its highest VGPR

    def placed(self, bits: int) -> int:
        """Return a bit set of the form's registers as one of the instruction's registers."""
        if self.groups is None or not bits:
            return bits
        result = bits >> _FIXED << _FIXED
        for group, start in zip(self.groups, self.starts, strict=True):
            result |= (bits >> group.first & (1 << group.count) - 1) << start
        return result

    def taken(self, bits: int) -> int:
        """Return a bit set of registers as one of the form's registers."""
        if self.groups is None or not bits:
            return bits
        result = bits >> _FIXED << _FIXED
        for group, start in zip(self.groups, self.starts, strict=True):
            result |= (bits >> start & (1 << group.count) - 1) << group.first
        return result


_FIXED = VGPR_LIMIT + FIXED_SGPRS


def exact_shape(instruction: Instruction, vgprs: int, dynamic: bool) -> FormShape:
    """Return the shape of a form that holds for the instruction's own registers only."""
    return FormShape(("exact", _row_key(instruction), instruction.words, vgprs, dynamic), instruction, None, ())


def shape_of(instruction: Instruction) -> FormShape | None:
    """Return the instruction's shape, or None if it needs a form of its own."""
    halves = (instruction,) if instruction.second is None else (instruction, instruction.second)
    spans: dict[int, tuple[int, int]] = {}
    last = 0
    for operand in _registers(halves):
        first = operand.index if operand.kind is Kind.VGPR else VGPR_LIMIT + operand.index
        end = first + max(operand.width, 1)
        if operand.parts or end > _FIXED:
            return None
        last = max(last, end if operand.kind is Kind.VGPR else 0)
        spans[first] = first, max(end, spans.get(first, (0, 0))[1])
    groups, starts = _groups(list(spans.values()))
    shared: list[Instruction] = []
    literals = 0
    for half in halves:
        shared.append(_shared(half, groups, starts, literals))
        literals += sum(each.kind is Kind.LITERAL for each in half.operands)
    key = tuple(_key(half) for half in shared), tuple((group.first, group.count) for group in groups)
    whole = shared[0] if len(shared) == 1 else replace(shared[0], second=shared[1])
    return FormShape(key, whole, groups, starts, last)


def _registers(halves: tuple[Instruction, ...]) -> Iterator[Operand]:
    for half in halves:
        for operand in half.operands:
            if operand.kind is Kind.VGPR or operand.kind is Kind.SGPR or operand.parts:
                yield operand


def _groups(spans: list[tuple[int, int]]) -> tuple[Groups, tuple[int, ...]]:
    """Join overlapping spans to groups, numbered in the order of the spans, with a gap after each group."""
    joined: list[list[int]] = []
    for first, end in spans:
        overlapping = [each for each in joined if each[0] < end and first < each[1]]
        if not overlapping:
            joined.append([first, end])
            continue
        keep = overlapping[0]
        keep[:] = min(first, *(each[0] for each in overlapping)), max(end, *(each[1] for each in overlapping))
        joined = [each for each in joined if each is keep or each not in overlapping[1:]]
    following = [0, VGPR_LIMIT]
    groups = []
    for first, end in joined:
        scalar = first >= VGPR_LIMIT
        groups.append(RegisterGroup(following[scalar], end - first))
        following[scalar] += end - first + 1
    return tuple(groups), tuple(first for first, _ in joined)


def _shared(half: Instruction, groups: Groups, starts: tuple[int, ...], literals: int) -> Instruction:
    """Return an instruction with the groups' registers. `literals`: number of the first literal parameter."""
    operands = []
    row = half.row
    for operand in half.operands:
        if operand.kind is Kind.LITERAL and has_literal_parameter(row):
            operand = Operand(Kind.LITERAL, "", literals, 1, None, operand.negate, operand.absolute)
            literals += 1
        elif operand.kind is Kind.IMMEDIATE and row.name.startswith(_SCALAR_LOADS):
            operand = Operand(Kind.IMMEDIATE, "")
        elif operand.kind is Kind.VGPR or operand.kind is Kind.SGPR:
            base = 0 if operand.kind is Kind.VGPR else VGPR_LIMIT
            key = base + operand.index
            for group, start in zip(groups, starts, strict=True):
                if start <= key < start + group.count:
                    operand = _operand(operand, group.first + key - start - base)
                    break
        operands.append(operand)
    return Instruction(row, tuple(operands), _modifiers(half), _words(half), half.second, half.dpp)


def has_literal_parameter(row: InstructionRow) -> bool:
    """Return whether a literal operand of the instruction is a parameter of its form."""
    return row.encoding in _WITH_LITERAL and "class" not in row.name


def _modifiers(half: Instruction) -> tuple[Modifier, ...]:
    """Return the modifiers with offsets as parameters, also where an offset is 0 and not written."""
    row = half.row
    if row.encoding not in _WITH_OFFSET or row.name == "ds_swizzle_b32":  # there it is a pattern
        return half.modifiers
    offsets = ("offset0", "offset1") if "two" in row.flags else ("offset",)
    others = [each for each in half.modifiers if each.name not in offsets]
    return (*others, *(Modifier(name, "") for name in offsets))


def _operand(operand: Operand, index: int) -> Operand:
    return Operand(
        operand.kind, "\0", index, operand.width, operand.value, operand.negate, operand.absolute, (), operand.half
    )


def _words(half: Instruction) -> tuple[int, ...]:
    """Return words with the bits that emit functions read: OP_SEL of VOP3, the direction of a branch."""
    first = half.words[0]
    if half.row.flow in _BY_OFFSET:
        first = _BACKWARD if find_branch_target(0, half) <= 0 else _FORWARD
    elif half.row.encoding.startswith("VOP3"):
        first &= 0x7800
    else:
        first = 0
    return (first, *(0,) * (len(half.words) - 1))


def _row_key(instruction: Instruction) -> tuple[Any, ...]:
    return instruction.row.encoding, instruction.row.opcode, instruction.row.mnemonic, instruction.dpp


def _key(half: Instruction) -> tuple[Any, ...]:
    operands = tuple(
        (each.kind.name, each.text, each.index, each.width, each.value, each.negate, each.absolute, each.half)
        for each in half.operands
    )
    return _row_key(half), half.words[0], operands, tuple((each.name, each.value) for each in half.modifiers)


# --- emission


@dataclass(frozen=True, slots=True)
class Situation:
    """What the code of an instruction depends on besides its form: results of the analysis at its position."""

    full: bool
    mode: FloatMode | None
    tracked: int = 0
    unproven: int = 0
    computed: int = 0
    saved: bool = False
    guesses: bool = False

    def of_form(self, shape: FormShape) -> Situation:
        """Return the situation with the form's registers instead of the instruction's."""
        if not self.tracked | self.unproven | self.computed:
            return self
        tracked, unproven, computed = map(shape.taken, (self.tracked, self.unproven, self.computed))
        return Situation(self.full, self.mode, tracked, unproven, computed, self.saved, self.guesses)

    def key(self) -> tuple[Any, ...]:
        mode = None if self.mode is None else self.mode.bits
        return self.full, mode, self.tracked, self.unproven, self.computed, self.saved, self.guesses


@dataclass(frozen=True, slots=True)
class EmittedForm:
    """The emitted function of a form. `sites`: (rule, text) of findings; `memory_sites`: their number. `ends`:
    control does not reach the next instruction. `empty`: it does nothing.
    """

    parameters: tuple[Parameter, ...]
    sites: tuple[tuple[str, str], ...]
    memory_sites: int
    ends: bool
    empty: bool


def emit_form(
    module: KernelModule, name: str, shape: FormShape, variant: KernelVariant, at: Situation
) -> tuple[EmittedForm, Touched]:
    """Emit the function of a form in a situation. Return it and the registers that it touches. `variant`: any
    kernel with the form. Raise NotShared if the code depends on register numbers and the shape is not exact.
    """
    vgprs = variant.vgprs
    if shape.groups is not None:
        variant = replace(variant, vgprs=VGPR_LIMIT, dynamic_vgprs=False)
    frame = FormFrame(module, name, variant.wave)
    frame.pc = PC
    reads = UnprovenReads(at.tracked, at.saved, at.computed, {PC: at.unproven})
    e = Emitter(FormSlots(frame, reads, shape.groups, vgprs), variant, QuadForms())
    first, touched = e.b.block, e.slots.touched
    if shape.instruction is None:
        STEPS[shape.key[0]](e, frame)
    else:
        touched = _emit_instruction(e, frame, shape.instruction, at)
    ends = e.b.block.is_terminated
    empty = not ends and e.b.block is first and not first.instructions
    if not ends:
        frame.go_on()
    frame.done()
    sites = tuple((site.rule, site.text) for site in e.reports.sites)
    if any(text.count("\0") % 2 for _, text in sites):
        raise NotShared  # the text of an operand
    assert e.counts.keys() <= {"memory"}
    emitted = EmittedForm(tuple(frame.parameters), sites, e.counts.get("memory", 0), ends, empty)
    return emitted, touched


def _emit_instruction(e: Emitter, frame: FormFrame, instruction: Instruction, at: Situation) -> Touched:
    target = find_branch_target(PC, instruction) if instruction.row.flow in _BY_OFFSET else None
    e.flow = FormFlow(frame, e.reports, target, PC + instruction.size_bytes)
    touched = e.begin(PC, instruction, exec_full=at.full, mode=at.mode)
    e.guesses = at.guesses
    tracer = Tracer(e) if e.checks.trace else None
    if tracer is not None:
        tracer.start()
        tracer.before(last=instruction.row.flow != "")
    emit_instruction(e)
    if tracer is not None and not e.b.block.is_terminated:
        tracer.after(touched)
    return touched


# --- steps that are not instructions


def _go_to(e: Emitter, frame: FormFrame) -> None:
    frame.go_to(frame.parameter("record", EDGES.index("target")))


def _yield(e: Emitter, frame: FormFrame) -> None:
    frame.suspend(frame.parameter("record", EDGES.index("target")), frame.position(), Status.FUEL)


def _illegal(e: Emitter, frame: FormFrame) -> None:
    e.reports.illegal("does not decode")


def _count(e: Emitter, frame: FormFrame) -> None:
    count_block(e)


def _undefined(e: Emitter, frame: FormFrame) -> None:
    e.slots.store_undefined(0, constant(-1, e.slots.type_of(0)))


def _defined(e: Emitter, frame: FormFrame) -> None:
    e.slots.store_undefined(0, constant(0, e.slots.type_of(0)))


def _defined_in_exec(e: Emitter, frame: FormFrame) -> None:
    of = e.slots.type_of(0)
    e.slots.store_undefined(0, e.b.select(e.exec.mask(), constant(0, of), -1))


def _scalar_undefined(e: Emitter, frame: FormFrame) -> None:
    e.slots.store_undefined(VGPR_LIMIT, constant(-1))


def _scalar_defined(e: Emitter, frame: FormFrame) -> None:
    e.slots.store_undefined(VGPR_LIMIT, constant(0))


STEPS: dict[str, Callable[[Emitter, FormFrame], None]] = {
    "go to": _go_to,
    "yield": _yield,
    "illegal": _illegal,
    "count": _count,
    "undefined": _undefined,
    "defined": _defined,
    "defined in exec": _defined_in_exec,
    "scalar undefined": _scalar_undefined,
    "scalar defined": _scalar_defined,
}
"""Steps of a program besides instructions: a jump to the next block, a turn of the other waves before it, the end
of the code, the count of a profile, the initial state of a register's undefined bits."""


def step_shape(step: str, register: int | None = None) -> FormShape:
    """Return the shape of one of STEPS. `register`: its key, for the steps about undefined bits."""
    if register is None:
        return FormShape((step,), None, (), ())
    return FormShape((step,), None, (RegisterGroup(register & VGPR_LIMIT, 1),), (register,))
