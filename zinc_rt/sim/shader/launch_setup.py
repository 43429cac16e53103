"""The parameters of a launch except code and memory, decoded from a dispatch's registers."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.isa.wave_rules import RULES, WaveRules
from zinc_rt.sim.shader.layout import (
    DX10_CLAMP,
    FP16_OVFL,
    IEEE,
    NULL,
    VGPR_BLOCK,
    VGPR_BLOCKS,
    VGPR_LIMIT,
)
from zinc_rt.sim.shader_engine import ShaderDispatch
from zinc_rt.sim.tables.registers import PGM_RSRC1, PGM_RSRC2, PGM_RSRC3, TMPRING_SIZE

FLOAT_MODE = 0xF0  # round to nearest even, denormals kept
RSRC1_FP16_OVFL = 1 << 26
# of gfx11: the bit in RSRC1, the bit in MODE
_IEEE_MODE = ((1 << 21, DX10_CLAMP), (1 << 23, IEEE))
LDS_GRANULE_BYTES = 512  # RSRC2.LDS_SIZE counts these; the hardware allocates twice as much at a time
LDS_LIMIT_BYTES = 65536
VGPR_UNIT = {32: 8, 64: 4}  # RSRC1.VGPRS counts these, less one; gfx1201 allocates more (24, 12): not relied on
USER_SGPRS = 16
WGP_MODE = 1 << 29  # in RSRC1
DYNAMIC_VGPR = 1 << 6  # in RSRC2
SHARED_VGPRS = 0xF  # in RSRC3 of gfx11
SCRATCH_UNIT_BYTES = 256
SGPR_LIMIT = 106

Triple = tuple[int, int, int]


class Refused(Exception):
    """Raised if the registers request something unsupported or invalid. `rule` is the rule of the finding."""

    def __init__(self, rule: str, sentence: str) -> None:
        super().__init__(sentence)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class LaunchSetup:
    """The parameters of a launch except code and memory.

    `vgprs` is per wave; `scratch_bytes` is per lane. `id_sgprs`: the SGPRs of the workgroup ids x, y and z and of
    the position in the workgroup, NULL if not enabled; None if the ids are in ttmp7 and ttmp9.
    """

    groups: Triple
    group_threads: Triple
    last_threads: Triple
    wave: int
    user_data: tuple[int, ...] = ()
    start: Triple = (0, 0, 0)
    vgprs: int = VGPR_LIMIT
    sgprs: int = SGPR_LIMIT
    lds_bytes: int = 0
    scratch_bytes: int = 0
    mode: int = FLOAT_MODE
    ids_enabled: Triple = (1, 1, 1)  # 0: that axis of the workgroup id comes out as 0
    id_axes: int = 3  # axes of the work-item id in v0; the others come out as 0
    dynamic_vgprs: bool = False  # a wave starts with one block; `vgprs` is its maximum
    wgp_mode: bool = False  # a workgroup's waves are on both compute units of its processor
    id_sgprs: tuple[int, ...] | None = None
    places: tuple[int, ...] = (0,)  # HW_ID1 of the workgroup processors that take its workgroups

    @property
    def entry_sgprs(self) -> int:
        """The number of SGPRs, from s0, that are initialised at the entry."""
        ids = [register + 1 for register in self.id_sgprs or () if register != NULL]
        return max([len(self.user_data), *ids])

    @property
    def waves_per_group(self) -> int:
        x, y, z = self.group_threads
        return -(-(x * y * z) // self.wave)

    @property
    def group_count(self) -> int:
        x, y, z = self.groups
        return x * y * z


def setup_of_registers(
    rsrc1: int, rsrc2: int, threads: Triple, *, wave32: bool, rules: WaveRules = RULES[12]
) -> LaunchSetup:
    """Decode the parameters of one workgroup that affect code generation. Raises Refused."""
    wave = 32 if wave32 else 64
    dynamic = rules.has_dynamic_vgprs and bool(rsrc2 & DYNAMIC_VGPR)
    mode, vgprs = _mode(rsrc1, rules), _vgprs(rsrc1, wave, dynamic=dynamic)
    user_sgprs = rsrc2 >> 1 & 0x1F
    return LaunchSetup(
        (1, 1, 1), threads, threads, wave, (0,) * user_sgprs, vgprs=vgprs, mode=mode, dynamic_vgprs=dynamic,
        id_sgprs=None if rules.ids_in_ttmp else place_ids(user_sgprs, rsrc2 >> 7),
    )  # fmt: skip


def place_ids(user_sgprs: int, enabled: int) -> tuple[int, ...]:
    """Return LaunchSetup.id_sgprs of gfx11: the ids follow the user data without gaps (RDNA3 3.5.3.4). Bits 3:0 of
    `enabled` are RSRC2.TGID_X_EN to TG_SIZE_EN.
    """
    result, register = [], user_sgprs
    for bit in range(4):
        result.append(register if enabled >> bit & 1 else NULL)
        register += enabled >> bit & 1
    return tuple(result)


def _mode(rsrc1: int, rules: WaveRules) -> int:
    """Return the initial MODE of a wave: FLOAT_MODE, FP16_OVFL and, on gfx11, DX10_CLAMP and IEEE."""
    mode = rsrc1 >> 12 & 0xFF | (FP16_OVFL if rsrc1 & RSRC1_FP16_OVFL else 0)
    if rules.has_ieee_mode:
        mode |= sum(bit for enabled, bit in _IEEE_MODE if rsrc1 & enabled)
    return mode


def _vgprs(rsrc1: int, wave: int, *, dynamic: bool) -> int:
    """Return the VGPR count of a wave. Raises Refused."""
    if not dynamic:
        return min(((rsrc1 & 0x3F) + 1) * VGPR_UNIT[wave], VGPR_LIMIT)
    if wave != 32:
        raise Refused("dynamic-vgprs", "RSRC2.DYNAMIC_VGPR is set for wave64: only wave32 has dynamic VGPRs")
    return VGPR_BLOCK * VGPR_BLOCKS


def setup_of_dispatch(dispatch: ShaderDispatch) -> LaunchSetup:
    """Decode the launch parameters of a dispatch. Raises Refused."""
    rules = RULES[dispatch.generation]
    rsrc1, rsrc2 = dispatch.register(PGM_RSRC1), dispatch.register(PGM_RSRC2)
    wave = 32 if dispatch.wave32 else 64
    dynamic = rules.has_dynamic_vgprs and bool(rsrc2 & DYNAMIC_VGPR)
    vgprs = _vgprs(rsrc1, wave, dynamic=dynamic)
    mode = _mode(rsrc1, rules)
    if not rules.has_dynamic_vgprs and dispatch.register(PGM_RSRC3) & SHARED_VGPRS:
        raise Refused(
            "not-simulated", "RSRC3.SHARED_VGPR_CNT is not 0: shared VGPRs are not simulated, no wave ran"
        )
    user_sgprs = rsrc2 >> 1 & 0x1F
    if user_sgprs > USER_SGPRS:
        raise Refused(
            "user-sgprs", f"RSRC2.USER_SGPR is {user_sgprs}, but there are {USER_SGPRS} user data registers"
        )
    lds_bytes = (rsrc2 >> 15 & 0x1FF) * LDS_GRANULE_BYTES
    if lds_bytes > LDS_LIMIT_BYTES:
        raise Refused(
            "lds-size", f"RSRC2.LDS_SIZE requests {lds_bytes} bytes, but a workgroup has at most {LDS_LIMIT_BYTES}"
        )
    scratch = dispatch.register(TMPRING_SIZE) if rsrc2 & 1 else 0
    scratch_bytes = (scratch >> 12 & (1 << rules.scratch_size_bits) - 1) * SCRATCH_UNIT_BYTES
    if rsrc2 & 1 and not (scratch & 0xFFF and dispatch.scratch_va):
        raise Refused(
            "scratch-size",
            f"RSRC2.SCRATCH_EN is set, TMPRING_SIZE is {scratch:#x}, the scratch base "
            f"0x{dispatch.scratch_va:x}: no wave has room",
        )
    return LaunchSetup(
        dispatch.groups,
        dispatch.group_threads,
        dispatch.last_threads,
        wave,
        dispatch.user_data[:user_sgprs],
        dispatch.start,
        vgprs,
        SGPR_LIMIT,
        lds_bytes,
        scratch_bytes // wave,
        mode,
        id_axes=min((rsrc2 >> 11 & 3) + 1, 3),  # TIDIG_COMP_CNT
        dynamic_vgprs=dynamic,
        wgp_mode=bool(rsrc1 & WGP_MODE),
        id_sgprs=None if rules.ids_in_ttmp else place_ids(user_sgprs, rsrc2 >> 7),
    )
