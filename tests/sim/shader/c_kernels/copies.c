#include "gpu.h"
/* Block copies and fills, aligned and not; overlapping moves. */
KERNEL copies(u8 *out, const u8 *in) {
  u32 i = thread();
  u8 *to = out + i * 256;
  const u8 *from = in + i * 64;
  __builtin_memset(to, 0x5a, 256);
  __builtin_memcpy(to + 3, from + 1, 61);
  __builtin_memcpy(to + 64, from, 64);
  __builtin_memmove(to + 70, to + 64, 40);
  *(u64 *)(to + 128) = *(const u64 *)from;
  to[200 + from[0] % 50] = from[63];
}
