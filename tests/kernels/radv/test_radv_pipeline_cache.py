"""What RADV's pipeline cache must look like, from bytes laid out as Mesa 25.0.7 does; no driver is needed."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.kernels.radv.container import MOVE_ARGUMENTS, build_container
from zinc_rt.kernels.radv.pipeline_cache import read_shader
from zinc_rt.kernels.spirv.table import module
from zinc_rt.kernels.zrt import read_zrt, write_zrt

S_ENDPGM, S_CODE_END = 0xBFB00000, 0xBF9F0000
CODE = struct.pack("<6I", S_ENDPGM, *[S_CODE_END] * 5)
INFO_BYTES = 1112  # radv_shader_info of Mesa 25.0.7


def make_shader(code: bytes = CODE, *, run_bytes: int = 4, info_bytes: int = INFO_BYTES, **changed: int) -> bytes:
    """radv_shader_binary_legacy. `changed`: fields of its configuration."""
    argument = {"vgprs": 24, "float_mode": 0xF0, "scratch": 0, "user_sgprs": 4, "ids": 1, "lds": 3} | changed
    rsrc1 = 2 | argument["float_mode"] << 12 | 1 << 29
    rsrc2 = argument["user_sgprs"] << 1 | argument["ids"] << 7 | argument["lds"] << 15
    registers = (128, argument["vgprs"], 0, 0, 0, argument["lds"], 0, 0)
    config = struct.pack("<14I", 0, *registers, argument["float_mode"], argument["scratch"], rsrc1, rsrc2, 0)
    head = config + bytes(info_bytes)
    sizes = struct.pack("<6I", len(code), run_bytes, 0, 0, 0, 0)
    total = len(head) + 8 + len(sizes) + len(code)
    return head + struct.pack("<2I", total, 0) + sizes + code


def make_cache(*objects: bytes, vendor: int = 0x1002) -> bytes:
    """VkPipelineCacheHeaderVersionOne and Mesa's list of objects."""
    data = struct.pack("<4I16sI", 32, 1, vendor, 0x101, bytes(16), len(objects))
    for item in objects:
        data += struct.pack("<3I32s", 0xFFFFFFFF, 32, len(item), bytes(32))
        data += bytes(-len(data) % 8) + item
    return data


def test_code_and_registers_are_read() -> None:
    result = read_shader(make_cache(bytes(40), make_shader()))
    assert result.code == CODE[:4] and result.vgprs == 24 and result.lds_bytes == 3 * 512
    assert (result.scratch_bytes, result.float_mode) == (0, 0xF0)


def test_constants_after_the_code_are_kept() -> None:
    code = CODE + struct.pack("<2I", 7, 9)
    assert read_shader(make_cache(make_shader(code))).code == code


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(20), "20 bytes are not a valid pipeline cache"),
        (make_cache(make_shader(), vendor=0x10005), r"vendor 0x10005, not AMD \(0x1002\)"),
        (make_cache(), "0 shaders found"),
        (make_cache(make_shader(), make_shader()), "2 shaders found"),
        (make_cache(make_shader(info_bytes=INFO_BYTES + 8)), "this version of Mesa uses another layout"),
        (make_cache(make_shader(run_bytes=8000)), "0 shaders found"),
        (make_cache(make_shader())[:-40], "0 shaders found"),
    ],
)
def test_unknown_layout_is_rejected(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_shader(data)


def test_prepended_instruction_makes_a_t1_kernel() -> None:
    result = build_container("add", module("add"), make_cache(make_shader()), "25.0.7")
    assert result.code == MOVE_ARGUMENTS + CODE[:4] and result.compiler == "RADV/Mesa-25.0.7"
    assert (result.buffers, result.constant_bytes, result.workgroup, result.lds_bytes) == (3, 4, (32, 1, 1), 1536)
    assert read_zrt(write_zrt(result)) == result


def test_gfx11_code_finds_its_ids_behind_the_push_constant() -> None:
    """RSRC2 of the cache enables some of TGID_X_EN to TG_SIZE_EN; T1 has all four in s[12:15]."""
    cache = make_cache(make_shader(ids=0b1101))
    result = build_container("add", module("add"), cache, "25.0.7", "gfx1100")
    words = struct.unpack_from("<4I", result.code)
    assert words == (0xBE820100, 0xBE84000C, 0xBE85000E, 0xBE86000F)  # s[2:3], s4 = s12, s5 = s14, s6 = s15
    assert result.target == "gfx1100" and result.rsrc2 >> 1 & 0x1F == 12


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scratch": 256}, "256 bytes of scratch per wave"),
        ({"float_mode": 0xC0}, "float mode is 0xc0, expected 0xf0"),
        ({"user_sgprs": 7}, "RADV needs 7 user SGPRs"),
    ],
)
def test_features_t1_does_not_set_up_are_rejected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnsupportedError), match=f"kernel add: .*{message}"):
        build_container("add", module("add"), make_cache(make_shader(**changed)), "25.0.7")
