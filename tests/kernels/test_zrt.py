"""The .zrt container: what is written is read back, and what is damaged is refused with the field's name."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import replace

import pytest

from zinc_rt.host.errors import InputError, UnsupportedError, ZincError
from zinc_rt.kernels.zrt import Line, Slot, Zrt, patch_literals, read_zrt, write_zrt
from zinc_rt.pm4.bits import Bits
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.registers import PGM_RSRC1, PGM_RSRC2, PGM_RSRC3

# s_mov_b32 s4, 0xcafebabe; s_nop 0; s_endpgm
CODE = struct.pack("<4I", 0xBE8400FF, 0xCAFEBABE, 0xBF800000, 0xBFB00000)
KERNEL = Zrt(
    name="rms_norm",
    code=CODE,
    buffers=3,
    constant_bytes=8,
    workgroup=(64, 2, 1),
    vgprs=49,
    sgprs=40,
    lds_bytes=1025,
    scratch_bytes=16,
    slots=(Slot("ROWS", 4, 0xCAFEBABE),),
    lines=(Line(0, 0, 12, 12), Line(8, 1, 3, 14)),
    files=("rms_norm.s", "arith.inc"),
    source_hash=bytes(range(32)),
)


def with_word(data: bytes, offset: int, value: int, *, size: int = 4) -> bytes:
    """Return the file with one field replaced and the checksum corrected."""
    changed = bytearray(data)
    changed[offset : offset + size] = value.to_bytes(size, "little")
    return fix_checksum(changed)


def fix_checksum(data: bytes | bytearray) -> bytes:
    fixed = bytearray(data)
    if len(fixed) >= 128:
        struct.pack_into("<I", fixed, 124, 0)
        struct.pack_into("<I", fixed, 124, zlib.crc32(fixed))
    return bytes(fixed)


def decode_fields(table: tuple[Bits, ...], value: int) -> dict[str, int]:
    return {bits.name: bits.of(value) for bits in table}


def test_header_layout_byte_for_byte() -> None:
    data = write_zrt(KERNEL)
    assert data[:8] == b"ZRT\0" + struct.pack("<HH", 2, 1)
    assert struct.unpack_from("<12I", data, 8) == (16, 0, 3, 8, 32, 64, 2, 1, 1025, 49, 40, 16)
    name_at, name_bytes = struct.unpack_from("<2I", data, 56)
    assert data[name_at : name_at + name_bytes] == b"rms_norm"
    rsrc = struct.unpack_from("<3I", data, 64)
    assert rsrc == (KERNEL.rsrc1, KERNEL.rsrc2, KERNEL.rsrc3)
    scratch, kernarg, code_at = struct.unpack_from("<3I", data, 76)
    assert (scratch, kernarg) == (16, 3 * 8 + 8)
    assert code_at % 256 == 0 and data[code_at : code_at + 16] == CODE
    hash_at, file_bytes = struct.unpack_from("<2I", data, 112)
    assert data[hash_at : hash_at + 32] == bytes(range(32))
    assert file_bytes == len(data)


def test_written_file_reads_back_unchanged() -> None:
    assert read_zrt(write_zrt(KERNEL)) == KERNEL


def test_compiler_name_round_trips_and_is_validated() -> None:
    compiled = replace(KERNEL, compiler="RADV/Mesa-25.0.7")
    assert read_zrt(write_zrt(compiled)) == compiled
    with pytest.raises(InputError, match="compiler b'RADV Mesa' is not a printable name"):
        read_zrt(write_zrt(replace(KERNEL, compiler="RADV Mesa")), "k.zrt")


def test_resource_words_match_the_header() -> None:
    one = decode_fields(PGM_RSRC1[Generation.GFX12], KERNEL.rsrc1)
    assert one.pop("VGPRS") == 6  # 49 registers in units of 8, less one
    assert {name: one.pop(name) for name in ("ROUND_32", "ROUND_16_64", "DENORM_32", "DENORM_16_64")} == {
        "ROUND_32": 0,
        "ROUND_16_64": 0,
        "DENORM_32": 3,
        "DENORM_16_64": 3,
    }
    assert {name for name, value in one.items() if value} == {"WGP_MODE", "MEM_ORDERED", "FWD_PROGRESS"}
    two = decode_fields(PGM_RSRC2[Generation.GFX12], KERNEL.rsrc2)
    assert {name: value for name, value in two.items() if value} == {
        "SCRATCH_EN": 1,
        "USER_SGPR": 2,
        "TGID_X_EN": 1,
        "TGID_Y_EN": 1,
        "TGID_Z_EN": 1,
        "TIDIG_COMP_CNT": 1,
        "LDS_SIZE": 3,
    }
    long = replace(KERNEL, code=CODE + struct.pack("<I", 0xBF800000) * 32)
    assert decode_fields(PGM_RSRC3[Generation.GFX12], long.rsrc3)["INST_PREF_SIZE"] == 2


def test_image_is_padded_so_that_prefetch_reads_no_foreign_bytes() -> None:
    assert len(KERNEL.image) == 128 + 384
    assert set(struct.unpack("<124I", KERNEL.image[16:])) == {0xBF9F0000}


def test_patching_a_constant_slot_changes_nothing_else() -> None:
    image = patch_literals(KERNEL, {"ROWS": 4096})
    assert struct.unpack_from("<I", image, 4) == (4096,)
    assert image[:4] + image[8:] == KERNEL.image[:4] + KERNEL.image[8:]
    assert patch_literals(KERNEL, {"ROWS": -1})[4:8] == b"\xff" * 4
    assert patch_literals(KERNEL, {}) == KERNEL.image
    with pytest.raises(InputError, match=r"no constant slot 'COLUMNS'\n.*it has ROWS"):
        patch_literals(KERNEL, {"COLUMNS": 1})
    with pytest.raises(InputError, match="ROWS = 4294967296 does not fit"):
        patch_literals(KERNEL, {"ROWS": 2**32})


def test_instruction_maps_to_its_source_line() -> None:
    assert [KERNEL.find_line(pc) for pc in (0, 4, 8, 12, 16, -4)] == [
        *[("rms_norm.s", 12)] * 2,
        *[("arith.inc", 3)] * 2,
        None,
        None,
    ]
    assert [KERNEL.find_place(pc) for pc in (0, 8, 16)] == ["rms_norm.s:12", "arith.inc:3 (rms_norm.s:14)", ""]


@pytest.mark.parametrize(
    ("at", "size", "value", "message"),
    [
        (4, 2, 1, "abi_version is 1; this build reads 2"),
        (6, 2, 0x10, r"gpu_target is 0x10 \(xe2hpg\)"),
        (6, 2, 0x77, r"gpu_target is 0x77 \(unknown\)"),
        (8, 4, 0, "code is 0 bytes"),
        (8, 4, 14, "code is 14 bytes, expected whole dwords"),
        (8, 4, 2**31, "code is at bytes .* outside "),
        (12, 4, 16, "entry is at byte 16, expected a multiple of 256 within 16"),
        (12, 4, 256, "entry is at byte 256, expected"),
        (16, 4, 4, "kernarg_bytes is 0x20, expected 0x28 for 4 buffers"),
        (20, 4, 6, "constant size is 6 bytes, expected whole dwords"),
        (24, 4, 16, "wave has 16 lanes, expected 32 or 64"),
        (28, 4, 0, "workgroup size x is 0"),
        (32, 4, 17, "workgroup size is 1088"),
        (36, 4, 2**20, "workgroup size z is 1048576"),
        (40, 4, 65537, "LDS is 65537, expected 0 to 65536 bytes"),
        (40, 4, 2048, "rsrc2 is 0x.* expected 0x.*2048 bytes of LDS"),
        (44, 4, 257, "VGPR count is 257, expected 1 to 256"),
        (44, 4, 96, "rsrc1 is 0x.* for 96 VGPRs in wave32"),
        (48, 4, 107, "SGPR count is 107, expected 1 to 106"),
        (52, 4, 12, "occupancy_hint is 0xc, expected 0x10 for 49 VGPRs"),
        (56, 4, 0, "name is at bytes 0 to 8, outside"),
        (60, 4, 0, "name b'' is not a printable name"),
        (64, 4, 0, "rsrc1 is 0x0"),
        (72, 4, 0, "rsrc3 is 0x0, expected 0x10 for 16 bytes of code"),
        (76, 4, 2, "scratch size of a work-item is 2 bytes"),
        (80, 4, 0, "kernarg_bytes is 0x0"),
        (84, 4, 257, "code is at byte 257, expected a multiple of 256"),
        (88, 4, 2**30, "slot table is at bytes"),
        (92, 4, 2**32 - 1, "slot table is at bytes"),
        (96, 4, 64, "line table is at bytes"),
        (104, 4, 2**32 - 4, "file table is at bytes"),
        (108, 4, 0, "line 12 refers to source file 0, but there are only 0"),
        (112, 4, 2**20, "source hash is at bytes"),
        (116, 4, 5, r"\d+ bytes, but the header states 5"),
        (120, 4, 1, "compiler record is at bytes 1 to 9, outside"),
        (120, 4, 128, "compiler is at bytes"),
    ],
)
def test_invalid_field_is_rejected_by_name(at: int, size: int, value: int, message: str) -> None:
    data = with_word(write_zrt(KERNEL), at, value, size=size)
    with pytest.raises((InputError, UnsupportedError), match=message) as caught:
        read_zrt(data, "k.zrt")
    assert str(caught.value).startswith("k.zrt: ")


def test_invalid_slot_or_line_is_rejected() -> None:
    data = write_zrt(KERNEL)
    slot = struct.unpack_from("<I", data, 88)[0]
    line = struct.unpack_from("<I", data, 96)[0]
    for index, value, says in (
        (slot + 8, 16, "slot ROWS at byte 16"),
        (slot + 8, 6, "slot ROWS at byte 6"),
        (slot + 12, 7, "slot ROWS has default 0x7, but the code contains 0xcafebabe there"),
        (line, 16, "line table reaches byte 16"),
        (line + 16, 0, "out of order"),
        (line + 8, 0, "line 0 refers to source file 0"),
        (line + 20, 2, "line 3 refers to source file 2, but there are only 2"),
    ):
        with pytest.raises(InputError, match=says):
            read_zrt(with_word(data, index, value))


def test_trailing_bytes_and_gaps_are_checked() -> None:
    data = bytearray(write_zrt(KERNEL))
    data[-1] ^= 1
    with pytest.raises(InputError, match="checksum"):
        read_zrt(bytes(data))
    with pytest.raises(InputError, match="overlap or leave gaps"):
        read_zrt(fix_checksum(data))


def test_invalid_or_truncated_zrt_is_rejected() -> None:
    data = write_zrt(KERNEL)
    for size in range(len(data)):
        with pytest.raises(InputError):
            read_zrt(data[:size])
    with pytest.raises(InputError, match="magic is 54 52 5a 00, expected 5a 52 54 00"):
        read_zrt(b"TRZ\0" + data[4:])


def test_kernel_exceeding_chip_limits_cannot_be_written() -> None:
    with pytest.raises(InputError, match="kernel rms_norm: VGPR count is 300"):
        write_zrt(replace(KERNEL, vgprs=300))


@pytest.mark.parametrize("fix", [False, True])
def test_mutations_are_rejected_or_equivalent(fix: bool, slow_counts) -> None:
    random.seed(5)
    data = write_zrt(KERNEL)
    head = 128 + 32 + 16 + 16 + 32
    accepted = 0
    for _ in range(slow_counts(3000, 100_000)):
        changed = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 8))):
            offset = random.randrange(head if random.random() < 0.8 else len(data))
            changed[offset] = random.choice(
                (changed[offset] ^ 1 << random.randrange(8), 0, 255, random.randrange(256))
            )
        if random.random() < 0.1:
            del changed[random.randrange(len(changed)) :]
        raw = fix_checksum(changed) if fix else bytes(changed)
        try:
            zrt = read_zrt(raw)
        except ZincError:
            continue
        accepted += 1
        assert write_zrt(zrt) == raw
    assert accepted if fix else True
