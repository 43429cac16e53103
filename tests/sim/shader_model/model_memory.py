"""The memory kernels see, and what loads and stores make of its bytes."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np
from sim.shader_model.model_state import ModelWave

from zinc_rt.isa import Instruction
from zinc_rt.sim.interfaces import AccessKind, Fault

Array = np.ndarray
U8, U32, U64, I64 = np.uint8, np.uint32, np.uint64, np.int64
_PAGE = 4096


@dataclass(slots=True)
class MemoryRange:
    low: int
    high: int
    data: Array  # uint8, live
    name: str
    write: bool


class Memory:
    """Arrays at separate addresses, with unmapped pages between them."""

    def __init__(self, base: int = 0x0000_5000_0000_0000) -> None:
        self.ranges: list[MemoryRange] = []
        self.lows: list[int] = []
        self.next = base

    def place(self, data: Array, name: str, write: bool = True) -> int:
        low = self.next
        self.next += (data.size + _PAGE - 1) // _PAGE * _PAGE + 16 * _PAGE
        self.ranges.append(MemoryRange(low, low + data.size, data, name, write))
        self.lows.append(low)
        return low

    def find(self, va: int, size: int, access: AccessKind) -> MemoryRange:
        location = bisect.bisect_right(self.lows, va) - 1
        if location < 0 or va + size > self.ranges[location].high:
            raise Fault(va, access, "not present")
        result = self.ranges[location]
        if access is AccessKind.WRITE and not result.write:
            raise Fault(va, access, "read only")
        return result

    def read(self, va: int, size: int) -> bytes:
        result = self.find(va, size, AccessKind.READ)
        return result.data[va - result.low : va - result.low + size].tobytes()

    def _by_range(self, addresses: Array, size: int, access: AccessKind) -> list[tuple[MemoryRange, Array]]:
        if not len(addresses):
            return []
        first = self.find(int(addresses[0]), size, access)
        inside = (addresses >= U64(first.low)) & (addresses + U64(size) <= U64(first.high))
        if inside.all():
            return [(first, np.arange(len(addresses)))]
        result: dict[int, list[int]] = {}
        by_low: dict[int, MemoryRange] = {}
        for lane, address in enumerate(addresses):
            location = self.find(int(address), size, access)
            by_low[location.low] = location
            result.setdefault(location.low, []).append(lane)
        return [(by_low[low], np.array(lanes)) for low, lanes in result.items()]

    def load(self, addresses: Array, size: int) -> Array:
        """uint64 [n] to uint8 [n, size]. Raises Fault, for the first lane that is outside."""
        out = np.empty((len(addresses), size), U8)
        for location, lanes in self._by_range(addresses, size, AccessKind.READ):
            offset = (addresses[lanes] - U64(location.low)).astype(I64)
            out[lanes] = location.data[offset[:, None] + np.arange(size)]
        return out

    def store(self, addresses: Array, data: Array) -> None:
        """uint8 [n, size]; of lanes that overlap the highest wins."""
        size = data.shape[1]
        for location, lanes in self._by_range(addresses, size, AccessKind.WRITE):
            offset = (addresses[lanes] - U64(location.low)).astype(I64)
            location.data[offset[:, None] + np.arange(size)] = data[lanes]


def words_of(data: Array) -> Array:
    """uint8 [n, 4k] to uint32 [n, k]."""
    return np.ascontiguousarray(data).view(U32)


# --- what a load makes of bytes, what a store takes ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Transfer:
    """`size` bytes in memory; `half` None for whole registers, else which half is written or read."""

    size: int
    signed: bool = False
    half: int | None = None


LOADS = {
    "u8": Transfer(1), "i8": Transfer(1, True), "u16": Transfer(2), "i16": Transfer(2, True), "b32": Transfer(4),
    "b64": Transfer(8), "b96": Transfer(12), "b128": Transfer(16),
    "d16_u8": Transfer(1, half=0), "d16_i8": Transfer(1, True, 0), "d16_b16": Transfer(2, half=0),
    "d16_hi_u8": Transfer(1, half=1), "d16_hi_i8": Transfer(1, True, 1), "d16_hi_b16": Transfer(2, half=1),
    "u8_d16": Transfer(1, half=0), "u8_d16_hi": Transfer(1, half=1), "i8_d16": Transfer(1, True, 0),
    "i8_d16_hi": Transfer(1, True, 1), "u16_d16": Transfer(2, half=0), "u16_d16_hi": Transfer(2, half=1),
}  # fmt: skip
STORES = {
    "b8": Transfer(1), "b16": Transfer(2), "b32": Transfer(4), "b64": Transfer(8), "b96": Transfer(12),
    "b128": Transfer(16), "d16_hi_b8": Transfer(1, half=1), "d16_hi_b16": Transfer(2, half=1),
    "b8_d16_hi": Transfer(1, half=1), "b16_d16_hi": Transfer(2, half=1),
}  # fmt: skip


def extend_data(data: Array, kind: Transfer) -> Array:
    """uint8 [n, 1 or 2] to uint32 [n]."""
    value = data.view({1: np.uint8, 2: np.uint16}[kind.size])[:, 0]
    if kind.signed:
        value = value.view({1: np.int8, 2: np.int16}[kind.size])
    return value.astype(I64).astype(U32)


def write_loaded(wave: ModelWave, register: int, data: Array, kind: Transfer, active: Array) -> None:
    """`data` uint8 [active lanes, size]."""
    if kind.size >= 4:
        words = words_of(data)
        for i in range(kind.size // 4):
            wave.v[register + i][active] = words[:, i]
        return
    value = extend_data(np.ascontiguousarray(data), kind)
    if kind.half is None:
        wave.v[register][active] = value
        return
    shift = U32(16 * kind.half)
    old = wave.v[register][active]
    wave.v[register][active] = old & ~(U32(0xFFFF) << shift) | (value & U32(0xFFFF)) << shift


def read_stored(wave: ModelWave, register: int, kind: Transfer, active: Array) -> Array:
    """uint8 [active lanes, size]."""
    count = max(kind.size // 4, 1)
    words = np.stack([wave.v[register + i][active] for i in range(count)], axis=1)
    if kind.half == 1:
        words = words >> U32(16)
    return np.ascontiguousarray(words).view(U8)[:, : kind.size]


def offset_of(instruction: Instruction) -> int:
    modifier = instruction.modifier("offset")
    return int(modifier.value) if modifier is not None else 0  # type: ignore[arg-type]


def active_lanes(wave: ModelWave) -> Array:
    return np.flatnonzero(wave.lanes)
