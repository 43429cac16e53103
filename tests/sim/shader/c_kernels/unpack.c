#include "gpu.h"
/* LZ-style: literals and copies from what was written before, a stream a thread. */
KERNEL unpack(u8 *out, const u8 *in, const u32 *starts, u32 room) {
  u32 i = thread(), at = starts[i], end = starts[i + 1], n = 0;
  u8 *to = out + i * room;
  while (at < end) {
    u32 head = in[at++], count = (head & 15) + 1, back = head >> 4;
    if (!back)
      for (u32 k = 0; k < count; k++) to[n++] = in[at++];
    else
      for (u32 k = 0; k < count; k++, n++) to[n] = to[n - back];
  }
}
