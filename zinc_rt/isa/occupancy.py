"""Occupancy: the number of concurrent waves on a SIMD of an RDNA4 chip.

LLVM's AMDGPU back-end, features of gfx1200 and gfx1201 (Feature1_5xVGPRs): 1536 vector registers per lane in
wave32, allocated in units of 24; half of both in wave64. At most 16 waves.
"""

from __future__ import annotations

WAVES_MAXIMUM = 16
_REGISTERS = {32: 1536, 64: 768}
_GRANULE = {32: 24, 64: 12}


def count_allocated_vgprs(vgprs: int, wave: int = 32) -> int:
    """Return the VGPRs that hardware allocates to a wave that declares `vgprs`."""
    granule = _GRANULE[wave]
    return max(1, -(-vgprs // granule)) * granule


def count_waves_per_simd(vgprs: int, wave: int = 32) -> int:
    """Return the number of waves per SIMD, 1 to 16, as limited by vector registers."""
    return min(WAVES_MAXIMUM, _REGISTERS[wave] // count_allocated_vgprs(vgprs, wave))


# A workgroup processor: two compute units, four SIMDs, LDS of both (RDNA4 ISA guide, chapter 3).
_LDS_BYTES, _SIMDS, _LDS_GRANULE = 2 * 65536, 4, 512


def count_waves_by_lds(lds_bytes: int, threads: int, wave: int = 32) -> int:
    """Return the number of waves per SIMD as limited by LDS, for workgroups of `threads` with `lds_bytes` each."""
    groups = _LDS_BYTES // (-(-max(1, lds_bytes) // _LDS_GRANULE) * _LDS_GRANULE)
    return max(1, min(WAVES_MAXIMUM, groups * -(-threads // wave) // _SIMDS))
