"""The registers of a compute queue: names, offsets, bit fields, per generation.

Offsets: pm4.md §4 and PAL gfx12_merged_offset.h (absolute dword addresses; the offset in a packet is relative to
the packet's base). Bit fields: PAL gfx12_merged_registers.h and gfx9_plus_merged_registers.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from zinc_rt.pm4.bits import Bits, parse_bit_table
from zinc_rt.pm4.generation import BOTH, GFX11, GFX12, Generation


@dataclass(frozen=True, slots=True)
class Space:
    """The registers [base, end) of one SET packet, as absolute dword addresses."""

    name: str
    base: int
    end: int


SH = Space("SH", 0x2C00, 0x3000)
UCONFIG = Space("UCONFIG", 0xC000, 0x10000)  # nvd.h's end, 0xC400, is historic and too small
CONFIG = Space("CONFIG", 0x2000, 0x2C00)  # privileged; nvd.h PACKET3_SET_CONFIG_REG_START and _END

USER_DATA_COUNT = 16
"""COMPUTE_USER_DATA_0 to _15 are all there are: more arguments go through memory."""


class Sh(IntEnum):
    """The SET_SH_REG offsets of the registers that the runtime and the probes set."""

    START_X = 0x204
    NUM_THREAD_X = 0x207
    PGM_LO = 0x20C
    PGM_HI = 0x20D
    DISPATCH_SCRATCH_BASE_LO = 0x210
    PGM_RSRC1 = 0x212
    PGM_RSRC2 = 0x213
    RESOURCE_LIMITS = 0x215
    STATIC_THREAD_MGMT_SE0 = 0x216
    TMPRING_SIZE = 0x218
    RESTART_X = 0x21B
    PGM_RSRC3 = 0x228
    USER_DATA_0 = 0x240


@dataclass(frozen=True, slots=True)
class Register:
    """A register. `address` is absolute, in dwords; `fields` is empty if the whole dword is one value."""

    name: str
    address: int
    fields: tuple[Bits, ...] = ()
    on: tuple[Generation, ...] = BOTH
    privileged: bool = False


_INITIATOR = (
    "COMPUTE_SHADER_EN 0, PARTIAL_TG_EN 1, FORCE_START_AT_000 2, ORDERED_APPEND_ENBL 3, ORDERED_APPEND_MODE 4, "
    "USE_THREAD_DIMENSIONS 5, ORDER_MODE 6, SCALAR_L1_INV_VOL 10, VECTOR_L1_INV_VOL 11, TUNNEL_ENABLE 13, "
    "RESTORE 14, CS_W32_EN 15, AMP_SHADER_EN 16, DISABLE_DISP_PREMPT_EN 17"
)
DISPATCH_INITIATOR: Mapping[Generation, tuple[Bits, ...]] = {
    Generation.GFX11: parse_bit_table(_INITIATOR),
    Generation.GFX12: parse_bit_table(
        f"{_INITIATOR}, PING_PONG_EN 12, INTERLEAVE_2D_EN 18, WGS_DISPATCH 19, TTRACE_QUEUE_ID 31:29"
    ),
}
WAVE32 = 0x8005  # COMPUTE_SHADER_EN, FORCE_START_AT_000, CS_W32_EN: tinygrad's
WAVE64 = 0x0005

_RSRC1 = (
    "VGPRS 5:0, SGPRS 9:6, PRIORITY 11:10, ROUND_32 13:12, ROUND_16_64 15:14, DENORM_32 17:16, "
    "DENORM_16_64 19:18, PRIV 20, DEBUG_MODE 22, BULKY 24, CDBG_USER 25, FP16_OVFL 26, WGP_MODE 29, "
    "MEM_ORDERED 30, FWD_PROGRESS 31"
)
PGM_RSRC1: Mapping[Generation, tuple[Bits, ...]] = {
    Generation.GFX11: parse_bit_table(f"{_RSRC1}, DX10_CLAMP 21, IEEE_MODE 23"),
    Generation.GFX12: parse_bit_table(f"{_RSRC1}, WG_RR_EN 21, DISABLE_PERF 23"),
}
_RSRC2 = (
    "SCRATCH_EN 0, USER_SGPR 5:1, TGID_X_EN 7, TGID_Y_EN 8, TGID_Z_EN 9, TG_SIZE_EN 10, TIDIG_COMP_CNT 12:11, "
    "EXCP_EN_MSB 14:13, LDS_SIZE 23:15, EXCP_EN 30:24"
)
PGM_RSRC2: Mapping[Generation, tuple[Bits, ...]] = {
    Generation.GFX11: parse_bit_table(f"{_RSRC2}, TRAP_PRESENT 6"),
    Generation.GFX12: parse_bit_table(f"{_RSRC2}, DYNAMIC_VGPR 6, WGP_TAKEOVER 31"),
}
PGM_RSRC3: Mapping[Generation, tuple[Bits, ...]] = {
    Generation.GFX11: parse_bit_table(
        "SHARED_VGPR_CNT 3:0, INST_PREF_SIZE 9:4, TRAP_ON_START 10, TRAP_ON_END 11, IMAGE_OP 31"
    ),
    Generation.GFX12: parse_bit_table("SHARED_VGPR_CNT 3:0, INST_PREF_SIZE 11:4, GLG_EN 13, IMAGE_OP 31"),
}
TMPRING_SIZE: Mapping[Generation, tuple[Bits, ...]] = {  # WAVESIZE in 256 bytes, WAVES per shader engine
    Generation.GFX11: parse_bit_table("WAVES 11:0, WAVESIZE 26:12"),
    Generation.GFX12: parse_bit_table("WAVES 11:0, WAVESIZE 29:12"),
}

_HIGH8 = parse_bit_table("DATA 7:0")
_THREADS = parse_bit_table("NUM_THREAD_FULL 15:0, NUM_THREAD_PARTIAL 31:16")
_MASKS = parse_bit_table("SA0_CU_EN 15:0, SA1_CU_EN 31:16")
_LIMITS = parse_bit_table(
    "WAVES_PER_SH 9:0, TG_PER_CU 15:12, LOCK_THRESHOLD 21:16, SIMD_DEST_CNTL 22, FORCE_SIMD_DIST 23, "
    "CU_GROUP_COUNT 26:24"
)
_REQUESTS = parse_bit_table(
    "SOFT_GROUPING_EN 0, NUMBER_OF_REQUESTS_PER_CU 4:1, SOFT_GROUPING_ALLOCATION_TIMEOUT 8:5, "
    "HARD_LOCK_HYSTERESIS 9, HARD_LOCK_LOW_THRESHOLD 14:10, PRODUCER_REQUEST_LOCKOUT 15, GLOBAL_SCANNING_EN 16, "
    "ALLOCATION_RATE_THROTTLING_THRESHOLD 19:17, DEDICATED_PREALLOCATION_BUFFER_LIMIT 26:20"
)


def _make_threads_gfx12(axis: str) -> tuple[Bits, ...]:
    return parse_bit_table(f"NUM_THREAD_FULL 12:0, INTERLEAVE_BITS_{axis} 15:13, NUM_THREAD_PARTIAL 31:16")


def _make_per_generation(name: str, offset: int, fields: Mapping[Generation, tuple[Bits, ...]]) -> list[Register]:
    """Return a register whose layout differs by generation."""
    return [Register(f"COMPUTE_{name}", 0x2C00 + offset, fields[g], (g,)) for g in BOTH]


def _make_shader_register(
    name: str,
    offset: int,
    fields: tuple[Bits, ...] = (),
    on: tuple[Generation, ...] = BOTH,
    *,
    privileged: bool = False,
) -> Register:
    return Register(f"COMPUTE_{name}", 0x2C00 + offset, fields, on, privileged)


REGISTERS: tuple[Register, ...] = (
    *_make_per_generation("DISPATCH_INITIATOR", 0x200, DISPATCH_INITIATOR),
    *(_make_shader_register(f"DIM_{axis}", 0x201 + index) for index, axis in enumerate("XYZ")),
    *(_make_shader_register(f"START_{axis}", 0x204 + index) for index, axis in enumerate("XYZ")),
    *(
        _make_shader_register(f"NUM_THREAD_{axis}", 0x207 + index, _THREADS, GFX11)
        for index, axis in enumerate("XYZ")
    ),
    *(
        _make_shader_register(f"NUM_THREAD_{axis}", 0x207 + index, _make_threads_gfx12(axis), GFX12)
        for index, axis in enumerate("XY")
    ),
    _make_shader_register("NUM_THREAD_Z", 0x209, _THREADS, GFX12),
    _make_shader_register("PIPELINESTAT_ENABLE", 0x20A, parse_bit_table("PIPELINESTAT_ENABLE 0")),
    _make_shader_register("PERFCOUNT_ENABLE", 0x20B, parse_bit_table("PERFCOUNT_ENABLE 0")),
    _make_shader_register("PGM_LO", 0x20C),
    _make_shader_register("PGM_HI", 0x20D, _HIGH8),
    _make_shader_register("DISPATCH_PKT_ADDR_LO", 0x20E),
    _make_shader_register("DISPATCH_PKT_ADDR_HI", 0x20F, _HIGH8),
    _make_shader_register("DISPATCH_SCRATCH_BASE_LO", 0x210),
    _make_shader_register("DISPATCH_SCRATCH_BASE_HI", 0x211, _HIGH8),
    *_make_per_generation("PGM_RSRC1", 0x212, PGM_RSRC1),
    *_make_per_generation("PGM_RSRC2", 0x213, PGM_RSRC2),
    _make_shader_register("VMID", 0x214, parse_bit_table("DATA 3:0"), privileged=True),
    _make_shader_register("RESOURCE_LIMITS", 0x215, _LIMITS),
    _make_shader_register("STATIC_THREAD_MGMT_SE0", 0x216, _MASKS),
    _make_shader_register("STATIC_THREAD_MGMT_SE1", 0x217, _MASKS),
    *_make_per_generation("TMPRING_SIZE", 0x218, TMPRING_SIZE),
    _make_shader_register("STATIC_THREAD_MGMT_SE2", 0x219, _MASKS),
    _make_shader_register("STATIC_THREAD_MGMT_SE3", 0x21A, _MASKS),
    *(_make_shader_register(f"RESTART_{axis}", 0x21B + index) for index, axis in enumerate("XYZ")),
    _make_shader_register("THREAD_TRACE_ENABLE", 0x21E, parse_bit_table("THREAD_TRACE_ENABLE 0")),
    _make_shader_register("MISC_RESERVED", 0x21F, parse_bit_table("SEND_SEID 2:0, WAVE_ID_BASE 16:5"), GFX11),
    _make_shader_register("MISC_RESERVED", 0x21F, parse_bit_table("SEND_SEID 3:0, WAVE_ID_BASE 16:5"), GFX12),
    _make_shader_register("DISPATCH_ID", 0x220),
    _make_shader_register("THREADGROUP_ID", 0x221),
    _make_shader_register("REQ_CTRL", 0x222, _REQUESTS),
    _make_shader_register("STATIC_THREAD_MGMT_SE8", 0x223, _MASKS, GFX12),
    *(
        _make_shader_register(f"USER_ACCUM_{index}", 0x224 + index, parse_bit_table("CONTRIBUTION 6:0"))
        for index in range(4)
    ),
    *_make_per_generation("PGM_RSRC3", 0x228, PGM_RSRC3),
    _make_shader_register("DDID_INDEX", 0x229, parse_bit_table("INDEX 10:0")),
    _make_shader_register("SHADER_CHKSUM", 0x22A),
    *(_make_shader_register(f"STATIC_THREAD_MGMT_SE{4 + index}", 0x22B + index, _MASKS) for index in range(4)),
    _make_shader_register("DISPATCH_INTERLEAVE", 0x22F, parse_bit_table("INTERLEAVE 9:0"), GFX11),
    _make_shader_register(
        "DISPATCH_INTERLEAVE",
        0x22F,
        parse_bit_table("INTERLEAVE_1D 9:0, INTERLEAVE_2D_X_SIZE 19:16, INTERLEAVE_2D_Y_SIZE 27:24"),
        GFX12,
    ),
    _make_shader_register(
        "RELAUNCH", 0x230, parse_bit_table("PAYLOAD 29:0, IS_EVENT 30, IS_STATE 31"), privileged=True
    ),
    _make_shader_register("WAVE_RESTORE_ADDR_LO", 0x231, privileged=True),
    _make_shader_register("WAVE_RESTORE_ADDR_HI", 0x232, parse_bit_table("ADDR 15:0"), privileged=True),
    _make_shader_register(
        "RELAUNCH2", 0x233, parse_bit_table("PAYLOAD 29:0, IS_EVENT 30, IS_STATE 31"), privileged=True
    ),
    *(
        _make_shader_register(f"PRESCALED_DIM_{axis}", 0x235 + index, (), GFX12)
        for index, axis in enumerate("XYZ")
    ),
    *(_make_shader_register(f"USER_DATA_{index}", 0x240 + index) for index in range(USER_DATA_COUNT)),
    _make_shader_register("DISPATCH_TUNNEL", 0x27D, parse_bit_table("OFF_DELAY 9:0, IMMEDIATE 10"), GFX11),
    _make_shader_register("DISPATCH_TUNNEL", 0x27D, parse_bit_table("OFF_DELAY 12:0"), GFX12),
    *(Register(f"SCRATCH_REG{index}", 0xC040 + index) for index in range(8)),
    Register(
        "GRBM_GFX_INDEX",
        0xC200,
        parse_bit_table(
            "INSTANCE_INDEX 6:0, SA_INDEX 9:8, SE_INDEX 19:16, SA_BROADCAST_WRITES 29, "
            "INSTANCE_BROADCAST_WRITES 30, SE_BROADCAST_WRITES 31"
        ),
        GFX12,
    ),
    Register("GRBM_GFX_INDEX", 0xC200, (), GFX11),
    *(Register(f"SQ_THREAD_TRACE_USERDATA_{index}", 0xC340 + index) for index in range(8)),
    Register("TA_CS_BC_BASE_ADDR", 0xC380),  # border colors of compute shaders
    Register("TA_CS_BC_BASE_ADDR_HI", 0xC381, parse_bit_table("ADDRESS 7:0")),
    Register("CP_PERFMON_CNTL", 0xD808),
)

BY_ADDRESS: Mapping[Generation, Mapping[int, Register]] = {
    g: {register.address: register for register in REGISTERS if g in register.on} for g in BOTH
}


def register_at(address: int, generation: Generation) -> Register | None:
    """Return the register at an absolute dword address, or None if it has no name here."""
    return BY_ADDRESS[generation].get(address)


def register_name(address: int, generation: Generation) -> str:
    """Return the register's name, or `SH+0x2ff`, `UCONFIG+0x10`, `register 0x1234`."""
    register = register_at(address, generation)
    if register is not None:
        return register.name
    for space in (SH, UCONFIG, CONFIG):
        if space.base <= address < space.end:
            return f"{space.name}+{address - space.base:#x}"
    return f"register {address:#x}"
