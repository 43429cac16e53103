"""Registers accessible to a compute queue: dword addresses, bits that belong to a field, write permissions.

Sources: PAL (GPUOpen-Drivers/pal, c5e80007 of April 2025) gfx12_merged_offset.h and gfx12_merged_registers.h, for
gfx11 gfx9_plus_merged_offset.h and gfx9_plus_merged_registers.h; registers missing in PAL's gfx11 lists
(SCRATCH_REG0 to 7, the new address of COMPUTE_RELAUNCH and its neighbours) from the kernel's gc_11_0_0_offset.h.
Bases of the SET packets: PERSISTENT_SPACE_START, UCONFIG_SPACE_START and CONFIG_SPACE_START of
gfx12_merged_enum.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zinc_rt.pm4.generation import Generation


@dataclass(frozen=True, slots=True)
class RegisterSpace:
    """Registers [base, end) that one SET packet reaches, as absolute dword addresses."""

    name: str
    base: int
    end: int


SH = RegisterSpace("SH", 0x2C00, 0x3000)
UCONFIG = RegisterSpace("UCONFIG", 0xC000, 0x10000)
CONFIG = RegisterSpace("CONFIG", 0x2000, 0x2C00)  # privileged on these chips

# Offsets from SH's base that the device itself reads
DISPATCH_INITIATOR = 0x200
START_X = 0x204
NUM_THREAD_X = 0x207
PGM_LO, PGM_HI = 0x20C, 0x20D
SCRATCH_BASE_LO, SCRATCH_BASE_HI = 0x210, 0x211
PGM_RSRC1, PGM_RSRC2, PGM_RSRC3 = 0x212, 0x213, 0x228
TMPRING_SIZE = 0x218
USER_DATA_0 = 0x240
USER_DATA_COUNT = 16
CU_MASKS = (0x216, 0x217, 0x219, 0x21A, 0x22B, 0x22C, 0x22D, 0x22E, 0x223)  # STATIC_THREAD_MGMT_SE0 to SE8


@dataclass(frozen=True, slots=True)
class RegisterRow:
    """`bits`: those with a field, by generation; a generation without the register has no entry."""

    name: str
    address: int
    bits: Mapping[Generation, int]
    privileged: bool


# address, name, bits on gfx12, bits on gfx11
_TABLE = """
0x2e00 COMPUTE_DISPATCH_INITIATOR           0xe00ffc7f 0x0003ec7f
0x2e01 COMPUTE_DIM_X                        0xffffffff 0xffffffff
0x2e02 COMPUTE_DIM_Y                        0xffffffff 0xffffffff
0x2e03 COMPUTE_DIM_Z                        0xffffffff 0xffffffff
0x2e04 COMPUTE_START_X                      0xffffffff 0xffffffff
0x2e05 COMPUTE_START_Y                      0xffffffff 0xffffffff
0x2e06 COMPUTE_START_Z                      0xffffffff 0xffffffff
0x2e07 COMPUTE_NUM_THREAD_X                 0xffffffff 0xffffffff
0x2e08 COMPUTE_NUM_THREAD_Y                 0xffffffff 0xffffffff
0x2e09 COMPUTE_NUM_THREAD_Z                 0xffffffff 0xffffffff
0x2e0a COMPUTE_PIPELINESTAT_ENABLE          0x00000001 0x00000001
0x2e0b COMPUTE_PERFCOUNT_ENABLE             0x00000001 0x00000001
0x2e0c COMPUTE_PGM_LO                       0xffffffff 0xffffffff
0x2e0d COMPUTE_PGM_HI                       0x000000ff 0x000000ff
0x2e0e COMPUTE_DISPATCH_PKT_ADDR_LO         0xffffffff 0xffffffff
0x2e0f COMPUTE_DISPATCH_PKT_ADDR_HI         0x000000ff 0x000000ff
0x2e10 COMPUTE_DISPATCH_SCRATCH_BASE_LO     0xffffffff 0xffffffff
0x2e11 COMPUTE_DISPATCH_SCRATCH_BASE_HI     0x000000ff 0x000000ff
0x2e12 COMPUTE_PGM_RSRC1                    0xe7ffffff 0xe7ffffff
0x2e13 COMPUTE_PGM_RSRC2                    0xffffffff 0x7fffffff
0x2e14 COMPUTE_VMID                         0x0000000f 0x0000000f privileged
0x2e15 COMPUTE_RESOURCE_LIMITS              0x07fff3ff 0x07fff3ff
0x2e16 COMPUTE_STATIC_THREAD_MGMT_SE0       0xffffffff 0xffffffff
0x2e17 COMPUTE_STATIC_THREAD_MGMT_SE1       0xffffffff 0xffffffff
0x2e18 COMPUTE_TMPRING_SIZE                 0x3fffffff 0x07ffffff
0x2e19 COMPUTE_STATIC_THREAD_MGMT_SE2       0xffffffff 0xffffffff
0x2e1a COMPUTE_STATIC_THREAD_MGMT_SE3       0xffffffff 0xffffffff
0x2e1b COMPUTE_RESTART_X                    0xffffffff 0xffffffff
0x2e1c COMPUTE_RESTART_Y                    0xffffffff 0xffffffff
0x2e1d COMPUTE_RESTART_Z                    0xffffffff 0xffffffff
0x2e1e COMPUTE_THREAD_TRACE_ENABLE          0x00000001 0x00000001
0x2e1f COMPUTE_MISC_RESERVED                0x0001ffef 0x0001ffe7
0x2e20 COMPUTE_DISPATCH_ID                  0xffffffff 0xffffffff
0x2e21 COMPUTE_THREADGROUP_ID               0xffffffff 0xffffffff
0x2e22 COMPUTE_REQ_CTRL                     0x07ffffff 0x07ffffff
0x2e23 COMPUTE_STATIC_THREAD_MGMT_SE8       0xffffffff          -
0x2e24 COMPUTE_USER_ACCUM_0                 0x0000007f 0x0000007f
0x2e25 COMPUTE_USER_ACCUM_1                 0x0000007f 0x0000007f
0x2e26 COMPUTE_USER_ACCUM_2                 0x0000007f 0x0000007f
0x2e27 COMPUTE_USER_ACCUM_3                 0x0000007f 0x0000007f
0x2e28 COMPUTE_PGM_RSRC3                    0x80002fff 0x80000fff
0x2e29 COMPUTE_DDID_INDEX                   0x000007ff 0x000007ff
0x2e2a COMPUTE_SHADER_CHKSUM                0xffffffff 0xffffffff
0x2e2b COMPUTE_STATIC_THREAD_MGMT_SE4       0xffffffff 0xffffffff
0x2e2c COMPUTE_STATIC_THREAD_MGMT_SE5       0xffffffff 0xffffffff
0x2e2d COMPUTE_STATIC_THREAD_MGMT_SE6       0xffffffff 0xffffffff
0x2e2e COMPUTE_STATIC_THREAD_MGMT_SE7       0xffffffff 0xffffffff
0x2e2f COMPUTE_DISPATCH_INTERLEAVE          0x0f0f03ff 0x000003ff
0x2e30 COMPUTE_RELAUNCH                     0xffffffff 0xffffffff privileged
0x2e31 COMPUTE_WAVE_RESTORE_ADDR_LO         0xffffffff 0xffffffff privileged
0x2e32 COMPUTE_WAVE_RESTORE_ADDR_HI         0x0000ffff 0x0000ffff privileged
0x2e33 COMPUTE_RELAUNCH2                    0xffffffff 0xffffffff privileged
0x2e35 COMPUTE_PRESCALED_DIM_X              0xffffffff          -
0x2e36 COMPUTE_PRESCALED_DIM_Y              0xffffffff          -
0x2e37 COMPUTE_PRESCALED_DIM_Z              0xffffffff          -
0x2e40 COMPUTE_USER_DATA_0                  0xffffffff 0xffffffff
0x2e41 COMPUTE_USER_DATA_1                  0xffffffff 0xffffffff
0x2e42 COMPUTE_USER_DATA_2                  0xffffffff 0xffffffff
0x2e43 COMPUTE_USER_DATA_3                  0xffffffff 0xffffffff
0x2e44 COMPUTE_USER_DATA_4                  0xffffffff 0xffffffff
0x2e45 COMPUTE_USER_DATA_5                  0xffffffff 0xffffffff
0x2e46 COMPUTE_USER_DATA_6                  0xffffffff 0xffffffff
0x2e47 COMPUTE_USER_DATA_7                  0xffffffff 0xffffffff
0x2e48 COMPUTE_USER_DATA_8                  0xffffffff 0xffffffff
0x2e49 COMPUTE_USER_DATA_9                  0xffffffff 0xffffffff
0x2e4a COMPUTE_USER_DATA_10                 0xffffffff 0xffffffff
0x2e4b COMPUTE_USER_DATA_11                 0xffffffff 0xffffffff
0x2e4c COMPUTE_USER_DATA_12                 0xffffffff 0xffffffff
0x2e4d COMPUTE_USER_DATA_13                 0xffffffff 0xffffffff
0x2e4e COMPUTE_USER_DATA_14                 0xffffffff 0xffffffff
0x2e4f COMPUTE_USER_DATA_15                 0xffffffff 0xffffffff
0x2e7d COMPUTE_DISPATCH_TUNNEL              0x00001fff 0x000007ff
0xc040 SCRATCH_REG0                         0xffffffff 0xffffffff
0xc041 SCRATCH_REG1                         0xffffffff 0xffffffff
0xc042 SCRATCH_REG2                         0xffffffff 0xffffffff
0xc043 SCRATCH_REG3                         0xffffffff 0xffffffff
0xc044 SCRATCH_REG4                         0xffffffff 0xffffffff
0xc045 SCRATCH_REG5                         0xffffffff 0xffffffff
0xc046 SCRATCH_REG6                         0xffffffff 0xffffffff
0xc047 SCRATCH_REG7                         0xffffffff 0xffffffff
0xc200 GRBM_GFX_INDEX                       0xe00f037f 0xe0ffffff
0xc340 SQ_THREAD_TRACE_USERDATA_0           0xffffffff 0xffffffff
0xc341 SQ_THREAD_TRACE_USERDATA_1           0xffffffff 0xffffffff
0xc342 SQ_THREAD_TRACE_USERDATA_2           0xffffffff 0xffffffff
0xc343 SQ_THREAD_TRACE_USERDATA_3           0xffffffff 0xffffffff
0xc344 SQ_THREAD_TRACE_USERDATA_4           0xffffffff 0xffffffff
0xc345 SQ_THREAD_TRACE_USERDATA_5           0xffffffff 0xffffffff
0xc346 SQ_THREAD_TRACE_USERDATA_6           0xffffffff 0xffffffff
0xc347 SQ_THREAD_TRACE_USERDATA_7           0xffffffff 0xffffffff
0xc380 TA_CS_BC_BASE_ADDR                   0xffffffff 0xffffffff
0xc381 TA_CS_BC_BASE_ADDR_HI                0x000000ff 0x000000ff
0xd808 CP_PERFMON_CNTL                      0x000007ff 0x000007ff
"""


def _parse_rows(text: str) -> dict[int, RegisterRow]:
    result = {}
    for line in text.split("\n"):
        if line:
            address, name, gfx12, gfx11, *privileged = line.split()
            pairs = ((Generation.GFX12, gfx12), (Generation.GFX11, gfx11))
            bits = {generation: int(mask, 0) for generation, mask in pairs if mask != "-"}
            result[int(address, 0)] = RegisterRow(name, int(address, 0), bits, bool(privileged))
    return result


BY_ADDRESS: Mapping[int, RegisterRow] = _parse_rows(_TABLE)


def find_register(address: int, generation: Generation) -> RegisterRow | None:
    result = BY_ADDRESS.get(address)
    return result if result is not None and generation in result.bits else None


def format_register(address: int, generation: Generation) -> str:
    """Return the name, or `SH+0x2ff`, `UCONFIG+0x10`, `register 0x1234`."""
    register = find_register(address, generation)
    if register is not None:
        return register.name
    for space in (SH, UCONFIG, CONFIG):
        if space.base <= address < space.end:
            return f"{space.name}+{address - space.base:#x}"
    return f"register {address:#x}"
