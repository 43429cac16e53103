#include "gpu.h"
/* ballot, lane counts, shuffles and DPP of one wave32. */
KERNEL wave_ops(u32 *out, const u32 *in) {
  u32 i = thread(), x = in[i];
  u32 odd = __builtin_amdgcn_ballot_w32(x & 1);
  u32 before = __builtin_amdgcn_mbcnt_lo(odd, 0);
  u32 first = __builtin_amdgcn_readfirstlane(x);
  u32 mirrored = __builtin_amdgcn_ds_bpermute((31 - i) * 4, x);
  u32 sum = x;
  sum += __builtin_amdgcn_update_dpp(0, sum, 0x111, 0xf, 0xf, 1);
  sum += __builtin_amdgcn_update_dpp(0, sum, 0x112, 0xf, 0xf, 1);
  sum += __builtin_amdgcn_update_dpp(0, sum, 0x114, 0xf, 0xf, 1);
  sum += __builtin_amdgcn_update_dpp(0, sum, 0x118, 0xf, 0xf, 1);
  u32 lane5 = __builtin_amdgcn_readlane(x, 5);
  u32 crossed = __builtin_amdgcn_permlanex16(x, x, 0x76543210, 0xfedcba98, 0, 0);
  u32 *to = out + i * 8;
  to[0] = odd, to[1] = before, to[2] = first, to[3] = mirrored, to[4] = sum, to[5] = lane5, to[6] = crossed;
  to[7] = __builtin_amdgcn_ds_swizzle(x, 0x041f);
}
