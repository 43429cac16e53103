#include "gpu.h"
KERNEL byte_shuffles(u32 *out, const u32 *a, const u32 *b) {
  u32 i = group() * 32 + thread(), x = a[i], y = b[i];
  out[4 * i] = __builtin_amdgcn_perm(x, y, 0x01060c05);
  out[4 * i + 1] = __builtin_amdgcn_alignbyte(x, y, i);
  out[4 * i + 2] = __builtin_amdgcn_alignbit(x, y, i);
  out[4 * i + 3] = __builtin_amdgcn_sad_u8(x, y, i) + __builtin_amdgcn_ubfe(x, i & 15, 9) - __builtin_amdgcn_sbfe(y, 4, 7);
}
