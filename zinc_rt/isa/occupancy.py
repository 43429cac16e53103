"""Occupancy: the number of concurrent waves on a SIMD.

LLVM's AMDGPU back-end: chips with Feature1_5xVGPRs, among them gfx1200 and gfx1201, have 1536 vector registers
per lane in wave32, allocated in units of 24; the others of gfx11 have 1024, in units of 16. Half of both in
wave64. At most 16 waves.
"""

from __future__ import annotations

WAVES_MAXIMUM = 16
VGPRS_PER_SIMD = 1536  # in wave32
_UNITS = 64  # of allocation in a SIMD


def count_allocated_vgprs(vgprs: int, wave: int = 32, *, simd_vgprs: int = VGPRS_PER_SIMD) -> int:
    """Return the VGPRs that hardware allocates to a wave that declares `vgprs`."""
    granule = simd_vgprs // _UNITS * 32 // wave
    return max(1, -(-vgprs // granule)) * granule


def count_waves_per_simd(vgprs: int, wave: int = 32, *, simd_vgprs: int = VGPRS_PER_SIMD) -> int:
    """Return the number of waves per SIMD, 1 to 16, as limited by vector registers. `simd_vgprs`: those of a
    SIMD, per lane in wave32 (Target.simd_vgprs).
    """
    allocated = count_allocated_vgprs(vgprs, wave, simd_vgprs=simd_vgprs)
    return min(WAVES_MAXIMUM, simd_vgprs * 32 // wave // allocated)


# A workgroup processor: two compute units, four SIMDs, LDS of both (RDNA4 ISA guide, chapter 3).
_LDS_BYTES, _SIMDS, _LDS_GRANULE = 2 * 65536, 4, 512


def count_waves_by_lds(lds_bytes: int, threads: int, wave: int = 32) -> int:
    """Return the number of waves per SIMD as limited by LDS, for workgroups of `threads` with `lds_bytes` each."""
    groups = _LDS_BYTES // (-(-max(1, lds_bytes) // _LDS_GRANULE) * _LDS_GRANULE)
    return max(1, min(WAVES_MAXIMUM, groups * -(-threads // wave) // _SIMDS))
