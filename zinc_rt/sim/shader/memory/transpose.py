"""GLOBAL_LOAD_TR: loads that transpose tiles for the registers of a matrix.

Every lane loads contiguous bytes from its address. The 8 lanes of a group then exchange their 8x8 elements, so
that lane i holds element i of each. The manual does not describe the element order; compilers for gfx12 rely on
this one. In wave64 lanes 0 to 31 provide the addresses, and lanes 32 to 63 receive the upper half of the result.
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.values import I1, I32, constant, vector_of
from zinc_rt.sim.shader.memory import access
from zinc_rt.sim.shader.memory.loads_stores import check_modifiers, global_addresses

GROUP = 8  # lanes, and elements of a lane


def _load_turned(e: Emitter, i: Instruction, *, element_bits: int) -> None:
    check_modifiers(i)
    if e.checks.fast and not e.exec.full:
        partial_exec = e.b.unequal(e.exec.bits(), -1)
        e.reports.report_if("wmma-exec", partial_exec, "EXEC is not all ones")
    to, vector, scalar = i.operands
    addresses = global_addresses(e, i, vector, scalar)
    if e.wave == 64:
        high = None if addresses.high is None else _moved(e, addresses.high, _lower_lanes(e))
        addresses = access.Addresses(addresses.base, _moved(e, addresses.low, _lower_lanes(e)), high)
    dwords = access.load(e, addresses, GROUP * element_bits // 8)
    turned = _turn(e, dwords, element_bits)
    if e.wave == 64:
        half = len(turned) // 2
        upper = vector_of((lane >= 32 for lane in range(64)), I1)
        turned = [e.b.select(upper, turned[index + half], turned[index]) for index in range(half)]
    for index, dword in enumerate(turned):
        e.regs.write_vgpr(to.index + index, dword)


def _lower_lanes(e: Emitter) -> list[int]:
    return [lane & 31 for lane in range(e.wave)]


def _moved(e: Emitter, value: ir.Value, lanes: list[int]) -> ir.Value:
    """Return a vector whose lane i is lane lanes[i] of `value`."""
    return e.b.shuffled(value, lanes, value)


def _turn(e: Emitter, dwords: list[ir.Value], element_bits: int) -> list[ir.Value]:
    """Transpose: element j of lane 8g+i becomes element i of lane 8g+j."""
    b, item = e.b, 32 // element_bits
    within = range(e.wave)
    shift = vector_of(element_bits * (lane % GROUP % item) for lane in within)
    mask = constant((1 << element_bits) - 1, b.lanes(I32))
    result = [constant(0, b.lanes(I32)) for _ in dwords]
    for j in range(GROUP):
        sources = [_moved(e, dword, [lane // GROUP * GROUP + j for lane in within]) for dword in dwords]
        chosen = sources[0]
        for index, source in enumerate(sources[1:], start=1):
            vector = vector_of((lane % GROUP // item == index for lane in within), I1)
            chosen = b.select(vector, source, chosen)
        element = b.and_(b.lshr(chosen, shift), mask)
        placed = b.shl(element, element_bits * (j % item))
        result[j // item] = b.or_(result[j // item], placed)
    return result


EMIT = {
    "global_load_tr_b64": partial(_load_turned, element_bits=8),
    "global_load_tr_b128": partial(_load_turned, element_bits=16),
}
