#include "gpu.h"
/* Code points of UTF-8; every thread whose byte starts one writes it. */
KERNEL utf8(u32 *out, const u8 *in, u32 n) {
  u32 i = group() * 64 + thread();
  if (i >= n) return;
  u32 head = in[i], point = 0xffffffff;
  if (head < 0x80) point = head;
  else if (head >= 0xc0) {
    u32 more = head >= 0xf0 ? 3 : head >= 0xe0 ? 2 : 1;
    point = head & 0x3f >> more;
    for (u32 k = 1; k <= more; k++) point = point << 6 | (in[i + k] & 63);
  }
  out[i] = point;
}
