#include "gpu.h"
KERNEL wave_ops64(u64 *out, const u32 *in) {
  u32 i = thread(), x = in[i];
  u64 odd = __builtin_amdgcn_ballot_w64(x & 1);
  u32 before = __builtin_amdgcn_mbcnt_hi(odd >> 32, __builtin_amdgcn_mbcnt_lo(odd, 0));
  u32 swapped = __builtin_amdgcn_ds_bpermute((63 - i) * 4, x);
  u64 *to = out + i * 4;
  to[0] = odd, to[1] = before, to[2] = swapped, to[3] = __builtin_amdgcn_permlane64(x);
}
