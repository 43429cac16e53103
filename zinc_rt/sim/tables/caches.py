"""Cache operations: GCR_CNTL of ACQUIRE_MEM, and the 13 bits of it in RELEASE_MEM.

Sources: PAL gfx12CmdUtil.cpp (unions AcquireMemGcrCntl and ReleaseMemGcrCntl), for gfx11 the kernel's nvd.h
(PACKET3_ACQUIRE_MEM_GCR_CNTL_*, PACKET3_RELEASE_MEM_GCR_*). gfx12 has no GL1 and no metadata cache: their bits are
reserved there.
"""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.pm4.generation import Generation

ACQUIRE_GLI = 0x3  # bits [1:0]: instruction caches
ACQUIRE_GLK_INV, ACQUIRE_GLV_INV, ACQUIRE_GL1_INV = 1 << 7, 1 << 8, 1 << 9
ACQUIRE_GL2_DISCARD, ACQUIRE_GL2_INV, ACQUIRE_GL2_WB = 1 << 13, 1 << 14, 1 << 15
# named bits; gfx12 also accepts those of gfx11's GL1 and GLM
ACQUIRE_BITS: Mapping[Generation, int] = {Generation.GFX11: 0x7FFFF, Generation.GFX12: 0x7FDCF}

RELEASE_GLV_INV, RELEASE_GL1_INV = 1 << 2, 1 << 3
RELEASE_GL2_DISCARD, RELEASE_GL2_INV, RELEASE_GL2_WB = 1 << 7, 1 << 8, 1 << 9
RELEASE_BITS: Mapping[Generation, int] = {Generation.GFX11: 0x1FFF, Generation.GFX12: 0x1FF4}
