"""VBUFFER: accesses through a buffer resource."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sim.shader_model.model_memory import LOADS, STORES, active_lanes, offset_of, read_stored, write_loaded
from sim.shader_model.model_state import ModelWave, scalar_reader

from zinc_rt.isa import Instruction

Step = Callable[[ModelWave], None]
U8, U64, I64 = np.uint8, np.uint64, np.int64


def bind_buffer(instruction: Instruction, width: int) -> Step | None:
    """Raw and structured buffers without swizzle (manual 9.4): accesses out of range read 0 and store nothing."""
    name = instruction.mnemonic.removeprefix("buffer_")
    load = name.startswith("load_") and name[5:] in LOADS
    if not load and not (name.startswith("store_") and name[6:] in STORES):
        return None
    kind = LOADS[name[5:]] if load else STORES[name[6:]]
    data, address, resource, soffset = instruction.operands
    has_index, has_offset = (instruction.modifier(n) is not None for n in ("idxen", "offen"))
    constant = offset_of(instruction)
    rsrc, scalar = scalar_reader(resource, 128), scalar_reader(soffset, 32)

    def step(wave: ModelWave) -> None:
        active = active_lanes(wave)
        if not len(active):
            return
        descriptor = rsrc(wave)
        base, stride = descriptor & (1 << 48) - 1, descriptor >> 48 & 0x3FFF
        records = descriptor >> 64 & 0xFFFFFFFF
        index = wave.v[address.index][active].astype(I64) if has_index else np.zeros(len(active), I64)
        moved = address.index + (1 if has_index else 0)
        inner = wave.v[moved][active].astype(I64) if has_offset else np.zeros(len(active), I64)
        inner = inner + constant
        select = descriptor >> 124 & 3
        position = U64(base) + (scalar(wave) + index * stride + inner).astype(U64)
        out = np.zeros((len(active), kind.size), U8) if load else read_stored(wave, data.index, kind, active)
        step_bytes = min(kind.size, 4)
        for first in range(0, kind.size, step_bytes):
            end = inner + first + step_bytes
            if select == 0:
                inside = (index < records) & (end <= stride)
            elif select == 3 and not stride:
                inside = end + scalar(wave) <= records
            else:
                inside = index < records if select != 2 else np.full(len(active), records != 0)
            where = position[inside] + U64(first)
            if load:
                out[inside, first : first + step_bytes] = wave.group.memory.load(where, step_bytes)
            else:
                wave.group.memory.store(where, out[inside, first : first + step_bytes])
        if load:
            write_loaded(wave, data.index, out, kind, active)

    return step
