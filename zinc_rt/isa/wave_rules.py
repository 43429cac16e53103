"""How waves of gfx11 differ from those of gfx12 outside of opcodes and encodings: one field per difference.

Code asks `Target.rules` for a property and does not compare generations. Sources: the RDNA3 (February 2023),
RDNA3.5 and RDNA4 (April 2025) ISA guides by section, and LLVM's AMDGPU back end by file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

# The counters are named as on gfx12, whose counters are split; gfx11 sums several of them in one (RDNA3 5.6).
_GFX12_WAITS: Mapping[str, str] = {
    name: f"s_wait_{name} {{}}"
    for name in ("loadcnt", "storecnt", "dscnt", "kmcnt", "samplecnt", "bvhcnt", "expcnt")
}
_GFX11_WAITS: Mapping[str, str] = {
    "loadcnt": "s_waitcnt vmcnt({})",
    "storecnt": "s_waitcnt_vscnt null, {}",
    "dscnt": "s_waitcnt lgkmcnt({})",
    "kmcnt": "s_waitcnt lgkmcnt({})",
    "expcnt": "s_waitcnt expcnt({})",
}


@dataclass(frozen=True, slots=True)
class WaveRules:
    """The rules of one generation.

    `ids_in_ttmp`: workgroup ids are in ttmp7 and ttmp9; otherwise in SGPRs after the user data, packed, each axis
    only if it is enabled (RDNA3 3.5.3.4; RDNA4 3.5.6).
    `has_ieee_mode`: MODE has DX10_CLAMP and IEEE (RDNA3 3.4.2). Without DX10_CLAMP, CLAMP keeps a NaN. With IEEE,
    output modifiers have no effect, and a signalling NaN wins a minimum (RDNA3 7.2.3.1, V_MIN_F32).
    `prefetch_bits`: the width of RSRC3.INST_PREF_SIZE, in cache lines of 128 bytes.
    `scratch_size_bits`: the width of TMPRING_SIZE.WAVESIZE, in units of 256 bytes.
    `has_dynamic_vgprs`: RSRC2 bit 6 is DYNAMIC_VGPR; otherwise TRAP_PRESENT.
    `has_scopes`: memory instructions have a scope; otherwise GLC, which makes a load device scope and an atomic
    return, and stores are device scope (RDNA3 4.1.1; LLVM, SIMemoryLegalizer.cpp).
    `has_shader_cycles_high`: hwreg 30 is the upper half of the cycle counter, which has 20 bits otherwise.
    `loads_write_in_order`: vector memory loads write one register in order (LLVM, FeatureVmemWriteVgprInOrder).
    `has_sgpr_read_hazard`: RDNA4 5.7; LLVM applies VALUReadSGPRHazard to gfx12 only.
    `has_trans_use_hazard`, `has_mask_hazards`: the hazards of lint/alu_hazards.py (LLVM, GCNHazardRecognizer.cpp).
    `has_split_barrier`: s_barrier_signal and s_barrier_wait; otherwise s_barrier.
    `has_replicated_matrices`: a WMMA needs A and B once in every 16 lanes; D has rows interleaved (RDNA3 7.9).
    `has_array_caches`: loads that miss go through the GL1 of a shader array, which stores and atomics of its waves
    invalidate (RDNA white paper; RDNA3 4.1.1).
    `invalidations`: what a wave uses for its vector cache, the scalar cache and GL1.
    `waits`: how to wait for a counter, by its name on gfx12.
    """

    ids_in_ttmp: bool
    has_ieee_mode: bool
    prefetch_bits: int
    scratch_size_bits: int
    has_dynamic_vgprs: bool
    has_scopes: bool
    has_shader_cycles_high: bool
    loads_write_in_order: bool
    has_sgpr_read_hazard: bool
    has_trans_use_hazard: bool
    has_mask_hazards: bool
    has_split_barrier: bool
    has_replicated_matrices: bool
    has_array_caches: bool
    invalidations: tuple[str, str, str]
    waits: Mapping[str, str] = field(hash=False)

    def format_wait(self, counter: str, count: int) -> str:
        """Return the instruction that waits until at most `count` operations of a counter are pending."""
        return self.waits[counter].format(count)


_GFX11 = WaveRules(
    ids_in_ttmp=False,
    has_ieee_mode=True,
    prefetch_bits=6,
    scratch_size_bits=15,
    has_dynamic_vgprs=False,
    has_scopes=False,
    has_shader_cycles_high=False,
    loads_write_in_order=True,
    has_sgpr_read_hazard=False,
    has_trans_use_hazard=True,
    has_mask_hazards=True,
    has_split_barrier=False,
    has_replicated_matrices=True,
    has_array_caches=True,
    invalidations=("buffer_gl0_inv", "s_dcache_inv", "buffer_gl1_inv"),
    waits=_GFX11_WAITS,
)

RULES = {
    11.0: _GFX11,
    11.5: replace(_GFX11, has_trans_use_hazard=False),
    12.0: WaveRules(
        ids_in_ttmp=True,
        has_ieee_mode=False,
        prefetch_bits=8,
        scratch_size_bits=18,
        has_dynamic_vgprs=True,
        has_scopes=True,
        has_shader_cycles_high=True,
        loads_write_in_order=False,
        has_sgpr_read_hazard=True,
        has_trans_use_hazard=False,
        has_mask_hazards=False,
        has_split_barrier=True,
        has_replicated_matrices=False,
        has_array_caches=False,
        invalidations=("global_inv scope:SCOPE_DEV (or SE, within a workgroup)", "s_dcache_inv", ""),
        waits=_GFX12_WAITS,
    ),
}
"""By Target.isa."""
