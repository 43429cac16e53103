"""Extract the compute shader from RADV's vkGetPipelineCacheData: its machine code and its register counts."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from zinc_rt.host.errors import InputError

AMD = 0x1002  # VkPhysicalDeviceProperties::vendorID
LDS_GRANULE_BYTES = 512  # RSRC2.LDS_SIZE, bits 23:15
_HEADER = struct.Struct("<4I16s")
_OBJECT = struct.Struct("<3I")
_CONFIG = struct.Struct("<I5I I2I 2I 3I")
_SIZES = struct.Struct("<6I")
_ALIGNMENT, _DATA_ALIGNMENT = 8, 16


@dataclass(frozen=True, slots=True)
class RadvShader:
    """A shader. `code` begins at the entry and has its constants after the last instruction. `rsrc` are PGM_RSRC1
    to 3 as the driver would write them; `scratch_bytes` are per wave."""

    code: bytes
    sgprs: int
    vgprs: int
    lds_bytes: int
    scratch_bytes: int
    float_mode: int
    rsrc: tuple[int, int, int]


def read_shader(data: bytes, source: str = "pipeline cache") -> RadvShader:
    """Return the only compute shader in `data`. Raise InputError, naming `source`, for an unknown layout."""
    shaders = [shader for item in _iterate_objects(data, source) if (shader := _parse_shader(item)) is not None]
    if len(shaders) != 1:
        raise InputError(
            f"{source}: {len(shaders)} shaders found in RADV's pipeline cache of {len(data)} bytes, expected 1: "
            f"this version of Mesa uses another layout",
            next="Mesa 25.0.7 is known to work: --driver names its libvulkan_radeon.so",
        )
    return shaders[0]


def _iterate_objects(data: bytes, source: str) -> Iterator[bytes]:
    if len(data) < _HEADER.size + 4:
        raise InputError(f"{source}: {len(data)} bytes are not a valid pipeline cache")
    header_bytes, version, vendor, _, _ = _HEADER.unpack_from(data)
    if (header_bytes, version, vendor) != (_HEADER.size, 1, AMD):
        raise InputError(
            f"{source}: the pipeline cache is from vendor {vendor:#x}, not AMD ({AMD:#x}), so the driver is not "
            "RADV"
        )
    (count,) = struct.unpack_from("<I", data, _HEADER.size)
    offset = _HEADER.size + 4
    for _ in range(count):
        if offset + _OBJECT.size > len(data):
            return
        _, key_bytes, size_bytes = _OBJECT.unpack_from(data, offset)
        begin = _round_up(offset + _OBJECT.size + key_bytes, _ALIGNMENT)
        offset = begin + size_bytes
        if offset <= len(data):
            yield data[begin:offset]
        offset = _round_up(offset, 4)


def _parse_shader(data: bytes) -> RadvShader | None:
    """Return the content of a shader binary; None if the object is not one."""
    if len(data) < _CONFIG.size + _SIZES.size:
        return None
    _, sgprs, vgprs, *_, float_mode, scratch, rsrc1, rsrc2, rsrc3 = _CONFIG.unpack_from(data)
    if float_mode != rsrc1 >> 12 & 0xFF:
        return None
    for index in range(_CONFIG.size, len(data) - _SIZES.size, 4):
        begin = _round_up(index + 4, 8) + _SIZES.size
        if int.from_bytes(data[index : index + 4], "little") != len(data) or begin % _DATA_ALIGNMENT:
            continue
        code_bytes, run_bytes, *debugging, _ = _SIZES.unpack_from(data, begin - _SIZES.size)
        if begin + code_bytes + sum(debugging) <= len(data) and 0 < run_bytes <= code_bytes and not any(debugging):
            return RadvShader(
                _strip_end_marks(data[begin : begin + code_bytes], run_bytes),
                sgprs,
                vgprs,
                (rsrc2 >> 15 & 0x1FF) * LDS_GRANULE_BYTES,
                scratch,
                float_mode,
                (rsrc1, rsrc2, rsrc3),
            )
    return None


def _strip_end_marks(code: bytes, run_bytes: int) -> bytes:
    """Remove the s_code_end that ACO adds after the last instruction for disassemblers; constants follow it."""
    rest = code[run_bytes:]
    is_padding = not rest.replace(struct.pack("<I", 0xBF9F0000), b"")
    return code[:run_bytes] if is_padding else code


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
