"""Where the runtime's tables and the simulated device's part: one sentence a difference, with both sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType

from zinc_rt.kmd.uapi import amdgpu, drm, kfd
from zinc_rt.kmd.uapi.structs import Struct
from zinc_rt.pm4 import gcr
from zinc_rt.pm4.bits import Bits, combine_masks
from zinc_rt.pm4.fields import Place
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import PACKETS
from zinc_rt.pm4.registers import CONFIG, REGISTERS, SH, UCONFIG
from zinc_rt.pm4.registers import Register as RuntimeRegister
from zinc_rt.sim.tables import amdgpu as sim_amdgpu
from zinc_rt.sim.tables import caches, packets, registers
from zinc_rt.sim.tables import drm as sim_drm
from zinc_rt.sim.tables import kfd as sim_kfd
from zinc_rt.sim.tables.layout import PacketRow, TableField
from zinc_rt.sim.tables.structs import StructLayout

HEADERS: tuple[tuple[ModuleType, ModuleType, str], ...] = (
    (kfd, sim_kfd, "kfd_ioctl.h"),
    (drm, sim_drm, "drm.h"),
    (amdgpu, sim_amdgpu, "amdgpu_drm.h"),
)
PAL = "PAL's packet headers"


def difference_message(name: str, runtime: object, device: object, source: str) -> str:
    return f"{name}: runtime says {runtime}, simulator's table {device} from {source}"


# --- structs and ioctls ---


def struct_differences(runtime: Struct, device: StructLayout, name: str, header: str) -> Iterator[str]:
    if runtime.size_bytes != device.size_bytes:
        yield difference_message(f"{name} size", runtime.size_bytes, device.size_bytes, header)
    for field, member in device.fields.items():
        if field not in runtime.fields:
            continue
        offset, theirs = runtime.offsets[field], runtime.fields[field]
        if offset != member.offset:
            yield difference_message(f"{name}.{field}", f"offset {offset}", member.offset, header)
        width = (theirs.item_bytes, theirs.count, theirs.kind[0] == "s")
        if width != (member.size_bytes, member.count, member.signed):
            yield difference_message(f"{name}.{field}", f"{theirs.count} x {theirs.kind}", member, header)
        if theirs.c_path != (member.c or field):
            yield difference_message(f"{name}.{field} in C", theirs.c_path, member.c or field, header)


def interface_differences(runtime: ModuleType, device: ModuleType, header: str) -> Iterator[str]:
    for name, value in vars(device).items():
        theirs = getattr(runtime, name, None)
        if isinstance(value, StructLayout) and isinstance(theirs, Struct):
            yield from struct_differences(theirs, value, name, header)
        elif isinstance(value, int) and isinstance(theirs, int) and value != theirs:
            yield difference_message(name, hex(theirs), hex(value), header)
    ours = {ioctl.name: ioctl for ioctl in device.IOCTLS.values()}
    for ioctl in runtime.IOCTLS.values():
        mine = ours.get(ioctl.name)
        if mine is None:
            yield f"{ioctl.name}: the runtime has it, the simulator's table from {header} does not"
            continue
        numbers = (ioctl.type_, hex(ioctl.number), ioctl.direction)
        if numbers != (mine.type_, hex(mine.number), mine.direction):
            yield difference_message(ioctl.name, numbers, (mine.type_, hex(mine.number), mine.direction), header)
        names = (ioctl.struct.c_name, mine.layout and mine.layout.c_name)
        if names[0] != names[1]:
            yield difference_message(f"{ioctl.name}'s struct", *names, header)


def undeclared_names(runtime: ModuleType, device: ModuleType) -> list[str]:
    """Return the structs, and members of common structs, that the runtime declares and the device's tables
    lack.
    """
    lacking = []
    for name, struct in vars(runtime).items():
        if not isinstance(struct, Struct):
            continue
        layout = getattr(device, name, None)
        if layout is None:
            lacking.append(name)
            continue
        lacking += [f"{name}.{field}" for field in struct.fields if field not in layout.fields]
    return lacking


# --- packets ---


def field_spans(place: Place) -> list[tuple[int, int, int]]:
    return [(span.dword, span.high, span.low) for span in place.spans]


def _field_spans(field: TableField) -> list[tuple[int, int, int]]:
    if field.group:
        return [(field.dword, 31, 0)]
    if field.width <= 32:
        return [(field.dword, field.low + field.width - 1, field.low)]
    return [(field.dword, 31, 0), (field.dword + 1, field.width - 33, 0)]


def packet_differences(runtime: type[Packet], row: PacketRow) -> Iterator[str]:
    name = row.name
    if int(runtime.OP) != row.opcode:
        yield difference_message(f"{name} opcode", hex(runtime.OP), hex(row.opcode), PAL)
    sizes, ours = (runtime.DWORDS, runtime.GROUP), (row.sizes, row.grows)
    if sizes != ours:
        yield difference_message(f"{name} sizes", sizes, ours, PAL)
    if row.on != runtime.ON:
        yield difference_message(f"{name} chips", runtime.ON, row.on, PAL)
    theirs = {field.name: field.place for field in runtime.FIELDS}
    mine = {field.name: field for field in row.fields}
    for missing in sorted(theirs.keys() ^ mine.keys()):
        yield f"{name}.{missing}: only {'the runtime' if missing in theirs else 'the simulator'} has it"
    for key in theirs.keys() & mine.keys():
        location, field = theirs[key], mine[key]
        if field_spans(location) != _field_spans(field):
            yield difference_message(f"{name}.{key}", f"bits {field_spans(location)}", _field_spans(field), PAL)
        if location.payload != field.group:
            yield difference_message(f"{name}.{key}", f"groups of {location.payload}", field.group, PAL)
        if (Generation.GFX11 not in location.on) != field.gfx12_only:
            yield difference_message(
                f"{name}.{key} chips", location.on, "gfx12" if field.gfx12_only else "both", PAL
            )
        yield from _value_differences(f"{name}.{key}", location, field)


def _value_differences(name: str, place: Place, field: TableField) -> Iterator[str]:
    everything = frozenset(range(1 << field.width)) if field.width < 8 else None
    for generation in Generation:
        theirs, ours = place.values(generation), field.allowed(generation)
        values = None if theirs is None or frozenset(theirs) == everything else frozenset(theirs)
        allowed = None if ours == everything else ours
        if values != allowed:
            yield difference_message(
                f"{name} on {generation.name}", sorted(values or ()), sorted(allowed or ()), PAL
            )
        elif values is not None and place.complete != field.complete:
            yield difference_message(f"{name}: all values known", place.complete, field.complete, PAL)


def all_packet_differences(runtime: Iterable[type[Packet]] = PACKETS) -> Iterator[str]:
    rows = {row.name: row for row in packets.ROWS}
    names = {cls.NAME for cls in runtime}
    for missing in sorted(names ^ rows.keys()):
        yield f"{missing}: only {'the runtime' if missing in names else 'the simulator'} has it"
    for cls in runtime:
        if cls.NAME in rows:
            yield from packet_differences(cls, rows[cls.NAME])


# --- registers and cache operations ---

UNNAMED = {
    "CP_PERFMON_CNTL",
    "GRBM_GFX_INDEX",
}  # the runtime names no bits of the first, nor the second's on gfx11


def register_differences(runtime: Iterable[RuntimeRegister] = REGISTERS) -> Iterator[str]:
    source = "PAL's offset and register headers"
    for theirs, ours in ((SH, registers.SH), (UCONFIG, registers.UCONFIG), (CONFIG, registers.CONFIG)):
        if (theirs.base, theirs.end) != (ours.base, ours.end):
            yield difference_message(f"{theirs.name} space", theirs, ours, source)
    by_name = {item.name: item for item in registers.BY_ADDRESS.values()}
    seen = set()
    for register in runtime:
        mine = by_name.get(register.name)
        seen.add(register.name)
        if mine is None:
            yield f"{register.name}: only the runtime has it"
            continue
        if (register.address, register.privileged) != (mine.address, mine.privileged):
            yield difference_message(register.name, hex(register.address), hex(mine.address), source)
        for generation in register.on:
            bits = combine_masks(register.fields) if register.fields else 0xFFFFFFFF
            if generation not in mine.bits:
                yield f"{register.name}: the simulator's table has none on {generation.name}"
            elif bits != mine.bits[generation] and register.name not in UNNAMED:
                yield difference_message(
                    f"{register.name} on {generation.name}", hex(bits), hex(mine.bits[generation]), source
                )
    yield from (f"{name}: only the simulator has it" for name in sorted(by_name.keys() - seen))


CACHE_BITS = {
    "GLI_INV": caches.ACQUIRE_GLI,
    "GLK_INV": caches.ACQUIRE_GLK_INV,
    "GLV_INV": caches.ACQUIRE_GLV_INV,
    "GL2_INV": caches.ACQUIRE_GL2_INV,
    "GL2_WB": caches.ACQUIRE_GL2_WB,
}
RELEASE_BITS = {
    "GLV_INV": caches.RELEASE_GLV_INV,
    "GL2_INV": caches.RELEASE_GL2_INV,
    "GL2_WB": caches.RELEASE_GL2_WB,
}


def cache_differences() -> Iterator[str]:
    source = "PAL gfx12CmdUtil.cpp"
    for generation in Generation:
        for what, fields, named, mask in (
            ("ACQUIRE_MEM", gcr.ACQUIRE[generation], CACHE_BITS, caches.ACQUIRE_BITS[generation]),
            ("RELEASE_MEM", gcr.RELEASE[generation], RELEASE_BITS, caches.RELEASE_BITS[generation]),
        ):
            if combine_masks(fields) != mask:
                yield difference_message(
                    f"{what}'s gcr_cntl on {generation.name}", hex(combine_masks(fields)), hex(mask), source
                )
            places: dict[str, Bits] = {field.name: field for field in fields}
            for name, bit in named.items():
                if places[name].mask != bit:
                    yield difference_message(f"{what}'s {name}", hex(places[name].mask), hex(bit), source)
