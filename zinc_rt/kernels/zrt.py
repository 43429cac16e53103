"""The .zrt container: one kernel's machine code with all data for launches and findings. See docs/zrt.md."""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.isa.occupancy import count_waves_per_simd
from zinc_rt.isa.target import CHIPS, DEFAULT_ARCH
from zinc_rt.isa.target import TARGETS as CHIP_TARGETS
from zinc_rt.isa.wave_rules import WaveRules
from zinc_rt.kernels import rsrc

MAGIC = b"ZRT\0"
ABI_VERSION = 2
# By gpu_target: the chips of isa.target, and the others of the original design's table, section 11.2
_CONTAINED = {chip.container: chip for chip in sorted(CHIPS, key=lambda chip: chip.container) if chip.container}
TARGETS = {number: chip.name for number, chip in _CONTAINED.items()} | {
    0x10: "xe2hpg", 0x20: "sm_90", 0x30: "apple_metal", 0xFF: "cpu_zig",
}  # fmt: skip
BUILT_TARGETS = tuple(chip.name for chip in _CONTAINED.values() if chip.kernels)

VGPRS_MAXIMUM = 256
SGPRS_MAXIMUM = 106
LDS_MAXIMUM = 65536
THREADS_MAXIMUM = 1024
CODE_ALIGNMENT = 256  # COMPUTE_PGM_LO holds the address shifted right by 8
S_CODE_END = 0xBF9F0000
PADDING_LINES = 3  # cache lines of s_code_end after the code, as LLVM emits on gfx11 and later

_HEADER = struct.Struct("<4sHH12I2I15II")
_SLOT, _LINE, _FILE = struct.Struct("<4I"), struct.Struct("<4I"), struct.Struct("<2I")
_HASH_BYTES = 32
HEADER_BYTES = 128
assert _HEADER.size == HEADER_BYTES

