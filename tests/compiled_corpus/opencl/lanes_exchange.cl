#include "gpu.h"
/* Sub-group traffic: bpermute, ballot, readfirstlane, mbcnt, DPP. */
kernel SIZED(64) void lanes_exchange(global uint *out, global const uint *in) {
  uint i = GROUP * 64 + ID, x = in[i];
  uint lane = __builtin_amdgcn_mbcnt_lo(~0u, 0);
#if WAVE == 64
  lane = __builtin_amdgcn_mbcnt_hi(~0u, lane);
#endif
  uint row = lane & ~15u;
  uint other = __builtin_amdgcn_ds_bpermute((int)(row + (lane * 5 & 15)) * 4, (int)x);
  uint next = __builtin_amdgcn_update_dpp(0, (int)x, 0x101, 0xf, 0xf, true); /* row_shl:1 */
  out[i] = other * 3 + next + (x & 1 ? 100 : 0);
}
