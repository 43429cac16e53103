"""GLOBAL, FLAT and SCRATCH: per-lane addresses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sim.shader_model.model_atomics import apply_atomic, atomic_name, lane_value, to_number, write_lane
from sim.shader_model.model_lds import lds_access
from sim.shader_model.model_memory import (
    LOADS,
    STORES,
    Transfer,
    active_lanes,
    offset_of,
    read_stored,
    write_loaded,
)
from sim.shader_model.model_state import PRIVATE_APERTURE, SHARED_APERTURE, ModelWave, scalar_reader

from zinc_rt.isa import Instruction, Kind
from zinc_rt.sim.interfaces import AccessKind, Fault

Array = np.ndarray
Step = Callable[[ModelWave], None]
U8, U32, U64, I64 = np.uint8, np.uint32, np.uint64, np.int64


def read_pairs(wave: ModelWave, register: int, active: Array) -> Array:
    return wave.v[register][active] | wave.v[register + 1][active].astype(U64) << U64(32)


class GlobalPlace:
    """Return the addresses of the lanes of a global, scratch or flat access."""

    def __init__(self, instruction: Instruction, address: object, saddr: object) -> None:
        self.segment = instruction.encoding
        self.offset = offset_of(instruction)
        self.vector = None if address is None or address.kind is not Kind.VGPR else address  # type: ignore[attr-defined]
        has_scalar = saddr is not None and saddr.kind is not Kind.NAME  # type: ignore[attr-defined]
        self.scalar = scalar_reader(saddr) if has_scalar else None  # type: ignore[arg-type]

    def addresses(self, wave: ModelWave, active: Array) -> Array:
        if self.segment == "SCRATCH":
            total = np.full(len(active), self.offset, I64)
            if self.vector is not None:
                total += wave.v[self.vector.index][active].view(np.int32)
            if self.scalar is not None:
                total += (self.scalar(wave) & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
            return total
        if self.scalar is not None:
            base = U64(self.scalar(wave) + self.offset & (1 << 64) - 1)
            if self.vector is None:
                return np.full(len(active), base, U64)
            return base + wave.v[self.vector.index][active].astype(U64)
        assert self.vector is not None
        return read_pairs(wave, self.vector.index, active) + U64(self.offset & (1 << 64) - 1)

    def load(self, wave: ModelWave, active: Array, size: int) -> Array:
        return self._access_each(wave, active, size, None)

    def store(self, wave: ModelWave, active: Array, data: Array) -> None:
        self._access_each(wave, active, data.shape[1], data)

    def _access_each(self, wave: ModelWave, active: Array, size: int, data: Array | None) -> Array:
        addresses = self.addresses(wave, active)
        if self.segment == "SCRATCH":
            return scratch_access(wave, active, addresses, size, data)
        if self.segment == "FLAT" and len(active):
            base = read_pairs(wave, self.vector.index, active) >> U64(32)  # type: ignore[union-attr]
            shared, private = base == U64(SHARED_APERTURE), base == U64(PRIVATE_APERTURE)
            if shared.any() or private.any():
                out = np.zeros((len(active), size), U8)
                for where, access in (
                    (shared, lambda a, d, n: lds_access(wave, (a & U64(0x1FFFF)).astype(I64), n, d)),
                    (private, lambda a, d, n: None),
                    (~shared & ~private, lambda a, d, n: _global_access(wave, a, n, d)),
                ):
                    if where.any():
                        part = None if data is None else data[where]
                        if where is private:
                            offsets = (addresses[where] & U64(0xFFFFFFFF)).astype(I64)
                            out[where] = scratch_access(wave, active[where], offsets, size, part)
                        else:
                            out[where] = access(addresses[where], part, size)
                return out
        return _global_access(wave, addresses, size, data)


def _global_access(wave: ModelWave, addresses: Array, size: int, data: Array | None) -> Array:
    if data is None:
        return wave.group.memory.load(addresses, size)
    wave.group.memory.store(addresses, data)
    return data


def scratch_access(wave: ModelWave, active: Array, offsets: Array, size: int, data: Array | None) -> Array:
    if len(active) and (int(offsets.min()) < 0 or int(offsets.max()) + size > wave.scratch.shape[1]):
        raise Fault(int(offsets.max()), AccessKind.READ if data is None else AccessKind.WRITE, "outside scratch")
    index = (active[:, None], offsets[:, None] + np.arange(size))
    if data is None:
        return wave.scratch[index]
    wave.scratch[index] = data
    return data


def bind_global(instruction: Instruction, width: int) -> Step | None:
    if instruction.encoding in ("GLOBAL", "FLAT", "SCRATCH"):
        rest = instruction.mnemonic.partition("_")[2]
        if rest in ("wb", "inv", "wbinv"):
            return lambda wave: None
        if rest.startswith("load_") and rest[5:] in LOADS:
            return _bind_load(instruction, LOADS[rest[5:]])
        if rest.startswith("store_") and rest[6:] in STORES:
            return _bind_store(instruction, STORES[rest[6:]])
        if rest.startswith("load_tr_"):
            return _bind_load_turned(instruction)
        if rest.startswith("load_block"):
            return None
        if rest.startswith("atomic_"):
            return _bind_atomic(instruction, rest[7:])
    return None


def make_place(instruction: Instruction, address_at: int) -> GlobalPlace:
    operands = instruction.operands
    saddr = operands[-1] if instruction.encoding != "FLAT" else None
    return GlobalPlace(instruction, operands[address_at], saddr)


def _bind_load(instruction: Instruction, kind: Transfer) -> Step:
    location = make_place(instruction, 1)
    register = instruction.operands[0].index

    def step(wave: ModelWave) -> None:
        active = active_lanes(wave)
        if len(active):
            write_loaded(wave, register, location.load(wave, active, kind.size), kind, active)

    return step


def _bind_load_turned(instruction: Instruction) -> Step:
    """Eight lanes exchange their 8x8 elements: element j of lane 8g + i is lane 8g + j's element i. In wave64
    lanes 0 to 31 load, and lane 32 + l takes the upper half of lane l's result. EXEC is all ones or none."""
    location = make_place(instruction, 1)
    register = instruction.operands[0].index
    size = 16 if instruction.mnemonic.endswith("b128") else 8

    def step(wave: ModelWave) -> None:
        if not wave.lanes.any():
            return
        loaded = location.load(wave, np.arange(32), size)
        elements = loaded.view(np.uint16 if size == 16 else np.uint8).reshape(4, 8, 8)
        turned = np.ascontiguousarray(elements.transpose(0, 2, 1)).reshape(32, 8).view(U32)
        if wave.width == 64:
            half = turned.shape[1] // 2
            turned = np.concatenate([turned[:, :half], turned[:, half:]])
        for i in range(turned.shape[1]):
            wave.v[register + i] = turned[:, i]

    return step


