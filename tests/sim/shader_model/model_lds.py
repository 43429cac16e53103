"""LDS: loads, stores, atomics, and lane exchanges that use its wires."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sim.shader_model.model_atomics import apply_atomic, atomic_name, lane_value, to_number, write_lane
from sim.shader_model.model_lanes import bpermute, permute, swizzle_sources
from sim.shader_model.model_memory import (
    LOADS,
    STORES,
    Transfer,
    active_lanes,
    offset_of,
    read_stored,
    write_loaded,
)
from sim.shader_model.model_state import ModelWave

from zinc_rt.isa import Instruction

Array = np.ndarray
Step = Callable[[ModelWave], None]
U8, U32, I64 = np.uint8, np.uint32, np.int64


def lds_access(wave: ModelWave, addresses: Array, size: int, data: Array | None) -> Array:
    """Beyond the end a dword reads as 0 and a store is dropped (manual 3.3.5.1); here this is decided per byte."""
    lds = wave.group.lds
    offset = addresses[:, None] + np.arange(size)
    inside = offset < len(lds)
    if data is None:
        return np.where(inside, lds[np.minimum(offset, max(len(lds) - 1, 0))] if len(lds) else 0, 0).astype(U8)
    lds[offset[inside]] = data[inside]
    return data


def bind_lds(instruction: Instruction, width: int) -> Step | None:
    name = instruction.mnemonic.removeprefix("ds_")
    if name in ("nop",):
        return lambda wave: None
    for prefix in ("swizzle", "permute", "bpermute"):
        if name.startswith(prefix):
            return _bind_lds_lanes(instruction, width)
    if name.startswith("load_2addr"):
        return _bind_lds_two(instruction, load=True)
    if name.startswith("store_2addr"):
        return _bind_lds_two(instruction, load=False)
    if name.startswith(("load_addtid", "store_addtid")):
        return None
    offset = offset_of(instruction)
    if name.startswith("load_") and name[5:] in LOADS:
        kind = LOADS[name[5:]]
        to, address = (o.index for o in instruction.operands)

        def load(wave: ModelWave) -> None:
            active = active_lanes(wave)
            position = wave.v[address][active].astype(I64) + offset
            write_loaded(wave, to, lds_access(wave, position, kind.size, None), kind, active)

        return load
    if name.startswith("store_") and name[6:] in STORES:
        kind = STORES[name[6:]]
        address, data = (o.index for o in instruction.operands)

        def store(wave: ModelWave) -> None:
            active = active_lanes(wave)
            position = wave.v[address][active].astype(I64) + offset
            lds_access(wave, position, kind.size, read_stored(wave, data, kind, active))

        return store
    atomic = atomic_name(name)
    return None if atomic is None else _bind_lds_atomic(instruction, *atomic, "_rtn" in name, offset)


def _bind_lds_atomic(instruction: Instruction, kind: str, bits: int, returns: bool, offset: int) -> Step:
    operands = instruction.operands
    to = operands[0].index if returns else 0
    address, *data = (o.index for o in operands[1 if returns else 0 :])
    size = bits // 8

    def step(wave: ModelWave) -> None:
        for lane in active_lanes(wave):
            position = np.array([int(wave.v[address][lane]) + offset], I64)
            old = to_number(lds_access(wave, position, size, None))
            new = apply_atomic(kind, old, [lane_value(wave, register, lane, bits) for register in data], bits)
            lds_access(wave, position, size, np.frombuffer(new.to_bytes(size, "little"), U8)[None, :])
            if returns:
                write_lane(wave, to, lane, old, bits)

    return step


def _bind_lds_two(instruction: Instruction, *, load: bool) -> Step:
    name = instruction.mnemonic
    size = 8 if name.endswith("b64") else 4
    unit = size * (64 if "stride64" in name else 1)
    offsets = [0, 0]
    for modifier in instruction.modifiers:
        if modifier.name in ("offset0", "offset1"):
            offsets[int(modifier.name[-1])] = int(modifier.value) * unit  # type: ignore[arg-type]
    kind = Transfer(size)
    operands = instruction.operands

    def step(wave: ModelWave) -> None:
        active = active_lanes(wave)
        base = wave.v[operands[1 if load else 0].index][active].astype(I64)
        if load:
            parts = [lds_access(wave, base + offset, size, None) for offset in offsets]
            for i, part in enumerate(parts):
                write_loaded(wave, operands[0].index + i * size // 4, part, kind, active)
        else:
            for i, offset in enumerate(offsets):
                lds_access(wave, base + offset, size, read_stored(wave, operands[1 + i].index, kind, active))

    return step


def _bind_lds_lanes(instruction: Instruction, width: int) -> Step:
    name = instruction.mnemonic
    operands = instruction.operands
    offset = offset_of(instruction)
    to = operands[0].index
    if name == "ds_swizzle_b32":
        taken = swizzle_sources(offset, width)
        source = operands[1].index
        return lambda wave: wave.write_v(to, np.where(wave.lanes[taken], wave.v[source][taken], U32(0)))
    address, data = operands[1].index, operands[2].index

    def step(wave: ModelWave) -> None:
        index = wave.v[address] + U32(offset)
        if name == "ds_permute_b32":
            wave.write_v(to, permute(wave, index, wave.v[data]))
        else:
            wave.write_v(to, bpermute(wave, index, wave.v[data], "_fi_" in name))

    return step
