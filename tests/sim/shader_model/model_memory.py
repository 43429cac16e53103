"""Global, scratch, flat, LDS, buffer and scalar memory."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sim.shader_model import model_floats as floats
from sim.shader_model.model_lanes import bpermute, permute, swizzle_sources
from sim.shader_model.model_state import (
    PRIVATE_APERTURE,
    SHARED_APERTURE,
    Wave,
    register_code,
    scalar_reader,
    scalar_writer,
)

from zinc_rt.isa import Instruction, Kind
from zinc_rt.sim.interfaces import Access, Fault

Array = np.ndarray
Step = Callable[[Wave], None]
U8, U32, U64, I64 = np.uint8, np.uint32, np.uint64, np.int64
_PAGE = 4096


@dataclass(slots=True)
class Range:
    low: int
    high: int
    data: Array  # uint8, live
    name: str
    write: bool


class Memory:
    """Arrays at addresses of their own, with unmapped pages between them."""

    def __init__(self, base: int = 0x0000_5000_0000_0000) -> None:
        self.ranges: list[Range] = []
        self.lows: list[int] = []
        self.next = base

    def place(self, data: Array, name: str, write: bool = True) -> int:
        low = self.next
        self.next += (data.size + _PAGE - 1) // _PAGE * _PAGE + 16 * _PAGE
        self.ranges.append(Range(low, low + data.size, data, name, write))
        self.lows.append(low)
        return low

    def find(self, va: int, size: int, access: Access) -> Range:
        place = bisect.bisect_right(self.lows, va) - 1
        if place < 0 or va + size > self.ranges[place].high:
            raise Fault(va, access, "not present")
        found = self.ranges[place]
        if access is Access.WRITE and not found.write:
            raise Fault(va, access, "read only")
        return found

    def read(self, va: int, size: int) -> bytes:
        found = self.find(va, size, Access.READ)
        return found.data[va - found.low : va - found.low + size].tobytes()

    def _by_range(self, addresses: Array, size: int, access: Access) -> list[tuple[Range, Array]]:
        if not len(addresses):
            return []
        first = self.find(int(addresses[0]), size, access)
        inside = (addresses >= U64(first.low)) & (addresses + U64(size) <= U64(first.high))
        if inside.all():
            return [(first, np.arange(len(addresses)))]
        found: dict[int, list[int]] = {}
        by_low: dict[int, Range] = {}
        for lane, address in enumerate(addresses):
            place = self.find(int(address), size, access)
            by_low[place.low] = place
            found.setdefault(place.low, []).append(lane)
        return [(by_low[low], np.array(lanes)) for low, lanes in found.items()]

    def load(self, addresses: Array, size: int) -> Array:
        """uint64 [n] to uint8 [n, size]. Raises Fault, for the first lane that is outside."""
        out = np.empty((len(addresses), size), U8)
        for place, lanes in self._by_range(addresses, size, Access.READ):
            at = (addresses[lanes] - U64(place.low)).astype(I64)
            out[lanes] = place.data[at[:, None] + np.arange(size)]
        return out

    def store(self, addresses: Array, data: Array) -> None:
        """uint8 [n, size]; of lanes that overlap the highest wins."""
        size = data.shape[1]
        for place, lanes in self._by_range(addresses, size, Access.WRITE):
            at = (addresses[lanes] - U64(place.low)).astype(I64)
            place.data[at[:, None] + np.arange(size)] = data[lanes]


def words_of(data: Array) -> Array:
    """uint8 [n, 4k] to uint32 [n, k]."""
    return np.ascontiguousarray(data).view(U32)


# --- what a load makes of bytes, what a store takes ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access_:
    """`size` bytes in memory; `half` None for whole registers, else which half is written or read."""

    size: int
    signed: bool = False
    half: int | None = None


_LOADS = {
    "u8": Access_(1), "i8": Access_(1, True), "u16": Access_(2), "i16": Access_(2, True), "b32": Access_(4),
    "b64": Access_(8), "b96": Access_(12), "b128": Access_(16),
    "d16_u8": Access_(1, half=0), "d16_i8": Access_(1, True, 0), "d16_b16": Access_(2, half=0),
    "d16_hi_u8": Access_(1, half=1), "d16_hi_i8": Access_(1, True, 1), "d16_hi_b16": Access_(2, half=1),
    "u8_d16": Access_(1, half=0), "u8_d16_hi": Access_(1, half=1), "i8_d16": Access_(1, True, 0),
    "i8_d16_hi": Access_(1, True, 1), "u16_d16": Access_(2, half=0), "u16_d16_hi": Access_(2, half=1),
}  # fmt: skip
_STORES = {
    "b8": Access_(1), "b16": Access_(2), "b32": Access_(4), "b64": Access_(8), "b96": Access_(12),
    "b128": Access_(16), "d16_hi_b8": Access_(1, half=1), "d16_hi_b16": Access_(2, half=1),
    "b8_d16_hi": Access_(1, half=1), "b16_d16_hi": Access_(2, half=1),
}  # fmt: skip


def _extend(data: Array, kind: Access_) -> Array:
    """uint8 [n, 1 or 2] to uint32 [n]."""
    value = data.view({1: np.uint8, 2: np.uint16}[kind.size])[:, 0]
    if kind.signed:
        value = value.view({1: np.int8, 2: np.int16}[kind.size])
    return value.astype(I64).astype(U32)


def put_loaded(wave: Wave, register: int, data: Array, kind: Access_, active: Array) -> None:
    """`data` uint8 [active lanes, size]."""
    if kind.size >= 4:
        words = words_of(data)
        for i in range(kind.size // 4):
            wave.v[register + i][active] = words[:, i]
        return
    value = _extend(np.ascontiguousarray(data), kind)
    if kind.half is None:
        wave.v[register][active] = value
        return
    shift = U32(16 * kind.half)
    old = wave.v[register][active]
    wave.v[register][active] = old & ~(U32(0xFFFF) << shift) | (value & U32(0xFFFF)) << shift


def get_stored(wave: Wave, register: int, kind: Access_, active: Array) -> Array:
    """uint8 [active lanes, size]."""
    count = max(kind.size // 4, 1)
    words = np.stack([wave.v[register + i][active] for i in range(count)], axis=1)
    if kind.half == 1:
        words = words >> U32(16)
    return np.ascontiguousarray(words).view(U8)[:, : kind.size]


# --- addresses -----------------------------------------------------------------------------------------------


def _offset(instruction: Instruction) -> int:
    modifier = instruction.modifier("offset")
    return int(modifier.value) if modifier is not None else 0  # type: ignore[arg-type]


def _v64(wave: Wave, register: int, active: Array) -> Array:
    return wave.v[register][active] | wave.v[register + 1][active].astype(U64) << U64(32)


class Place:
    """Where the lanes of a global, scratch or flat access go."""

    def __init__(self, instruction: Instruction, address: object, saddr: object) -> None:
        self.segment = instruction.encoding
        self.offset = _offset(instruction)
        self.vector = None if address is None or address.kind is not Kind.VGPR else address  # type: ignore[attr-defined]
        has_scalar = saddr is not None and saddr.kind is not Kind.NAME  # type: ignore[attr-defined]
        self.scalar = scalar_reader(saddr) if has_scalar else None  # type: ignore[arg-type]

    def addresses(self, wave: Wave, active: Array) -> Array:
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
        return _v64(wave, self.vector.index, active) + U64(self.offset & (1 << 64) - 1)

    def load(self, wave: Wave, active: Array, size: int) -> Array:
        return self._each(wave, active, size, None)

    def store(self, wave: Wave, active: Array, data: Array) -> None:
        self._each(wave, active, data.shape[1], data)

    def _each(self, wave: Wave, active: Array, size: int, data: Array | None) -> Array:
        addresses = self.addresses(wave, active)
        if self.segment == "SCRATCH":
            return scratch_access(wave, active, addresses, size, data)
        if self.segment == "FLAT" and len(active):
            base = _v64(wave, self.vector.index, active) >> U64(32)  # type: ignore[union-attr]
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


def _global_access(wave: Wave, addresses: Array, size: int, data: Array | None) -> Array:
    if data is None:
        return wave.group.memory.load(addresses, size)
    wave.group.memory.store(addresses, data)
    return data


def scratch_access(wave: Wave, active: Array, offsets: Array, size: int, data: Array | None) -> Array:
    if len(active) and (int(offsets.min()) < 0 or int(offsets.max()) + size > wave.scratch.shape[1]):
        raise Fault(int(offsets.max()), Access.READ if data is None else Access.WRITE, "outside scratch")
    index = (active[:, None], offsets[:, None] + np.arange(size))
    if data is None:
        return wave.scratch[index]
    wave.scratch[index] = data
    return data


def lds_access(wave: Wave, addresses: Array, size: int, data: Array | None) -> Array:
    """Beyond the end a dword reads 0, a store is dropped (manual 3.3.5.1); here by byte."""
    lds = wave.group.lds
    at = addresses[:, None] + np.arange(size)
    inside = at < len(lds)
    if data is None:
        return np.where(inside, lds[np.minimum(at, max(len(lds) - 1, 0))] if len(lds) else 0, 0).astype(U8)
    lds[at[inside]] = data[inside]
    return data


# --- atomics -------------------------------------------------------------------------------------------------


def _f32_bits(value: np.ndarray) -> int:
    return int(np.asarray(value, np.float32).reshape(1).view(U32)[0])


def _float_atomic(function: Callable[[Array, Array], Array]) -> Callable[[int, int, int], int]:
    def apply(old: int, value: int, bits: int) -> int:
        a, b = (np.array([x], U32).view(np.float32) for x in (old, value))
        return _f32_bits(function(a, b))

    return apply


def _signed(value: int, bits: int) -> int:
    return value - (value >> bits - 1 << bits)


_ATOMICS: dict[str, Callable[[int, int, int], int]] = {
    "add_u": lambda old, x, bits: old + x,
    "sub_u": lambda old, x, bits: old - x,
    "rsub_u": lambda old, x, bits: x - old,
    "inc_u": lambda old, x, bits: 0 if old >= x else old + 1,
    "dec_u": lambda old, x, bits: x if old == 0 or old > x else old - 1,
    "min_i": lambda old, x, bits: min(old, x, key=lambda y: _signed(y, bits)),
    "max_i": lambda old, x, bits: max(old, x, key=lambda y: _signed(y, bits)),
    "min_u": lambda old, x, bits: min(old, x),
    "max_u": lambda old, x, bits: max(old, x),
    "and_b": lambda old, x, bits: old & x,
    "or_b": lambda old, x, bits: old | x,
    "xor_b": lambda old, x, bits: old ^ x,
    "swap_b": lambda old, x, bits: x,
    "storexchg_b": lambda old, x, bits: x,
    "add_f": _float_atomic(lambda a, b: a + b),
    "min_num_f": _float_atomic(floats.min_num),
    "max_num_f": _float_atomic(floats.max_num),
}


def _atomic_of(name: str) -> tuple[str, int] | None:
    """("add_u", 32) of add_u32, add_rtn_u32 …"""
    text = name.replace("_rtn", "")[:-2]
    bits = 64 if name.endswith("64") else 32
    if not name[-2:].isdigit() or (bits == 64 and text.endswith("_f")):
        return None
    return (text, bits) if text in _ATOMICS or text in ("cmpswap_b", "cmpstore_b", "mskor_b") else None


def _number(data: Array) -> int:
    return int.from_bytes(data.tobytes(), "little")


def _apply(kind: str, old: int, values: list[int], bits: int) -> int:
    if kind == "cmpswap_b":
        return values[0] if old == values[1] else old
    if kind == "cmpstore_b":
        return values[0] if old == values[1] else old
    if kind == "mskor_b":
        return old & ~values[0] | values[1]
    return _ATOMICS[kind](old, values[0], bits) & (1 << bits) - 1


def _lane_value(wave: Wave, register: int, lane: int, bits: int) -> int:
    value = int(wave.v[register][lane])
    return value | int(wave.v[register + 1][lane]) << 32 if bits == 64 else value


def _put_lane(wave: Wave, register: int, lane: int, value: int, bits: int) -> None:
    wave.v[register][lane] = value & 0xFFFFFFFF
    if bits == 64:
        wave.v[register + 1][lane] = value >> 32


# --- binders -------------------------------------------------------------------------------------------------


def bind(instruction: Instruction, width: int) -> Step | None:
    name = instruction.mnemonic
    if instruction.encoding == "SMEM":
        return _bind_scalar(instruction)
    if instruction.encoding == "DS":
        return _bind_lds(instruction, width)
    if instruction.encoding == "VBUFFER":
        return _bind_buffer(instruction)
    if instruction.encoding in ("GLOBAL", "FLAT", "SCRATCH"):
        rest = name.partition("_")[2]
        if rest in ("wb", "inv", "wbinv"):
            return lambda wave: None
        if rest.startswith("load_") and rest[5:] in _LOADS:
            return _bind_load(instruction, _LOADS[rest[5:]])
        if rest.startswith("store_") and rest[6:] in _STORES:
            return _bind_store(instruction, _STORES[rest[6:]])
        if rest.startswith("load_tr_"):
            return _bind_load_turned(instruction)
        if rest.startswith("load_block"):
            return None
        if rest.startswith("atomic_"):
            return _bind_atomic(instruction, rest[7:])
    return None


def _place(instruction: Instruction, address_at: int) -> Place:
    operands = instruction.operands
    saddr = operands[-1] if instruction.encoding != "FLAT" else None
    return Place(instruction, operands[address_at], saddr)


def _active(wave: Wave) -> Array:
    return np.flatnonzero(wave.lanes)


def _bind_load(instruction: Instruction, kind: Access_) -> Step:
    place = _place(instruction, 1)
    register = instruction.operands[0].index

    def step(wave: Wave) -> None:
        active = _active(wave)
        if len(active):
            put_loaded(wave, register, place.load(wave, active, kind.size), kind, active)

    return step


def _bind_load_turned(instruction: Instruction) -> Step:
    """Eight lanes exchange their 8x8 elements: element j of lane 8g + i is lane 8g + j's element i. In wave64
    lanes 0 to 31 load, and lane 32 + l takes the upper half of lane l's result. EXEC is all ones or none."""
    place = _place(instruction, 1)
    register = instruction.operands[0].index
    size = 16 if instruction.mnemonic.endswith("b128") else 8

    def step(wave: Wave) -> None:
        if not wave.lanes.any():
            return
        loaded = place.load(wave, np.arange(32), size)
        elements = loaded.view(np.uint16 if size == 16 else np.uint8).reshape(4, 8, 8)
        turned = np.ascontiguousarray(elements.transpose(0, 2, 1)).reshape(32, 8).view(U32)
        if wave.width == 64:
            half = turned.shape[1] // 2
            turned = np.concatenate([turned[:, :half], turned[:, half:]])
        for i in range(turned.shape[1]):
            wave.v[register + i] = turned[:, i]

    return step


