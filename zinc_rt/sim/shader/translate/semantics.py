"""The table of emit functions by mnemonic, for all families. Each family's module has a table EMIT."""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.sim.shader.alu import (
    compare,
    convert,
    lanes,
    packed,
    scalar,
    scalar_float,
    scalar_registers,
    small_float,
    swizzle,
    swmmac,
    transcendental,
    vector_float,
    vector_integer,
    vgpr_allocation,
    vopd,
    wmma,
)
from zinc_rt.sim.shader.checks.carried import add_propagation
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, NotSimulated
from zinc_rt.sim.shader.memory import (
    atomics,
    buffer,
    flat,
    lds,
    lds_atomics,
    loads_stores,
    scalar_memory,
    scratch,
    transpose,
)
from zinc_rt.sim.shader.translate import control
from zinc_rt.sim.shader.unsimulated import find_reason

FAMILIES: tuple[Mapping[str, EmitFunction], ...] = (
    scalar.EMIT,
    scalar_float.EMIT,
    scalar_registers.EMIT,
    vgpr_allocation.EMIT,
    control.EMIT,
    loads_stores.EMIT,
    scalar_memory.EMIT,
    scratch.EMIT,
    flat.EMIT,
    buffer.EMIT,
    swizzle.EMIT,
    lds.EMIT,
    lds_atomics.EMIT,
    atomics.EMIT,
    vector_integer.EMIT,
    vector_float.EMIT,
    compare.EMIT,
    convert.EMIT,
    small_float.EMIT,
    lanes.EMIT,
    packed.EMIT,
    vopd.EMIT,
    wmma.EMIT,
    swmmac.EMIT,
    transcendental.EMIT,
    transpose.EMIT,
)


def merge_families(families: tuple[Mapping[str, EmitFunction], ...]) -> dict[str, EmitFunction]:
    result: dict[str, EmitFunction] = {}
    for family in families:
        twice = result.keys() & family.keys()
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))}: defined by two modules")
        result |= family
    return result


EMIT = {name: add_propagation(name, emit) for name, emit in merge_families(FAMILIES).items()}


def emit_instruction(e: Emitter) -> None:
    """Emit the current instruction, or the wave's end if it is not simulated."""
    emit = EMIT.get(e.instruction.row.name)
    try:
        if emit is None:
            raise NotSimulated(
                f"is {e.instruction.row.name} ({find_reason(e.instruction.row)}), which is not simulated"
            )
        if e.instruction.modifier("gds") is not None:
            raise NotSimulated("accesses the global data share")
        emit(e, e.instruction)
    except NotSimulated as refused:
        e.reports.illegal(str(refused))