_FIELDS = (
    "magic", "abi_version", "gpu_target", "code_size", "entry_offset", "buffer_count", "push_const_bytes",
    "subgroup_size", "workgroup_size_x", "workgroup_size_y", "workgroup_size_z", "lds_bytes", "vgpr_count",
    "sgpr_count", "occupancy_hint", "name_offset", "name_size", "rsrc1", "rsrc2", "rsrc3", "scratch_bytes",
    "kernarg_bytes", "code_offset", "slot_offset", "slot_count", "line_offset", "line_count", "file_offset",
    "file_count", "hash_offset", "file_size", "compiler_offset", "checksum",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slot:
    """A 32-bit literal at byte `offset` of the code that can be replaced at load."""

    name: str
    offset: int
    default: int


@dataclass(frozen=True, slots=True)
class Line:
    """Line table entry: code from byte `offset` up to the next Line belongs to line `line` (from 1) of
    files[file]."""

    offset: int
    file: int
    line: int
    caller: int


@dataclass(frozen=True, slots=True)
class Zrt:
    """A kernel container. `code` ends with its last instruction; slots and lines are sorted by offset."""

    name: str
    code: bytes
    buffers: int
    constant_bytes: int
    workgroup: tuple[int, int, int]
    vgprs: int
    sgprs: int
    target: str = DEFAULT_ARCH
    wave: int = 32
    entry_offset: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0  # a work-item
    slots: tuple[Slot, ...] = ()
    lines: tuple[Line, ...] = ()
    files: tuple[str, ...] = ()
    source_hash: bytes = bytes(_HASH_BYTES)
    compiler: str = ""  # the compiler of code that is not from assembly: RADV/Mesa-25.0.7

    @property
    def kernarg_bytes(self) -> int:
        return 8 * self.buffers + self.constant_bytes

    @property
    def rules(self) -> WaveRules:
        return CHIP_TARGETS[self.target].rules

    @property
    def rsrc1(self) -> int:
        return rsrc.encode_rsrc1(self.vgprs, self.wave, self.rules)

    @property
    def rsrc2(self) -> int:
        return rsrc.encode_rsrc2(self.workgroup, self.lds_bytes, self.scratch_bytes, self.rules)

    @property
    def rsrc3(self) -> int:
        return rsrc.encode_rsrc3(len(self.code), self.rules)

    @property
    def occupancy(self) -> int:
        """Return the waves per SIMD, as limited by vector registers."""
        return count_waves_per_simd(self.vgprs, self.wave, simd_vgprs=CHIP_TARGETS[self.target].simd_vgprs)

    @property
    def image(self) -> bytes:
        """Return the code and the padding that prefetch may read, to be loaded at a 256-byte aligned address."""
        end = _round_up(len(self.code), rsrc.CACHE_LINE_BYTES) + PADDING_LINES * rsrc.CACHE_LINE_BYTES
        return self.code + struct.pack("<I", S_CODE_END) * ((end - len(self.code)) // 4)

    def find_place(self, pc: int) -> str:
        """Return `arith.inc:33 (rms_norm.s:12)`, or `rms_norm.s:12`, or nothing if there is no line for it."""
        index = self._find_line_index(pc)
        if index is None:
            return ""
        line = self.lines[index]
        text = f"{self.files[line.file]}:{line.line}"
        return text if (line.file, line.line) == (0, line.caller) else f"{text} ({self.files[0]}:{line.caller})"

    def find_line(self, pc: int) -> tuple[str, int] | None:
        """Return (file, line) of the instruction at byte `pc` of the code; None if there is no line for it."""
        index = self._find_line_index(pc)
        return None if index is None else (self.files[self.lines[index].file], self.lines[index].line)

    def _find_line_index(self, pc: int) -> int | None:
        index = bisect_right(self.lines, pc, key=lambda line: line.offset) - 1
        return index if index >= 0 and 0 <= pc < len(self.code) else None


def patch_literals(zrt: Zrt, values: Mapping[str, int]) -> bytes:
    """Return zrt.image with the slots' literals replaced, each -2^31..2^32-1. Raise InputError for a name without
    a slot."""
    names = {slot.name for slot in zrt.slots}
    if unknown := sorted(set(values) - names):
        raise InputError(
            f"kernel {zrt.name}: no constant slot {unknown[0]!r}",
            next=f"it has {', '.join(sorted(names)) or 'none'}",
        )
    image = bytearray(zrt.image)
    for slot in zrt.slots:
        value = values.get(slot.name, slot.default)
        if not -(2**31) <= value < 2**32:
            raise InputError(f"kernel {zrt.name}: constant {slot.name} = {value} does not fit in 32 bits")
        struct.pack_into("<I", image, slot.offset, value & 0xFFFFFFFF)
    return bytes(image)


def write_zrt(zrt: Zrt) -> bytes:
    """Return the bytes of the file. Raise InputError if a field is out of range."""
    _check(zrt, f"kernel {zrt.name}")
    texts = bytearray()
    offset = HEADER_BYTES + _HASH_BYTES
    location = {}
    for part, size in (("file", _FILE), ("slot", _SLOT), ("line", _LINE)):
        count = len(getattr(zrt, f"{part}s"))
        location[part] = (offset, count)
        offset += size.size * count
    compiler_at = offset if zrt.compiler else 0
    offset += _FILE.size * bool(zrt.compiler)

    def add_text(words: str) -> tuple[int, int]:
        raw = words.encode()
        where = offset + len(texts)
        texts.extend(raw)
        return where, len(raw)

    name = add_text(zrt.name)
    files = b"".join(_FILE.pack(*add_text(file)) for file in zrt.files)
    slots = b"".join(_SLOT.pack(*add_text(slot.name), slot.offset, slot.default) for slot in zrt.slots)
    lines = b"".join(_LINE.pack(line.offset, line.file, line.line, line.caller) for line in zrt.lines)
    compiler = _FILE.pack(*add_text(zrt.compiler)) if zrt.compiler else b""
    body = zrt.source_hash + files + slots + lines + compiler + bytes(texts)
    code_at = _round_up(HEADER_BYTES + len(body), CODE_ALIGNMENT)
    image = zrt.image
    header = _HEADER.pack(
        MAGIC, ABI_VERSION, _find_target_number(zrt.target), len(zrt.code), zrt.entry_offset, zrt.buffers,
        zrt.constant_bytes, zrt.wave, *zrt.workgroup, zrt.lds_bytes, zrt.vgprs, zrt.sgprs, zrt.occupancy, *name,
        zrt.rsrc1, zrt.rsrc2, zrt.rsrc3, zrt.scratch_bytes, zrt.kernarg_bytes, code_at, *location["slot"],
        *location["line"], *location["file"], HEADER_BYTES, code_at + len(image), compiler_at, 0,
    )  # fmt: skip
    data = bytearray((header + body).ljust(code_at, b"\0") + image)
    struct.pack_into("<I", data, HEADER_BYTES - 4, zlib.crc32(data))
    return bytes(data)


def read_zrt(data: bytes, source: str = ".zrt") -> Zrt:
    """Read a kernel and check every field. Raise InputError for a damaged or impossible file, UnsupportedError for
    a version or target that this build does not support; `source` names the file in both."""
    if data[:4] != MAGIC:
        raise InputError(
            f"{source}: not a .zrt kernel: magic is {data[:4].hex(' ')}, expected {MAGIC.hex(' ')} (ZRT)"
        )
    if len(data) < HEADER_BYTES:
        raise InputError(f"{source}: truncated: has {len(data)} bytes, less than the {HEADER_BYTES} of the header")
    field = dict(zip(_FIELDS, _HEADER.unpack_from(data), strict=True))
    _check_size(field, data, source)
    zrt = _parse(field, data, source)
    _check(zrt, source)
    _check_derived(field, zrt, source)
    if write_zrt(zrt) != data:
        raise InputError(f"{source}: the tables overlap or leave gaps", next=_REBUILD)
    return zrt


_REBUILD = "assemble it again with zinc-rt asm"


def _check_size(field: Mapping[str, int], data: bytes, source: str) -> None:
    """Check the structure of the file that all other fields depend on."""
    if field["abi_version"] != ABI_VERSION:
        raise UnsupportedError(
            f"{source}: abi_version is {field['abi_version']}; this build reads {ABI_VERSION}", next=_REBUILD
        )
    target = TARGETS.get(field["gpu_target"])
    if target not in BUILT_TARGETS:
        raise UnsupportedError(
            f"{source}: gpu_target is {field['gpu_target']:#x} ({target or 'unknown'}); this build supports "
            f"{', '.join(BUILT_TARGETS)}"
        )
    if field["file_size"] != len(data):
        raise InputError(
            f"{source}: has {len(data)} bytes, but the header states {field['file_size']}", next=_REBUILD
        )
    checksum = zlib.crc32(data[: HEADER_BYTES - 4] + bytes(4) + data[HEADER_BYTES:])
    if checksum != field["checksum"]:
        raise InputError(
            f"{source}: checksum is {checksum:#010x}, but the header states {field['checksum']:#010x}",
            next=_REBUILD,
        )


def _parse(field: Mapping[str, int], data: bytes, source: str) -> Zrt:
    def read_span(what: str, offset: int, size_bytes: int) -> bytes:
        if offset < HEADER_BYTES or offset + size_bytes > len(data):
            raise InputError(
                f"{source}: {what} is at bytes {offset} to {offset + size_bytes}, outside {HEADER_BYTES} to "
                f"{len(data)}"
            )
        return data[offset : offset + size_bytes]

    def read_text(what: str, offset: int, size_bytes: int) -> str:
        raw = read_span(what, offset, size_bytes)
        if not raw or not all(32 < byte < 127 for byte in raw):
            raise InputError(f"{source}: {what} {raw[:40]!r} is not a printable name")
        return raw.decode("ascii")

    def read_table(what: str, record: struct.Struct) -> list[tuple[int, ...]]:
        return list(
            record.iter_unpack(
                read_span(f"{what} table", field[f"{what}_offset"], record.size * field[f"{what}_count"])
            )
        )

    compiler = ""
    if field["compiler_offset"]:
        compiler = read_text(
            "compiler", *_FILE.unpack(read_span("compiler record", field["compiler_offset"], _FILE.size))
        )
    if field["code_offset"] % CODE_ALIGNMENT:
        raise InputError(
            f"{source}: code is at byte {field['code_offset']}, expected a multiple of {CODE_ALIGNMENT}"
        )
    return Zrt(
        name=read_text("name", field["name_offset"], field["name_size"]),
        code=read_span("code", field["code_offset"], field["code_size"]),
        buffers=field["buffer_count"],
        constant_bytes=field["push_const_bytes"],
        workgroup=(field["workgroup_size_x"], field["workgroup_size_y"], field["workgroup_size_z"]),
        vgprs=field["vgpr_count"],
        sgprs=field["sgpr_count"],
        target=TARGETS[field["gpu_target"]],
        wave=field["subgroup_size"],
        entry_offset=field["entry_offset"],
        lds_bytes=field["lds_bytes"],
        scratch_bytes=field["scratch_bytes"],
        slots=tuple(
            Slot(read_text("slot name", a, n), index, default)
            for a, n, index, default in read_table("slot", _SLOT)
        ),
        lines=tuple(Line(*row) for row in read_table("line", _LINE)),
        files=tuple(read_text("file name", a, n) for a, n in read_table("file", _FILE)),
        source_hash=read_span("source hash", field["hash_offset"], _HASH_BYTES),
        compiler=compiler,
    )


def _check(zrt: Zrt, source: str) -> None:
    """Check each field against the chip, and the tables against the code."""

    def within(what: str, value: int, low: int, high: int, unit: str = "") -> None:
        if not low <= value <= high:
            raise InputError(f"{source}: {what} is {value}, expected {low} to {high}{unit}")

    if zrt.wave not in (32, 64):
        raise InputError(f"{source}: wave has {zrt.wave} lanes, expected 32 or 64")
    within("VGPR count", zrt.vgprs, 1, VGPRS_MAXIMUM)
    within("SGPR count", zrt.sgprs, 1, SGPRS_MAXIMUM)
    within("LDS", zrt.lds_bytes, 0, LDS_MAXIMUM, " bytes")
    scratch_maximum = (2**zrt.rules.scratch_size_bits - 1) * 256 // 32  # a lane's share of TMPRING_SIZE.WAVESIZE
    within("scratch size of a work-item", zrt.scratch_bytes, 0, scratch_maximum, " bytes")
    within("buffer count", zrt.buffers, 0, 4096)
    within("constant size", zrt.constant_bytes, 0, 4096, " bytes")
    for what, value in (("constant size", zrt.constant_bytes), ("scratch size of a work-item", zrt.scratch_bytes)):
        if value % 4:
            raise InputError(f"{source}: {what} is {value} bytes, expected whole dwords")
    for axis, threads in zip("xyz", zrt.workgroup, strict=True):
        within(f"workgroup size {axis}", threads, 1, THREADS_MAXIMUM)
    threads = zrt.workgroup[0] * zrt.workgroup[1] * zrt.workgroup[2]
    within("workgroup size", threads, 1, THREADS_MAXIMUM, " threads")
    size = len(zrt.code)
    if not size or size % 4:
        raise InputError(f"{source}: code is {size} bytes, expected whole dwords and at least one")
    if zrt.entry_offset % CODE_ALIGNMENT or zrt.entry_offset >= size:
        raise InputError(
            f"{source}: entry is at byte {zrt.entry_offset}, expected a multiple of {CODE_ALIGNMENT} within {size}"
        )
    _check_tables(zrt, source)


def _check_tables(zrt: Zrt, source: str) -> None:
    size = len(zrt.code)
    before = -1
    for slot in zrt.slots:
        if slot.offset % 4 or not before < slot.offset <= size - 4:
            raise InputError(
                f"{source}: slot {slot.name} at byte {slot.offset} of {size} is not a dword of the code or not "
                "in order"
            )
        held = int.from_bytes(zrt.code[slot.offset : slot.offset + 4], "little")
        if held != slot.default:
            raise InputError(
                f"{source}: slot {slot.name} has default {slot.default:#x}, but the code contains {held:#x} there"
            )
        before = slot.offset
    before = -1
    for line in zrt.lines:
        if line.offset % 4 or not before < line.offset < size:
            raise InputError(
                f"{source}: line table reaches byte {line.offset} of {size} bytes of code or is out of order"
            )
        if line.file >= len(zrt.files) or not line.line or not line.caller:
            raise InputError(
                f"{source}: line {line.line} refers to source file {line.file}, but there are only "
                f"{len(zrt.files)}"
            )
        before = line.offset


def _check_derived(field: Mapping[str, int], zrt: Zrt, source: str) -> None:
    """Check fields that are derived from other fields."""
    expected = {
        "rsrc1": (zrt.rsrc1, f"{zrt.vgprs} VGPRs in wave{zrt.wave}"),
        "rsrc2": (
            zrt.rsrc2,
            f"{zrt.workgroup} threads, {zrt.lds_bytes} bytes of LDS, scratch {zrt.scratch_bytes}",
        ),
        "rsrc3": (zrt.rsrc3, f"{len(zrt.code)} bytes of code"),
        "kernarg_bytes": (zrt.kernarg_bytes, f"{zrt.buffers} buffers and {zrt.constant_bytes} bytes of constants"),
        "occupancy_hint": (zrt.occupancy, f"{zrt.vgprs} VGPRs"),
    }
    for name, (value, reason) in expected.items():
        if field[name] != value:
            raise InputError(
                f"{source}: {name} is {field[name]:#x}, expected {value:#x} for {reason}", next=_REBUILD
            )


def _find_target_number(target: str) -> int:
    for number, name in TARGETS.items():
        if name == target:
            return number
    raise InputError(f"no gpu_target {target!r}", next=f"one of {', '.join(TARGETS.values())}")


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