def _bind_store(instruction: Instruction, kind: Transfer) -> Step:
    location = make_place(instruction, 0)
    register = instruction.operands[1].index

    def step(wave: ModelWave) -> None:
        active = active_lanes(wave)
        if len(active):
            location.store(wave, active, read_stored(wave, register, kind, active))

    return step


def _bind_atomic(instruction: Instruction, name: str) -> Step | None:
    """Lane by lane, the lowest first."""
    atomic = atomic_name(name)
    if atomic is None:
        return None
    kind, bits = atomic
    hint = instruction.modifier("th")
    returns = hint is not None and bool(int(hint.value) & 1)  # type: ignore[arg-type]
    operands = instruction.operands
    location = make_place(instruction, 1 if returns else 0)
    data = operands[2 if returns else 1].index
    size = bits // 8

    def step(wave: ModelWave) -> None:
        for lane in active_lanes(wave):
            one = np.array([lane])
            old = to_number(location.load(wave, one, size))
            values = [lane_value(wave, data, lane, bits)]
            if kind.startswith("cmpswap"):
                values.append(lane_value(wave, data + bits // 32, lane, bits))
            new = apply_atomic(kind, old, values, bits)
            location.store(wave, one, np.frombuffer(new.to_bytes(size, "little"), U8)[None, :])
            if returns:
                write_lane(wave, operands[0].index, lane, old, bits)

    return step
