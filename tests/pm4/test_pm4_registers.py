"""Registers by name and offset, and their bit fields (pm4.md sections 4 and 5)."""

from __future__ import annotations

import pytest

from zinc_rt.host.errors import UsageError
from zinc_rt.pm4 import Generation, Sh, generation_of
from zinc_rt.pm4.bits import combine_masks, describe, pack, parse_bit_table
from zinc_rt.pm4.registers import (
    DISPATCH_INITIATOR,
    PGM_RSRC1,
    PGM_RSRC2,
    PGM_RSRC3,
    REGISTERS,
    TMPRING_SIZE,
    WAVE32,
    WAVE64,
    register_at,
    register_name,
)

G11, G12 = Generation.GFX11, Generation.GFX12

SECTION_4 = {  # offset -> name, on both generations
    0x200: "DISPATCH_INITIATOR",
    0x201: "DIM_X",
    0x203: "DIM_Z",
    0x204: "START_X",
    0x207: "NUM_THREAD_X",
    0x209: "NUM_THREAD_Z",
    0x20A: "PIPELINESTAT_ENABLE",
    0x20B: "PERFCOUNT_ENABLE",
    0x20C: "PGM_LO",
    0x20D: "PGM_HI",
    0x20E: "DISPATCH_PKT_ADDR_LO",
    0x210: "DISPATCH_SCRATCH_BASE_LO",
    0x212: "PGM_RSRC1",
    0x213: "PGM_RSRC2",
    0x214: "VMID",
    0x215: "RESOURCE_LIMITS",
    0x216: "STATIC_THREAD_MGMT_SE0",
    0x218: "TMPRING_SIZE",
    0x21A: "STATIC_THREAD_MGMT_SE3",
    0x21B: "RESTART_X",
    0x21E: "THREAD_TRACE_ENABLE",
    0x21F: "MISC_RESERVED",
    0x222: "REQ_CTRL",
    0x224: "USER_ACCUM_0",
    0x228: "PGM_RSRC3",
    0x22A: "SHADER_CHKSUM",
    0x22B: "STATIC_THREAD_MGMT_SE4",
    0x22E: "STATIC_THREAD_MGMT_SE7",
    0x22F: "DISPATCH_INTERLEAVE",
    0x240: "USER_DATA_0",
    0x24F: "USER_DATA_15",
    0x27D: "DISPATCH_TUNNEL",
}


@pytest.mark.parametrize("generation", list(Generation))
def test_register_offsets_match_section_4(generation: Generation) -> None:
    for offset, name in SECTION_4.items():
        assert register_name(0x2C00 + offset, generation) == f"COMPUTE_{name}"
    for member in Sh:
        assert register_name(0x2C00 + member, generation) == f"COMPUTE_{member.name}"


def test_se8_exists_on_gfx12_only_and_user_data_16_never() -> None:
    assert register_at(0x2C00 + 0x223, G11) is None and register_at(0x2C00 + 0x223, G12) is not None
    assert register_name(0x2C00 + 0x250, G12) == "SH+0x250"
    assert register_name(0xC400, G12) == "UCONFIG+0x400" and register_name(0x1234, G12) == "register 0x1234"


def test_registers_do_not_share_addresses_and_fields_do_not_overlap() -> None:
    for generation in Generation:
        registers = [register for register in REGISTERS if generation in register.on]
        assert len({register.address for register in registers}) == len(registers)
        for register in registers:
            assert (
                sum(field.mask.bit_count() for field in register.fields)
                == combine_masks(register.fields).bit_count()
            )


def test_packed_values_match_known_users() -> None:
    # tinygrad's initiators; kfdtest's 0x8021
    assert (
        pack(DISPATCH_INITIATOR[G12], COMPUTE_SHADER_EN=1, FORCE_START_AT_000=1, CS_W32_EN=1) == WAVE32 == 0x8005
    )
    assert pack(DISPATCH_INITIATOR[G11], COMPUTE_SHADER_EN=1, FORCE_START_AT_000=1) == WAVE64 == 5
    assert describe(DISPATCH_INITIATOR[G12], 0x8021) == "COMPUTE_SHADER_EN=1 USE_THREAD_DIMENSIONS=1 CS_W32_EN=1"
    # 2 user SGPRs in bits 5:1, workgroup ids X, Y, Z in 7, 8, 9
    assert pack(PGM_RSRC2[G12], USER_SGPR=2, TGID_X_EN=1, TGID_Y_EN=1, TGID_Z_EN=1) == 0x384
    # denormals on for 32 bits (19:16 all ones is 0xF0 of FLOAT_MODE), WGP mode
    assert pack(PGM_RSRC1[G12], VGPRS=3, DENORM_32=3, DENORM_16_64=3, WGP_MODE=1) == 0x200F0003
    assert pack(TMPRING_SIZE[G12], WAVES=1, WAVESIZE=0x3FFFF) == 0x3FFFF001
    assert pack(PGM_RSRC3[G12], INST_PREF_SIZE=0xFF) == 0xFF0


def test_missing_or_overflowing_field_is_rejected() -> None:
    with pytest.raises(UsageError, match="no field DX10_CLAMP"):
        pack(PGM_RSRC1[G12], DX10_CLAMP=1)
    with pytest.raises(UsageError, match="does not fit into bits 26:12"):
        pack(TMPRING_SIZE[G11], WAVESIZE=1 << 15)
    with pytest.raises(UsageError, match="does not fit"):
        pack(parse_bit_table("A 3:0"), A=-1)


def test_architecture_without_encoders_is_rejected_by_name() -> None:
    assert generation_of("gfx1201") == G12 and generation_of("gfx1100") == G11
    with pytest.raises(UsageError, match="gfx1030"):
        generation_of("gfx1030")
