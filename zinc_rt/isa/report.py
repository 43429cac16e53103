"""A static performance report of a kernel's machine code: registers, occupancy, instruction mix, inner loops.

made = report(code, target_of("gfx1201"), vgprs=24, lds_bytes=0, threads=32)
made.loops[-1].bytes_per_instruction
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.isa.effects import SGPRS, VGPR, count_written_operands, effects
from zinc_rt.isa.in_flight import PendingLoads, count_in_flight
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.loops import find_loops
from zinc_rt.isa.occupancy import count_waves_by_lds, count_waves_per_simd
from zinc_rt.isa.target import Target

UNITS = ("valu", "vopd", "trans", "matrix", "salu", "smem", "load", "store", "lds", "wait", "branch", "other")
"""valu, vopd, trans and matrix are disjoint; load and store are vector memory; other is s_delay_alu and such."""


@dataclass(frozen=True, slots=True)
class LoopReport:
    """An innermost loop: the byte offsets of its code, and the work of one wave's iteration if every instruction
    executes.

    `load_bytes` covers all lanes, `scalar_bytes` scalar loads, `lds_bytes` LDS reads and writes. `in_flight` is
    the maximum number of vector loads that a wave has pending in the loop.
    """

    begin: int
    end: int
    depth: int
    instructions: int
    mix: dict[str, int]
    load_bytes: int
    scalar_bytes: int
    store_bytes: int
    lds_bytes: int
    in_flight: PendingLoads

    @property
    def count_bytes_per_instruction(self) -> float:
        return (self.load_bytes + self.scalar_bytes) / self.instructions


@dataclass(frozen=True, slots=True)
class KernelReport:
    """The report of one kernel.

    `vgprs` and `sgprs` are as declared, or else as used; `waves` is the number of waves per SIMD. `in_flight` is
    the maximum number of vector loads that a wave has pending anywhere, inside or outside loops.
    """

    vgprs: int
    vgprs_used: int
    sgprs: int
    sgprs_used: int
    lds_bytes: int
    scratch_bytes: int
    waves: int
    code_bytes: int
    instructions: int
    mix: dict[str, int]
    loops: tuple[LoopReport, ...]
    in_flight: PendingLoads

    @property
    def streaming(self) -> LoopReport | None:
        """The innermost loop that loads the most bytes; None if no loop loads any."""
        loading = [loop for loop in self.loops if loop.load_bytes]
        return max(loading, key=lambda loop: loop.load_bytes, default=None)

    @property
    def vopd_rate(self) -> float:
        """The share of plain vector operations that are issued as VOPD pairs."""
        paired = 2 * self.mix["vopd"]
        return paired / (paired + self.mix["valu"]) if paired else 0.0


def make_kernel_report(
    code: bytes,
    target: Target,
    *,
    entry: int = 0,
    vgprs: int | None = None,
    sgprs: int | None = None,
    lds_bytes: int = 0,
    scratch_bytes: int = 0,
    threads: int | None = None,
) -> KernelReport:
    """Return the static report of the kernel at byte `entry`.

    `threads` is the workgroup size; with None, occupancy ignores LDS.
    """
    flow = find_control_flow(code, target, entry)
    reachable = [instruction for _, instruction in flow.instructions() if instruction.row.flow != "padding"]
    used = 0
    for instruction in reachable:
        result = effects(instruction, target)
        used |= result.reads | result.writes
    vgprs_used, sgprs_used = (used >> VGPR).bit_length(), (used & SGPRS).bit_length()
    waves = count_waves_per_simd(vgprs or max(1, vgprs_used), target.wave, simd_vgprs=target.simd_vgprs)
    if lds_bytes and threads:
        waves = min(waves, count_waves_by_lds(lds_bytes, threads, target.wave))
    inner = tuple(
        _report_loop(
            [pair for pc in sorted(loop.blocks) for pair in flow.blocks[pc].instructions], loop.depth, target
        )
        for loop in find_loops(flow)
        if loop.innermost
    )
    pending = (count_in_flight(reachable, target.wave), *(loop.in_flight for loop in inner))
    return KernelReport(
        vgprs=vgprs or vgprs_used,
        vgprs_used=vgprs_used,
        sgprs=sgprs or sgprs_used,
        sgprs_used=sgprs_used,
        lds_bytes=lds_bytes,
        scratch_bytes=scratch_bytes,
        waves=waves,
        code_bytes=sum(instruction.size_bytes for instruction in reachable),
        instructions=len(reachable),
        mix=_count_units(reachable),
        loops=inner,
        in_flight=max(pending, key=lambda item: item.bytes),
    )


def _report_loop(pairs: list[tuple[int, Instruction]], depth: int, target: Target) -> LoopReport:
    moved: Counter[str] = Counter()
    instructions = [instruction for _, instruction in pairs]
    for instruction in instructions:
        unit, size = find_unit(instruction), instruction.row.access_bytes
        moved[unit] += size if unit == "smem" else size * target.wave
    return LoopReport(
        begin=pairs[0][0],
        end=pairs[-1][0] + pairs[-1][1].size_bytes,
        depth=depth,
        instructions=len(pairs),
        mix=_count_units(instructions),
        load_bytes=moved["load"],
        scalar_bytes=moved["smem"],
        store_bytes=moved["store"],
        lds_bytes=moved["lds"],
        in_flight=count_in_flight(instructions, target.wave, loop=True),
    )


def _count_units(instructions: Iterable[Instruction]) -> dict[str, int]:
    counts = Counter(map(find_unit, instructions))
    return {unit: counts[unit] for unit in UNITS}


def find_unit(instruction: Instruction) -> str:
    """Return the unit (one of UNITS) that an instruction uses. An atomic that returns the previous value counts as
    a load."""
    unit = instruction.row.unit
    if unit in ("atomic", "cache"):
        return "load" if count_written_operands(instruction) else "store"
    return unit
