"""Positions of unfinished waves: the current loop, its exits, and the values that the exits depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from zinc_rt.isa.control_flow import Block, Flow, find_predecessors
from zinc_rt.sim.shader.checks.finding_text import FindingText, WaveFinding, disassemble_at
from zinc_rt.sim.shader.emit.slots import register_name
from zinc_rt.sim.shader.layout import EXEC_HI, EXEC_LO, SCC, VGPR_LIMIT, KernelVariant, Site, Status
from zinc_rt.sim.shader.translate.analysis import EXEC, Records
from zinc_rt.sim.shader.translate.translation import find_registers

MAX_PLACES = 4  # findings of one launch
MAX_REGISTERS = 8  # shown of one wave


@dataclass(frozen=True, slots=True)
class StandingWave:
    """A suspended wave. Of `vgprs` ([registers, lanes] u32) and of the header's `sgprs`, only registers live at
    its pc are valid.
    """

    header: np.void
    vgprs: np.ndarray

    @property
    def pc(self) -> int:
        return int(self.header["pc"])


@dataclass(frozen=True, slots=True)
class WaveLoop:
    """A loop. `blocks` by start, the header first. `exits`: pcs of the branches that leave it, each with the pc
    of the instruction in its block that writes the condition, if any. `depends`: registers, as in Touched, on
    which the branches depend and that are valid at the header.
    """

    blocks: tuple[Block, ...]
    exits: tuple[tuple[int, int | None], ...]
    depends: int

    @property
    def instructions(self) -> int:
        return sum(len(block.instructions) for block in self.blocks)


def find_loop(head: int, graph: Flow, records: Records, live: dict[int, int], wave: int) -> WaveLoop | None:
    """Return the natural loop with the header at `head`, or None if no branch goes back to it."""
    before = find_predecessors(graph.blocks)
    todo = [start for start in before.get(head, ()) if start >= head]
    if not todo:
        return None
    result = {head}
    while todo:
        start = todo.pop()
        if start not in result:
            result.add(start)
            todo += before[start]
    blocks = tuple(graph.blocks[start] for start in (head, *sorted(result - {head})))
    exits, needed = [], 0
    for block in blocks:
        if block.instructions and any(successor not in result for successor in block.successors):
            pc = block.instructions[-1][0]
            touched = records.get((block.start, pc))
            reads = touched.reads if touched is not None else 0
            output = (item for item, _ in block.instructions[-2::-1] if records[block.start, item].writes & reads)
            exits.append((pc, next(output, None)))
            needed |= reads
    while True:  # backwards through the loop, until nothing is added
        more = needed
        for block in blocks:
            for pc, _ in block.instructions:
                touched = records.get((block.start, pc))
                if touched is not None and (touched.writes | touched.masked) & more:
                    more |= touched.reads | touched.merges
        if more == needed:
            return WaveLoop(blocks, tuple(exits), needed & live.get(head, 0) & ~EXEC[wave])
        needed = more


def report_unfinished(
    waves: list[StandingWave], variant: KernelVariant, text: FindingText, rule: str, progress: str = ""
) -> Iterator[WaveFinding]:
    """Return one finding per position of waves, that of the most waves first, which includes `progress`."""
    if not waves:
        return
    graph, records, live = find_registers(variant)
    places: dict[tuple[int, int], list[StandingWave]] = {}
    for wave in waves:
        places.setdefault((wave.pc, int(wave.header["status"])), []).append(wave)
    ordered = sorted(places.items(), key=lambda item: -len(item[1]))
    for (pc, status), standing in ordered[:MAX_PLACES]:
        first = standing[0]
        parts = []
        if status == Status.BARRIER:
            parts.append("waits at the barrier")
        elif (loop := find_loop(pc, graph, records, live, variant.wave)) is not None:
            parts.append(_format_loop(loop, first, text))
        if len(standing) > 1:
            parts.append(f"{_format_waves(len(standing) - 1, 'more')} at the same place")
        others = len(waves) - len(standing)
        if others:
            parts.append(f"{_format_waves(others, 'other')} elsewhere")
        if progress and standing is ordered[0][1]:
            parts.append(progress)
        lanes = _find_exec(first, live.get(pc, 0), variant.wave)
        site = Site(pc, rule, "; ".join(parts))
        yield text.at(site, int(first.header["wave_in_group"]), int(first.header["group"]), lanes)


def _format_waves(count: int, more: str) -> str:
    return f"{count} {more} wave{'s' if count > 1 else ''}"


def _format_loop(loop: WaveLoop, wave: StandingWave, text: FindingText) -> str:
    first, end = min(block.start for block in loop.blocks), max(block.end for block in loop.blocks)
    output = f"in a loop of {loop.instructions} instructions, pc {first - text.entry:#x} to {end - text.entry:#x}"
    if not loop.exits:
        return f"{output}, which has no exit branch"
    exits = []
    for pc, condition in loop.exits[:3]:
        behind = (
            f" after `{disassemble_at(text.code, condition, text.target, text.entry)}`"
            if condition is not None
            else ""
        )
        exits.append(f"{text.instruction(pc)}{behind}")
    output += f", with exits at {' and at '.join(exits)}"
    values = _format_values(loop.depends, wave)
    return f"{output}; the exit conditions depend on {', '.join(values)}" if values else output


def _format_values(registers: int, wave: StandingWave) -> list[str]:
    keys = [key for key in range(registers.bit_length()) if registers >> key & 1]
    shown = []
    for key in sorted(keys, key=lambda key: (key < VGPR_LIMIT, key))[:MAX_REGISTERS]:
        if key < VGPR_LIMIT:
            lanes = wave.vgprs[key]
            text = "in all lanes" if (lanes == lanes[0]).all() else f"in lane 0, {lanes[-1]:#x} in the last"
            shown.append(f"{register_name(key)} = {lanes[0]:#x} {text}")
        elif key == VGPR_LIMIT + SCC:
            shown.append(f"scc = {int(wave.header['scc']) & 1}")
        else:
            shown.append(f"{register_name(key)} = {int(wave.header['sgprs'][key - VGPR_LIMIT]):#x}")
    if len(keys) > MAX_REGISTERS:
        shown.append(f"{len(keys) - MAX_REGISTERS} more")
    return shown


def _find_exec(wave: StandingWave, live: int, lanes: int) -> int:
    """Return EXEC if it was saved, otherwise all lanes: EXEC is saved only if it is live."""
    if not live & EXEC[lanes]:
        return (1 << lanes) - 1
    sgprs = wave.header["sgprs"]
    return (int(sgprs[EXEC_LO]) | int(sgprs[EXEC_HI]) << 32) & (1 << lanes) - 1
