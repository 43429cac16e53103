"""Translation of a kernel to records of instruction forms (emit/form.py): no code is generated for the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zinc_rt.isa import Instruction, Kind
from zinc_rt.isa.control_flow import Block, Flow, find_branch_target, find_control_flow
from zinc_rt.sim.shader.checks.races import find_atomic_loads
from zinc_rt.sim.shader.emit.float_mode import FloatMode
from zinc_rt.sim.shader.emit.form import EDGES, HEAD_BYTES, JUMP, register_offset, undefined_offset
from zinc_rt.sim.shader.emit.slots import Touched, register_name
from zinc_rt.sim.shader.layout import VGPR_LIMIT, KernelVariant, Site
from zinc_rt.sim.shader.translate.analysis import EXEC, Analysis, analyse_kernel
from zinc_rt.sim.shader.translate.control import waits_at_barrier, yields_after
from zinc_rt.sim.shader.translate.float_modes import find_float_modes
from zinc_rt.sim.shader.translate.forms import EmittedForm, FormShape, Situation, step_shape

SELF, TARGET, FOLLOWING = range(len(EDGES))
_WORD = 4
_PLAIN = Situation(full=False, mode=None)


@dataclass(frozen=True, slots=True)
class FormEffects:
    """The registers that an instruction touches, by their keys, and whether control ends with it."""

    touched: Touched
    ends: bool


class FormProvider(Protocol):
    """The forms of the instructions of one kernel. `emitted` returns the number of a form."""

    def shape(self, instruction: Instruction) -> FormShape: ...
    def effects(self, shape: FormShape) -> FormEffects: ...
    def emitted(
        self, shape: FormShape, at: Situation, instruction: Instruction | None
    ) -> tuple[int, FormShape, EmittedForm]: ...


@dataclass(frozen=True, slots=True)
class RecordProgram:
    """A kernel as records. `words`: [n] uint32. The two words at each of `places` are the address of a function;
    `numbers` are the numbers of their forms. `sites`, `counts`, `memory_pcs`: as in Translation.
    """

    words: np.ndarray
    places: np.ndarray
    numbers: np.ndarray
    sites: tuple[Site, ...]
    counts: dict[str, int]
    memory_pcs: tuple[int, ...]


@dataclass(slots=True)
class _Step:
    """A record that is being built. `at`: its byte offset; `site`, `memory`: its first numbers of each."""

    number: int
    shape: FormShape
    emitted: EmittedForm
    pc: int
    instruction: Instruction | None
    site: int = 0
    memory: int = 0
    at: int = 0
    block: int = 0


class ProgramBuilder:
    """The translation of one kernel."""

    def __init__(self, variant: KernelVariant, forms: FormProvider) -> None:
        self._variant, self._forms = variant, forms
        self._graph: Flow = find_control_flow(variant.code, variant.target, variant.entry, running=True)
        self._shapes: dict[int, FormShape] = {}
        self._steps: list[_Step] = []
        self._first: dict[int, int] = {}  # block start: number of its first step
        self._sites: list[Site] = []
        self._memory_pcs: list[int] = []
        self._costs = [(start, len(block.instructions)) for start, block in self._graph.blocks.items()]

    def build(self) -> RecordProgram:
        variant, graph = self._variant, self._graph
        records = self._records()
        analysis = analyse_kernel(graph, records, variant)
        self._begin(analysis)
        modes = find_float_modes(graph, variant.mode)
        guesses = find_atomic_loads(graph, variant.target) if variant.checks.full else frozenset()
        for number, block in enumerate(graph.blocks.values()):
            self._block(number, block, analysis, modes, guesses)
        return self._placed()

    def _records(self) -> dict[tuple[int, int], Touched]:
        """Return the registers that each instruction touches."""
        records: dict[tuple[int, int], Touched] = {}
        for start, block in self._graph.blocks.items():
            for pc, instruction in block.instructions:
                shape = self._shapes[pc] = self._forms.shape(instruction)
                effects = self._forms.effects(shape)
                records[start, pc] = effects.touched
                if effects.ends:
                    break
        return records

    # --- steps

    def _begin(self, analysis: Analysis) -> None:
        """Add the steps that set the undefined bits of registers before the first instruction."""
        tracked, entry = analysis.unproven.tracked & analysis.live[self._graph.entry], self._graph.entry
        code = self._graph.blocks[entry].instructions
        full = bool(code) and (entry, code[0][0]) in analysis.exec_full
        for key in _numbers(tracked):
            if key >= VGPR_LIMIT:
                step = "scalar defined" if analysis.at_start >> key & 1 else "scalar undefined"
            else:
                step = "undefined" if key else "defined" if full else "defined in exec"
            self._add(step_shape(step, key), _PLAIN, 0)
        self._add(step_shape("go to"), _PLAIN, 0).block = entry

    def _block(
        self,
        number: int,
        block: Block,
        analysis: Analysis,
        modes: dict[tuple[int, int], FloatMode | None],
        guesses: frozenset[int],
    ) -> None:
        self._first[block.start] = len(self._steps)
        if self._variant.checks.profile and not waits_at_barrier(block):  # that one counts itself
            self._add(step_shape("count"), _PLAIN, 0).block = number
        unproven, launch = analysis.unproven, FloatMode(self._variant.mode)
        for pc, instruction in block.instructions:
            at, shape = (block.start, pc), self._shapes[pc]
            touched = self._forms.effects(shape).touched
            own = _all(touched) | EXEC[64] if unproven.tracked else 0
            situation = Situation(
                at in analysis.exec_full,
                modes.get(at, launch),
                unproven.tracked & own,
                unproven.by_pc.get(pc, 0),
                unproven.computed & own,
                unproven.saved,
                pc in guesses,
            )
            step = self._add(shape, situation, pc, instruction)
            step.block = number
            if step.emitted.ends:
                return
        if block.illegal_at is not None:
            self._add(step_shape("illegal"), _PLAIN, block.illegal_at)
        elif yields_after(self._graph, block, self._variant.checks):
            self._add(step_shape("yield"), _PLAIN, block.end).block = block.end
        elif block.end != self._following(number):
            self._add(step_shape("go to"), _PLAIN, 0).block = block.end

    def _following(self, number: int) -> int:
        """Return the start of the block whose steps follow those of block `number`."""
        return self._costs[number + 1][0] if number + 1 < len(self._costs) else -1

    def _add(self, shape: FormShape, at: Situation, pc: int, instruction: Instruction | None = None) -> _Step:
        number, shape, emitted = self._forms.emitted(shape, at, instruction)
        step = _Step(number, shape, emitted, pc, instruction, len(self._sites), len(self._memory_pcs))
        self._sites += [Site(pc, rule, _named(text, shape)) for rule, text in emitted.sites]
        self._memory_pcs += [pc] * emitted.memory_sites
        if not emitted.empty:
            self._steps.append(step)
        return step

    # --- records

    def _placed(self) -> RecordProgram:
        end = 0
        for step in self._steps:
            step.at = end
            end += self._jump_table(step, 0)
            if ("jumps", 0) in step.emitted.parameters:
                end += _WORD * JUMP * len(self._graph.indirect)
        content = [0] * (end // _WORD)
        for step in self._steps:
            at = (step.at + HEAD_BYTES) // _WORD
            for place, parameter in enumerate(step.emitted.parameters):
                content[at + place] = _PARAMETERS[parameter[0]](self, step, parameter[1]) & 0xFFFFFFFF
            if ("jumps", 0) in step.emitted.parameters:
                at = (step.at + self._jump_table(step, 0)) // _WORD
                for place in self._graph.indirect:
                    content[at : at + JUMP] = place, self._start(place), self._cost(place, step.pc), 0
                    at += JUMP
        places = np.array([step.at // _WORD for step in self._steps], np.int64)
        numbers = np.array([step.number for step in self._steps], np.int64)
        counts = {"memory": len(self._memory_pcs), "block": len(self._graph.blocks)}
        sites, memory_pcs = tuple(self._sites), tuple(self._memory_pcs)
        return RecordProgram(np.array(content, np.uint32), places, numbers, sites, counts, memory_pcs)

    def _start(self, block: int) -> int:
        return self._steps[self._first[block]].at

    def _cost(self, target: int, pc: int) -> int:
        """Return the fuel for a branch, 0 for a forward one."""
        if target > pc:
            return 0
        return max(sum(count for start, count in self._costs if target <= start <= pc), 1)

    def _pc(self, step: _Step, edge: int) -> int:
        if edge == SELF:
            return step.pc
        assert step.instruction is not None
        if edge == FOLLOWING:
            return step.pc + step.instruction.size_bytes
        return find_branch_target(step.pc, step.instruction)

    def _record(self, step: _Step, edge: int) -> int:
        return self._start(step.block if step.instruction is None else self._pc(step, edge))

    def _register(self, step: _Step, group: int) -> int:
        return register_offset(step.shape.starts[group], self._variant.wave)

    def _undefined(self, step: _Step, group: int) -> int:
        return undefined_offset(step.shape.starts[group], self._variant.wave, self._variant.vgprs)

    def _edge_cost(self, step: _Step, edge: int) -> int:
        return self._cost(self._pc(step, edge), step.pc)

    def _literal(self, step: _Step, number: int) -> int:
        instruction = step.instruction
        assert instruction is not None
        halves = (instruction,) if instruction.second is None else (instruction, instruction.second)
        literals = [each.value for half in halves for each in half.operands if each.kind is Kind.LITERAL]
        return int(literals[number] or 0)

    def _immediate(self, step: _Step, number: int) -> int:
        assert step.instruction is not None
        return int(step.instruction.operands[-1].value or 0)

    def _jump_table(self, step: _Step, number: int) -> int:
        """Return the size of the record without its jump table, which is at its end."""
        words = len(step.emitted.parameters)
        return HEAD_BYTES + -(-_WORD * words // HEAD_BYTES) * HEAD_BYTES


_PARAMETERS: dict[str, Callable[[ProgramBuilder, _Step, int], int]] = {
    "register": ProgramBuilder._register,
    "undefined": ProgramBuilder._undefined,
    "pc": ProgramBuilder._pc,
    "record": ProgramBuilder._record,
    "cost": ProgramBuilder._edge_cost,
    "site": lambda builder, step, number: step.site,
    "memory": lambda builder, step, number: step.memory,
    "literal": ProgramBuilder._literal,
    "immediate": ProgramBuilder._immediate,
    "offset": lambda builder, step, number: _offset(step, "offset"),
    "offset0": lambda builder, step, number: _offset(step, "offset0"),
    "offset1": lambda builder, step, number: _offset(step, "offset1"),
    "block": lambda builder, step, number: step.block,
    "jumps": lambda builder, step, number: len(builder._graph.indirect),
    "jump table": ProgramBuilder._jump_table,
}


def _offset(step: _Step, name: str) -> int:
    assert step.instruction is not None
    found = step.instruction.modifier(name)
    return int(found.value) if found is not None and isinstance(found.value, int) else 0


def _all(touched: Touched) -> int:
    return (
        touched.reads | touched.carried | touched.merges | touched.writes | touched.masked | touched.whole
        | touched.exec_reads
    )  # fmt: skip


def _numbers(bits: int) -> list[int]:
    return [key for key in range(bits.bit_length()) if bits >> key & 1]


def _named(text: str, shape: FormShape) -> str:
    """Replace the names of a form's registers (emit/form.py) by those of the instruction's."""
    if "\0" not in text:
        return text
    return re.sub(
        "\0(\\d+)\0", lambda found: register_name(shape.placed(1 << int(found[1])).bit_length() - 1), text
    )
