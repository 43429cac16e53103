"""The SGPR read hazard: a scalar register is read before its new value has arrived.

After a VALU instruction reads an SGPR of a pair (s[2n:2n+1]), the pair is cached close to the VALU, and a later
write to it needs an s_wait_alu before the value is read: sa_sdst(0) if the SALU wrote it, va_sdst(0) if the VALU
wrote an SGPR and reads it, va_vcc(0) if the VALU wrote VCC. Scalar memory and buffer or image instructions
complete all writes; an SALU read of any SGPR waits for the VALU's writes automatically. Sources: RDNA4 ISA guide
5.7, and the waits that LLVM 22 inserts for gfx12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from zinc_rt.isa.effects import EXEC, M0, NULL, TTMP, VCC, iterate_registers, register_name, register_span
from zinc_rt.isa.lint.dataflow import solve_forward
from zinc_rt.isa.lint.finding import LintFinding, LintSubject

_IGNORED = register_span(M0, 1) | register_span(NULL, 1) | register_span(EXEC, 2)
_SCALARS = register_span(0, 128) & ~_IGNORED
_VCC = register_span(VCC, 2)
_WAIT = "s_wait_alu"
SA_SDST, VA_VCC, VA_SDST = 1 << 0, 1 << 1, 7 << 9  # zero: waits. immediates.py has the fields
_ADVICE = {"salu": "depctr_sa_sdst(0)", "vcc": "depctr_va_vcc(0)", "valu": "depctr_va_sdst(0)"}


@dataclass(slots=True)
class SgprReadState:
    """The hazard state. `read` holds pairs that the VALU has read; the other fields map a register to a pending
    write's pc."""

    read: int = 0
    salu: dict[int, int] = field(default_factory=dict)
    valu: dict[int, int] = field(default_factory=dict)
    vcc: dict[int, int] = field(default_factory=dict)  # VALU writes to VCC

    def copy(self) -> SgprReadState:
        return SgprReadState(self.read, dict(self.salu), dict(self.valu), dict(self.vcc))

    def merge(self, other: SgprReadState) -> SgprReadState:
        return SgprReadState(
            self.read | other.read, other.salu | self.salu, other.valu | self.valu, other.vcc | self.vcc
        )


def check_sgpr_reads(subject: LintSubject) -> Iterator[LintFinding]:
    blocks = subject.flow.blocks
    steps = {
        pc: [index for index, _ in block.instructions if _is_relevant(subject, index)]
        for pc, block in blocks.items()
    }

    def transfer(block: int, state: SgprReadState) -> SgprReadState:
        after = state.copy()
        for index in steps[block]:
            _step(subject, index, after)
        return after

    states = solve_forward(subject, SgprReadState(), transfer, SgprReadState.merge)
    output: set[tuple[int, int]] = set()
    for pc, state in states.items():
        after = state.copy()
        for index in steps[pc]:
            for producer, register, kind in _step(subject, index, after):
                if (index, producer) not in output:
                    output.add((index, producer))
                    yield subject.finding(
                        "sgpr-read",
                        index,
                        f"{register_name(register)} may still hold its value from before "
                        f"{producer:#06x}, because a VALU "
                        f"instruction has read its pair: needs {_WAIT} {_ADVICE[kind]} between them",
                        producer,
                    )


def _is_relevant(subject: LintSubject, pc: int) -> bool:
    effects, row = subject.effects[pc], subject.at[pc].row
    if row.pipe in ("salu", "valu"):
        return bool((effects.reads | effects.writes) & _SCALARS) or row.mnemonic == _WAIT
    return row.pipe in ("smem", "vmem")


def _step(subject: LintSubject, pc: int, state: SgprReadState) -> list[tuple[int, int, str]]:
    """Advance `state` over one instruction. Yield (pc of the write, register, kind) for each premature read."""
    instruction, effects = subject.at[pc], subject.effects[pc]
    if instruction.row.pipe == "smem" or instruction.encoding in ("VBUFFER", "VIMAGE", "VSAMPLE"):
        state.salu, state.valu, state.vcc = {}, {}, {}
        return []
    if instruction.mnemonic == _WAIT:
        _wait(instruction.words[0] & 0xFFFF, state)
        return []
    if instruction.row.pipe not in ("salu", "valu"):
        return []
    is_valu = instruction.row.pipe == "valu"
    reads, writes = effects.reads & _SCALARS, effects.writes & _SCALARS
    result: list[tuple[int, int, str]] = []
    if reads:
        if not is_valu and reads & ~_VCC:
            state.valu = {}
        if not is_valu and reads & _VCC and state.vcc:
            state.vcc = {}
            state.salu = {register: index for register, index in state.salu.items() if register < VCC}
        result += [(index, r, "salu") for r, index in state.salu.items() if reads >> r & 1]
        result += [(index, r, "vcc") for r, index in state.vcc.items() if reads >> r & 1]
        if is_valu:
            result += [(index, r, "valu") for r, index in state.valu.items() if reads >> r & 1]
            state.read |= _to_pairs(reads)
        for kind in {kind for _, _, kind in result}:
            setattr(state, kind, {})
    for register in iterate_registers(writes & state.read):
        if register in (VCC, VCC + 1):
            state.salu.pop(register, None)
            state.vcc.pop(register, None)
            (state.vcc if is_valu else state.salu)[register] = pc
        else:
            (state.valu if is_valu else state.salu)[register] = pc
    return result


def _wait(value: int, state: SgprReadState) -> None:
    if not value & SA_SDST:
        state.salu = {}
    if not value & VA_VCC:
        state.vcc = {}
    if not value & VA_SDST:
        state.valu = {}


def _to_pairs(registers: int) -> int:
    """Return both registers of every pair with a member in the set."""
    even = register_span(0, 128) // 3  # bits 0, 2, 4, …
    low = (registers | registers >> 1) & even
    return (low | low << 1) & ~register_span(TTMP, 16)
