"""GLOBAL: loads and stores of global memory, and the related cache operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Operand
from zinc_rt.isa.encodings.cache_policy import DEVICE_SCOPE, find_scope
from zinc_rt.sim.shader.checks.lds_clocks import emit_lds_acquire
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, NotSimulated
from zinc_rt.sim.shader.emit.values import I8, I16, I32, I64, constant, vector_of
from zinc_rt.sim.shader.layout import ARRAY_CACHE, VECTOR_CACHE
from zinc_rt.sim.shader.memory import access, cached_access
from zinc_rt.sim.shader.memory.access import Addresses

Load = Callable[[Emitter, Instruction, int], list[ir.Value]]
"""(emitter, instruction, bytes a lane) -> its dwords, 1 and 2 bytes zero-extended"""
Store = Callable[[Emitter, Instruction, list[ir.Value], int], None]

# name without its "load_": bytes, whether the sign is extended, the half that is written (None: whole dwords)
LOADS: dict[str, tuple[int, bool, int | None]] = {
    "u8": (1, False, None),
    "i8": (1, True, None),
    "u16": (2, False, None),
    "i16": (2, True, None),
    "b32": (4, False, None),
    "b64": (8, False, None),
    "b96": (12, False, None),
    "b128": (16, False, None),
    "d16_u8": (1, False, 0),
    "d16_i8": (1, True, 0),
    "d16_b16": (2, False, 0),
    "d16_hi_u8": (1, False, 1),
    "d16_hi_i8": (1, True, 1),
    "d16_hi_b16": (2, False, 1),
}
# name without its "store_": bytes, whether they are in the upper half
STORES: dict[str, tuple[int, bool]] = {
    "b8": (1, False),
    "b16": (2, False),
    "b32": (4, False),
    "b64": (8, False),
    "b96": (12, False),
    "b128": (16, False),
    "d16_hi_b8": (1, True),
    "d16_hi_b16": (2, True),
}


def set_loaded(
    e: Emitter, operand: Operand, dwords: list[ir.Value], size_bytes: int, signed: bool, half: int | None
) -> None:
    """Write loaded data to their registers."""
    if half is not None:
        narrow = e.b.trunc(dwords[0], e.b.lanes(I16 if size_bytes == 2 else I8))
        if size_bytes == 1:
            narrow = e.b.sext(narrow, e.b.lanes(I16)) if signed else e.b.zext(narrow, e.b.lanes(I16))
        e.set_vector(replace(operand, half=half), narrow)
        return
    if signed:
        narrow = e.b.trunc(dwords[0], e.b.lanes(ir.IntType(8 * size_bytes)))
        dwords = [e.b.sext(narrow, e.b.lanes(I32))]
    for index, dword in enumerate(dwords):
        e.regs.write_vgpr(operand.index + index, dword)


def stored(e: Emitter, operand: Operand, size_bytes: int, upper: bool) -> list[ir.Value]:
    """Return the dwords to store, of which only these bytes are used."""
    if size_bytes < 4:
        used = ((1 << 8 * size_bytes) - 1) << 16 * upper
        dword = e.regs.read_vgpr(operand.index, used=used)
        return [e.b.lshr(dword, 16) if upper else dword]
    return [e.regs.read_vgpr(operand.index + index) for index in range(size_bytes // 4)]


def loader(load: Load, size_bytes: int, signed: bool, half: int | None) -> EmitFunction:
    def emit(e: Emitter, i: Instruction) -> None:
        check_modifiers(i)
        dwords = load(e, i, size_bytes)
        if find_scope(i, e.rules) >= DEVICE_SCOPE:
            e.b.fence("acquire")
        set_loaded(e, i.operands[0], dwords, size_bytes, signed, half)

    return emit


def storer(store: Store, size_bytes: int, upper: bool, data: int = 1) -> EmitFunction:
    """Return the emitter of a store. `data` is the index of the stored operand."""

    def emit(e: Emitter, i: Instruction) -> None:
        check_modifiers(i)
        dwords = stored(e, i.operands[data], size_bytes, upper)
        if find_scope(i, e.rules) >= DEVICE_SCOPE:
            e.b.fence("release")
        store(e, i, dwords, size_bytes)

    return emit


def check_modifiers(i: Instruction) -> None:
    for name in ("scale_offset", "nv", "tfe"):
        if i.modifier(name):
            raise NotSimulated(f"has {name}")


def global_addresses(e: Emitter, i: Instruction, vector: Operand, scalar: Operand | None) -> Addresses:
    """Return the addresses of the 64-bit form, or of a scalar base with unsigned 32-bit offsets."""
    moved = e.b.sext(e.offset(), I64)
    if scalar is None or scalar.text == "off":
        return Addresses(moved, e.regs.read_vgpr(vector.index), e.regs.read_vgpr(vector.index + 1))
    return Addresses(e.b.add(e.scalar(scalar, 64), moved), e.regs.read_vgpr(vector.index))


def _addtid(e: Emitter, i: Instruction) -> Addresses:
    base = constant(0, I64) if i.operands[-1].text == "off" else e.scalar(i.operands[-1], 64)
    steps = vector_of(4 * lane for lane in range(e.wave))
    return Addresses(e.b.add(base, e.b.sext(e.offset(), I64)), steps)


def _load(e: Emitter, i: Instruction, size_bytes: int) -> list[ir.Value]:
    _, vector, scalar = i.operands
    return access.load(e, global_addresses(e, i, vector, scalar), size_bytes)


def _store(e: Emitter, i: Instruction, dwords: list[ir.Value], size_bytes: int) -> None:
    access.store(e, global_addresses(e, i, i.operands[0], i.operands[2]), dwords, size_bytes)


def _load_addtid(e: Emitter, i: Instruction, size_bytes: int) -> list[ir.Value]:
    return access.load(e, _addtid(e, i), size_bytes)


def _store_addtid(e: Emitter, i: Instruction, dwords: list[ir.Value], size_bytes: int) -> None:
    access.store(e, _addtid(e, i), dwords, size_bytes)


def _fence(e: Emitter, i: Instruction, *, ordering: str) -> None:
    scope = find_scope(i, e.rules)
    if i.mnemonic == "global_inv" and scope:
        _acquire(e, device=scope >= DEVICE_SCOPE)
    e.b.fence(ordering)
    if i.mnemonic != "global_wb" and scope:  # the L0 writes through: nothing to write back
        cached_access.invalidate(e, "vector_cache", VECTOR_CACHE)


def _acquire(e: Emitter, *, device: bool) -> None:
    """Order this wave after those whose atomic stores it has seen (mode full). `device`: of any workgroup."""
    if not e.checks.full:
        return
    e.frame.set_state_field("waves_acquired", e.frame.state_field("waves_seen"))
    e.frame.set_state_field("memory_waves_acquired", e.frame.state_field("memory_waves_seen"))
    emit_lds_acquire(e.b, e.frame.state)
    if device:
        e.frame.set_state_field("acquired", 1)
        first, phase = e.frame.field("acquired_phase"), e.frame.field("barrier_phase")
        e.frame.set_field("acquired_phase", e.b.select(e.b.equal(first, 0), e.b.add(phase, 1), first))


def _invalidate_gl0(e: Emitter, i: Instruction) -> None:
    """Emit buffer_gl0_inv. An acquire of agent scope is buffer_gl1_inv before it."""
    _acquire(e, device=False)
    e.b.fence("acquire")
    cached_access.invalidate(e, "vector_cache", VECTOR_CACHE)


def _invalidate_gl1(e: Emitter, i: Instruction) -> None:
    _acquire(e, device=True)
    e.b.fence("acquire")
    cached_access.invalidate(e, "array_cache", ARRAY_CACHE)


EMIT: dict[str, EmitFunction] = {
    **{f"global_load_{name}": loader(_load, *row) for name, row in LOADS.items()},
    **{f"global_store_{name}": storer(_store, *row) for name, row in STORES.items()},
    "global_load_addtid_b32": loader(_load_addtid, 4, False, None),
    "global_store_addtid_b32": storer(_store_addtid, 4, False, data=0),
    "global_inv": partial(_fence, ordering="acquire"),
    "global_wb": partial(_fence, ordering="release"),
    "global_wbinv": partial(_fence, ordering="acq_rel"),
    "buffer_gl0_inv": _invalidate_gl0,
    "buffer_gl1_inv": _invalidate_gl1,
}
