"""SMEM: scalar loads."""

from __future__ import annotations

from collections.abc import Callable

from sim.shader_model.model_memory import LOADS, offset_of
from sim.shader_model.model_state import ModelWave, scalar_reader, scalar_writer

from zinc_rt.isa import Instruction, Kind

Step = Callable[[ModelWave], None]


def bind_scalar_memory(instruction: Instruction, width: int) -> Step | None:
    name = instruction.mnemonic
    if name in ("s_dcache_inv",) or "prefetch" in name:
        return lambda wave: None
    is_buffer = name.startswith("s_buffer_load_")
    kind_name = name.removeprefix("s_buffer_load_").removeprefix("s_load_")
    small = LOADS.get(kind_name) if kind_name in ("u8", "i8", "u16", "i16") else None
    size = small.size if small is not None else int(kind_name[1:]) // 8
    align = ~(min(size, 4) - 1)
    operands = instruction.operands
    base = scalar_reader(operands[1], 32 * operands[1].width)
    is_constant = operands[2].kind is Kind.IMMEDIATE
    register = None if is_constant else scalar_reader(operands[2], 32)
    constant = int(operands[2].value or 0) if is_constant else offset_of(instruction)
    write = scalar_writer(operands[0])

    def step(wave: ModelWave) -> None:
        offset = (constant & align) + (register(wave) & align if register is not None else 0)
        start = base(wave)
        if is_buffer:
            stride = start >> 48 & 0x3FFF
            records = start >> 64 & 0xFFFFFFFF
            limit = (stride or 1) * records
            address = (start & (1 << 48) - 1 & align) + offset
            unit = min(size, 4)
            parts = [
                wave.group.memory.read(address + i, unit) if offset + i + unit <= limit else bytes(unit)
                for i in range(0, size, 4)
            ]
            data = b"".join(parts)
        else:
            data = wave.group.memory.read((start & align) + offset & (1 << 64) - 1, size)
        value = int.from_bytes(data, "little", signed=small is not None and small.signed)
        write(wave, value)

    return step
