"""Data-flow analysis at each instruction: EXEC known to be full, registers initialised on every path, live
registers.

Works on `Touched`, the registers touched when an instruction is emitted. Register sets are ints: bit r is VGPR r,
256 + n SGPR n, 384 SCC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.isa.control_flow import Block, Flow
from zinc_rt.sim.shader.emit.slots import Touched, UnprovenReads
from zinc_rt.sim.shader.layout import EXEC_HI, EXEC_LO, NULL, TTMP0, VGPR_LIMIT, KernelVariant
from zinc_rt.sim.shader.translate.forward import forward

VGPRS = (1 << VGPR_LIMIT) - 1
EVERYTHING = (1 << VGPR_LIMIT + 129) - 1


def sgpr_bit(index: int) -> int:
    return 1 << VGPR_LIMIT + index


EXEC = {32: sgpr_bit(EXEC_LO), 64: sgpr_bit(EXEC_LO) | sgpr_bit(EXEC_HI)}
# What the hardware initialises besides user data: workgroup ids and EXEC. And v0, the thread ids, in EXEC's lanes.
IDS_AND_EXEC = sum(sgpr_bit(TTMP0 + index) for index in (7, 8, 9)) | EXEC[64]

Records = Mapping[tuple[int, int], Touched]
"""Facts by (block start, pc)."""


@dataclass(frozen=True, slots=True)
class Analysis:
    at_start: int  # initialised SGPRs at the entry
    exec_full: frozenset[tuple[int, int]]  # (block start, pc) of instructions before which EXEC is all ones
    live: dict[int, int]  # block start -> live registers
    unproven: UnprovenReads


def analyse_kernel(graph: Flow, records: Records, variant: KernelVariant) -> Analysis:
    """Analyse a kernel. From mode fast on, this includes the reads that may be uninitialised."""
    wave = variant.wave
    at_start = IDS_AND_EXEC | sgpr_bit(variant.user_sgprs) - sgpr_bit(0)
    ones = _find_all_ones(graph, records, wave, variant.full)
    full = frozenset(key for key, known in ones.items() if known & EXEC[wave] == EXEC[wave])
    live = _compute_liveness(graph, records, full, EXEC[wave])
    unproven = (
        _find_unproven_reads(graph, records, full, wave, at_start) if variant.checks.fast else UnprovenReads()
    )
    return Analysis(at_start, full, live, unproven)


# --- EXEC


def _find_all_ones(graph: Flow, records: Records, wave: int, exec_full: bool) -> dict[tuple[int, int], int]:
    """Return the SGPRs that hold 0xffffffff before each instruction."""

    def step(block: Block, known: int, found: dict[tuple[int, int], int] | None) -> int:
        for pc, instruction in block.instructions:
            if found is not None:
                found[block.start, pc] = known
            touched = records.get((block.start, pc))
            if touched is None:
                break
            gained = _find_ones_written(instruction, known)
            known = known & ~touched.writes | gained & touched.writes
        return known

    return forward(graph, EXEC[wave] if exec_full else 0, step)


def _find_operand_bits(operand: Operand, dwords: int) -> int:
    """Return the SGPRs of a scalar operand, or 0 for other operands."""
    if operand.kind is Kind.TTMP:
        return ((1 << dwords) - 1) * sgpr_bit(TTMP0 + operand.index)
    if operand.kind is Kind.SGPR or (
        operand.kind is Kind.SPECIAL and operand.index < 128 and operand.index != NULL
    ):
        return ((1 << dwords) - 1) * sgpr_bit(operand.index)
    return 0


def _is_ones(operand: Operand, dwords: int, known: int) -> bool:
    if operand.kind is Kind.INTEGER:
        return operand.value == -1
    if operand.kind is Kind.LITERAL:
        return dwords == 1 and operand.value == 0xFFFFFFFF
    bits = _find_operand_bits(operand, dwords)
    return bits != 0 and known & bits == bits


def _find_ones_written(instruction: Instruction, known: int) -> int:
    """Return the SGPRs that the instruction always sets to all ones."""
    name, _, suffix = instruction.mnemonic.rpartition("_")
    operands = instruction.operands
    dwords = {"b32": 1, "b64": 2}.get(suffix)
    if dwords is None or not name.startswith("s_") or not operands:
        return 0
    destination = _find_operand_bits(operands[0], dwords)
    ones = [_is_ones(operand, dwords, known) for operand in operands[1:]]
    if name in ("s_mov", "s_wqm"):
        return destination if ones[0] else 0
    if name == "s_or":
        return destination if any(ones) else 0
    if name == "s_or_not1":
        return destination if ones[0] else 0
    if name in ("s_and", "s_cselect"):
        return destination if all(ones) else 0
    if name.endswith("_saveexec"):
        execution = ((1 << dwords) - 1) * sgpr_bit(EXEC_LO)
        was = known & execution == execution
        gained = destination if was else 0
        operation = name.removeprefix("s_").removesuffix("_saveexec")
        now = {"and": was and ones[0], "or": was or ones[0], "or_not1": ones[0], "or_not0": was}.get(
            operation, False
        )
        return gained & ~execution | (execution if now else 0)
    return 0


# --- liveness


def _compute_liveness(
    graph: Flow, records: Records, full: frozenset[tuple[int, int]], execution: int
) -> dict[int, int]:
    needed: dict[int, tuple[int, int]] = {}  # block start -> (used before written, written)
    for block in graph.blocks.values():
        used = written = 0
        for pc, _ in block.instructions:
            touched = records.get((block.start, pc))
            if touched is None:
                break
            uses, kills = touched.reads | touched.carried | touched.merges, touched.writes
            if (block.start, pc) in full:
                kills |= touched.masked & ~touched.partial
            else:
                uses |= touched.masked | touched.exec_reads
                if (
                    touched.reads | touched.carried
                ):  # a check of reads needs EXEC's lanes, which are not emitted yet
                    uses |= execution
            used |= uses & ~written
            written |= kills
        needed[block.start] = used, written
    live = dict.fromkeys(graph.blocks, 0)
    changed = True
    while changed:
        changed = False
        for start in reversed(graph.blocks):
            after = 0
            for successor in graph.blocks[start].successors:
                after |= live.get(successor, 0)
            used, written = needed[start]
            now = used | after & ~written
            if now != live[start]:
                live[start], changed = now, True
    return live


# --- initialised registers

_RELATIVE = VGPR_LIMIT + 160  # bits from here: VGPRs initialised in the lanes of the present EXEC


def _find_unproven_reads(
    graph: Flow, records: Records, full: frozenset[tuple[int, int]], wave: int, at_start: int
) -> UnprovenReads:
    """Return the reads that may be undefined. A checked read counts as defined afterwards; results computed
    from a carried read count as undefined.
    """
    execution = EXEC[wave]
    unproven = UnprovenReads()
    saved = False

    def step(block: Block, known: int, found: dict[tuple[int, int], int] | None) -> int:
        for pc, instruction in block.instructions:
            touched = records.get((block.start, pc))
            if touched is None:
                break
            is_full, carried = (block.start, pc) in full, touched.carried
            everywhere, relative = known & EVERYTHING, known >> _RELATIVE & VGPRS
            if is_full:
                everywhere |= relative
            relative |= everywhere & VGPRS
            missing = (touched.reads | carried) & ~(everywhere | relative) | touched.whole & ~everywhere
            computed, written = missing & carried, touched.writes | touched.masked
            computed |= written if touched.restores and saved else 0
            if found is not None:
                if missing:
                    unproven.by_pc[pc] = unproven.by_pc.get(pc, 0) | missing
                unproven.saved |= touched.saves and missing & carried != 0
                if computed:
                    unproven.computed |= written & ~EXEC[64]
            read = touched.reads & ~touched.in_part
            everywhere |= read & ~VGPRS
            relative |= read & VGPRS
            if computed:
                everywhere, relative = everywhere & ~written | EXEC[64], relative & ~written
            else:
                whole = touched.masked & ~touched.partial & ~touched.halves
                everywhere |= touched.writes & ~touched.halves
                relative |= whole | everywhere & VGPRS
                if is_full:
                    everywhere |= whole
            if touched.writes & execution and not _is_narrowing(instruction):
                relative = everywhere & VGPRS
            known = everywhere | relative << _RELATIVE
        return known

    forward(graph, at_start | 1 << _RELATIVE, step)
    unproven.saved |= _reloads_whole_waves(graph)
    if unproven.saved:  # then values loaded from scratch may be undefined
        saved = True
        forward(graph, at_start | 1 << _RELATIVE, step)
    for missing in unproven.by_pc.values():
        unproven.tracked |= missing
    return unproven


def _reloads_whole_waves(graph: Flow) -> bool:
    """Return whether a scratch load follows `s_or_saveexec s, -1`: it may be of a register never stored."""
    return any(
        load.row.name.startswith("scratch_load")
        and save.mnemonic.startswith("s_or_saveexec")
        and save.operands[1].value == -1
        for block in graph.blocks.values()
        for (_, save), (_, load) in pairwise(block.instructions)
    )


_NARROWING = ("s_and_saveexec", "s_and_not0_saveexec", "s_and_not0_wrexec")


def _is_narrowing(instruction: Instruction) -> bool:
    """Return whether an instruction that writes EXEC can only clear bits of it."""
    name = instruction.mnemonic
    if instruction.row.pipe == "valu":
        return "exec" in instruction.row.writes  # v_cmpx
    if name.startswith(_NARROWING):
        return True
    if name.startswith(("s_and_b", "s_and_not1_b", "s_mov_b")):
        sources = instruction.operands[1:2] if name.startswith("s_and_not1") else instruction.operands[1:]
        return any(operand.kind is Kind.SPECIAL and operand.index == EXEC_LO for operand in sources)
    return False