def _bind_store(instruction: Instruction, kind: Access_) -> Step:
    place = _place(instruction, 0)
    register = instruction.operands[1].index

    def step(wave: Wave) -> None:
        active = _active(wave)
        if len(active):
            place.store(wave, active, get_stored(wave, register, kind, active))

    return step


def _bind_atomic(instruction: Instruction, name: str) -> Step | None:
    """Lane by lane, the lowest first."""
    found = _atomic_of(name)
    if found is None:
        return None
    kind, bits = found
    hint = instruction.modifier("th")
    returns = hint is not None and bool(int(hint.value) & 1)  # type: ignore[arg-type]
    operands = instruction.operands
    place = _place(instruction, 1 if returns else 0)
    data = operands[2 if returns else 1].index
    size = bits // 8

    def step(wave: Wave) -> None:
        for lane in _active(wave):
            one = np.array([lane])
            old = _number(place.load(wave, one, size))
            values = [_lane_value(wave, data, lane, bits)]
            if kind.startswith("cmpswap"):
                values.append(_lane_value(wave, data + bits // 32, lane, bits))
            new = _apply(kind, old, values, bits)
            place.store(wave, one, np.frombuffer(new.to_bytes(size, "little"), U8)[None, :])
            if returns:
                _put_lane(wave, operands[0].index, lane, old, bits)

    return step


def _bind_lds(instruction: Instruction, width: int) -> Step | None:
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
    offset = _offset(instruction)
    if name.startswith("load_") and name[5:] in _LOADS:
        kind = _LOADS[name[5:]]
        to, address = (o.index for o in instruction.operands)

        def load(wave: Wave) -> None:
            active = _active(wave)
            at = wave.v[address][active].astype(I64) + offset
            put_loaded(wave, to, lds_access(wave, at, kind.size, None), kind, active)

        return load
    if name.startswith("store_") and name[6:] in _STORES:
        kind = _STORES[name[6:]]
        address, data = (o.index for o in instruction.operands)

        def store(wave: Wave) -> None:
            active = _active(wave)
            at = wave.v[address][active].astype(I64) + offset
            lds_access(wave, at, kind.size, get_stored(wave, data, kind, active))

        return store
    found = _atomic_of(name)
    return None if found is None else _bind_lds_atomic(instruction, *found, "_rtn" in name, offset)


def _bind_lds_atomic(instruction: Instruction, kind: str, bits: int, returns: bool, offset: int) -> Step:
    operands = instruction.operands
    to = operands[0].index if returns else 0
    address, *data = (o.index for o in operands[1 if returns else 0 :])
    size = bits // 8

    def step(wave: Wave) -> None:
        for lane in _active(wave):
            at = np.array([int(wave.v[address][lane]) + offset], I64)
            old = _number(lds_access(wave, at, size, None))
            new = _apply(kind, old, [_lane_value(wave, register, lane, bits) for register in data], bits)
            lds_access(wave, at, size, np.frombuffer(new.to_bytes(size, "little"), U8)[None, :])
            if returns:
                _put_lane(wave, to, lane, old, bits)

    return step


def _bind_lds_two(instruction: Instruction, *, load: bool) -> Step:
    name = instruction.mnemonic
    size = 8 if name.endswith("b64") else 4
    unit = size * (64 if "stride64" in name else 1)
    offsets = [0, 0]
    for modifier in instruction.modifiers:
        if modifier.name in ("offset0", "offset1"):
            offsets[int(modifier.name[-1])] = int(modifier.value) * unit  # type: ignore[arg-type]
    kind = Access_(size)
    operands = instruction.operands

    def step(wave: Wave) -> None:
        active = _active(wave)
        base = wave.v[operands[1 if load else 0].index][active].astype(I64)
        if load:
            parts = [lds_access(wave, base + offset, size, None) for offset in offsets]
            for i, part in enumerate(parts):
                put_loaded(wave, operands[0].index + i * size // 4, part, kind, active)
        else:
            for i, offset in enumerate(offsets):
                lds_access(wave, base + offset, size, get_stored(wave, operands[1 + i].index, kind, active))

    return step


def _bind_lds_lanes(instruction: Instruction, width: int) -> Step:
    name = instruction.mnemonic
    operands = instruction.operands
    offset = _offset(instruction)
    to = operands[0].index
    if name == "ds_swizzle_b32":
        taken = swizzle_sources(offset, width)
        source = operands[1].index
        return lambda wave: wave.write_v(to, np.where(wave.lanes[taken], wave.v[source][taken], U32(0)))
    address, data = operands[1].index, operands[2].index

    def step(wave: Wave) -> None:
        index = wave.v[address] + U32(offset)
        if name == "ds_permute_b32":
            wave.write_v(to, permute(wave, index, wave.v[data]))
        else:
            wave.write_v(to, bpermute(wave, index, wave.v[data], "_fi_" in name))

    return step


def _bind_scalar(instruction: Instruction) -> Step | None:
    name = instruction.mnemonic
    if name in ("s_dcache_inv",) or "prefetch" in name:
        return lambda wave: None
    is_buffer = name.startswith("s_buffer_load_")
    kind_name = name.removeprefix("s_buffer_load_").removeprefix("s_load_")
    small = _LOADS.get(kind_name) if kind_name in ("u8", "i8", "u16", "i16") else None
    size = small.size if small is not None else int(kind_name[1:]) // 8
    align = ~(min(size, 4) - 1)
    operands = instruction.operands
    base = scalar_reader(operands[1], 32 * operands[1].width)
    is_constant = operands[2].kind is Kind.IMMEDIATE
    register = None if is_constant else scalar_reader(operands[2], 32)
    constant = int(operands[2].value or 0) if is_constant else _offset(instruction)
    write = scalar_writer(operands[0])

    def step(wave: Wave) -> None:
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


def _bind_buffer(instruction: Instruction) -> Step | None:
    """Raw and structured buffers without swizzle (manual 9.4): what is out of range reads 0 and is not stored."""
    name = instruction.mnemonic.removeprefix("buffer_")
    load = name.startswith("load_") and name[5:] in _LOADS
    if not load and not (name.startswith("store_") and name[6:] in _STORES):
        return None
    kind = _LOADS[name[5:]] if load else _STORES[name[6:]]
    data, address, resource, soffset = instruction.operands
    has_index, has_offset = (instruction.modifier(n) is not None for n in ("idxen", "offen"))
    constant = _offset(instruction)
    rsrc, scalar = scalar_reader(resource, 128), scalar_reader(soffset, 32)

    def step(wave: Wave) -> None:
        active = _active(wave)
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
        at = U64(base) + (scalar(wave) + index * stride + inner).astype(U64)
        out = np.zeros((len(active), kind.size), U8) if load else get_stored(wave, data.index, kind, active)
        step_bytes = min(kind.size, 4)
        for first in range(0, kind.size, step_bytes):
            end = inner + first + step_bytes
            if select == 0:
                inside = (index < records) & (end <= stride)
            elif select == 3 and not stride:
                inside = end + scalar(wave) <= records
            else:
                inside = index < records if select != 2 else np.full(len(active), records != 0)
            where = at[inside] + U64(first)
            if load:
                out[inside, first : first + step_bytes] = wave.group.memory.load(where, step_bytes)
            else:
                wave.group.memory.store(where, out[inside, first : first + step_bytes])
        if load:
            put_loaded(wave, data.index, out, kind, active)

    return step


__all__ = ["Memory", "bind", "register_code"]
